"""Windows of a fixed length: which windows a row belongs to, which rows are late, and which windows close.

A window is identified by its *end*: it holds the rows with `end - size <= time < end`. Windows begin at every multiple of `every`, counted
from `offset`, also below zero: division rounds down. If `every` equals the size, the windows are tumbling, otherwise hopping.

What it decides: a window is *closed* if its end plus grace is not above the floor, the greatest watermark by which the step has closed
windows. A row goes into its open windows; it is late if all of its windows are closed. The functions work on columns, without an object
per row.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

MOST_PANES = 8
"""The most panes from one start of a window to the next: shorter ones would combine too few rows."""
MOST_WINDOWS = 1_500
"""The most windows that may hold a row; a day with a window each minute has 1,440. Each row is added to each of them: with so many, a row
takes up to half a millisecond.
"""
MOST_PAIRS = 1 << 17
"""The most pairs of a row and a window at once: a chunk names the rows of each window until it is complete, and so many take some 50 ms."""
Places = list[int] | None
"""Indexes of rows in their columns, ascending; None means all rows."""


class Assigned(NamedTuple):
    """Rows, assigned to the open windows that they belong to."""

    open: dict[int, Places]
    """By the end of a window, the indexes of its rows."""
    late: list[int]
    """The indexes of late rows."""
    partly: int
    """How many rows belong to both open and closed windows."""


@dataclass(frozen=True, slots=True)
class Spans:
    """Windows of `size` ms, one every `every` ms.

    >>> Spans(10, 10).assign([12, 3, -1, 19])
    {20: [0, 3], 10: [1], 0: [2]}
    >>> Spans(10, 5).assign([12, 13])
    {20: None, 15: None}
    """

    size: int
    every: int
    offset: int = 0

    @property
    def panes(self) -> Spans | None:
        """Tumbling spans whose rows all belong to the same windows; None if they would be too short.

        >>> Spans(60, 10, 3).panes, Spans(10, 4).panes, Spans(100, 99).panes
        (Spans(size=10, every=10, offset=3), Spans(size=2, every=2, offset=0), None)
        """
        length = gcd(self.size, self.every)
        return Spans(length, length, self.offset % length) if self.every <= length * MOST_PANES else None

    @property
    def held_by(self) -> int:
        """How many windows hold a row, at most.

        >>> Spans(60, 10).held_by, Spans(10, 4).held_by
        (6, 3)
        """
        return -(-self.size // self.every)

    def first_end(self, time: int) -> int:
        """The end of the first window that holds this time.

        >>> Spans(10, 4).first_end(9), Spans(10, 4).first_end(10)
        (10, 14)
        """
        return time - (time - self.offset - self.size) % self.every + self.every

    def assign(self, times: Sequence[int]) -> dict[int, Places]:
        """By the end of each window, the indexes of its rows."""
        every, offset, size = self.every, self.offset, self.size
        panes: dict[int, Places]
        first = min(times) if times else 0
        first -= (first - offset) % every
        if times and max(times) < first + every:  # most chunks are much shorter than a window
            panes = {first: None}
        else:
            panes = _grouped([time - (time - offset) % every for time in times])
        if size == every:
            return {start + size: places for start, places in panes.items()}
        whole, rest = divmod(size, every)
        found: dict[int, Places] = {}
        several = len(panes) > 1
        for start, places in panes.items():
            for number in range(whole):
                _join(found, start + size - number * every, places, several)
            if rest:
                inside = [place for place in _all(places, times) if times[place] < start + rest]
                if inside:
                    _join(found, start + rest, inside, True)
        return found

    def assign_open(self, times: Sequence[int], closed: int) -> Assigned:
        """Assign rows to the windows that end after `closed`, and find the late rows.

        >>> Spans(10, 5).assign_open([2, 7], 10)
        Assigned(open={15: [1]}, late=[0], partly=1)
        """
        found = self.assign(times)
        passed = [found.pop(end) for end in [end for end in found if end <= closed]]
        if not passed:
            return Assigned(found, [], 0)
        if not found:
            return Assigned(found, list(range(len(times))), 0)
        missed = {place for places in passed for place in _all(places, times)}
        taken = {place for places in found.values() for place in _all(places, times)}
        return Assigned(found, sorted(missed - taken), len(missed & taken))


def assign_ends(ends: Sequence[int], closed: int) -> Assigned:
    """Assign partial states, each to the window with its end, as `assign_open` does for rows.

    >>> assign_ends([20, 10, 20, 30], 10)
    Assigned(open={20: [0, 2], 30: [3]}, late=[1], partly=0)
    """
    found = _grouped(ends)
    passed = [found.pop(end) for end in [end for end in found if end <= closed]]
    return Assigned(found, sorted(place for places in passed for place in _all(places, ends)), 0)


def most_rows(windows: int) -> int:
    """How many rows a chunk may have if each of them is put into so many windows.

    >>> most_rows(1440), most_rows(MOST_PAIRS * 2)
    (91, 1)
    """
    return max(1, MOST_PAIRS // windows)


def closed_up_to(floor: int, grace: int) -> int:
    """Windows that end at or before the returned time are closed."""
    return floor - grace


def due(ends: list[int], closed: int | None) -> list[int]:
    """The windows that close, in the order of their results; all of them if `closed` is None. `ends` is sorted.

    >>> due([10, 20, 30], 20)
    [10, 20]
    """
    return ends if closed is None else ends[: bisect_right(ends, closed)]


def _grouped(column: Sequence[int]) -> dict[int, Places]:
    """The indexes of each value; None if there is only one value."""
    if len(distinct := dict.fromkeys(column)) == 1:
        return dict.fromkeys(distinct)
    found: dict[int, list[int]] = {value: [] for value in distinct}
    for place, value in enumerate(column):
        found[value].append(place)
    return {**found}


def _all(places: Places, column: Collection[object]) -> Iterable[int]:
    return range(len(column)) if places is None else places


def _join(found: dict[int, Places], end: int, places: Places, several: bool) -> None:
    """Add rows to a window; they keep their order, also if they come from several panes."""
    before = found.get(end)
    if before is None:
        found[end] = places
    elif several and places is not None:
        found[end] = sorted([*before, *places])
