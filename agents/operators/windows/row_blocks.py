"""The stored rows of one group, in blocks in the order of their arrival: its last block, and those that no commit has written yet.

A commit writes what has come and the last block again. How rows look, and what groups them, their operator decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ....core.windows.blocks import row_cuts


class RowBlock(NamedTuple):
    """A block. It is immutable: adding rows makes another one."""

    keys: list[Any]
    entries: list[Any]
    size: int


class RowBlocks:
    """The last block of a group, and the blocks to write."""

    def __init__(self) -> None:
        self.number = 0
        """The number of the last block."""
        self.last = RowBlock([], [], 0)
        self.unwritten: dict[int, RowBlock] = {}

    def held(self) -> list[RowBlock]:
        """The blocks that are in memory."""
        return [self.last, *(one for one in self.unwritten.values() if one is not self.last)]

    def loaded(self, number: int, block: RowBlock) -> None:
        """The table holds this block."""
        if number >= self.number:
            self.number, self.last = number, block

    def give_up(self) -> None:
        """Forget the last block: it is written."""
        self.number, self.last = self.number + 1, RowBlock([], [], 0)

    def plus(self, keys: Sequence[Any], entries: Sequence[Any], sizes: Sequence[int]) -> dict[int, RowBlock]:
        """The blocks that these rows change, by number."""
        before = self.last
        found: dict[int, RowBlock] = {}
        start = 0
        for number, stop in enumerate(row_cuts(sizes, len(before.keys), before.size), self.number):
            if stop > start:
                of = slice(start, stop)
                found[number] = RowBlock(
                    [*before.keys, *keys[of]], [*before.entries, *entries[of]], before.size + sum(sizes[of])
                )
            before, start = RowBlock([], [], 0), stop
        return found

    def take(self, blocks: dict[int, RowBlock]) -> None:
        """Take over these new or changed blocks."""
        self.number = max(blocks)
        self.last = blocks[self.number]
