"""Joins of two streams in event time: which rows make a pair, which rows are late, and when a row can have no partner any more.

Two rows are a pair if they have the same key and their times are within the distance, both ends included. What is decided here:

- The *bound* is the greatest watermark less the grace. A row is late if its time is below the bound.
- A row is kept until the bound has passed the time of its last possible partner: later partners would be late. If the join preserves its
  side and it has never been in a pair, it *expires*: it is emitted alone, once.
- Rows expire in the order in which they lose their last possible partner, then by side (left first), by time, by arrival.
- The rows that arrive are paired in the order of their arrival; the partners of one row in the order of their times, then of their arrival.

Rows are kept by side and *slice*: a span of time, named by its end, as windows are. A row is identified by its slice and its place in it,
which is the order of arrival. Rows themselves are kept elsewhere: here are their keys, their times, and which have been in a pair.

A slice can be *packed*: of the keys of its rows only the hashes stay, and a row takes the same few bytes, whatever its key is. `pairs` may
name rows with another key of the same hash: whoever has read such a row compares the keys (`matching`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .matching import PLAIN, Matching, RowIndex, SearchedSlice
from .spans import Spans

INNER, LEFT, OUTER = "inner", "left", "outer"
KINDS = (INNER, LEFT, OUTER)
SIDES = (0, 1)
"""Left and right."""
ALL_TIMES = 2**65
"""The length of a slice that has room for all times."""
SLICES = 8
"""How many slices the time has during which a row may have partners."""


@dataclass(frozen=True, slots=True)
class Distance:
    """How far the times of a pair may be apart: the right row is at most `before` ms older and at most `after` ms younger than the left."""

    before: int
    after: int

    def back(self, side: int) -> int:
        """By how much a partner of a row of this side may be older than the row."""
        return self.after if side else self.before

    def ahead(self, side: int) -> int:
        """By how much a partner of a row of this side may be younger than the row."""
        return self.before if side else self.after

    @property
    def slice_ms(self) -> int:
        """The length of a slice.

        >>> Distance(10_000, 10_000).slice_ms, Distance(0, 0).slice_ms
        (2500, 1)
        """
        return max(1, (self.before + self.after) // SLICES)


def preserves(how: str, side: int) -> bool:
    """Whether rows of this side that never found a partner are emitted alone."""
    return how == OUTER or (how == LEFT and side == 0)


def held_back(how: str, distance: Distance, grace: int) -> int:
    """By how much results may be older than the time that the join has received: a pair has the greater time of its rows, of which one is
    not late; a row without a partner has its own.

    >>> [held_back(how, Distance(5, 20), 1) for how in KINDS]
    [1, 21, 21]
    """
    return grace + max((distance.ahead(side) for side in SIDES if preserves(how, side)), default=0)


def bound_of(watermark: int, grace: int) -> int:
    """Rows with a time below the returned one are late."""
    return watermark - grace


class Pairs(NamedTuple):
    """Pairs of rows that arrive and rows that are kept: parallel columns."""

    arrived: list[int]
    """The index of the arriving row."""
    slices: list[int]
    places: list[int]
    times: list[int]
    """Of the kept row."""


class Slice:
    """The rows of one side in one span of time."""

    __slots__ = ("_queue", "_skipped", "index", "keys", "least", "matched", "most", "packed", "times")

    def __init__(self, index: RowIndex) -> None:
        self.keys: list[bytes] = []
        """Of the rows that are not packed."""
        self.times = array("q")
        self.index = index
        self.packed = 0
        """So many rows at the beginning are packed."""
        self.matched = bytearray()
        """By place: whether the row has been in a pair, or was emitted alone."""
        self.least = self.most = 0
        """The least and the greatest time."""
        self._queue: array[int] | None = None
        """All places by time."""
        self._skipped = 0
        """So many rows at the beginning of the queue are done."""

    def add(self, keys: Sequence[bytes], times: Sequence[int], matched: bytes | bytearray) -> None:
        """Add rows, in the order of their arrival."""
        least, most = min(times), max(times)
        self.least, self.most = (min(self.least, least), max(self.most, most)) if self.times else (least, most)
        self.index.add(keys)
        self.keys += keys
        self.times.extend(times)
        self.matched += matched
        self._queue = None

    def pack(self) -> None:
        """Pack the rows that are not packed yet."""
        self.index.pack()
        self.keys, self.packed = [], len(self.times)

    def alone(self, below: int | None, room: int) -> list[int]:
        """The first rows that were never in a pair, by time, whose time is below this one (None: any); at most `room`."""
        times, matched = self.times, self.matched
        if self._queue is None:
            self._queue, self._skipped = array("I", sorted(range(len(times)), key=times.__getitem__)), 0
        queue, start = self._queue, self._skipped
        while start < len(queue) and matched[queue[start]]:
            start += 1
        self._skipped = start
        found: list[int] = []
        for place in (
            queue[start:] if below is None else queue[start : bisect_left(queue, below, key=times.__getitem__)]
        ):
            if not matched[place]:
                found.append(place)
                if len(found) == room:
                    break
        return found


class KeptSide:
    """The rows of one side of a join that may still find partners."""

    def __init__(self, length: int, matching: Matching = PLAIN) -> None:
        self.spans = Spans(length, length)
        self.matching = matching
        self.slices: dict[int, Slice] = {}
        self.ends: list[int] = []
        """The names of the slices, sorted."""
        self.rows = 0

    @classmethod
    def of(cls, keys: Sequence[bytes], times: Sequence[int]) -> KeptSide:
        """These rows, in one slice for all times."""
        made = cls(ALL_TIMES)
        made.add(ALL_TIMES // 2, keys, times, bytes(len(keys)))
        return made

    def slice(self, end: int) -> Slice:
        """The slice with this end; a new one if there is none."""
        found = self.slices.get(end)
        if found is None:
            found = self.slices[end] = Slice(self.matching.index())
            insort(self.ends, end)
        return found

    def add(self, end: int, keys: Sequence[bytes], times: Sequence[int], matched: bytes | bytearray) -> None:
        """Add rows of one slice, in the order of their arrival."""
        self.slice(end).add(keys, times, matched)
        self.rows += len(keys)

    def forget(self, end: int) -> None:
        """Drop a slice."""
        self.rows -= len(self.slices.pop(end).times)
        self.ends.remove(end)

    def pairs(self, keys: Sequence[bytes], times: Sequence[int], back: int, ahead: int) -> Pairs:
        """The pairs of arriving rows of the other side with the rows of this one: a partner is at most `back` older and at most `ahead`
        younger than the arriving row.

        >>> side = KeptSide(10)
        >>> side.add(10, [b"a", b"b", b"a"], [3, 4, 5], bytes(3))
        >>> side.pairs([b"b", b"a"], [9, 4], 5, 0)
        Pairs(arrived=[0, 1], slices=[10, 10], places=[1, 0], times=[4, 3])
        """
        if not self.ends:
            return Pairs([], [], [], [])
        first = bisect_right(self.ends, min(times) - back)
        last = bisect_right(self.ends, max(times) + ahead + self.spans.size)
        ends = self.ends[first:last]
        parts = [SearchedSlice(one.index, one.times, one.least, one.most) for one in map(self.slices.__getitem__, ends)]
        arrived, numbers, places, found = self.matching.find(parts, keys, times, back, ahead)
        return Pairs(arrived, [ends[number] for number in numbers], places, found)

    def passed(self, below: int | None) -> list[int]:
        """The slices that have only rows below this time (None: any)."""
        return self.ends if below is None else self.ends[: bisect_right(self.ends, below)]

    def oldest(self) -> int | None:
        """The least time of all rows; None if there is no row."""
        return self.slices[self.ends[0]].least if self.ends else None

    def first_alone(self) -> int | None:
        """No row that was never in a pair has a time below the returned one; None if there is no such row."""
        return next((one.least for end in self.ends if 0 in (one := self.slices[end]).matched), None)


class Unpaired(NamedTuple):
    """A row that has lost its last possible partner: when it did (as event time), its side, and where it is kept."""

    at: int
    side: int
    time: int
    end: int
    place: int


def expiring(
    sides: Sequence[KeptSide], kinds: Collection[int], distance: Distance, bound: int | None, room: int
) -> tuple[list[Unpaired], bool]:
    """The next rows to be emitted alone, in the order of their expiry, at most `room`; and whether there are more. `kinds`: the sides that
    are preserved. Without a bound, all rows expire."""
    slices = sorted(
        (end - sides[side].spans.size + distance.ahead(side), side, end) for side in kinds for end in sides[side].ends
    )
    found: list[Unpaired] = []
    cut = False
    for first, side, end in slices:
        if bound is not None and first >= bound:
            break
        if len(found) >= room and sum(row.at < first for row in found) >= room:
            cut = True
            break
        ahead, one = distance.ahead(side), sides[side].slices[end]
        alone = one.alone(None if bound is None else bound - ahead, room + 1)
        found += [Unpaired(one.times[place] + ahead, side, one.times[place], end, place) for place in alone]
    found.sort()
    return found[:room], cut or len(found) > room
