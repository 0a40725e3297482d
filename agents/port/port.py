"""The port: all that the runtime needs of its surroundings: Kafka's bytes, the clock, threads.

The code that carries out the instructions of the machines (`runtime` for tasks, `coordinator` for the process) uses only this interface. So
the same code runs on a worker (`kafka.port`: Kafka, the wall clock, threads) and in the test driver (`testing.port`: logs in memory,
virtual time). The interface is in terms of bytes and offsets, never of a client library. It raises headgate's own errors: those of `errors`
for writing, of `records.fetched` for reading, and `EnvironmentFault` for the rest. `CancelledError` comes out of it only if headgate has
asked for the cancellation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ...core.errors import HeadgateError
from ...core.machine import Now
from ...core.names import StreamPartition
from ..records.kafka.fetched import FetchAnswer, Taken
from ..records.kafka.spans import SpannedRecords
from ..records.layout import Buffer
from .broker_clock import BrokerClock
from .errors import Cause

R = TypeVar("R")
LOG_DELETE_RETENTION_MS = 24 * 3_600_000
"""How long Kafka keeps the tombstones of a task log, and the marker of each transaction: 80 bytes per commit, so up to 35 MB in a busy job.
A store that was away for half of this time restores from the log.
"""


class Timer(Protocol):
    """A pending call of the clock."""

    def cancel(self) -> None:
        """Cancel the call."""
        ...


class Clock(Protocol):
    """Time and timers of one event loop."""

    def now(self) -> Now:
        """The monotonic time and the wall-clock time."""
        ...

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> Timer:
        """Call `callback` once after the delay; never before this method returns."""
        ...


class MailboxClosed(HeadgateError):
    """The actor behind a mailbox has stopped. If it failed, `__cause__` is the reason."""


class Mailbox(Protocol):
    """The mailbox of one actor. Letters are handled one at a time, in the order in which they were put."""

    async def start(self) -> None:
        """Start taking letters."""
        ...

    async def put(self, letter: Any) -> None:
        """Put a letter into the mailbox; waits while it is full. Raises `MailboxClosed` if the actor has stopped."""
        ...

    async def stop(self) -> None:
        """Stop the actor and cancel what it is doing."""
        ...


class Offsets(Protocol):
    """Looks up where logs start and end. While no broker answers, these methods wait; a broker's error is raised."""

    async def start_of(self, at: StreamPartition) -> int:
        """The first offset of the log."""
        ...

    async def end_of(self, at: StreamPartition, *, committed: bool) -> int:
        """The end of the log: with `committed`, where a read_committed consumer stops; else including open transactions."""
        ...

    async def of_time(self, at: StreamPartition, ms: int) -> int | None:
        """The offset of the first record with this timestamp or a later one; None if there is none."""
        ...

    async def topic_id(self, topic: str) -> str:
        """The id of the topic as of now; empty if the broker has no ids, or there is no such topic."""
        ...


class BatchInWork(Protocol):
    """A record batch under construction for one partition."""

    count: int
    parts: list[tuple[int, str]]
    """Which task wrote which part: for each part, the index behind its last record, and the task."""

    @property
    def size(self) -> int:
        """Bytes so far, before compression."""
        ...

    def add(
        self,
        keys: Sequence[bytes | None] | None,
        values: Sequence[bytes | None],
        stamps: Sequence[int] | int,
        headers: Sequence[Sequence[tuple[str, bytes | None]]] | None,
        start: int,
    ) -> int:
        """Append records from index `start`. Returns the index of the first that did not fit, or the number of values if all did."""
        ...

    def add_spans(self, records: SpannedRecords, rows: Buffer | None, start: int) -> int:
        """As `add`, of records that lie in buffers: these rows of them in this order, or all."""
        ...

    def written_by(self, task: str) -> None:
        """Mark what was added since the last call as written by this task."""
        ...


class Producer(Protocol):
    """A client that writes: in transactions if it has a transactional id, otherwise at once.

    Starting one fences the previous producer with the same transactional id: its open transaction is aborted, and it can write no more.

    It belongs to one coroutine. After any failure it must be discarded.
    """

    async def start(self, *, deadline_s: float) -> None:
        """Connect, and initialise the transactional id exactly once. Retries until the deadline while no broker answers.

        Raises `EnvironmentFault` if no broker answers, and `ProducerBroken` if the id cannot be initialised. In both cases nothing is left
        open.
        """
        ...

    def batch(self, limit: int) -> BatchInWork:
        """An empty batch for this producer, of at most `limit` bytes before compression. It may be made before `start`."""
        ...

    async def begin(self) -> None:
        """Begin a transaction. Raises `Fenced` or `ProducerBroken`."""
        ...

    async def send(self, at: StreamPartition, batch: BatchInWork) -> asyncio.Future[int]:
        """Hand a batch over. Waits while the client has no room, silently if the topic is gone or the partition has no leader.

        The future gives the offset of the batch's first record, or -1 if the broker had the batch already and its offset is not known.
        Raises `NotSent`, and `ProducerBroken` once it is discarded. Only `explain` can interpret what this method or the future raises; the
        future's error need not be retrieved. The log of a partition contains the batches in the order in which they were handed over.
        """
        ...

    async def commit(self) -> None:
        """Commit the transaction. All futures must have succeeded. Raises `Fenced` or `OutcomeUnknown`; if cancelled, it may have
        committed.
        """
        ...

    async def abort(self) -> None:
        """Abort the open transaction, if the client still can. Raises `ProducerBroken`."""
        ...

    async def discard(self) -> None:
        """Close the producer, in whatever state it is. Nothing is left open, nothing is raised, and nothing more is written."""
        ...

    def explain(self, error: BaseException, at: StreamPartition) -> Cause:
        """What an error means that was raised for a batch of this partition."""
        ...

    def knows(self, topic: str) -> bool:
        """Whether the topic exists, according to the latest metadata."""
        ...

    def leaderless(self, at: StreamPartition) -> bool:
        """Whether this partition has no leader, according to the latest metadata."""
        ...

    def look_again(self) -> None:
        """Request new metadata."""
        ...


class Consumer(Protocol):
    """A client that reads the partitions of one task, read committed. It starts each at the given offset and never resets a position by
    itself.

    It reports each fetch answer to `answered` before `take` returns the records of that answer. No method but `start` may be called before
    `start` has returned.
    """

    async def start(self, where: Callable[[], Mapping[StreamPartition, int]], *, deadline_s: float) -> None:
        """Connect, and start fetching these partitions. `where` gives the positions; it is called once the client is connected.

        Retries until the deadline while no broker answers. When this returns, nothing has been fetched yet: a `pause` before the next await
        takes effect in time.
        """
        ...

    async def take(self) -> list[Taken]:
        """What has been fetched since the last call, without waiting for the network: of a partition in one or several pieces, in order."""
        ...

    def seek(self, at: StreamPartition, offset: int) -> None:
        """Continue at another offset. Records fetched before the seek do not come any more, or are recognisable by their `start`."""
        ...

    def pause(self, at: StreamPartition) -> None:
        """Stop fetching this partition."""
        ...

    def resume(self, at: StreamPartition) -> None:
        """Fetch this partition again."""
        ...

    def long_poll(self, most_ms: int) -> None:
        """Set how long a broker may hold back the next fetch answer when there is nothing new."""
        ...

    def fetch_bytes(self, most: int) -> None:
        """Set how many bytes of a partition the next fetch asks for."""
        ...

    async def bounds(self, at: StreamPartition, *, within_s: float) -> tuple[int, int] | None:
        """The start and the end of the partition's log for this reader; None if no answer comes in time."""
        ...

    def topic_id(self, topic: str) -> str:
        """The id of the topic from which `take` brings records, according to the latest metadata; empty if it is not known.

        Records of a topic that was re-created are not brought before this tells its id.
        """
        ...

    async def topic_id_now(self, topic: str, *, within_s: float) -> str:
        """The id of the topic as the broker says it when asked, whatever the metadata says; empty if it is not known in time."""
        ...

    def knows(self, topic: str) -> bool:
        """Whether the topic exists, according to the latest metadata."""
        ...

    @property
    def dead(self) -> bool:
        """Whether fetching has ended for good. The consumer must then be replaced."""
        ...

    async def stop(self) -> None:
        """Close the consumer. Raises nothing."""
        ...


Background = Callable[[], Awaitable[None]]
"""Something to run in the background. A function and not a coroutine: one that is cancelled before it starts leaves nothing behind."""

Tell = Callable[..., None]
"""`tell(callback, *arguments)`: call this in the loop that started the separate work."""


class Apart(Protocol):
    """Work that runs separately."""

    async def stop(self) -> None:
        """Cancel the work, and wait until it has ended."""
        ...


class Process(Protocol):
    """The process around the runtime: it runs coroutines and reports what must not happen."""

    def crash(self, error: BaseException) -> None:
        """End the process because of an error that must not happen."""
        ...

    def spawn(self, work: Background, name: str) -> asyncio.Task[None]:
        """Run a coroutine in the background that ends by itself. An exception of it ends the process."""
        ...

    async def serve(self, name: str, work: Background) -> Any:
        """Run a coroutine in the background until it ends or the process does."""
        ...

    def mailbox(
        self,
        name: str,
        on_letter: Callable[[Any], Awaitable[None]],
        on_gone: Callable[[BaseException | None], None],
        on_again: Callable[[], None],
    ) -> Mailbox:
        """A mailbox for an actor. `on_gone` is called once when the actor has stopped, `on_again` when it has been started again."""
        ...


class Port(Protocol):
    """The surroundings of a runtime."""

    @property
    def where(self) -> str:
        """What it connects to, for messages to people."""
        ...

    @property
    def clock(self) -> Clock: ...

    @property
    def broker(self) -> BrokerClock:
        """The time of the brokers."""
        ...

    @property
    def silent(self) -> bool:
        """Whether a fetch can stay unanswered. If not, no one has to watch for silent partitions."""
        ...

    def producer(
        self,
        transactional_id: str | None,
        *,
        name: str,
        compression: str | None,
        batch_bytes: int,
        request_timeout_ms: int,
        transaction_timeout_ms: int,
        idempotent: bool = False,
    ) -> Producer:
        """A producer, not yet started. `idempotent`: even without a transactional id, a retry never puts a copy of an earlier batch behind
        a newer one.
        """
        ...

    def consumer(
        self,
        answered: Callable[[StreamPartition, FetchAnswer], None],
        *,
        name: str,
        fetch_bytes: int,
        max_wait_ms: int,
        raw: bool,
    ) -> Consumer:
        """A consumer, not yet started."""
        ...

    async def probe(self, transactional_id: str, target: StreamPartition, *, narrower: bool) -> str:
        """Why this partition cannot be written now; empty if it can. Tested with a transaction of this id, which is aborted at once.

        `narrower`: the topic may have been created again with fewer partitions. If this partition does not exist, the first one is tested.
        """
        ...

    def apart(self, name: str, work: Callable[[Tell], Awaitable[None]]) -> Apart:
        """Run this separately, where a busy loop does not delay it, until it is stopped. It uses producers and consumers of its own."""
        ...

    async def in_thread(self, work: Callable[[], R]) -> R:
        """Run something slow or blocking in a thread. It cannot be cancelled."""
        ...
