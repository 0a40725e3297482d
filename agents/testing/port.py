"""The port of a test driver: logs in memory, a clock that moves on request, and nothing that takes real time.

Promises: every request is answered at once, so nothing is ever silent. Background work runs on the same loop. The same order of calls gives
the same order of answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from ...core.names import StreamPartition
from ..port.broker_clock import BrokerClock
from ..port.errors import Cause, Fenced, OutboxError, ProducerBroken
from ..port.port import BatchInWork, MailboxClosed, Tell
from ..records.kafka.fetched import FetchAnswer, OutOfRange, Taken
from .clock import VirtualClock
from .logs import Gathered, Logs

R = TypeVar("R")


class MemoryProducer:
    """Writes to logs in memory."""

    def __init__(self, logs: Logs, transactional_id: str | None) -> None:
        self._logs = logs
        self._id = transactional_id
        self._gone = False

    async def start(self, *, deadline_s: float) -> None:
        """See `port`."""
        if self._id is not None:
            self._logs.initialise(self._id, self)

    def batch(self, limit: int) -> Gathered:
        """See `port`."""
        return Gathered(limit)

    def _live(self) -> None:
        if self._gone:
            raise ProducerBroken("the producer is discarded")
        if self._id is not None and self._logs.fenced(self._id, self):
            raise Fenced(f"another has {self._id}")

    async def begin(self) -> None:
        """See `port`."""
        self._live()

    async def send(self, at: StreamPartition, batch: BatchInWork) -> asyncio.Future[int]:
        """See `port`."""
        self._live()
        assert isinstance(batch, Gathered)
        inside = None if self._id is None else self
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        answer.set_result(self._logs.write(at, batch.keys, batch.values, batch.stamps, batch.headers, inside))
        return answer

    async def commit(self) -> None:
        """See `port`."""
        self._live()
        self._logs.finish(self, committed=True)

    async def abort(self) -> None:
        """See `port`."""
        self._logs.finish(self, committed=False)

    async def discard(self) -> None:
        """See `port`."""
        self._gone = True

    def explain(self, error: BaseException, at: StreamPartition) -> Cause:
        """See `port`."""
        return Cause(str(error), error=error if isinstance(error, OutboxError) else None)

    def knows(self, topic: str) -> bool:
        """See `port`."""
        return True

    def leaderless(self, at: StreamPartition) -> bool:
        """See `port`."""
        return False

    def look_again(self) -> None:
        """See `port`."""


class MemoryConsumer:
    """Reads logs in memory."""

    dead = False

    def __init__(
        self, port: MemoryPort, answered: Callable[[StreamPartition, FetchAnswer], None], *, fetch_bytes: int
    ) -> None:
        self._port = port
        self._answered = answered
        self._fetch_bytes = fetch_bytes
        self._positions: dict[StreamPartition, int] = {}
        self._paused: set[StreamPartition] = set()
        self._asked: set[StreamPartition] = set()
        """The partitions of which no answer has been reported since the last request: nothing of them is taken."""
        self._ends: list[Callable[[], None]] = []

    async def start(self, where: Callable[[], Mapping[StreamPartition, int]], *, deadline_s: float) -> None:
        """See `port`."""
        self._positions = dict(where())
        self._port.consumers[self] = None
        for at in self._positions:
            self._ends.append(self._port.logs.follow(at, self.answer))
            self._ask(at)

    def _ask(self, at: StreamPartition) -> None:
        self._asked.add(at)
        asyncio.get_running_loop().call_soon(self.answer, at)

    def answer(self, at: StreamPartition) -> None:
        """Report a broker's answer for this partition as of now."""
        if at in self._positions and at not in self._paused:
            self._asked.discard(at)
            log = self._port.logs.log(at)
            self._answered(at, FetchAnswer(self._port.clock.now().mono, "", log.end, log.stable, 0))

    def answer_all(self) -> None:
        """Report an answer for each partition: time has passed."""
        for at in self._positions:
            self.answer(at)

    async def take(self) -> list[Taken]:
        """See `port`."""
        found: list[Taken] = []
        for at, position in self._positions.items():
            log = self._port.logs.log(at)
            if at in self._paused or at in self._asked:
                continue
            if position > log.end:
                found.append(Taken(at, position, error=OutOfRange(f"{at} ends at {log.end}")))
            elif position < log.stable:
                pieces, following = log.read(position, self._fetch_bytes)
                found.append(Taken(at, position, [piece.batch() for piece in pieces], following))
                self._positions[at] = following
        return found

    def seek(self, at: StreamPartition, offset: int) -> None:
        """See `port`."""
        self._positions[at] = offset
        self._ask(at)

    def pause(self, at: StreamPartition) -> None:
        """See `port`."""
        self._paused.add(at)

    def resume(self, at: StreamPartition) -> None:
        """See `port`."""
        self._paused.discard(at)
        self._ask(at)

    def long_poll(self, most_ms: int) -> None:
        """See `port`."""

    def fetch_bytes(self, most: int) -> None:
        """See `port`."""
        self._fetch_bytes = most

    async def bounds(self, at: StreamPartition, *, within_s: float) -> tuple[int, int] | None:
        """See `port`."""
        return 0, self._port.logs.log(at).stable

    def knows(self, topic: str) -> bool:
        """See `port`."""
        return True

    def topic_id(self, topic: str) -> str:
        """See `port`."""
        return self._port.logs.topic_id(topic)

    async def topic_id_now(self, topic: str, *, within_s: float) -> str:
        """See `port`."""
        return self._port.logs.topic_id(topic)

    async def stop(self) -> None:
        """See `port`."""
        self._port.consumers.pop(self, None)
        for end in self._ends:
            end()
        self._positions = {}


class MemoryPort:
    """Everything in memory."""

    silent = False
    where = "memory"

    def __init__(self, logs: Logs, clock: VirtualClock) -> None:
        self.logs = logs
        self.clock = clock
        self.broker = BrokerClock()
        self.consumers: dict[MemoryConsumer, None] = {}

    def producer(self, transactional_id: str | None, **_: Any) -> MemoryProducer:
        """See `port`."""
        return MemoryProducer(self.logs, transactional_id)

    def consumer(
        self, answered: Callable[[StreamPartition, FetchAnswer], None], *, fetch_bytes: int, **_: Any
    ) -> MemoryConsumer:
        """See `port`."""
        return MemoryConsumer(self, answered, fetch_bytes=fetch_bytes)

    async def probe(self, transactional_id: str, target: StreamPartition, *, narrower: bool) -> str:
        """See `port`. Every partition can be written."""
        return ""

    def apart(self, name: str, work: Callable[[Tell], Awaitable[None]]) -> MemoryApart:
        """See `port`. No loop is busy for long here."""
        return MemoryApart(name, work)

    async def in_thread(self, work: Callable[[], R]) -> R:
        """See `port`. Nothing takes long here."""
        return work()

    async def start_of(self, at: StreamPartition) -> int:
        """See `port.Offsets`."""
        return 0

    async def end_of(self, at: StreamPartition, *, committed: bool) -> int:
        """See `port.Offsets`."""
        log = self.logs.log(at)
        return log.stable if committed else log.end

    async def of_time(self, at: StreamPartition, ms: int) -> int | None:
        """See `port.Offsets`."""
        for piece in self.logs.log(at).pieces:
            late = next((i for i, stamp in enumerate(piece.stamps) if stamp >= ms), None)
            if late is not None and not piece.aborted:
                return piece.base + late
        return None

    async def topic_id(self, topic: str) -> str:
        """See `port.Offsets`."""
        return self.logs.topic_id(topic)


class MemoryApart:
    """A coroutine on the same loop."""

    def __init__(self, name: str, work: Callable[[Tell], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()

        def tell(callback: Callable[..., None], *arguments: Any) -> None:
            loop.call_soon(callback, *arguments)

        async def live() -> None:
            await work(tell)

        self._body = loop.create_task(live(), name=name)

    async def stop(self) -> None:
        """See `port`."""
        self._body.cancel()
        await asyncio.wait([self._body])


class MemoryMailbox:
    """An actor that is a coroutine."""

    def __init__(self, name: str, on_letter: Callable[[Any], Any], on_gone: Callable[[BaseException | None], None]):
        self.name = name
        self.working = False
        """Whether a letter is being handled or waits."""
        self.ended = False
        self._on_letter = on_letter
        self._on_gone = on_gone
        self._letters: list[Any] = []
        self._came = asyncio.Event()
        self._body: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """See `port`."""
        self._body = asyncio.get_running_loop().create_task(self._run(), name=self.name)

    async def put(self, letter: Any) -> None:
        """See `port`."""
        if self._body is None or self._body.done():
            raise MailboxClosed(f"the actor '{self.name}' is gone")
        self._letters.append(letter)
        self.working = True
        self._came.set()

    async def _run(self) -> None:
        while True:
            await self._came.wait()
            while self._letters:
                letter = self._letters.pop(0)
                try:
                    await self._on_letter(letter)
                except Exception as error:  # noqa: BLE001 - any exception is this actor's failure
                    self.working, self.ended = False, True
                    self._on_gone(error)
                    return
            self._came.clear()
            self.working = False

    async def stop(self) -> None:
        """See `port`."""
        body, self._body = self._body, None
        self._letters.clear()
        self.ended = True
        if body is not None and body is not asyncio.current_task():
            body.cancel()
            await asyncio.wait([body])
        self.working = False
