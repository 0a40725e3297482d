"""What a batch step stores: its book, and the blocks of rows and results of each batch, in the table of the step.

    b<number>              one batch of the book
    <number>.<block>       a block of its rows, with the origins and timestamps of the rows
    <number>.r<block>      a block of its result

Promises: the book and the blocks change in the same letter. A letter that fails leaves no trace. A seal sees only what is complete.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgpack

from ...core import origins
from ...core.batches import FIRST_ROW, LAST_ROW, META, Book, Closed, Open
from ...core.errors import DataError


class StoredBlock(NamedTuple):
    """Rows of a batch, as they are stored."""

    rows: bytes
    came_from: list[Any]
    """The origins of the rows, packed."""
    stamps: bytes
    """Their timestamps, as 64-bit integers."""

    def follows(self, before: StoredBlock, rows: bytes) -> StoredBlock:
        """This block behind another one; `rows` are the rows of both."""
        came_from = origins.joined([origins.unpack(before.came_from), origins.unpack(self.came_from)])
        return StoredBlock(rows, origins.pack(came_from), before.stamps + self.stamps)

    @property
    def size(self) -> int:
        """How many bytes it needs in the task log."""
        return len(self.rows) + len(msgpack.packb(self.came_from) or b"") + len(self.stamps)


class BatchRows:
    """The table of a batch step, with the book of its batches."""

    def __init__(self, table: Any) -> None:
        self.table = table
        (meta,) = table.get_many([META])
        self.kept = Book.of(meta, [row for _, row in table.range(FIRST_ROW, LAST_ROW)])
        """The book without the changes of the running letter."""
        self.book = self.kept

    def write(self, book: Book, rows: Mapping[str, Any] | None = None, gone: Iterable[str] = ()) -> None:
        """The book is now this one; store it together with these blocks, and delete those."""
        put, dropped = book.changes(self.book)
        self.book = book
        self.table.update({**put, **(rows or {})})
        self.table.delete_many([*dropped, *gone])

    # -------------------------------------------------------------------------------------------------------------- blocks

    def blocks(self, one: Open | Closed) -> list[StoredBlock]:
        """The stored rows of a batch."""
        return [
            StoredBlock(*found) for found in self.table.get_many([row_key(one.number, n) for n in range(one.blocks)])
        ]

    def last_block(self, one: Open) -> StoredBlock:
        """The block that may take in more rows."""
        (found,) = self.table.get_many([row_key(one.number, one.blocks - 1)])
        return StoredBlock(*found)

    def origins(self, one: Closed) -> tuple[list[origins.Run], list[int]]:
        """Where the rows of a batch came from, and their timestamps."""
        runs: list[origins.Run] = []
        times: list[int] = []
        for block in self.blocks(one):
            runs += origins.unpack(block.came_from)
            times += struct.unpack(f"<{len(block.stamps) // 8}q", block.stamps)
        return runs, times

    def forget_first(self) -> None:
        """The first closed batch is done: delete its rows."""
        first = self.book.closed[0]
        self.write(self.book.done(), gone=[row_key(first.number, block) for block in range(first.blocks)])

    def must_fit(self, size: int, what: str) -> None:
        """Refuse a block that is larger than the task log accepts. It is a single row: all other blocks are cut well below that size."""
        most = self.table.most_bytes
        if most is not None and size > most:
            raise DataError(
                f"{what} needs a block of {size} bytes, but the task log accepts only {most}",
                remedy="make smaller rows before .batch(), or raise max.message.bytes of the task log and start again",
            )

    # -------------------------------------------------------------------------------------------------------- with the letter

    def complete(self) -> None:
        """The letter is complete."""
        self.kept = self.book

    def drop(self) -> bool:
        """The letter failed. Returns whether it had changed the book."""
        changed = self.book is not self.kept
        self.book = self.kept
        return changed

    def suspend(self) -> Book:
        """Set aside the changes of the letter."""
        aside, self.book = self.book, self.kept
        return aside

    def resume(self, aside: Book) -> None:
        """Resume the letter."""
        self.book = aside


def row_key(number: int, block: int) -> str:
    """Where a block of rows is stored."""
    return f"{number:012d}.{block:06d}"


def result_key(number: int, block: int) -> str:
    """Where a block of a result is stored."""
    return f"{number:012d}.r{block:06d}"


def result_keys(number: int, blocks: Sequence[int]) -> list[str]:
    """Where these blocks of a result are stored."""
    return [result_key(number, block) for block in blocks]
