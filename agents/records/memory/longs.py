"""Arithmetic on buffers of 64-bit integers (indexes, places in bytes, times), a buffer at a time.

What it decides: nothing. Promise: the compiled part (`longs.c`) and its twin give the same.
"""

from __future__ import annotations

from array import array
from typing import Any

from ..layout import Buffer
from ..native import chosen


def gathered(of: Buffer, rows: Buffer) -> Buffer:
    """The integers at these indexes. Raises `IndexError` for an index outside.

    >>> longs(gathered(array("q", [5, 6, 7]), array("q", [2, 0]))).tolist()
    [7, 5]
    """
    return chosen.part.gathered(of, rows)


def all_but(count: int, skip: frozenset[int]) -> Buffer:
    """The numbers below `count` that are not in `skip`, which has few.

    >>> longs(all_but(5, frozenset({1, 2}))).tolist()
    [0, 3, 4]
    """
    every, found, begin = array("q", range(count)), array("q"), 0
    for index in sorted(skip):
        found.extend(every[begin:index])
        begin = index + 1
    found.extend(every[begin:])
    return found


def scattered(of: Buffer, rows: Buffer, length: int, *, rest: int = 0) -> Buffer:
    """So many integers: `rest`, but at these indexes. Raises `IndexError` for an index outside.

    >>> longs(scattered(array("q", [5, 6]), array("q", [2, 0]), 4, rest=-1)).tolist()
    [6, -1, 5, -1]
    """
    return chosen.part.scattered(of, rows, length, rest)


def scaled(of: Buffer, *, add: int = 0, factor: int = 1, divisor: int = 1) -> Buffer:
    """`(each + add) * factor // divisor`. The caller knows that nothing leaves 64 bits.

    >>> longs(scaled(array("q", [-1, 2500]), divisor=1000)).tolist()
    [-1, 2]
    """
    return chosen.part.scaled(of, add, factor, divisor)


def extremes(of: Buffer) -> tuple[int, int]:
    """The least and the greatest of them; there is at least one.

    >>> extremes(array("q", [3, -1, 2]))
    (-1, 3)
    """
    return chosen.part.extremes(of)


def listed_extremes(of: list[Any]) -> tuple[int, int] | None:
    """The least and the greatest of a list; None if it is empty, or holds anything but integers of 64 bits.

    >>> listed_extremes([3, -1, 2]), listed_extremes([]), listed_extremes([1, True]), listed_extremes([2**63])
    ((-1, 3), None, None, None)
    """
    return chosen.part.listed_extremes(of)


def first_above(of: Buffer, start: int, stop: int, limit: int) -> int:
    """The index of the first integer from `start` on that is greater than `limit`; `stop` if there is none before it.

    >>> first_above(array("q", [1, 9, 3]), 0, 3, 5), first_above(array("q", [1, 9, 3]), 2, 3, 5)
    (1, 3)
    """
    return chosen.part.first_above(of, start, stop, limit)


def summed(of: bytes) -> Buffer | None:
    """The integers that these `distances` from 0 are of, modulo 2^64; None if they are none.

    >>> longs(summed(bytes([14, 0, 1]))).tolist(), summed(bytes([0x80]))
    ([7, 7, 6], None)
    """
    return chosen.part.summed(of)


def distances(of: Buffer, start: int) -> bytes:
    """How far each is from the one before it, and the first from `start`, in Kafka's varints, modulo 2^64.

    >>> list(distances(array("q", [1207, 1207, 1206]), 1200))
    [14, 0, 1]
    """
    return chosen.part.distances(of, start)
