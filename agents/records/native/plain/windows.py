"""Which rows belong to which windows and sessions, and which are pairs: as `window_rows.c` and `session_runs.c`; as `matching.c` is
`core.windows.matching`."""

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


def session_runs(
    numbers: Buffer, times: Buffer, rows: Buffer | None, gap: int
) -> tuple[Buffer, Buffer, Buffer, Buffer, Buffer, bytes]:
    """The run of each row; of each run its key, first and last time, the time of the row that came first, and whether it is broken."""
    every, keys = longs(times), longs(numbers)
    chosen = range(len(every)) if rows is None else longs(rows)
    if len(keys) != len(chosen) or not 0 <= gap < TIME_LIMIT:
        raise ValueError("no such sessions")
    if not all(0 <= row < len(every) for row in chosen):
        raise ValueError("no such row")
    own = [every[row] for row in chosen]
    if own and (min(own) <= -TIME_LIMIT or max(own) >= TIME_LIMIT):
        raise ValueError("no such time")
    of, runs = array("q", bytes(8 * len(own))), list[list[int]]()
    for number, time, place in sorted(zip(keys, own, range(len(own)), strict=True)):
        if not runs or runs[-1][0] != number or time - runs[-1][2] > gap:
            runs.append([number, time, time])
        runs[-1][2] = time
        of[place] = len(runs) - 1
    seen: dict[int, list[int]] = {}
    broken = bytearray(len(runs))
    for run, time in zip(of, own, strict=True):
        begin, low, high = seen.setdefault(run, [time, time, time])
        if time < low - gap or time > high + gap:
            broken[run] = 1
        seen[run] = [begin, min(low, time), max(high, time)]
    begins = array("q", [seen[run][0] for run in range(len(runs))])
    found = (array("q", column) for column in (zip(*runs, strict=True) if runs else ((), (), ())))
    number, first, last = found
    return of, number, first, last, begins, bytes(broken)


def _assigned(times: list[int], size: int, every: int, offset: int, closed: int) -> Any:
    if not times:
        return Assigned({}, [], 0)
    if not size:
        return assign_ends(times, closed)
    if min(times) <= -TIME_LIMIT or max(times) >= TIME_LIMIT:
        raise ValueError("no such time")
    return Spans(size, every, offset).assign_open(times, closed)
