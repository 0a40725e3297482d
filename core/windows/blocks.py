"""Blocks: how the keys of an open window are grouped in stored rows, so that closing a window deletes one row per block instead of one per
key.

A block holds up to 64 keys with their states, and is divided when it has become larger than 64 KiB. A row of the table is `[end, number,
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
"""The most bytes of the rows in one block, and of a block of states before it is divided; a larger row or state has a block of its own."""

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


def parts_of(keys: Sequence[T], size: int) -> list[list[T]]:
    """The keys of a block that takes so many bytes in as many blocks as it needs, of equal length.

    >>> parts_of("abcde", BLOCK_BYTES), parts_of("abcde", 2 * BLOCK_BYTES), parts_of("ab", 9 * BLOCK_BYTES)
    ([['a', 'b', 'c', 'd', 'e']], [['a', 'b', 'c'], ['d', 'e']], [['a'], ['b']])
    """
    length = -(-len(keys) // max(1, -(-size // BLOCK_BYTES)))
    return [list(keys[start : start + length]) for start in range(0, len(keys), length)]
