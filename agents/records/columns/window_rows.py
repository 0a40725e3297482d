"""Which rows of a chunk belong to which open windows, without an object for each row.

What it decides: nothing; the rules are those of `core.windows.spans`. Promises:

- The compiled part and `Spans.assign_open` assign the same rows, and find the same ones late.
- Rows of a window are in the order in which they came.
- A row that does not exist, and a time that no row can have (`TIME_LIMIT`), raise `ValueError`.
"""

from __future__ import annotations

from typing import NamedTuple

from ....core.windows.spans import Spans
from ..layout import Buffer
from ..native import chosen


class WindowedRows(NamedTuple):
    """Rows by window."""

    open: list[tuple[int, Buffer | None]]
    """The end of each open window with its rows; None: all that were given."""
    late: Buffer | None
    """The rows that no open window takes."""
    partly: int
    """How many other rows are missing from some of their windows."""


def rows_of_times(spans: Spans, times: Buffer, rows: Buffer | None, closed: int) -> WindowedRows:
    """Assign these rows (None: all) to the windows that end after `closed`, by the time of each row.

    >>> found = rows_of_times(Spans(10, 10), array("q", [12, 3, 15]), None, 10)
    >>> [(end, longs(rows).tolist()) for end, rows in found.open], longs(found.late).tolist()
    ([(20, [0, 2])], [1])
    """
    return WindowedRows(*chosen.part.window_rows(times, rows, spans.size, spans.every, spans.offset, closed))


def rows_of_ends(ends: Buffer, closed: int) -> WindowedRows:
    """Assign partial states of tumbling windows, each to the window with its end."""
    return WindowedRows(*chosen.part.window_rows(ends, None, 0, 1, 0, closed))
