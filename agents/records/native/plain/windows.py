"""Which rows belong to which windows, and which are pairs: as `window_rows.c`; as `matching.c` is `core.windows.matching`."""

from __future__ import annotations

from array import array
from typing import Any

from .....core.windows.spans import Assigned, Spans, assign_ends
from ...layout import Buffer, longs
from ...limits import TIME_LIMIT

ROW_BYTES, PACKED_BYTES = 280, 17
"""What a row takes in an index: what the objects take of one that is not packed, and what is left of a packed one."""


def window_rows(
    times: Buffer, rows: Buffer | None, size: int, every: int, offset: int, closed: int
) -> tuple[list[tuple[int, Buffer | None]], Buffer | None, int]:
    """Rows by window: the rows of each open window, late rows, and how many others miss some of their windows. `size` 0: the times are
    the ends of windows."""
    listed = longs(times).tolist()
    chosen = list(range(len(listed))) if rows is None else longs(rows).tolist()
    if not all(0 <= row < len(listed) for row in chosen):
        raise ValueError("no such row")
    found = _assigned([listed[row] for row in chosen], size, every, offset, closed)

    def of(places: list[int] | None) -> Buffer | None:
        return None if places is None or len(places) == len(chosen) else array("q", [chosen[place] for place in places])

    late = array("q", [chosen[place] for place in found.late]) if found.late else None
    return [(end, of(places)) for end, places in found.open.items()], late, found.partly


def _assigned(times: list[int], size: int, every: int, offset: int, closed: int) -> Any:
    if not times:
        return Assigned({}, [], 0)
    if not size:
        return assign_ends(times, closed)
    if min(times) <= -TIME_LIMIT or max(times) >= TIME_LIMIT:
        raise ValueError("no such time")
    return Spans(size, every, offset).assign_open(times, closed)
