"""Bounded batches: how many rows the open batch holds, when it is closed, which closed batches are not done, and whether to take more rows.

A `Book` is the complete bookkeeping of one task and stage, a plain value that is stored beside the rows. Every change returns a new one.

What it promises:

- A number is used once: a closed batch keeps its number and its blocks until it is done.
- Batches are closed and done in the order of their numbers.
- A batch never has more rows than `max_rows`; it is closed as soon as it is full.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

ROWS = "rows"
BYTES = "bytes"
AGE = "age"
FORMAT = "book 2, Arrow blocks with times and origins"
"""The format in which a batch step stores its bookkeeping and its rows. The text changes when one of them is stored differently."""


BLOCK_ROWS = 5_000
BLOCK_BYTES = 1 << 20
"""The maximum size of a block of rows or results, unless a single row is larger. A block is one record of the task's log, and one step of
a letter sends a few blocks."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What closes a batch, besides the end of its stream and a drain."""

    max_rows: int | None = None
    max_bytes: int | None = None
    max_age_ms: int | None = None


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """What `fn(df, batch)` is told about its batch. `id` and contents stay the same, however often the batch runs.

    >>> BatchInfo("Partition 0", "daily", 7, 1000, ROWS).id
    'Partition 0/daily/7'
    """

    task: str
    stage: str
    number: int
    rows: int
    closed_by: str
    """`rows`, `bytes`, `age`, `end` or `drain`."""

    @property
    def id(self) -> str:
        """Task, stage and number."""
        return f"{self.task}/{self.stage}/{self.number}"


@dataclass(frozen=True, slots=True)
class Closed:
    """A batch that is closed but not done."""

    number: int
    blocks: int
    rows: int
    why: str
    latest_ms: int
    """The greatest timestamp of its rows, which is the timestamp of its results."""
    stored: int = 0
    """How many blocks of its result are stored; a result that fits into one step is never stored."""
    whole: bool = False
    """Whether the stored blocks are the whole result."""
    sent: int = 0
    """How many of the stored blocks have been sent."""


@dataclass(frozen=True, slots=True)
class Book:
    """The batches of one task and stage."""

    number: int = 1
    """The number of the open batch."""
    blocks: int = 0
    rows: int = 0
    size: int = 0
    tail: int = 0
    """How many rows the last block of the open batch has."""
    since_ms: int = 0
    """When the first row of the open batch arrived, by the wall clock."""
    latest_ms: int = 0
    closed: tuple[Closed, ...] = ()

    def room(self, limits: Limits) -> tuple[int | None, int | None]:
        """How many rows and bytes the open batch still takes; None means no limit."""
        rows = None if limits.max_rows is None else limits.max_rows - self.rows
        size = None if limits.max_bytes is None else max(0, limits.max_bytes - self.size)
        return rows, size

    def with_block(self, rows: int, size: int, *, into_tail: bool, now_ms: int, latest_ms: int, limits: Limits) -> Book:
        """The book after these rows were stored as a new block, or added to the last one; the batch is closed if it is full now."""
        grown = replace(
            self,
            blocks=self.blocks if into_tail else self.blocks + 1,
            rows=self.rows + rows,
            size=self.size + size,
            tail=self.tail + rows if into_tail else rows,
            since_ms=self.since_ms or now_ms,
            latest_ms=max(self.latest_ms, latest_ms) if self.rows else latest_ms,
        )
        if limits.max_rows is not None and grown.rows >= limits.max_rows:
            return grown.close(ROWS)
        if limits.max_bytes is not None and grown.size >= limits.max_bytes:
            return grown.close(BYTES)
        return grown

    def close(self, why: str) -> Book:
        """Close the open batch, unless it is empty, and open the next number."""
        if not self.rows:
            return self
        done = Closed(self.number, self.blocks, self.rows, why, self.latest_ms)
        return Book(number=self.number + 1, closed=(*self.closed, done))

    def due_ms(self, limits: Limits) -> int | None:
        """When the open batch reaches its maximum age; None if it never does."""
        return self.since_ms + limits.max_age_ms if limits.max_age_ms is not None and self.rows else None

    def first(self) -> Closed | None:
        """The batch whose result is due next."""
        return self.closed[0] if self.closed else None

    def with_first(self, **changes: Any) -> Book:
        """The book with changes in its first closed batch."""
        return replace(self, closed=(replace(self.closed[0], **changes), *self.closed[1:]))

    def done(self) -> Book:
        """The book after its first closed batch is done."""
        return replace(self, closed=self.closed[1:])

    def owed_ms(self) -> int | None:
        """The least timestamp of the results that are still to come; None if there are none.

        >>> Book().owed_ms(), Book(rows=1, latest_ms=7, closed=(Closed(0, 1, 1, ROWS, 5),)).owed_ms()
        (None, 5)
        """
        latest = [one.latest_ms for one in self.closed]
        return min([*latest, self.latest_ms] if self.rows else latest, default=None)

    def full(self, in_flight: int) -> bool:
        """Whether so many batches wait that no more rows should be taken."""
        return len(self.closed) > in_flight

    def pack(self) -> list[Any]:
        """The book in its stored form."""
        return [
            [self.number, self.blocks, self.rows, self.size, self.tail, self.since_ms, self.latest_ms],
            [[c.number, c.blocks, c.rows, c.why, c.latest_ms, c.stored, c.whole, c.sent] for c in self.closed],
        ]

    @classmethod
    def unpack(cls, stored: Sequence[Any] | None) -> Book:
        """The book from the result of `pack`; an empty book from None.

        >>> Book.unpack(Book(number=3).pack()).number
        3
        """
        if stored is None:
            return cls()
        return cls(*stored[0], closed=tuple(Closed(*one) for one in stored[1]))


@dataclass(frozen=True, slots=True)
class SparkStage:
    """One `.spark(...)` after a batch. `keeps_going`: rows that make it fail are left out instead of failing the task."""

    name: str
    fn: Callable[[Any, Any], Any]
    schema: Any
    keeps_going: bool = False


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """The result of a batch in one stage: rows in blocks, and the rows left out, each with its index in the batch and the reason."""

    blocks: Sequence[Any]
    rows: int
    bad: Sequence[tuple[int, Mapping[str, Any], Exception]] = ()


class Bridge(Protocol):
    """What a task needs from the package that runs batches. A *table* is that package's column type, opaque here."""

    def pack(self, rows: Sequence[Any]) -> Any:
        """Rows as a table; raises `DataError` for rows that cannot form one."""
        ...

    def select(self, batch: Any, picked: Any) -> Any:
        """The rows at these places (None: all) of columns that speak the Arrow capsule interface, as a table."""
        ...

    def fits(self, kind: Any, table: Any) -> Any:
        """The kind of table that can hold both this table and tables of `kind` (None: nothing yet); raises `DataError`."""
        ...

    def kind_of(self, blocks: Sequence[bytes]) -> Any:
        """The kind of table that holds the rows of all these blocks."""
        ...

    def split(self, table: Any, rows: int | None, size: int | None) -> tuple[Any, int, int, Any]:
        """The part of the table that fits, its rows and bytes, and the rest (None: nothing is left)."""
        ...

    def encode(self, table: Any, *before: bytes) -> bytes:
        """A block with the rows of the blocks `before`, followed by those of this table."""
        ...

    def decode(self, block: bytes) -> list[dict[str, Any]]:
        """The rows of a block."""
        ...

    def run(
        self, batch: BatchInfo, blocks: Sequence[bytes], stages: Sequence[SparkStage]
    ) -> Coroutine[Any, Any, list[BatchOutcome]]:
        """Run a batch through its stages. Raises on failure; an error with `final` set is not worth a retry."""
        ...

    async def warm(self) -> None:
        """Prepare for the first batch."""
        ...

    async def close(self) -> None:
        """Release everything."""
        ...
