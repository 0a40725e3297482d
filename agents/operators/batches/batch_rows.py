"""What a batch step stores: its book, and the blocks of rows and results of each batch, in the table of the step.

    b<number>              one batch of the book
    <number>.r<block>      a block of its result
    c<number>, <number>.<block>                              its rows (see `batch_blocks`)

Promises: the book and the rows change in the same letter, and the rows are in the transaction that the book is in. A letter that fails
leaves no trace. A seal sees only what is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ....core.batching import origins
from ....core.batching.batches import FIRST_ROW, LAST_ROW, META, Book, Bridge, Closed
from ...records.layout import longs
from ..base.letter import LetterPart
from .batch_blocks import BatchBlocks


class BatchRows(LetterPart):
    """The table of a batch step, with the book of its batches."""

    of_letter = ("book", "blocks")

    def __init__(self, table: Any) -> None:
        self.table = table
        (meta,) = table.get_many([META])
        self.kept = Book.of(meta, [row for _, row in table.range(FIRST_ROW, LAST_ROW)])
        """The book without the changes of the running letter."""
        self.book = self.kept
        self.blocks = BatchBlocks(table)

    def write(self, book: Book, rows: Mapping[str, Any] | None = None, gone: Iterable[str] = ()) -> None:
        """The book is now this one; store it together with these blocks, and delete those."""
        put, dropped = book.changes(self.book)
        self.book = book
        self.table.update({**put, **(rows or {})})
        self.table.delete_many([*dropped, *gone])

    def origins(self, one: Closed) -> tuple[list[origins.Origin], list[int]]:
        """Where the rows of a batch came from, and their timestamps."""
        found: list[origins.Origin] = []
        times: list[int] = []
        for block in self.blocks.of(one.number):
            found += origins.unpack(block.came_from)
            times += longs(block.stamps)
        return found, times

    def forget_first(self, gone: Sequence[str] = ()) -> None:
        """The first closed batch is done: delete its rows, and what else is stored of it."""
        self.write(self.book.done(), gone=[*self.blocks.forget(self.book.closed[0].number), *gone])

    def seal(self, bridge: Bridge) -> None:
        """The transaction closes: write the rows that complete letters have added."""
        self.blocks.write(bridge, frozenset(one.number for one in self.kept.open.values()))

    # -------------------------------------------------------------------------------------------------------- with the letter

    def complete(self) -> None:
        """The letter is complete."""
        self.kept = self.book
        self.blocks.complete()

    def drop(self) -> None:
        """The letter failed."""
        self.book = self.kept
        self.blocks.drop()


def result_key(number: int, block: int) -> str:
    """Where a block of a result is stored."""
    return f"{number:012d}.r{block:06d}"


def result_keys(number: int, blocks: Sequence[int]) -> list[str]:
    """Where these blocks of a result are stored."""
    return [result_key(number, block) for block in blocks]
