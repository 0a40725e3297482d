"""The port: all that a task's runtime needs of the world. Kafka's bytes, the clock, threads.

Whatever carries out what the machines say (of tasks: all of `runtime`; of a process: `coordinator`) speaks to this and to nothing else:
so it is the same code on a worker (`kafka.port`: Kafka, the wall clock, threads) and in a test driver (`testing.port`: logs in memory,
virtual time). It speaks of bytes and offsets, never of a client library; what is raised is headgate's own: `errors` where something is
written, `records.fetched` where something is read, `EnvironmentFault` for the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ...core.errors import HeadgateError
from ...core.machine import Now
from ...core.names import StreamPartition
from ..records.fetched import FetchAnswer, Taken
from .errors import Cause

R = TypeVar("R")


class Timer(Protocol):
    """Something that the clock will call."""

    def cancel(self) -> None:
        """It is not called any more."""
        ...


class Clock(Protocol):
    """Time, for whoever waits. Of one event loop."""

    def now(self) -> Now:
        """Both times."""
        ...

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> Timer:
        """Call this once when so much time has passed; never before this returns."""
        ...

    async def wait(self, event: asyncio.Event, most_s: float | None) -> bool:
        """Wait for the event, at most so long; whether it came."""
        ...


async def pause(clock: Clock, seconds: float) -> None:
    """Wait so long."""
    await clock.wait(asyncio.Event(), seconds)


async def in_time(clock: Clock, most_s: float, work: Awaitable[R]) -> R:
    """What is awaited; `TimeoutError` after so long. Then it is called off, and may have happened."""
    running, done = asyncio.ensure_future(work), asyncio.Event()  # noqa: TID251 - awaited here, with its end
    running.add_done_callback(lambda _: done.set())
    try:
        if not await clock.wait(done, most_s):
            raise TimeoutError(f"no answer for {most_s:g} s")
        return running.result()
    finally:
        if not running.done():
            running.cancel()
            await asyncio.wait([running])


class MailboxClosed(HeadgateError):
    """The actor behind a mailbox has stopped; `__cause__` says why, if it failed."""


class Mailbox(Protocol):
    """One actor: its letters are awaited for one at a time, in the order in which they were put in."""

    async def start(self) -> None:
        """From here on letters are taken."""
        ...

    async def put(self, letter: Any) -> None:
        """Put a letter in; waits while it is full. Raises `MailboxClosed` when the actor has gone."""
        ...

    async def stop(self) -> None:
        """End the actor (what runs is cancelled)."""
        ...


class Offsets(Protocol):
    """Where logs start and end, asked of a broker now. While none answers these wait; what it refuses is raised."""

    async def start_of(self, at: StreamPartition) -> int:
        """Where the log begins."""
        ...

    async def end_of(self, at: StreamPartition, *, committed: bool) -> int:
        """Where it ends: for a reader of what is committed, or with open transactions."""
        ...

    async def of_time(self, at: StreamPartition, ms: int) -> int | None:
        """The first record of this time or later; None when there is none."""
        ...


class BatchInWork(Protocol):
    """A record batch under construction for one partition."""

    count: int
    parts: list[tuple[int, str]]
    """Who wrote it: each task with the number of records up to which it did."""

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
        """Append records from index `start` on; the index of the first that did not fit (the number of values when all did)."""
        ...

    def written_by(self, task: str) -> None:
        """What was added since the last time is this task's."""
        ...


class Producer(Protocol):
    """One client that writes: in the transactions of one transactional id, or, without one, at once.

    Whoever starts one with a transactional id fences the one that had it: what that one has open is aborted, and it can write no more.

    One coroutine owns it. After any failure it is thrown away.
    """

    async def start(self, *, deadline_s: float) -> None:
        """Connect, and initialise the transactional id, exactly once. While no broker answers it tries again, until the deadline.

        Raises `EnvironmentFault` when nobody answers, `ProducerBroken` when the id cannot be initialised; nothing is left open then.
        """
        ...

    def batch(self, limit: int) -> BatchInWork:
        """A batch for this producer, of at most so many bytes before compression. It may be made before `start`."""
        ...

    async def begin(self) -> None:
        """Begin a transaction. Raises `Fenced` or `ProducerBroken`."""
        ...

    async def send(self, at: StreamPartition, batch: BatchInWork) -> asyncio.Future[int]:
        """Hand a batch over. Waits for room in the client, without a word for a topic that is gone or a partition without a leader.

        The future is the offset of its first record (-1: it was there already, nobody knows where), or raises. Raises `NotSent`;
        what it or the future raises is for `explain` alone, and may be left unasked. Batches for one partition stand in its log in
        the order in which they were handed over.
        """
        ...

    async def commit(self) -> None:
        """Commit what was sent; every future must have succeeded. Raises `Fenced` or `OutcomeUnknown`; cancelled, it may have happened."""
        ...

    async def abort(self) -> None:
        """Abort the open transaction, if the client still can. Raises `ProducerBroken`."""
        ...

    async def discard(self) -> None:
        """Throw it away, also in the middle of something: nothing is left open, nothing is raised, and nothing is written any more."""
        ...

    def explain(self, error: BaseException, at: StreamPartition) -> Cause:
        """What it means that this was raised for a batch of this partition."""
        ...

    def knows(self, topic: str) -> bool:
        """Whether the topic exists, as far as was heard last."""
        ...

    def leaderless(self, at: StreamPartition) -> bool:
        """Whether nobody takes what is for this partition, as far as was heard last."""
        ...

    def look_again(self) -> None:
        """Ask anew which topics and leaders there are."""
        ...


class Consumer(Protocol):
    """One client that reads the partitions of one task, read committed, each from where it was told to, and never from elsewhere.

    Each answer of a broker is told to `answered`, before `take` gives what it brought. Nothing but `start` is asked of it before that
    has returned.
    """

    async def start(self, where: Callable[[], Mapping[StreamPartition, int]], *, deadline_s: float) -> None:
        """Connect, and fetch these partitions from these positions, which are asked for when it is connected. While no broker answers
        it tries again, until the deadline. Nothing has been fetched when this returns: a pause in the same step of the loop is in time.
        """
        ...

    async def take(self) -> list[Taken]:
        """What has been fetched, without waiting for the network. It goes on behind what was taken."""
        ...

    def seek(self, at: StreamPartition, offset: int) -> None:
        """Go on elsewhere. What comes of before is told by its `start`, or does not come."""
        ...

    def pause(self, at: StreamPartition) -> None:
        """Fetch nothing of this."""
        ...

    def resume(self, at: StreamPartition) -> None:
        """Fetch it again."""
        ...

    def long_poll(self, most_ms: int) -> None:
        """How long a broker may hold the next fetch back when it has nothing new."""
        ...

    async def bounds(self, at: StreamPartition, *, within_s: float) -> tuple[int, int] | None:
        """Where the log of a partition starts and ends for it; None when nobody says it in time."""
        ...

    def knows(self, topic: str) -> bool:
        """Whether the topic exists, as far as was heard last."""
        ...

    @property
    def dead(self) -> bool:
        """Whether it reads no more, and will not: then another takes its place."""
        ...

    async def stop(self) -> None:
        """Close it; nothing is raised."""
        ...


Tell = Callable[..., None]
"""`tell(callback, *arguments)`: have this called in the loop of whoever asked for what runs apart."""


class Apart(Protocol):
    """Something that runs apart."""

    async def stop(self) -> None:
        """Cancel it, and wait until it has ended."""
        ...


class Process(Protocol):
    """The process around whatever runs over a port: who runs its coroutines, and hears of what must not happen."""

    def crash(self, error: BaseException) -> None:
        """Something that must not happen did."""
        ...

    def spawn(self, work: Awaitable[None], name: str) -> asyncio.Task[None]:
        """Run something beside that ends by itself; what it raises ends the process."""
        ...

    async def serve(self, name: str, work: Awaitable[None]) -> Any:
        """Run something beside for as long as the process lives, or until it ends."""
        ...

    def mailbox(
        self,
        name: str,
        on_letter: Callable[[Any], Awaitable[None]],
        on_gone: Callable[[BaseException | None], None],
        on_again: Callable[[], None],
    ) -> Mailbox:
        """An actor's mailbox. `on_gone` is told once when the actor has stopped, `on_again` when somebody has started it again."""
        ...


class Port(Protocol):
    """The world."""

    @property
    def where(self) -> str:
        """What it is, for people who must be told that it does not answer."""
        ...

    @property
    def clock(self) -> Clock: ...

    @property
    def silent(self) -> bool:
        """Whether it can be silent. Else every fetch is answered at any moment, and nobody need look who has not been."""
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
        """A producer that is not started. `idempotent`: no copy of an earlier batch lands behind a newer one, without an id either."""
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
        """A consumer that is not started."""
        ...

    async def probe(self, transactional_id: str, target: StreamPartition, *, narrower: bool) -> str:
        """Why this partition cannot be written now; nothing when it can. Asked in a transaction of this id that is aborted at once.

        `narrower`: whether the topic may have come back with fewer partitions; then it is well when its first one is.
        """
        ...

    def apart(self, name: str, work: Callable[[Tell], Awaitable[None]]) -> Apart:
        """Run this where a busy loop does not hold it up, until it is stopped. It uses producers and consumers of its own."""
        ...

    async def beside(self, work: Callable[[], R]) -> R:
        """Run something that takes long, or waits for a disk, where it holds up nobody. It cannot be called off."""
        ...
