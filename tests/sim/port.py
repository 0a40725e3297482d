"""The port of a simulated process (`agents.port`): the modelled broker behind a network that is slow, loses answers, and fails.

It only decides when things arrive. A call takes effect at the broker at one moment, and its answer reaches the caller at a later one.
Between the two, the process may be killed or frozen, the broker may go down, or the answer may get lost:

    send      batches of one partition arrive in order; a lost answer leads to a retry, and the offset is then unknown
    commit    a lost answer means an unknown outcome, even if the caller has given up waiting; the request itself may come late, also
              when its process has died or, if the client sends more, in the middle of the next transaction
    fetch     one request at a time for all partitions, held back while there is nothing; an answer for a position before a seek is
              dropped, or recognisable by its start
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.agents.cancellation import Unasked, answered
from headgate.agents.kafka.port import WallClock
from headgate.agents.port.broker_clock import BrokerClock
from headgate.agents.port.errors import GONE, Cause, OutboxError, OutcomeUnknown, ProducerBroken
from headgate.agents.port.errors import Fenced as ProducerFenced
from headgate.agents.records.kafka.columns import Columns, DamagedBatch
from headgate.agents.records.kafka.fetched import FetchAnswer, OutOfRange, RecordBatch, Taken
from headgate.agents.testing.logs import Gathered
from headgate.core.errors import EnvironmentFault
from headgate.core.machine import Now
from headgate.core.names import StreamPartition, TransactionalId

from .log import Fenced, NotOngoing, OffsetOutOfRange, Producer, Record, Refused, Unavailable

if TYPE_CHECKING:
    from .process import Process

R = TypeVar("R")
FETCH = 16
"""The most records of one partition in an answer; for a log that is restored, see the next value."""
FETCH_OF_A_LOG = 60
RETRY_S = 0.15
ANSWERS = 64
"""How many answers about a partition are remembered: those of some seconds."""
STREAM = "coordinator stream"
"""The name of the coordination's clients."""


class SimClock(WallClock):
    """The clocks of one process. Waiting uses the loop, as on a worker."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def now(self) -> Now:
        """See `port`."""
        return self._process.now()


class Written(Gathered):
    """A batch that knows for each record which task wrote it, and in which run."""

    __slots__ = ("by", "process")

    def __init__(self, limit: int, process: Process) -> None:
        super().__init__(limit)
        self.process = process
        self.by: list[tuple[str, str]] = []

    def written_by(self, task: str) -> None:
        """See `port`."""
        super().written_by(task)
        self.by += [(task, self.process.run_of(task))] * (self.count - len(self.by))


class SimProducer:
    """See `port.Producer`."""

    def __init__(
        self, process: Process, transactional_id: str | None, timeout_ms: int, *, idempotent: bool, fences: bool
    ) -> None:
        self.process = process
        self._id = transactional_id
        self._fences = fences
        self._timeout_ms = timeout_ms
        self._producer: Producer | None = None
        self._gone = False
        self._queues: dict[StreamPartition, deque[tuple[Written, asyncio.Future[int]]]] = {}
        process.producers_made += 1
        self._single = f"{process.name}#{process.producers_made}" if idempotent and transactional_id is None else ""
        self._seq = 0
        self._late: Callable[[], None] | None = None
        """The end of a transaction that the network holds back."""

    async def start(self, *, deadline_s: float) -> None:
        """See `port`."""
        try:
            with answered("the producer's start"):
                await self._start(deadline_s)
        except Unasked as error:
            raise ProducerBroken(str(error)) from error

    async def _start(self, deadline_s: float) -> None:
        process, txid = self.process, self._id
        if txid is None:
            await process.asked(process.kafka.up, deadline_s)
            return
        if self._fences:
            await self._fence(txid, deadline_s)
            return
        incarnation = process.incarnations.get(txid)
        if incarnation is not None:
            process.world.invariants.initialising(process, incarnation)

        def effect() -> Producer:
            producer = process.kafka.init(txid, self._timeout_ms)
            producer.owner = (process, incarnation)
            return producer

        self._producer = await process.asked(effect, deadline_s)

    async def _fence(self, txid: str, deadline_s: float) -> None:
        """Initialise another's id; sometimes this is slow, sometimes it fails."""
        process, world = self.process, self.process.world
        if world.failing_fences > 0:
            world.failing_fences -= 1
            world.took_effect("fence-fails")
            await asyncio.sleep(0.5)
            raise EnvironmentFault("the fence timed out")
        await asyncio.sleep(world.fence_delay())
        fenced = TransactionalId.parse(txid)

        def effect() -> None:
            world.invariants.fencing(process, fenced.processor, fenced.incarnation)
            process.kafka.init(txid, self._timeout_ms)

        await process.asked(effect, deadline_s)

    def batch(self, limit: int) -> Written:
        """See `port`."""
        return Written(limit, self.process)

    def _live(self) -> Producer:
        if self._gone or self._producer is None:
            raise ProducerBroken("the producer is discarded")
        return self._producer

    @property
    def _own(self) -> bool:
        """Whether it writes a worker's own records to the coordinator stream."""
        return bool(self._single)

    async def begin(self) -> None:
        """See `port`. The broker learns of it with the first batch."""
        self._live()

    async def send(self, at: StreamPartition, batch: Any) -> asyncio.Future[int]:
        """See `port`."""
        if self._gone:
            raise ProducerBroken(f"nothing is sent to {at}: the producer is thrown away")
        future: asyncio.Future[int] = self.process.loop.create_future()
        queue = self._queues.setdefault(at, deque())
        queue.append((batch, future))
        if len(queue) == 1:
            self._go(at)
        process = self.process
        if process.freeze_on_record and self._own:
            process.freeze(process.freeze_on_record)
            process.freeze_on_record, process.holds_writes = 0.0, True
            process.world.took_effect("zombie")
        return future

    def _go(self, at: StreamPartition) -> None:
        """Send the batch at the head of a partition; the others wait."""
        self.process.schedule.at(self.process.schedule.latency(), self._reach, at)

    def _reach(self, at: StreamPartition) -> None:
        process = self.process
        if not process.alive or self._gone:
            return
        if process.holds_writes and process.frozen_until > process.schedule.moment:
            process.schedule.post(process, 0.0, self._reach, at)
            return
        batch, _ = self._queues[at][0]
        try:
            if process.cut_off:
                raise Unavailable
            offset = self._write(at, batch)
        except Unavailable:
            process.schedule.post(process, RETRY_S, self._go, at)
            return
        except (Fenced, Refused) as error:
            process.schedule.post(process, process.schedule.latency(), self._refused, at, error)
            return
        late = 0.0
        if process.lose_answer > 0 and (self._id is not None or self._own):
            process.lose_answer -= 1
            process.unclear.add(str(self._id))
            process.world.took_effect("lost-ack")
            late, offset = 0.05, -1
        self._deliver()
        process.schedule.post(process, late + process.schedule.latency(), self._answered, at, offset)

    def _write(self, at: StreamPartition, batch: Written) -> int:
        kafka = self.process.kafka
        kafka.up()
        keys = batch.keys or [None] * batch.count
        written = [
            self._one(at, key, value, stamp, batch.by[index] if index < len(batch.by) else None)
            for index, (key, value, stamp) in enumerate(zip(keys, batch.values, batch.stamps, strict=True))
        ]
        return written[0]

    def _one(self, at: StreamPartition, key: bytes | None, value: bytes | None, stamp: int, by: Any) -> int:
        kafka, world = self.process.kafka, self.process.world
        if self._id is not None:
            return kafka.send(self._live(), *at, key, value, stamp, by)
        if not self._own:
            if at in kafka.broken:
                raise Refused(at)
            if world.duplicate_beats > 0:
                world.duplicate_beats -= 1
                world.took_effect("duplicate")
                kafka.plain(*at, key, value, stamp)
            return kafka.plain(*at, key, value, stamp)
        self._seq += 1
        offset = kafka.single(self._single, self._seq, *at, key, value, stamp).offset
        if world.duplicate_singles > 0:
            world.duplicate_singles -= 1
            world.took_effect("duplicate")
            kafka.single(self._single, self._seq, *at, key, value, stamp)
        return offset

    def _answered(self, at: StreamPartition, offset: int) -> None:
        _, future = self._queues[at].popleft()
        if not future.done():
            future.set_result(offset)
        if self._queues[at]:
            self._go(at)

    def _refused(self, at: StreamPartition, error: Exception) -> None:
        queue = self._queues.pop(at)
        for _, future in queue:
            _fail(future, error)

    async def commit(self) -> None:
        """See `port`."""
        process, producer = self.process, self._live()
        future: asyncio.Future[None] = process.loop.create_future()

        def effect() -> None:
            touched = [(place, list(records)) for place, records in producer.touched.items()]
            process.kafka.commit(producer)
            if self._id in process.incarnations:
                process.world.invariants.committed(process, producer, touched)

        def done(_: None) -> None:
            if not future.done():
                future.set_result(None)

        def failed(error: Exception | None) -> None:
            if not future.done():
                future.set_exception(
                    OutcomeUnknown("no answer to the commit") if error is None else ProducerFenced(str(error))
                )

        if process.lose_commits > 0:
            process.unclear.add(str(self._id))
            process.lose_commits -= 1
            process.world.took_effect("lost-commit")
            process.schedule.post(process, 0.05, self._unanswered, effect, done, failed)
        elif process.lose_answer > 0 and process.world.effects["lost-ack"] % 2:
            process.unclear.add(str(self._id))
            process.lose_answer -= 1
            process.world.took_effect("lost-ack")
            self._late = effect
            process.schedule.at(process.schedule.rng.uniform(0.1, 3.0), self._deliver)
            process.schedule.post(process, 0.05, self._unanswered, effect, done, failed)
        else:
            process.write(effect, done, failed)
        await future

    def _unanswered(
        self, effect: Callable[[], None], done: Callable[[None], None], failed: Callable[[Exception | None], None]
    ) -> None:
        """The connection is lost with the end of a transaction on it, which is not sent again."""
        failed(None)

    def _deliver(self) -> None:
        """What the network has held back arrives: after some time, or within the next transaction, where it does most harm."""
        late, self._late = self._late, None
        if late is None:
            return
        try:
            late()
        except (Fenced, NotOngoing):
            return  # the answer goes to a connection that is closed
        except Unavailable:
            self._late = late
            self.process.schedule.at(RETRY_S, self._deliver)

    async def abort(self) -> None:
        """See `port`."""
        process, producer = self.process, self._producer
        if producer is None or self._gone:
            raise ProducerBroken("the producer is discarded")
        try:
            with answered("an abort"):
                await process.asked(lambda: process.kafka.abort(producer), 1.0)
        except (Fenced, EnvironmentFault, Unasked) as error:
            process.unclear.add(str(self._id))
            raise ProducerBroken(str(error)) from error

    async def discard(self) -> None:
        """See `port`."""
        self._gone = True
        for queue in self._queues.values():
            for _, future in queue:
                _fail(future, ProducerBroken("the producer is discarded"))

    def explain(self, error: BaseException, at: StreamPartition) -> Cause:
        """See `port`."""
        if isinstance(error, OutboxError):
            return Cause(str(error), error=error)
        if isinstance(error, Refused):
            return Cause(str(error), code=GONE)
        return Cause(str(error), fenced=isinstance(error, Fenced))

    def knows(self, topic: str) -> bool:
        """See `port`."""
        return True

    def leaderless(self, at: StreamPartition) -> bool:
        """See `port`."""
        return False

    def look_again(self) -> None:
        """See `port`."""


def _fail(answer: asyncio.Future[int], error: Exception) -> None:
    """As the producer over Kafka does: who sent may have given up, and asyncio must not complain that nobody has looked."""
    if not answer.done():
        answer.set_exception(error)
        answer.exception()


class _Part:
    """One partition of a consumer."""

    __slots__ = ("at", "epoch", "log", "paused", "position", "ready")

    def __init__(self, at: StreamPartition, log: Any, position: int) -> None:
        self.at = at
        self.log = log
        self.position = position
        self.paused = False
        self.epoch = 0
        self.ready: Taken | None = None


class SimConsumer:
    """See `port.Consumer`."""

    def __init__(
        self, process: Process, answered: Callable[[StreamPartition, FetchAnswer], None], max_wait_ms: int, name: str
    ) -> None:
        self._of_data = name not in (STREAM, "heartbeats")
        self.name = name
        self.process = process
        self.dead = False
        self._answered = answered
        self._wait_s = max_wait_ms / 1000
        self._parts: dict[StreamPartition, _Part] = {}
        self._asked: list[tuple[_Part, int, int]] | None = None
        """The current request: partition, its epoch, its position."""
        self._held = 0
        """The number of the request that the broker holds back; 0 if none."""
        self._requests = 0
        self._stopped = False

    async def start(self, where: Callable[[], Mapping[StreamPartition, int]], *, deadline_s: float) -> None:
        """See `port`."""
        kafka = self.process.kafka
        await self.process.retried(kafka.up, deadline_s)
        for at, position in where().items():
            log = kafka.topics[at.stream][at.partition]
            self._parts[at] = _Part(at, log, position)
            log.watchers[self] = None
        self.process.consumers[self] = None
        self._ask()

    # --------------------------------------------------------------------------------------------------------- requests

    def _ask(self) -> None:
        """Send a request, unless one is in progress."""
        if self._asked is None and not self._stopped and not self.dead:
            self._asked = []
            process = self.process
            process.schedule.post(process, 0.0003, self._send)

    def _send(self) -> None:
        parts = [part for part in self._parts.values() if not part.paused and part.ready is None]
        if not parts or self._stopped:
            self._asked = None
            return
        self._asked = [(part, part.epoch, part.position) for part in parts]
        process = self.process
        slow = process.fetch_delay_s if self._of_data else process.read_delay_s
        process.schedule.at(process.schedule.latency() + slow, self._at_broker)

    def _at_broker(self) -> None:
        process = self.process
        if not process.alive or self._stopped:
            return
        if process.cut_off:
            process.schedule.post(process, RETRY_S, self._again)
            return
        self._requests += 1
        if self._nothing():
            self._held = self._requests
            process.schedule.at(self._wait_s, self._waited, self._requests)
        else:
            self._answer()

    def _again(self) -> None:
        self._asked = None
        self._ask()

    def _nothing(self) -> bool:
        return all(log.start <= position <= log.end and position >= log.stable for log, position in self._wanted())

    def _wanted(self) -> list[tuple[Any, int]]:
        away = self.process.kafka.away
        return [(part.log, position) for part, _, position in self._asked or () if part.at not in away]

    def wake(self) -> None:
        """One of the logs has more: the broker may answer the request that it holds back."""
        if self._held:
            self.process.schedule.at(0.0, self._waited, self._held)

    def _waited(self, request: int) -> None:
        if request == self._held and not self._stopped:
            self._held = 0
            if self.process.cut_off:
                self.process.schedule.post(self.process, RETRY_S, self._again)
            elif self.process.alive:
                self._answer()

    def _answer(self) -> None:
        """The broker's answer as of now; it arrives later."""
        process = self.process
        found = []
        for part, epoch, position in self._asked or ():
            if part.at in process.kafka.away:
                continue  # nobody answers for it
            log = part.log
            start, end, stable = log.start, log.end, log.stable
            try:
                limit = FETCH_OF_A_LOG if log.compact else FETCH
                records, following = self.read(log, position, limit)
            except OffsetOutOfRange as error:
                taken: Taken | None = Taken(part.at, position, error=OutOfRange(str(error)))
            else:
                taken = None
                if following > position:
                    cut = len(records) // 2 if following % 2 and not self._of_data else 0
                    batches = [*_batches(log, records[:cut], following), *_batches(log, records[cut:], following)]
                    taken = Taken(part.at, position, batches, following)
            found.append((part, epoch, taken, end, stable, start))
        process.schedule.post(process, process.schedule.latency(), process.loop.call_soon, self._arrived, found)

    def read(self, log: Any, position: int, limit: int) -> tuple[list[Any], int]:
        """What the broker gives from this position on."""
        return log.read(position, limit)

    def _arrived(self, found: list[Any]) -> None:
        self._asked = None
        if self._stopped:
            return
        process = self.process
        now = process.now().mono
        for part, epoch, taken, end, stable, start in found:
            stale = part.epoch != epoch
            if stale and process.schedule.rng.random() < 0.5:
                continue
            if not stale:
                process.shown.setdefault(part.at, deque(maxlen=ANSWERS)).append((now, stable))
                self._answered(part.at, FetchAnswer(now, "", end, stable, start))
            elif taken is not None:
                process.world.took_effect("stale-fetch")
            if taken is not None:
                part.ready = taken
        self._ask()

    # ------------------------------------------------------------------------------------------------ the intake's calls

    async def take(self) -> list[Taken]:
        """See `port`."""
        found: list[Taken] = []
        for part in self._parts.values():
            if part.ready is not None and not part.paused:
                found += _pieces(part.ready)
                if part.ready.error is None:
                    part.position = part.ready.next_position
                part.ready = None
        if found:
            self._ask()
        return found

    def seek(self, at: StreamPartition, offset: int) -> None:
        """See `port`."""
        part = self._parts[at]
        part.epoch += 1
        part.position = offset
        part.ready = None
        self._ask()

    def pause(self, at: StreamPartition) -> None:
        """See `port`."""
        self._parts[at].paused = True

    def resume(self, at: StreamPartition) -> None:
        """See `port`."""
        self._parts[at].paused = False
        self._ask()

    def long_poll(self, most_ms: int) -> None:
        """See `port`."""
        self._wait_s = most_ms / 1000

    def fetch_bytes(self, most: int) -> None:
        """See `port`. Answers of this broker have so many records, however large they are."""

    async def bounds(self, at: StreamPartition, *, within_s: float) -> tuple[int, int] | None:
        """See `port`."""
        log = self._parts[at].log
        try:
            with answered("the bounds of a log"):
                return await self.process.asked(partial(_bounds, self.process.kafka, at, log), within_s)
        except (EnvironmentFault, Unasked):
            return None

    def knows(self, topic: str) -> bool:
        """See `port`."""
        return True

    def topic_id(self, topic: str) -> str:
        """See `port`. The modelled broker is an old one."""
        return ""

    async def topic_id_now(self, topic: str, *, within_s: float) -> str:
        """See `port`."""
        return ""

    async def stop(self) -> None:
        """See `port`."""
        self.end()

    def end(self) -> None:
        """End it, with or without its process."""
        self._stopped = True
        self._held = 0
        self.process.consumers.pop(self, None)
        for part in self._parts.values():
            part.log.watchers.pop(self, None)


def _bounds(kafka: Any, at: StreamPartition, log: Any) -> tuple[int, int]:
    kafka.up(*at)
    return log.start, log.stable


def _pieces(taken: Taken) -> list[Taken]:
    """What was fetched in pieces of one batch each, as a client gives out what it has withheld together with what came later."""
    if taken.error is not None or len(taken.batches) < 2:
        return [taken]
    ends = [*(batch.next for batch in taken.batches[:-1]), taken.next_position]
    starts = [taken.start, *ends[:-1]]
    return [Taken(taken.at, start, [batch], end) for start, batch, end in zip(starts, taken.batches, ends, strict=True)]


def _batches(log: Any, records: list[Record], following: int) -> list[RecordBatch]:
    """The records as batches. One that cannot be decoded is alone in its batch."""
    if not records:
        return []
    bad = [record for record in records if record.offset in log.damaged]
    if bad and bad[0] is not records[0]:
        cut = records.index(bad[0])
        return [*_batches(log, records[:cut], bad[0].offset), *_batches(log, records[cut:], following)]
    if bad:
        rest = records[1:]
        behind = rest[0].offset if rest else following
        damaged = RecordBatch(partial(_torn, records[0].offset), records[0].offset, records[0].offset + 1, 1, 0, 0, 32)
        return [damaged, *_batches(log, rest, following)] if behind else [damaged]
    size = 32 * len(records) + sum(len(record.value or b"") for record in records)
    return [
        RecordBatch(
            partial(_columns, records, log.append_time),
            records[0].offset,
            records[-1].offset + 1,
            len(records),
            0,
            0,
            size,
        )
    ]


def _columns(records: list[Record], append_time: bool, most: int) -> Columns:
    offsets = [record.offset for record in records]
    gaps = offsets[-1] - offsets[0] >= len(offsets)
    return Columns(
        [record.value for record in records],
        [record.append_ms if append_time else record.ts for record in records],
        offsets[0],
        [record.key for record in records],
        offsets if gaps else None,
    )


def _torn(offset: int, most: int) -> Columns:
    raise DamagedBatch(f"the batch at offset {offset} cannot be read: its checksum is wrong")


class Apart:
    """See `port.Apart`."""

    def __init__(self, process: Process, name: str, work: Callable[[Any], Awaitable[None]]) -> None:
        self._process = process
        self._work = work
        self._task = process.loop.create_task(self._run(), name=name)

    async def _run(self) -> None:
        await self._work(self._process.loop.call_soon)

    async def stop(self) -> None:
        """See `port`."""
        self._task.cancel()
        await asyncio.wait([self._task])


class SimPort:
    """See `port.Port` and `port.Offsets`."""

    silent = True
    where = "the modelled broker"

    def __init__(self, process: Process) -> None:
        self.process = process
        self.clock = SimClock(process)
        self.broker = BrokerClock()

    def producer(
        self,
        transactional_id: str | None,
        *,
        name: str,
        transaction_timeout_ms: int,
        idempotent: bool = False,
        **_: Any,
    ) -> SimProducer:
        """See `port`."""
        fences = name == STREAM and transactional_id not in (None, self.process.job.leader_txid)
        return SimProducer(self.process, transactional_id, transaction_timeout_ms, idempotent=idempotent, fences=fences)

    def consumer(
        self, answered: Callable[[StreamPartition, FetchAnswer], None], *, max_wait_ms: int, name: str, **_: Any
    ) -> SimConsumer:
        """See `port`."""
        return SimConsumer(self.process, answered, max_wait_ms, name)

    async def probe(self, transactional_id: str, target: StreamPartition, *, narrower: bool) -> str:
        """See `port`."""

        def effect() -> str:
            self.process.kafka.up()
            return "still broken" if target in self.process.kafka.broken else ""

        return await self.process.retried(effect)

    def apart(self, name: str, work: Callable[[Any], Awaitable[None]]) -> Apart:
        """See `port`. Threads of a frozen process do not run either, so this uses the same loop."""
        return Apart(self.process, name, work)

    async def in_thread(self, work: Callable[[], R]) -> R:
        """See `port`. A thread finishes the work after a while; it dies with its process."""
        process = self.process
        future: asyncio.Future[R] = process.loop.create_future()

        def run() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - raised in the caller
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        process.schedule.post(process, 0.0003 + process.schedule.rng.random() * 0.003, run)
        return await future

    async def start_of(self, at: StreamPartition) -> int:
        """See `port.Offsets`."""

        def effect() -> int:
            start = self.process.kafka.start(*at)
            self.process.world.reading.answered(self.process, at, "start", start)
            return start

        return await self.process.retried(effect)

    async def end_of(self, at: StreamPartition, *, committed: bool) -> int:
        """See `port.Offsets`."""

        def effect() -> int:
            end = self.process.kafka.end(*at, committed=committed)
            self.process.world.invariants.end_asked(self.process, at, committed)
            self.process.world.reading.answered(self.process, at, "end", end)
            return end

        return await self.process.retried(effect)

    async def of_time(self, at: StreamPartition, ms: int) -> int | None:
        """See `port.Offsets`."""

        def effect() -> int | None:
            kafka = self.process.kafka
            records = kafka.read(at.stream, at.partition, kafka.start(*at), 1 << 30)[0]
            found = next((record.offset for record in records if record.ts >= ms), None)
            self.process.world.reading.answered(self.process, at, ms, found)
            return found

        return await self.process.retried(effect)

    async def topic_id(self, topic: str) -> str:
        """See `port.Offsets`."""
        return ""


class LeaderOffsets(SimPort):
    """The leader's offsets: a bounded input ends some way after its current end, so that there is a run before it."""

    async def end_of(self, at: StreamPartition, *, committed: bool) -> int:
        """See `port.Offsets`."""
        found = await super().end_of(at, committed=committed)
        world = self.process.world
        if at.stream not in world.feeds:
            return found
        rows = world.shape.rows
        bound = max(found, min(rows, found + world.rng.randrange(rows)))
        world.reading.answered(self.process, at, "end", bound)
        return bound
