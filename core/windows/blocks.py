"""Blocks: how the keys of an open window are grouped in stored rows, so that closing a window deletes one row per block instead of one per
key.

A block holds up to 64 keys with their states, and is divided when it would become larger than 64 KiB. A row of the table is `[end, number,
keys, states]`: the end of the window, the number of the block in it, and two columns. If the window keeps rows for an actor, a block holds
rows in the order of their arrival, and only the last block of a window is rewritten. A session has a row of its own, `[key, start, last,
states]`. The keys of the table are slots (`slots`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import TypeVar

BLOCK_KEYS = 64
"""The most keys in one block."""
BLOCK_ROWS = 256
"""The most rows in one block."""
BLOCK_BYTES = 64 * 1024
"""The most bytes of one block; a larger row or state has a block of its own."""

T = TypeVar("T")


def row_cuts(sizes: Sequence[int], rows: int = 0, size: int = 0) -> list[int]:
    """Where blocks end when rows of these sizes come to a last block that has `rows` of `size` bytes. The first part belongs to that block,
    and is empty where nothing more fits.

    >>> row_cuts([9, 9, 9], rows=255, size=900), row_cuts([70_000, 9], rows=1, size=9), row_cuts([9] * 300)
    ([1, 3], [0, 1, 2], [256, 300])
    """
    totals = list(accumulate(sizes, initial=0))
    cuts: list[int] = []
    start = 0
    while not cuts or start < len(sizes):
        fitting = bisect_right(totals, totals[start] + BLOCK_BYTES - size, start) - 1
        start = min(start + BLOCK_ROWS - rows, max(fitting, start, 0 if rows else start + 1), len(sizes))
        cuts.append(start)
        rows = size = 0
    return cuts


def parts_of(keys: Sequence[T], sizes: Sequence[int]) -> list[list[T]]:
    """The keys of a block that is too large in about as many blocks as their bytes need. `sizes`: of each key with its states. None of
    several keys is larger than allowed, and they are about equally full, so that those that grow are not divided again at once.

    >>> parts_of("abcdefgh", [10_000] * 8), parts_of("abc", [9, 300_000, 9])
    ([['a', 'b', 'c', 'd'], ['e', 'f', 'g', 'h']], [['a'], ['b'], ['c']])
    """
    limit = sum(sizes) // (sum(sizes) // BLOCK_BYTES + 1)
    found: list[list[T]] = []
    room = 0
    for key, size in zip(keys, sizes, strict=True):
        if size > room or not found:
            found.append([])
            room = limit
        found[-1].append(key)
        room -= size
    return found
