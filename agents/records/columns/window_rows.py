"""Which rows of a chunk belong to which open windows, without an object for each row.

What it decides: nothing; the rules are those of `core.windows.spans`. Promises:

- The compiled part and `Spans.assign_open` assign the same rows, and find the same ones late.
- Rows of a window are in the order in which they came.
- A row that does not exist, and a time that no row can have (`TIME_LIMIT`), raise `ValueError`.
"""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

from ....core.windows.spans import Assigned, Spans, assign_ends
from ..memory.limits import TIME_LIMIT
from ..memory.vectors import Buffer, longs
from ..native import compiled_part


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
    if compiled_part.compiled is None:
        return _slowly(times, rows, lambda chosen: spans.assign_open(_in_range(chosen), closed))
    return WindowedRows(*compiled_part.compiled.window_rows(times, rows, spans.size, spans.every, spans.offset, closed))


def rows_of_ends(ends: Buffer, closed: int) -> WindowedRows:
    """Assign partial states of tumbling windows, each to the window with its end."""
    if compiled_part.compiled is None:
        return _slowly(ends, None, lambda chosen: assign_ends(chosen, closed))
    return WindowedRows(*compiled_part.compiled.window_rows(ends, None, 0, 1, 0, closed))


def _in_range(times: list[int]) -> list[int]:
    if min(times) <= -TIME_LIMIT or max(times) >= TIME_LIMIT:
        raise ValueError("no such time")
    return times


def _slowly(times: Buffer, rows: Buffer | None, assign: Any) -> WindowedRows:
    every = longs(times).tolist()
    chosen = list(range(len(every))) if rows is None else longs(rows).tolist()
    if not all(0 <= row < len(every) for row in chosen):
        raise ValueError("no such row")
    found: Assigned = assign([every[row] for row in chosen]) if chosen else Assigned({}, [], 0)

    def of(places: list[int] | None) -> Buffer | None:
        return None if places is None or len(places) == len(chosen) else array("q", [chosen[place] for place in places])

    open_ = [(end, of(places)) for end, places in found.open.items()]
    return WindowedRows(
        open_, array("q", [chosen[place] for place in found.late]) if found.late else None, found.partly
    )
