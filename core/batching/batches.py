"""Bounded batches: how many rows each open batch holds, when it is closed, which closed ones are not done, and whether to take more.

A `Book` is the complete bookkeeping of one task and stage, a plain value that is stored alongside the rows. Every change returns a new one.
Behind a window it holds one open batch for each window; otherwise it holds one.

What it promises:

- A batch gets its number when it is opened. No other batch ever gets this number, and the batch keeps its blocks until it is done.
- Batches are done in the order in which they were closed; those that are closed together, in the order of their windows' ends.
- A batch never has more rows than `max_rows`; it is closed as soon as it is full.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple, Protocol

from .batch_progress import NEVER_RETRIED, AtSpark, Retried
from .manifest import ManifestEntry
from .origins import Origin
from .publishing import SparkWrite, Undone
from .ranges import RangeRead, Ranges
from .sinking import SinkOwner

ROWS = "rows"
BYTES = "bytes"
AGE = "age"
FORMAT = "book 4, Arrow blocks with times and origins"
"""The format in which a batch step stores its bookkeeping and its rows. The text changes when one of them is stored differently."""

META = "meta"
"""The stored row with the next number, the next turn, and when the book was begun."""
FIRST_ROW, LAST_ROW = "b000000000000", "b999999999999"
"""The stored rows of batches lie between these names, of which none is used."""

BLOCK_ROWS = 5_000
BLOCK_BYTES = 1 << 20
"""The maximum size of a block of rows or results, unless a single row is larger. A block is one record of the task's log, and one step of
a letter sends a few blocks."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What closes a batch, besides its window, the end of its stream and a drain."""

    max_rows: int | None = None
    max_bytes: int | None = None
    max_age_ms: int | None = None


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """What `fn(df, batch)` learns about its batch. All but `attempt` stay the same, however often the batch runs.

    >>> BatchInfo("Partition 0", "daily", 7, 1000, ROWS).id
    'Partition 0/daily/7'
    """

    task: str
    stage: str
    number: int
    rows: int
    closed_by: str
    """`rows`, `bytes`, `age`, `watermark`, `clock`, `end` or `drain`."""
    attempt: int = 1
    """Which run of the batch this is, since its task has come to this worker."""
    window_start: int | None = None
    window_end: int | None = None
    """The bounds of its window in ms; its rows have times from the start up to, but not including, the end. None without a window."""
    earliest_ms: int = 0
    latest_ms: int = 0
    """The least and the greatest timestamp of its rows."""
    turn: int = 0
    """Its place in the order in which the batches of its task and stage were closed. Batches are done in this order."""

    @property
    def id(self) -> str:
        """Task, stage and number."""
        return f"{self.task}/{self.stage}/{self.number}"

    def __reduce__(self) -> tuple[Any, ...]:
        """In an executor, where a function that uses it is sent, it has the same facts, and needs no package."""
        facts = {one.name: getattr(self, one.name) for one in fields(self)}
        return SimpleNamespace, (), {**facts, "id": self.id}


def manifest_entry(write: SparkWrite, batch: BatchInfo, stage: str, attempt: str) -> ManifestEntry:
    """What a manifest says of an attempt at a batch. Of offsets by reference no times are known: both are 0."""
    times = (batch.earliest_ms, batch.latest_ms)
    earliest_ms, latest_ms = times if times != (0, 0) else (None, None)
    return ManifestEntry(
        job=write.job,
        stage=stage,
        task=batch.task,
        batch=batch.id,
        number=batch.number,
        attempt=attempt,
        batch_rows=batch.rows,
        closed_by=batch.closed_by,
        window_start=batch.window_start,
        window_end=batch.window_end,
        earliest_ms=earliest_ms,
        latest_ms=latest_ms,
    )


class WindowBounds(NamedTuple):
    """A window: the rows with `start <= time < end`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Open:
    """A batch that takes rows."""

    number: int
    start: int | None = None
    end: int | None = None
    """The bounds of its window."""
    rows: int = 0
    size: int = 0
    since_ms: int = 0
    """When its first row arrived, by the wall clock."""
    earliest_ms: int = 0
    latest_ms: int = 0

    @property
    def window(self) -> WindowBounds | None:
        """Its window."""
        return None if self.start is None or self.end is None else WindowBounds(self.start, self.end)

    @property
    def result_ms(self) -> int:
        """The timestamp that its results would have if it were closed now."""
        return _result_ms(self)


def _no_names() -> Mapping[str, Sequence[str]]:
    return {}


@dataclass(frozen=True, slots=True)
class Closed:
    """A batch that is closed but not done."""

    number: int
    start: int | None
    end: int | None
    rows: int
    size: int
    since_ms: int
    earliest_ms: int
    latest_ms: int
    why: str
    turn: int
    """Its place in the order in which batches were closed."""
    stored: int = 0
    """How many blocks of its result are stored; a result that fits into one step is never stored."""
    whole: bool = False
    """Whether the stored blocks are the whole result."""
    sent: int = 0
    """How many of the stored blocks have been sent."""
    named: Mapping[str, Sequence[str]] = field(default_factory=_no_names)
    """For each stage that writes files, the target, and the attempt that counts. Not empty: Spark is done, and its files are published."""

    @property
    def all_sent(self) -> bool:
        """Whether no stored block is left to be sent."""
        return self.sent == self.stored

    @property
    def result_ms(self) -> int:
        """The timestamp of its results: the last millisecond of its window, or without a window the greatest timestamp of its rows."""
        return _result_ms(self)

    def info(self, task: str, stage: str, attempt: int = 1) -> BatchInfo:
        """What its function learns."""
        return BatchInfo(
            task,
            stage,
            self.number,
            self.rows,
            self.why,
            attempt,
            self.start,
            self.end,
            self.earliest_ms,
            self.latest_ms,
            self.turn,
        )


def _result_ms(one: Open | Closed) -> int:
    return one.latest_ms if one.end is None else one.end - 1


def _no_batches() -> Mapping[WindowBounds | None, Open]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Book:
    """The batches of one task and stage."""

    number: int = 1
    """The number of the batch that is opened next."""
    turn: int = 0
    """The turn of the batch that is closed next."""
    open: Mapping[WindowBounds | None, Open] = field(default_factory=_no_batches)
    """The open batches by their windows. Each has rows."""
    closed: tuple[Closed, ...] = ()
    """By turn."""
    begun_ms: int | None = None
    """When the first row of the first batch arrived, by the wall clock. With it, numbers that begin again at 1 can be told apart."""

    # ------------------------------------------------------------------------------------------------------------ rows

    def opened(self, window: WindowBounds | None = None) -> Open:
        """The open batch of a window; one that would be opened now, if there is none."""
        start, end = window or (None, None)
        return self.open.get(window) or Open(self.number, start, end)

    def room(self, limits: Limits, window: WindowBounds | None = None) -> tuple[int | None, int | None]:
        """How many rows and bytes the open batch still takes; None means no limit."""
        one = self.opened(window)
        rows = None if limits.max_rows is None else limits.max_rows - one.rows
        size = None if limits.max_bytes is None else max(0, limits.max_bytes - one.size)
        return rows, size

    def with_rows(
        self, window: WindowBounds | None, rows: int, size: int, *, now_ms: int, times: tuple[int, int]
    ) -> Book:
        """The book after these rows were added to the window's batch. `times`: the least and the greatest timestamp of the rows."""
        one = self.opened(window)
        earliest, latest = times
        grown = replace(
            one,
            rows=one.rows + rows,
            size=one.size + size,
            since_ms=one.since_ms if one.rows else now_ms,
            earliest_ms=min(one.earliest_ms, earliest) if one.rows else earliest,
            latest_ms=max(one.latest_ms, latest) if one.rows else latest,
        )
        number = self.number if one.rows else self.number + 1
        begun_ms = now_ms if self.begun_ms is None else self.begun_ms
        return replace(self, number=number, open=MappingProxyType({**self.open, window: grown}), begun_ms=begun_ms)

    @property
    def size(self) -> int:
        """How many bytes the open batches hold."""
        return sum(one.size for one in self.open.values())

    # --------------------------------------------------------------------------------------------------------- closing

    def close(self, why: str, windows: Sequence[WindowBounds | None] = (None,)) -> Book:
        """Close the open batches of these windows, in this order. A window without rows has none."""
        still, closed = dict(self.open), list(self.closed)
        for turn, window in enumerate((one for one in windows if one in self.open), self.turn):
            one = still.pop(window)
            closed.append(
                Closed(
                    one.number,
                    one.start,
                    one.end,
                    one.rows,
                    one.size,
                    one.since_ms,
                    one.earliest_ms,
                    one.latest_ms,
                    why,
                    turn,
                )
            )
        if len(closed) == len(self.closed):
            return self
        turn = self.turn + len(closed) - len(self.closed)
        return replace(self, turn=turn, open=MappingProxyType(still), closed=tuple(closed))

    def when_full(self, limits: Limits, window: WindowBounds | None = None) -> Book:
        """Close the open batch if it is full."""
        one = self.open.get(window)
        if one is None:
            return self
        if limits.max_rows is not None and one.rows >= limits.max_rows:
            return self.close(ROWS, (window,))
        if limits.max_bytes is not None and one.size >= limits.max_bytes:
            return self.close(BYTES, (window,))
        return self

    def due(self, upto: int | None = None) -> list[WindowBounds | None]:
        """The windows of open batches that end at `upto` or before (None: all), in the order of their ends. A batch without a window is due
        only with all."""
        found: list[WindowBounds] = sorted((one for one in self.open if one is not None), key=lambda one: one.end)
        if upto is None:
            return [*([None] if None in self.open else []), *found]
        return [one for one in found if one.end <= upto]

    def first_end(self) -> int | None:
        """The least end of the windows that are open."""
        return min((one.end for one in self.open if one is not None), default=None)

    def due_ms(self, limits: Limits) -> int | None:
        """When the open batch reaches its maximum age; None if it never does."""
        if limits.max_age_ms is None:
            return None
        return min((one.since_ms + limits.max_age_ms for one in self.open.values()), default=None)

    # --------------------------------------------------------------------------------------------------------- results

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

        >>> book = Book().with_rows(None, 1, 9, now_ms=0, times=(5, 5)).close(ROWS)
        >>> Book().owed_ms(), book.with_rows(None, 1, 9, now_ms=0, times=(7, 7)).owed_ms()
        (None, 5)
        """
        return min((one.result_ms for one in (*self.closed, *self.open.values())), default=None)

    def full(self, in_flight: int) -> bool:
        """Whether so many batches wait that no more rows should be taken."""
        return len(self.closed) > in_flight

    def undone(self) -> Undone:
        """Which batches are not done."""
        return Undone(self.number, frozenset(self._batches()))

    # ---------------------------------------------------------------------------------------------------------- stored

    def changes(self, before: Book) -> tuple[dict[str, Any], list[str]]:
        """The stored rows that differ from those of `before`, and the names of those that are gone."""
        was, now = before._batches(), self._batches()
        put: dict[str, Any] = {_row(number): _packed(one) for number, one in now.items() if was.get(number) is not one}
        if (self.number, self.turn) != (before.number, before.turn):
            put[META] = [self.number, self.turn, self.begun_ms]
        return put, [_row(number) for number in was if number not in now]

    def _batches(self) -> dict[int, Open | Closed]:
        return {one.number: one for one in (*self.open.values(), *self.closed)}

    @classmethod
    def of(cls, meta: Sequence[Any] | None, rows: Sequence[Sequence[Any]]) -> Book:
        """The book from its stored rows; an empty book from None.

        >>> Book.of([3, 1, 0], []).number
        3
        """
        number, turn, begun_ms = meta or (1, 0, None)
        opened = [Open(*values) for is_closed, *values in rows if not is_closed]
        closed = [Closed(*values) for is_closed, *values in rows if is_closed]
        return cls(
            number,
            turn,
            MappingProxyType({one.window: one for one in sorted(opened, key=lambda one: one.number)}),
            tuple(sorted(closed, key=lambda one: one.turn)),
            begun_ms,
        )


def _row(number: int) -> str:
    return f"b{number:012d}"


_OF_OPEN = attrgetter(*(one.name for one in fields(Open)))
_OF_CLOSED = attrgetter(*(one.name for one in fields(Closed)))


def _packed(one: Open | Closed) -> list[Any]:
    return [True, *_OF_CLOSED(one)] if isinstance(one, Closed) else [False, *_OF_OPEN(one)]


@dataclass(frozen=True, slots=True)
class Inline:
    """A batch whose rows are here: in blocks, in their order. A block may be read from the task's store when it is asked for."""

    blocks: Sequence[bytes]
    size: int = 0
    """About how many bytes all rows have."""
    came_from: Callable[[], Sequence[Origin]] = tuple
    """Gives the origins of the rows. It may read them from the task's store."""


Contents = Inline | Ranges
"""The rows of a batch."""


@dataclass(frozen=True, slots=True)
class SparkStage:
    """One `.spark(...)` after a batch. `keeps_going`: rows that make it fail are left out instead of failing the task. `write`: how Spark
    itself writes the result."""

    name: str
    fn: Callable[[Any, Any], Any]
    schema: Any
    keeps_going: bool = False
    write: SparkWrite | None = None


@dataclass(frozen=True, slots=True)
class SinkStage:
    """One sink after a batch. `make` makes the sink; `transactional`: it undoes what it has not committed; `keeps_going`: as of a
    Spark stage. `write`: the rows go to files instead. `owner`: who writes, known when a task runs it."""

    name: str
    make: Callable[[], Any]
    transactional: bool = False
    keeps_going: bool = False
    write: SparkWrite | None = None
    owner: SinkOwner | None = None


BatchStage = SparkStage | SinkStage
"""What a batch goes to."""


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """The result of a batch in one stage: rows in blocks, and the rows left out, each with its index in the batch and the reason.
    `attempt`: the files that wait to be published instead of rows."""

    blocks: Sequence[Any]
    """A block may be made when it is asked for."""
    rows: int
    bad: Sequence[tuple[int, Mapping[str, Any], Exception]] = ()
    attempt: str = ""
    largest: int = 0
    """The bytes of the largest block."""
    read: Sequence[RangeRead] = ()
    """Of a batch by reference: what its readers have seen."""
    retried: Retried = NEVER_RETRIED
    """The attempts that were repeated before this one."""


class Bridge(Protocol):
    """What a task needs from the package that runs batches. A *table* is that package's column type, opaque here."""

    def select(self, batch: Any, picked: Any) -> Any:
        """The rows at these places (None: all) of columns that speak the Arrow capsule interface, as a table."""
        ...

    def take(self, table: Any, places: Any) -> Any:
        """The rows of a table at these places, 64-bit integers."""
        ...

    def alike(self, table: Any, other: Any) -> bool:
        """Whether both tables have the same columns, so that one block can hold the rows of both."""
        ...

    def split(self, table: Any, rows: int | None, size: int | None) -> tuple[Any, int, int, Any]:
        """The part of the table that fits, its rows and bytes, and the rest (None: nothing is left)."""
        ...

    def encode(self, tables: Sequence[Any]) -> bytes:
        """A block with the rows of these tables, which have the same columns."""
        ...

    def table(self, block: bytes) -> Any:
        """The table of a block."""
        ...

    def decode(self, block: bytes) -> list[dict[str, Any]]:
        """The rows of a block."""
        ...

    def run(
        self, batch: BatchInfo, contents: Contents, stages: Sequence[Any]
    ) -> Coroutine[Any, Any, list[BatchOutcome]]:
        """Run a batch through its stages, which are this package's. Raises on failure; an error with `final` set is not worth a retry."""
        ...

    def seen(self) -> AtSpark:
        """What is known of Spark and of the batches that it works on. Returns at once."""
        ...

    def publish(self, write: SparkWrite, number: int, attempt: str, undone: Undone) -> Coroutine[Any, Any, None]:
        """Publish the files of the attempt of a batch that counts, and delete what attempts of batches that are done have left. It may be
        repeated."""
        ...

    async def warm(self) -> None:
        """Prepare for the first batch."""
        ...

    async def close(self) -> None:
        """Release everything."""
        ...
