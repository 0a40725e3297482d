"""The coordinator stream, in and out: what a worker's `Member` and `Leader` machines read, and how their writes get there.

One reader; two writers that never meet. The leader's writes go in short transactions under the leader's transactional id, so Kafka
itself refuses a leader that was replaced. A worker's own messages are single records, acknowledged one after the other, in nobody's
transaction, so that nobody's open transaction can hold up the stream.

Promises: a failed or doubtful write is reported as such, never retried in silence; fencing initialises the other's id and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerFenced

from ..core.coordination import messages as c
from ..core.coordination import wire as cb
from ..core.errors import EnvironmentFault
from ..core.names import JobName, leader_id, worker_id
from .awaiting import answered
from .clients import ClientSettings
from .connect import closed, retried, started
from .rawkafka import reads_no_more

LEADER_TRANSACTION_MS = 10_000
READ_MAX = 5_000
POLL_MS = 500


class CoordinatorReader:
    """Follows the coordinator stream from its first record, read committed.

    Two connections: a broker answers one after the other, so a question behind a long poll would wait for the poll.
    """

    def __init__(self, client: ClientSettings, topic: str) -> None:
        self.client = client
        self.at = TopicPartition(topic, 0)
        self.position = 0
        self._consumer: AIOKafkaConsumer | None = None
        self._asker: AIOKafkaConsumer | None = None
        """Never fetches."""

    async def start(self, *, deadline_s: float = 60.0) -> None:
        """Connect, and stand at the beginning."""
        self._consumer = await self._connected(deadline_s)
        self._asker = await self._connected(deadline_s)
        self._consumer.assign([self.at])
        first = await retried(
            lambda: self._reader.beginning_offsets([self.at]), "coordinator stream", deadline_s=deadline_s
        )
        self.position = first[self.at]
        self._consumer.seek(self.at, self.position)

    async def again(self) -> None:
        """Go on where reading stood, with another client."""
        before, self._consumer = self._consumer, await self._connected(60.0)
        self._consumer.assign([self.at])
        self._consumer.seek(self.at, self.position)
        if before is not None:
            await closed(before.stop)

    async def _connected(self, deadline_s: float) -> AIOKafkaConsumer:
        options = self.client.consumer(
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_max_wait_ms=POLL_MS,
        )
        return await started(lambda: AIOKafkaConsumer(**options), "coordinator stream", deadline_s=deadline_s)

    @property
    def _reader(self) -> AIOKafkaConsumer:
        assert self._consumer is not None, "start() comes first"
        return self._consumer

    async def read(self) -> c.Read | None:
        """The next records, or None when nothing came for a moment. Also says when only the position moved (markers)."""
        if reads_no_more(self._reader):
            raise EnvironmentFault(
                "the client's reading was ended by an error", remedy="none needed: another one is made"
            )
        answer = await self._reader.getmany(self.at, timeout_ms=POLL_MS, max_records=READ_MAX)
        records = answer.get(self.at, [])
        position = await self._reader.position(self.at)
        if position == self.position:
            return None
        self.position = position
        return c.Read(tuple(cb.read(r.offset, r.key, r.value, r.timestamp) for r in records), position)

    async def end(self) -> int:
        """The read-committed end, asked of the broker now."""
        asker = self._asker
        assert asker is not None, "start() comes first"
        ends = await retried(lambda: asker.end_offsets([self.at]), "end of the coordinator stream")
        return ends[self.at]

    async def stop(self) -> None:
        """Close the connection."""
        for consumer in (self._consumer, self._asker):
            if consumer is not None:
                await closed(consumer.stop)


class LeaderLost(Exception):
    """The leader's producer is dead; `fenced` when another candidate took the id."""

    def __init__(self, why: str, *, fenced: bool) -> None:
        super().__init__(why)
        self.fenced = fenced


class LeaderWriter:
    """Writes in transactions under the leader's id. After any error it is finished; a candidate makes a new one."""

    def __init__(self, client: ClientSettings, job: JobName, topic: str, stamp: c.Stamp) -> None:
        self.client = client
        self.job = job
        self.topic = topic
        self.stamp = stamp
        self._producer: AIOKafkaProducer | None = None

    async def start(self) -> None:
        """Initialise the leader's id: whoever held it can write no more."""
        options = self.client.producer(
            transactional_id=leader_id(self.job),
            transaction_timeout_ms=LEADER_TRANSACTION_MS,
            request_timeout_ms=30_000,
        )
        try:
            self._producer = await started(lambda: AIOKafkaProducer(**options), "leader's producer", deadline_s=20.0)
        except Exception as error:
            raise LeaderLost(
                f"the leader's id could not be initialised: {error}", fenced=isinstance(error, ProducerFenced)
            ) from error

    async def commit(self, writes: Iterable[c.Write]) -> int:
        """One transaction; the offset of its last record."""
        producer = self._producer
        if producer is None:
            raise LeaderLost("the leader's producer is closed", fenced=False)
        try:
            async with asyncio.timeout(30.0):
                with answered("the leader's transaction"):
                    last = await self._written(producer, writes)
        # aiokafka answers a fenced producer with assertion errors, too, and a library may be wrong in any way
        except Exception as error:
            await self.stop()
            raise LeaderLost(f"{type(error).__name__}: {error}", fenced=isinstance(error, ProducerFenced)) from error
        return last

    async def _written(self, producer: AIOKafkaProducer, writes: Iterable[c.Write]) -> int:
        await producer.begin_transaction()
        futures = [await producer.send(self.topic, key=k, value=v, partition=0) for k, v in map(self._bytes, writes)]
        offsets = [(await future).offset for future in futures]
        await producer.commit_transaction()
        return max(offsets)

    def _bytes(self, write: c.Write) -> tuple[bytes, bytes | None]:
        return (cb.encode_key(write.key), None) if isinstance(write, c.Delete) else cb.encode(write, self.stamp)

    async def stop(self) -> None:
        """Close; an open transaction is left to the broker's timeout or the next candidate."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await closed(producer.stop)


class WriteUnknown(Exception):
    """Some of it may or may not be in the stream."""


class OwnWriter:
    """A worker's own single records: one in flight, acknowledged by all replicas, a fresh producer after any doubt.

    Idempotent, so that a copy of an earlier message, late on a broken connection, cannot land behind a newer one of the same key.
    """

    def __init__(self, client: ClientSettings, topic: str, stamp: c.Stamp) -> None:
        self.client = client
        self.topic = topic
        self.stamp = stamp
        self._producer: AIOKafkaProducer | None = None

    async def write(self, messages: Iterable[c.Message]) -> int:
        """Write them in order; the offset of the last one. Raises `WriteUnknown`."""
        last = -1
        try:
            if self._producer is None:
                options = self.client.producer(acks="all", request_timeout_ms=15_000)
                self._producer = await started(
                    lambda: AIOKafkaProducer(**options), "coordinator stream", deadline_s=60.0
                )
            for message in messages:
                key, value = cb.encode(message, self.stamp)
                with answered("a write to the coordinator stream"):
                    sent: Any = await asyncio.wait_for(
                        self._producer.send_and_wait(self.topic, key=key, value=value, partition=0), 30.0
                    )
                last = sent.offset
        except Exception as error:
            await self.stop()
            raise WriteUnknown(f"{type(error).__name__}: {error}") from error
        return last

    async def stop(self) -> None:
        """Close the producer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await closed(producer.stop)


async def fence(client: ClientSettings, job: JobName, processor: str, incarnation: str) -> None:
    """Initialise a worker incarnation's transactional id: its open transaction is aborted, and it can write nothing any more."""
    options = client.producer(transactional_id=worker_id(job, processor, incarnation), transaction_timeout_ms=10_000)
    producer = await started(
        lambda: AIOKafkaProducer(**options), f"fence of {processor} {incarnation}", deadline_s=20.0
    )
    await closed(producer.stop)
