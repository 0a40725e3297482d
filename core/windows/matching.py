"""How the rows of a join are found by key and time: an index of the rows of each slice, and the search for pairs in several of them.

Promises: `find` names each pair of an arriving row and a kept row that have the same key, and whose times are within the distance; in the
order of the arriving rows, of one row by the times of its partners, then by slice, then by arrival. It may also name rows with another key
of the same hash: whoever reads such a row compares the keys. What is here is the plain way: a worker may have a compiled index, which does
the same (`Matching`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple, Protocol
from zlib import crc32


class RowIndex(Protocol):
    """The places of the rows of one slice by their keys. The place of a row is the number of rows that came before it."""

    def add(self, keys: Sequence[bytes], /) -> None:
        """Add rows, in the order of their arrival."""
        ...

    def pack(self) -> None:
        """Take as little memory for the rows as possible."""
        ...


class SearchedSlice(NamedTuple):
    """The rows of one slice, to be searched: their index, their times, and the least and the greatest of these."""

    index: Any
    times: array[int]
    least: int
    most: int


class Matches(NamedTuple):
    """Pairs of rows that arrive and rows that are kept: parallel columns."""

    arrived: list[int]
    """The index of the arriving row."""
    parts: list[int]
    """The number of the part that the kept row is in."""
    places: list[int]
    times: list[int]
    """Of the kept row."""


Find = Callable[[Sequence[SearchedSlice], Sequence[bytes], Sequence[int], int, int], Matches]
"""`find(parts, keys, times, back, ahead)`: the pairs of arriving rows with these keys and times. A partner is at most `back` older and at
most `ahead` younger than the arriving row."""


@dataclass(frozen=True, slots=True)
class Matching:
    """How rows are indexed and found, and what a row takes."""

    index: Callable[[], RowIndex]
    find: Find
    row_bytes: int
    """What the objects of a row take that is not packed, besides the contents of its key, its value and its headers."""
    packed_bytes: int
    """What is left of a packed row: its time, its place by the hash of its key, and whether it has been in a pair."""


class HashRun(NamedTuple):
    """Packed rows: the hashes of their keys, sorted, and their places."""

    hashes: array[int]
    places: array[int]


class PlainIndex:
    """An index in Python: a dict, and sorted hashes of the rows that are packed."""

    __slots__ = ("_count", "_places", "runs")

    def __init__(self) -> None:
        self._places: dict[bytes, list[int]] = {}
        """Of the rows that are not packed."""
        self._count = 0
        self.runs: list[HashRun] = []
        """Each at least twice as long as the next."""

    def add(self, keys: Sequence[bytes], /) -> None:
        """Add rows, in the order of their arrival."""
        known = self._places
        for key, place in zip(keys, count(self._count), strict=False):
            places = known.get(key)
            if places is None:
                known[key] = [place]
            else:
                places.append(place)
        self._count += len(keys)

    def pack(self) -> None:
        """Keep only the hash and the place of a row."""
        run = _run((crc32(key), place) for key, places in self._places.items() for place in places)
        while self.runs and 2 * len(run.hashes) > len(self.runs[-1].hashes):
            before = self.runs.pop()
            run = _run([*zip(*before, strict=True), *zip(*run, strict=True)])
        self.runs.append(run)
        self._places = {}

    def of_keys(self, keys: Collection[bytes]) -> Iterator[tuple[bytes, int]]:
        """The places of the rows with these keys; of packed ones also of rows with other keys of the same hash."""
        places = self._places
        for key in places.keys() & keys:
            for place in places[key]:
                yield key, place
        for hashes, packed in self.runs:
            for key in keys:
                wanted = crc32(key)
                at = bisect_left(hashes, wanted)
                while at < len(hashes) and hashes[at] == wanted:
                    yield key, packed[at]
                    at += 1


def find_pairs(
    parts: Sequence[SearchedSlice], keys: Sequence[bytes], times: Sequence[int], back: int, ahead: int
) -> Matches:
    """The plain way to find pairs."""
    rows: dict[bytes, list[tuple[int, int, int]]] = {}
    wanted = set(keys)
    for number, part in enumerate(parts):
        index: PlainIndex = part.index
        for key, place in index.of_keys(wanted):
            rows.setdefault(key, []).append((part.times[place], number, place))
    for one in rows.values():
        one.sort()
    made = Matches([], [], [], [])
    for row, key in enumerate(keys) if rows else ():
        time, of_key = times[row], rows.get(key, ())
        for at, number, place in of_key[bisect_left(of_key, (time - back,)) : bisect_left(of_key, (time + ahead + 1,))]:
            made.arrived.append(row)
            made.parts.append(number)
            made.places.append(place)
            made.times.append(at)
    return made


PLAIN = Matching(PlainIndex, find_pairs, row_bytes=280, packed_bytes=17)
"""The way without compiled parts."""


def _run(rows: Iterable[tuple[int, int]]) -> HashRun:
    ordered = sorted(rows)
    return HashRun(array("I", [one for one, _ in ordered]), array("I", [place for _, place in ordered]))
