"""The rows of open batches: gathered in memory, and written as blocks into the table of their step when the transaction closes.

    <number>.<block>       a block: rows in columns, their origins as runs, their timestamps
    c<number>              how many blocks a batch has, and how many rows the last of them

So a block is written once, however many chunks its rows came in, and one block is one record of the task log. A last block with few rows is
written again together with the rows that come after it, so that a slow stream does not make one block for each commit.

Promises:

- A block is cut by rows and by bytes. Only a single row is larger, and one that the task log does not accept is refused when it comes.
- What a letter adds counts when it is complete, and is gone if it fails. What is written belongs to the transaction that closes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, overload

from ....core.batching import origins
from ....core.batching.batches import BLOCK_BYTES, Bridge
from ....core.errors import DataError
from ..base.letter import LetterPart

ROWS_OF_BLOCK = 20_000
"""The maximum number of rows of a block."""
TAIL_ROWS = 1_000
"""A last block with fewer rows takes in more."""
ENOUGH_BYTES = 8 << 20
"""The gathered rows ask for a commit when they have so many bytes. While they have twice as many, no more are taken."""
FIRST, LAST = "c000000000000", "c999999999999"
_ENVELOPE = 16 << 10
"""About what a block takes besides its rows."""


class NewRows(NamedTuple):
    """Rows for one batch, as they came."""

    number: int
    table: Any
    rows: int
    size: int
    came_from: Sequence[origins.Origin]
    stamps: Any
    """Their timestamps: a buffer of 64-bit integers."""

    def cut(self, bridge: Bridge, rows: int | None, size: int | None) -> tuple[NewRows, NewRows | None]:
        """As many rows as fit, at least one, and the rest."""
        head, count, nbytes, rest = bridge.split(self.table, rows, size)
        if rest is None:
            return self, None
        came, later = origins.cut(self.came_from, count)
        stamps = memoryview(self.stamps).cast("B")
        return (
            NewRows(self.number, head, count, nbytes, came, stamps[: 8 * count]),
            NewRows(self.number, rest, self.rows - count, self.size - nbytes, later, stamps[8 * count :]),
        )


class Written(NamedTuple):
    """What of a batch is in the table."""

    blocks: int = 0
    tail: int = 0
    """How many rows its last block has."""


class BatchBlock(NamedTuple):
    """A block as it is stored."""

    rows: bytes
    came_from: list[Any]
    stamps: bytes


class RowsOfBatch(Sequence[bytes]):
    """The rows of a batch's blocks."""

    def __init__(self, table: Any, number: int, blocks: int) -> None:
        self._table = table
        self._number = number
        self._blocks = blocks

    def __len__(self) -> int:
        return self._blocks

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        places = range(self._blocks)[index]
        if isinstance(places, range):
            return [self[at] for at in places]
        (found,) = self._table.get_many([block_key(self._number, places)])
        return BatchBlock(*found).rows


class BatchBlocks(LetterPart):
    """The blocks of all batches of a step that are not done."""

    of_letter = ("_fresh", "_done")

    def __init__(self, table: Any) -> None:
        self._table = table
        self._written = {int(name[1:]): Written(*found) for name, found in table.range(FIRST, LAST)}
        self._complete: list[NewRows] = []
        """The rows of complete letters that are not written yet."""
        self._bytes = 0
        """Their bytes."""
        self._fresh: list[NewRows] = []
        """The rows of the running letter."""
        self._tails: dict[int, list[NewRows]] = {}
        """The rows of last blocks that will take in more, if they are at hand."""
        self._done: list[int] = []
        """The batches that the letter has forgotten."""
        most = table.most_bytes
        self._block_bytes = BLOCK_BYTES if most is None else max(1, min(BLOCK_BYTES, most - most // 4 - _ENVELOPE))

    # ------------------------------------------------------------------------------------------------------------- rows come

    @property
    def gathered(self) -> int:
        """How many bytes of rows are not written yet."""
        return self._bytes + sum(piece.size for piece in self._fresh)

    def add(self, bridge: Bridge, piece: NewRows) -> None:
        """Add rows to their batch. Raises `DataError` for a row that the task log would not accept."""
        if piece.size > self._block_bytes:
            self._must_fit(bridge, piece)
        self._fresh.append(piece)

    def _must_fit(self, bridge: Bridge, piece: NewRows) -> None:
        left: NewRows | None = piece
        while left is not None:
            head, left = left.cut(bridge, ROWS_OF_BLOCK, self._block_bytes)
            if head.size > self._block_bytes:
                block = _block(bridge, [head])
                must_fit(self._table, sum(map(len, (block.rows, block.stamps))) + _ENVELOPE, "a row")

    # ------------------------------------------------------------------------------------------------------------ and are read

    def count(self, number: int) -> int:
        """How many blocks of a batch are written."""
        return self._written.get(number, Written()).blocks

    def of(self, number: int) -> list[BatchBlock]:
        """The blocks of a batch that are written."""
        keys = [block_key(number, block) for block in range(self.count(number))]
        return [BatchBlock(*found) for found in self._table.get_many(keys)]

    def reader(self, number: int) -> RowsOfBatch:
        """The rows of the blocks of a batch, each read when it is asked for."""
        return RowsOfBatch(self._table, number, self.count(number))

    def forget(self, number: int) -> list[str]:
        """The batch is done. Returns the keys that the letter deletes."""
        self._done.append(number)
        return [*(block_key(number, block) for block in range(self.count(number))), _count_key(number)]

    # --------------------------------------------------------------------------------------------------------- with the letter

    def complete(self) -> None:
        """The letter is complete."""
        self._bytes = self.gathered
        self._complete += self._fresh
        for number in self._done:
            self._written.pop(number, None)
            self._tails.pop(number, None)
        self.drop()

    def drop(self) -> None:
        """The letter failed."""
        self._fresh, self._done = [], []

    # ------------------------------------------------------------------------------------------------------ and are written

    def write(self, bridge: Bridge, still_open: frozenset[int]) -> None:
        """The transaction closes: write what complete letters have added. `still_open`: the batches that may get more rows."""
        complete, self._complete, self._bytes = self._complete, [], 0
        batches: dict[int, list[NewRows]] = {}
        for piece in complete:
            batches.setdefault(piece.number, []).append(piece)
        changes: dict[str, Any] = {}
        for number, pieces in batches.items():
            before = self._written.get(number, Written())
            tail = self._tail(bridge, number, before)
            if tail and not bridge.alike(tail[0].table, pieces[0].table):
                tail = []  # code with other columns has stored it: it stays a block of its own
            first = before.blocks - (1 if tail else 0)
            blocks = list(self._cut(bridge, [*tail, *pieces]))
            for at, block in enumerate(blocks, first):
                changes[block_key(number, at)] = list(_block(bridge, block))
            rows = sum(piece.rows for piece in blocks[-1])
            self._written[number] = now = Written(first + len(blocks), rows)
            changes[_count_key(number)] = list(now)
            self._tails[number] = blocks[-1] if rows < TAIL_ROWS else []
        for number in [one for one in self._tails if one not in still_open]:
            del self._tails[number]
        self._table.update(changes)

    def _tail(self, bridge: Bridge, number: int, written: Written) -> list[NewRows]:
        """The rows of the last block, if it takes in more."""
        if not 0 < written.tail < TAIL_ROWS:
            return []
        if number not in self._tails:
            (found,) = self._table.get_many([block_key(number, written.blocks - 1)])
            block = BatchBlock(*found)
            table, came_from = bridge.table(block.rows), origins.unpack(block.came_from)
            self._tails[number] = [NewRows(number, table, written.tail, len(block.rows), came_from, block.stamps)]
        tail = self._tails[number]
        return tail if sum(piece.size for piece in tail) < self._block_bytes // 2 else []

    def _cut(self, bridge: Bridge, pieces: Sequence[NewRows]) -> Iterator[list[NewRows]]:
        """The pieces by blocks, cut where a block is full."""
        block: list[NewRows] = []
        rows = size = 0
        todo = deque(pieces)
        while todo:
            piece = todo.popleft()
            if rows + piece.rows > ROWS_OF_BLOCK or size + piece.size > self._block_bytes:
                if block and (rows >= ROWS_OF_BLOCK // 2 or size >= self._block_bytes // 2):
                    yield block
                    block, rows, size = [], 0, 0
                piece, rest = piece.cut(bridge, ROWS_OF_BLOCK - rows, max(0, self._block_bytes - size))
                if rest is not None:
                    todo.appendleft(rest)
            if block and size + piece.size > self._block_bytes:
                yield block
                block, rows, size = [], 0, 0
            block.append(piece)
            rows, size = rows + piece.rows, size + piece.size
        yield block


def _block(bridge: Bridge, pieces: Sequence[NewRows]) -> BatchBlock:
    came_from = origins.pack(origins.joined(piece.came_from for piece in pieces))
    return BatchBlock(
        bridge.encode([piece.table for piece in pieces]), came_from, b"".join(piece.stamps for piece in pieces)
    )


def must_fit(table: Any, size: int, what: str) -> None:
    """Refuse a block that is larger than the task log accepts. It is a single row: all other blocks are cut well below that size."""
    most = table.most_bytes
    if most is not None and size > most:
        raise DataError(
            f"{what} needs a block of {size} bytes, but the task log accepts only {most}",
            remedy="make smaller rows before .batch(), or raise max.message.bytes of the task log and start again",
        )


def block_key(number: int, block: int) -> str:
    """Where a block of rows is stored."""
    return f"{number:012d}.{block:06d}"


def _count_key(number: int) -> str:
    return f"c{number:012d}"
