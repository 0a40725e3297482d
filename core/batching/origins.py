"""The origins of rows: stream, partition and offsets, kept for runs of rows instead of for each row.

Rows that are a selection of many records have many short runs. Then their offsets are kept as they are, eight bytes a row (`Each`).

What it promises:

- Joining and cutting keep the order of rows; no row loses its origin or gets that of another row.
- Consecutive offsets, evenly spaced offsets, and one offset shared by all rows of a frame are each a single run.
- If it is only known that a row came from one of several records, `exact` is false.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias


class Run(NamedTuple):
    """A number of rows of one partition, in order.

    `exact`: their offsets are evenly spaced from `first` to `last`. Otherwise each row came from some offset between these two, inclusive.
    A run without a stream has no known origin.
    """

    stream: str
    partition: int
    rows: int
    first: int
    last: int
    exact: bool = True

    def part(self, start: int, stop: int) -> Run:
        """The rows from one place up to, but not including, another."""
        if not self.exact:
            return self._replace(rows=stop - start)
        step = self.step
        return self._replace(rows=stop - start, first=self.first + start * step, last=self.first + (stop - 1) * step)

    @property
    def step(self) -> int:
        """The distance from one offset to the next."""
        return (self.last - self.first) // (self.rows - 1) if self.rows > 1 else 0


class Each(NamedTuple):
    """Rows of one partition, with the offset of each."""

    stream: str
    partition: int
    offsets: bytes
    """Of 64 bits each, in the machine's byte order."""

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.offsets) // 8

    def part(self, start: int, stop: int) -> Origin:
        """The rows from one place up to, but not including, another."""
        some = self.offsets[8 * start : 8 * stop]
        if stop - start > 1:
            return self._replace(offsets=some)
        offset = memoryview(some).cast("q")[0]
        return Run(self.stream, self.partition, 1, offset, offset)


Origin: TypeAlias = Run | Each
"""The origin of some rows."""
FEW = 8
"""Offsets are kept as they are if they have more runs than this, and more than one in sixteen rows."""
UNKNOWN = Run("", -1, 1, -1, -1, exact=False)
"""The origin of a row that was not made from a current record: at a watermark, or by a timer."""


def runs_of(stream: str, partition: int, offsets: Sequence[int]) -> list[Run]:
    """The runs of rows with these offsets.

    >>> [(run.rows, run.first, run.last) for run in runs_of("orders", 0, [4, 5, 6, 9, 9, 9])]
    [(3, 4, 6), (3, 9, 9)]
    """
    count = len(offsets)
    if not count:
        return []
    first, last = offsets[0], offsets[-1]
    if last - first == count - 1 and (type(offsets) is range or list(offsets) == list(range(first, last + 1))):
        return [Run(stream, partition, count, first, last)]
    found: list[Run] = []
    start = 0
    while start < count:
        stop = start + 1
        if stop < count:
            step = offsets[stop] - offsets[start]
            stop += 1
            while stop < count and offsets[stop] - offsets[stop - 1] == step:
                stop += 1
        if stop - start == 2 and stop < count and offsets[stop] == offsets[stop - 1] + 1:
            stop -= 1  # any two offsets are evenly spaced; here the second one begins a longer run
        found.append(Run(stream, partition, stop - start, offsets[start], offsets[stop - 1]))
        start = stop
    return found


def origins_of(stream: str, partition: int, offsets: range | memoryview[int]) -> list[Origin]:
    """The origins of rows with these offsets, 64-bit integers that ascend, no two the same. No object is made of a row.

    >>> [(run.rows, run.first, run.last) for run in origins_of("orders", 0, range(4, 7))]
    [(3, 4, 6)]
    """
    found: list[Origin] = []
    start, count = 0, len(offsets)
    while start < count:
        if len(found) > max(FEW, count // 16) and isinstance(offsets, memoryview):
            return [Each(stream, partition, offsets.tobytes())]
        first = offsets[start]
        if offsets[count - 1] - first == count - 1 - start:
            stop = count
        else:  # the offset less the place only grows
            stop = bisect_right(range(count), first - start, lo=start, key=lambda at: offsets[at] - at)
        found.append(Run(stream, partition, stop - start, first, offsets[stop - 1]))
        start = stop
    return found


def among(stream: str, partition: int, offsets: Sequence[int], rows: int) -> list[Run]:
    """The origin of rows that were made from the records with these offsets, without knowing which row from which record."""
    if not stream or not offsets:
        return [UNKNOWN._replace(rows=rows)]
    return [Run(stream, partition, rows, offsets[0], offsets[-1], exact=False)]


def cut(runs: Sequence[Origin], rows: int) -> tuple[list[Origin], list[Origin]]:
    """The origins of the first `rows` rows, and those of the remaining rows."""
    head: list[Origin] = []
    for index, run in enumerate(runs):
        if rows < run.rows:
            rest = [run.part(rows, run.rows), *runs[index + 1 :]]
            return ([*head, run.part(0, rows)] if rows else head), rest
        head.append(run)
        rows -= run.rows
    return head, []


def joined(parts: Iterable[Sequence[Origin]]) -> list[Origin]:
    """Concatenate lists of origins; a run that continues the previous one is merged with it."""
    found: list[Origin] = []
    for part in parts:
        for run in part:
            whole = _one(found[-1], run) if found else None
            if whole is None:
                found.append(run)
            else:
                found[-1] = whole
    return found


def _one(before: Origin, after: Origin) -> Run | None:
    if isinstance(before, Each) or isinstance(after, Each):
        return None
    if before[:2] != after[:2] or before.exact != after.exact:
        return None
    if not before.exact:
        return before._replace(rows=before.rows + after.rows) if before[3:] == after[3:] else None
    steps = {run.step for run in (before, after) if run.rows > 1} | {after.first - before.last}
    if len(steps) > 1 or (before.rows == after.rows == 1 and steps.isdisjoint((0, 1))):
        return None
    return before._replace(rows=before.rows + after.rows, last=after.last)


def origin_of(runs: Iterable[Origin], place: int) -> Run:
    """The origin of the row at this index, as a run of that row alone."""
    for run in runs:
        if place < run.rows:
            one = run.part(place, place + 1)
            assert isinstance(one, Run), "a single row is a run"
            return one
        place -= run.rows
    return UNKNOWN


def bounds(runs: Iterable[Origin]) -> dict[str, tuple[int, int]]:
    """The least and the greatest offset of each partition.

    >>> bounds([Run("orders", 3, 2, 7, 8), Run("orders", 3, 1, 12, 12), Run("", -1, 4, 0, 0)])
    {'orders:3': (7, 12)}
    """
    found: dict[str, tuple[int, int]] = {}
    for one in runs:
        if not one.stream:
            continue
        at = f"{one.stream}:{one.partition}"
        offsets = (one.first, one.last) if isinstance(one, Run) else memoryview(one.offsets).cast("q")
        least, greatest = min(offsets), max(offsets)
        before = found.get(at, (least, greatest))
        found[at] = min(before[0], least), max(before[1], greatest)
    return found


def pack(runs: Iterable[Origin]) -> list[Any]:
    """The origins in their stored form: the stream's name once for successive runs, and small numbers for each run; or the offsets."""
    stored: list[Any] = []
    for (stream, partition, exact), some in groupby(runs, _alike):
        if exact is None:
            stored += [[stream, partition, exact, one.offsets] for one in some if isinstance(one, Each)]
            continue
        at, numbers = 0, list[int]()
        for run in some:
            assert isinstance(run, Run)
            numbers += run.rows, run.first - at, run.last - run.first
            at = run.last
        stored.append([stream, partition, exact, numbers])
    return stored


def _alike(one: Origin) -> tuple[str, int, bool | None]:
    """What successive runs must have in common to be stored together; None for rows whose offsets are stored as they are."""
    return one.stream, one.partition, one.exact if isinstance(one, Run) else None


def unpack(stored: Iterable[Sequence[Any]]) -> list[Origin]:
    """The origins from the result of `pack`.

    >>> unpack(pack(runs_of("orders", 0, range(5, 9))))
    [Run(stream='orders', partition=0, rows=4, first=5, last=8, exact=True)]
    """
    found: list[Origin] = []
    for stream, partition, exact, numbers in stored:
        if exact is None:
            found.append(Each(stream, partition, numbers))
            continue
        at = 0
        for rows, gap, width in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True):
            found.append(Run(stream, partition, rows, at + gap, at + gap + width, exact))
            at += gap + width
    return found
