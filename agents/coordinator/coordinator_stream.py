"""Reads the coordinator stream for the `Member` and `Leader` machines of a worker, and writes their messages.

There is one reader and there are two writers that never interfere. The leader writes in short transactions under the leader's transactional
id, so Kafka itself rejects a leader that was replaced. A worker writes its own messages as single acknowledged records outside of any
transaction, so an open transaction of another process cannot delay them.

Promises: a write that failed, or may have failed, is reported as such and never retried silently. Fencing initialises the other
incarnation's transactional id and does nothing else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from ...core.coordination import messages as c
from ...core.coordination import wire as cb
from ...core.errors import EnvironmentFault, cause_for
from ...core.names import JobName, StreamPartition, leader_id, worker_id
from ..cancellation import answered, said
from ..port.errors import Fenced, OutboxError, OutcomeUnknown, classify
from ..port.port import BatchInWork, Consumer, Offsets, Port, Producer
from ..port.waiting import fetched, in_time
from ..records.kafka.fetched import FetchAnswer, RecordBatch, Taken

LEADER_TRANSACTION_MS = 10_000
ANSWER_S = 30.0
"""How long a writer waits for its transaction, or for one record."""
POLL_MS = 500
FETCH_BYTES = 1 << 20
BATCH_BYTES = c.MAX_VALUE + 2 * c.MAX_KEY
"""Any message fits."""


class CoordinatorReader:
    """Follows the coordinator stream from its first record, read committed, without gaps."""

    def __init__(self, port: Port, offsets: Offsets, topic: str) -> None:
        self.at = StreamPartition(topic, 0)
        self.position = 0
        self._port = port
        self._offsets = offsets
        self._consumer: Consumer | None = None
        self._answered = asyncio.Event()
        self.answers = 0
        """How many answers of brokers this reader has got, errors included."""
        self.entries_to = 0
        """The position behind the last message that was read."""
        self.known_ms = 0
        """Until when (wall clock) all that was written has been read; 0 before that. An answer says what was there when it was asked for,
        which is after the one before has come: one that lay in the socket of a process that was stopped says nothing of the time since."""
        self._came_ms: deque[int] = deque(maxlen=2)
        """When the last two answers came."""
        self._stable = 0
        """Up to where there was something to read, by the last one."""

    async def start(self, *, deadline_s: float = 60.0) -> None:
        """Connect, and read from the beginning."""
        self.position = await self._offsets.start_of(self.at)
        await self.again(deadline_s=deadline_s)

    async def again(self, *, deadline_s: float = 60.0) -> None:
        """Continue at the same position with a new client."""
        await self.stop()
        self._came_ms.clear()
        consumer = self._port.consumer(
            self._on_answer, name="coordinator stream", fetch_bytes=FETCH_BYTES, max_wait_ms=POLL_MS, raw=True
        )
        await consumer.start(lambda: {self.at: self.position}, deadline_s=deadline_s)
        self._consumer = consumer

    def _on_answer(self, at: StreamPartition, answer: FetchAnswer) -> None:
        self.answers += 1
        if answer.error:
            self._came_ms.clear()
        else:
            self._came_ms.append(self._port.clock.now().wall)
            self._stable = answer.stable
        self._answered.set()

    async def read(self) -> c.Read | None:
        """The next records, or None if nothing came for a moment. The result may be without records: then only the position has advanced
        (transaction markers).
        """
        consumer = self._consumer
        assert consumer is not None, "call start() first"
        if consumer.dead:
            raise EnvironmentFault(
                "the client stopped reading because of an error", remedy="none needed: another one is created"
            )
        taken = await fetched(self._port, consumer, self._answered, POLL_MS / 1000)
        found = self._read(taken)
        if len(self._came_ms) == 2 and self.position >= self._stable:
            self.known_ms = self._came_ms[0]
        return found

    def _read(self, taken: list[Taken]) -> c.Read | None:
        """Decode what was fetched, up to the first batch that cannot be decoded. That batch is fetched again; its error is raised if it is
        the first.
        """
        before, entries = self.position, list[c.Entry]()
        try:
            for one in taken:
                self._append(one, entries)
        except EnvironmentFault:
            self._came_ms.clear()
            self._go_back()
            if self.position == before:
                raise
        if entries:
            self.entries_to = entries[-1].offset + 1
        return c.Read(tuple(entries), self.position) if self.position > before else None

    def _append(self, taken: Taken, entries: list[c.Entry]) -> None:
        """Decode one piece of what was fetched. One that does not continue exactly here is fetched again: a gap would hide decisions."""
        if taken.error is not None:
            raise taken.error
        if taken.start != self.position:
            self._go_back()
            return
        for batch in taken.batches:
            found = entries_of(batch, self.position)
            for one in found[-1:]:
                self._port.broker.saw(one.append_ms, self._port.clock.now())
            entries += found
            self.position = batch.next
        self.position = taken.next_position

    def _go_back(self) -> None:
        if self._consumer is not None:
            self._consumer.seek(self.at, self.position)

    async def end(self) -> int:
        """The current read-committed end of the stream, as the broker reports it."""
        return await self._offsets.end_of(self.at, committed=True)

    async def stop(self) -> None:
        """Close the client."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop()


def unanswered(within_s: float, about: str) -> EnvironmentFault:
    """No broker answers a reader of coordinator streams. `about`: which of them."""
    return EnvironmentFault(
        f"no broker has answered for {within_s:g} s about {about}",
        remedy="check that the partitions of these topics have a leader",
    )


def entries_of(batch: RecordBatch, since: int) -> list[c.Entry]:
    """The messages of a batch, from this offset on."""
    columns = batch.columns()
    keys = columns.keys
    return [
        cb.read(
            columns.offset(i),
            None if keys is None else keys[i],
            columns.values[i],
            columns.timestamps[i],
            transactional=batch.transactional,
        )
        for i in range(columns.index_from(since), len(columns))
    ]


class LeaderLost(Exception):
    """The leader's producer is dead. `fenced`: another candidate has taken the id."""

    def __init__(self, why: str, *, fenced: bool) -> None:
        super().__init__(why)
        self.fenced = fenced


class LeaderWriter:
    """Writes transactions under the leader's transactional id. After any error it cannot be used again; the next candidate makes a
    new one.
    """

    def __init__(self, port: Port, job: JobName, topic: str, stamp: c.Stamp) -> None:
        self._port = port
        self._at = StreamPartition(topic, 0)
        self._stamp = stamp
        self._producer: Producer | None = _producer(port, leader_id(job), LEADER_TRANSACTION_MS)

    async def start(self) -> None:
        """Initialise the leader's transactional id, which fences the previous leader."""
        producer = self._live()
        try:
            await producer.start(deadline_s=20.0)
        except Exception as error:
            self._producer = None
            raise LeaderLost(
                f"the leader's id could not be initialised: {error}", fenced=isinstance(error, Fenced)
            ) from error

    def _live(self) -> Producer:
        if self._producer is None:
            raise LeaderLost("the leader's producer is closed", fenced=False)
        return self._producer

    async def commit(self, writes: Iterable[c.Write]) -> int:
        """Write one transaction. Returns the offset of its last record."""
        producer = self._live()
        try:
            with answered("the leader's transaction"):
                return await in_time(self._port.clock, ANSWER_S, self._written(producer, writes))
        except Exception as error:  # any error of the client ends this writer
            await self.stop()
            raise LeaderLost(said(error), fenced=isinstance(error, Fenced)) from error

    async def _written(self, producer: Producer, writes: Iterable[c.Write]) -> int:
        batches = batches_of(producer, [self._bytes(write) for write in writes], self._port.clock.now().wall)
        await producer.begin()
        sent = [(batch, await _handed_over(producer, self._at, batch)) for batch in batches]
        ends = [(await _acknowledged(producer, self._at, future)) + batch.count for batch, future in sent]
        await producer.commit()
        return ends[-1] - 1

    def _bytes(self, write: c.Write) -> tuple[bytes, bytes | None]:
        return (cb.encode_key(write.key), None) if isinstance(write, c.Delete) else cb.encode(write, self._stamp)

    async def stop(self) -> None:
        """Close the producer. The broker's timeout or the next candidate aborts a transaction that is still open."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.discard()


class WriteUnknown(Exception):
    """Some of the messages may be in the stream, or all, or none."""


class OwnWriter:
    """Writes the worker's own messages: one request in flight at a time, acknowledged by all replicas, with a new producer after any doubt.

    The producer is idempotent: a retry over a broken connection must not put a copy of an earlier message behind a newer one with the same
    key.
    """

    def __init__(self, port: Port, topic: str, stamp: c.Stamp) -> None:
        self._port = port
        self._at = StreamPartition(topic, 0)
        self._stamp = stamp
        self._producer: Producer | None = None

    async def write(self, messages: Iterable[c.Message]) -> int:
        """Write the messages in order. Returns the offset of the last one. Raises `WriteUnknown`."""
        try:
            with answered("a write to the coordinator stream"):
                if self._producer is None:
                    producer = _producer(self._port, None, 0)
                    await producer.start(deadline_s=60.0)
                    self._producer = producer
                return await self._written(self._producer, [cb.encode(message, self._stamp) for message in messages])
        except Exception as error:
            await self.stop()
            raise WriteUnknown(said(error)) from error

    async def _written(self, producer: Producer, records: list[tuple[bytes, bytes | None]]) -> int:
        last = -1
        for batch in batches_of(producer, records, self._port.clock.now().wall):
            first = await in_time(self._port.clock, ANSWER_S, self._sent(producer, batch))
            last = first + batch.count - 1
        return last

    async def _sent(self, producer: Producer, batch: BatchInWork) -> int:
        return await _acknowledged(producer, self._at, await _handed_over(producer, self._at, batch))

    async def stop(self) -> None:
        """Close the producer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.discard()


async def fence(port: Port, job: JobName, processor: str, incarnation: str) -> None:
    """Fence a worker's incarnation: initialising its transactional id aborts its open transaction, and it can write no more."""
    producer = _producer(port, worker_id(job, processor, incarnation), LEADER_TRANSACTION_MS)
    await producer.start(deadline_s=20.0)
    await producer.discard()


def batches_of(producer: Producer, records: list[tuple[bytes, bytes | None]], wall_ms: int) -> list[BatchInWork]:
    """The records in as few batches as possible, in order."""
    keys, values = [key for key, _ in records], [value for _, value in records]
    batches: list[BatchInWork] = []
    at = 0
    while at < len(records):
        batch = producer.batch(BATCH_BYTES)
        batches.append(batch)
        at = batch.add(keys, values, wall_ms, None, at)
    return batches


def _producer(port: Port, transactional_id: str | None, transaction_timeout_ms: int) -> Producer:
    return port.producer(
        transactional_id,
        name="coordinator stream",
        compression=None,
        batch_bytes=BATCH_BYTES,
        request_timeout_ms=15_000 if transactional_id is None else 30_000,
        transaction_timeout_ms=transaction_timeout_ms,
        idempotent=True,
    )


async def _handed_over(producer: Producer, at: StreamPartition, batch: BatchInWork) -> asyncio.Future[int]:
    try:
        return await producer.send(at, batch)
    except EnvironmentFault as error:
        meant = _meant(producer, at, error)
        raise meant from cause_for(meant, error)


async def _acknowledged(producer: Producer, at: StreamPartition, future: asyncio.Future[int]) -> int:
    """The offset of the first record of the batch."""
    try:
        offset = await future
    except Exception as error:  # noqa: BLE001 - the producer explains its own errors
        meant = _meant(producer, at, error)
        raise meant from cause_for(meant, error)
    if offset < 0:
        raise OutcomeUnknown("it is written, but its offset is unknown")
    return offset


def _meant(producer: Producer, at: StreamPartition, error: Exception) -> OutboxError:
    return classify(producer.explain(error, at), at, frozenset())
