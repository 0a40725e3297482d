"""The one file that touches aiokafka's private names: record batches whole, in and out, and what its clients get wrong.

What it decides: how a fetched batch is taken before aiokafka makes an object per record of it, how a batch is built without
one call chain per record, and which of aiokafka's habits are corrected on the clients that headgate starts (never on others
of the same process).

Promises:

- `shortcomings()` names every private name that is not as expected. With any, `taker()` and `Builder` use public calls only
  (`getmany`, `create_batch`): slower, and with the same result. A contract test fails when aiokafka changes.
- A taken batch has passed its checksum, is no control batch, and belongs to no aborted transaction.
- Positions advance over control, aborted and empty batches.
- Sequence numbers wrap to zero behind 2**31-1, as Java's do; aiokafka's own go negative, which brokers refuse for ever.
- No client that is started under `quiet_metadata()` makes a broker create a topic, and a corrected one asks for metadata at
  most once in its back-off, where aiokafka spins a whole core while a leader is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import aiokafka.admin.client as admin_module
import aiokafka.client as client_module
import aiokafka.consumer.fetcher as fetcher_module
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import CorruptRecordException, KafkaError
from aiokafka.producer.message_accumulator import BatchBuilder, MessageAccumulator, MessageBatch
from aiokafka.producer.transaction_manager import TransactionManager
from aiokafka.structs import ConsumerRecord

from . import columns
from .columns import CHECKED_FROM, ENCODERS, HEAD, Columns, columns_of

Headers = Sequence[tuple[str, bytes | None]]

CODECS = {None: 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
MAX_SEQUENCE = 0x7FFFFFFF
PACE_S = 0.1
"""At most one forced metadata request a client in this time."""
BATCH_OVERHEAD = HEAD.size
"""Bytes of a version 2 batch's head."""
_ABORT = b"\x00\x00"
_FETCH_API = 1


# ------------------------------------------------------------------------------------------------------------ contract


def shortcomings() -> list[str]:
    """What of aiokafka's private side is not as this file needs it; empty when the fast paths can be used."""
    missing: list[str] = []

    def need(owner: Any, name: str, *words: str) -> None:
        found = getattr(owner, name, None)
        if found is None:
            missing.append(f"{getattr(owner, '__name__', owner)}.{name} is gone")
            return
        if words:
            try:
                source = inspect.getsource(found)
            except OSError:
                source = ""
            missing.extend(f"{owner.__name__}.{name} no longer says `{word}`" for word in words if word not in source)

    need(fetcher_module, "FetchResult", "self._partition_records")
    need(fetcher_module, "MemoryRecords")
    need(fetcher_module, "PartitionRecords", "self._records", "self._aborted_transactions", "self.next_fetch_offset")
    need(fetcher_module, "FetchError", "def check_raise")
    need(fetcher_module.Fetcher, "__init__", "self._records =", "self._wait_consume_future", "self._fetch_max_wait_ms")
    need(fetcher_module.Fetcher, "_notify")
    need(fetcher_module.Fetcher, "_proc_fetch_request", "self._client.send(node_id, request)", "tp_state.position")
    need(fetcher_module.Fetcher, "_proc_fetch_request", "MemoryRecords(")
    need(BatchBuilder, "__init__", "self._builder", "self._relative_offset", "is_transactional")
    need(BatchBuilder, "append", "self._builder.append(", "self._relative_offset += 1")
    need(BatchBuilder, "_build", "self._buffer")
    need(MessageBatch, "set_producer_state", "self._builder._set_producer_state(")
    need(MessageBatch, "get_data_buffer", "self._builder._build()")
    need(MessageBatch, "record_count")
    need(MessageAccumulator, "_pop_batch", "self._txn_manager.increment_sequence_number(batch.tp, batch.record_count)")
    need(TransactionManager, "increment_sequence_number", "self._sequence_numbers[tp]")
    need(client_module.AIOKafkaClient, "force_metadata_update", "asyncio.shield")
    need(client_module.AIOKafkaClient, "_metadata_update", "MetadataRequest(")
    need(admin_module.AIOKafkaAdminClient, "_get_cluster_metadata", "MetadataRequest(")
    return missing


_SHORTCOMINGS = shortcomings()


# ---------------------------------------------------------------------------------------------------- corrected clients

_quiet: contextvars.ContextVar[bool] = contextvars.ContextVar("headgate_quiet_metadata", default=False)
_MetadataRequest = client_module.MetadataRequest


def _metadata_request(topics: list[str] | None = None, allow_auto_topic_creation: bool | None = None) -> Any:
    if _quiet.get() and allow_auto_topic_creation is None:
        allow_auto_topic_creation = False
    return _MetadataRequest(topics, allow_auto_topic_creation)


client_module.MetadataRequest = _metadata_request
admin_module.MetadataRequest = _metadata_request


@contextlib.contextmanager
def quiet_metadata() -> Iterator[None]:
    """Clients started in here never make a broker create a topic: their metadata task inherits this context.

    An admin client asks in the context of its caller instead.
    """
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def _pace(client: Any) -> None:
    original: Callable[[], asyncio.Future[bool]] = client.force_metadata_update

    def force_metadata_update() -> asyncio.Future[bool]:
        loop = asyncio.get_running_loop()
        started, inner, outer = loop.time(), original(), loop.create_future()

        def release(result: bool) -> None:
            if not outer.done():
                outer.set_result(result)

        def answered(done: asyncio.Future[bool]) -> None:
            updated = not done.cancelled() and done.exception() is None and bool(done.result())
            loop.call_later(max(0.0, started + PACE_S - loop.time()), release, updated)

        inner.add_done_callback(answered)
        return outer

    client.force_metadata_update = force_metadata_update


def correct_producer(producer: AIOKafkaProducer) -> AIOKafkaProducer:
    """Sequence numbers that wrap as brokers expect, and no spinning while a leader is missing."""
    any_producer: Any = producer
    manager = any_producer._txn_manager
    if manager is not None:

        def increment_sequence_number(tp: TopicPartition, increment: int) -> None:
            manager._sequence_numbers[tp] = (manager._sequence_numbers[tp] + increment) & MAX_SEQUENCE

        manager.increment_sequence_number = increment_sequence_number
    _pace(any_producer.client)
    return producer


def set_sequence(producer: AIOKafkaProducer, tp: TopicPartition, sequence: int) -> None:
    """For tests of the wrap: go on from this sequence number."""
    any_producer: Any = producer
    any_producer._txn_manager._sequence_numbers[tp] = sequence


def sequence_of(producer: AIOKafkaProducer, tp: TopicPartition) -> int:
    """The next sequence number in this partition."""
    any_producer: Any = producer
    return any_producer._txn_manager.sequence_number(tp)


def is_dead(producer: AIOKafkaProducer) -> bool:
    """The producer's sender has ended, or its transactions are in a fatal state: nothing will ever be written by it."""
    any_producer: Any = producer
    task = any_producer._sender.sender_task
    manager = any_producer._txn_manager
    return (task is not None and task.done()) or (manager is not None and manager.is_fatal_error())


# ------------------------------------------------------------------------------------------------------------- reading


@dataclass(slots=True)
class Answer:
    """What a broker last answered for one partition, and when (monotonic clock)."""

    at_s: float
    error: int
    high_watermark: int
    stable: int
    log_start: int


@dataclass(slots=True)
class Taken:
    """What came out of the fetcher for one partition: readable batches, where reading goes on, or the fetch's error."""

    tp: TopicPartition
    start: int
    """Records below this offset, in a batch that began before it, are not wanted."""
    batches: list[Batch] = field(default_factory=list)
    next_position: int = 0
    error: KafkaError | None = None


class Batch:
    """One readable record batch. Its records become columns when they are asked for, once."""

    __slots__ = ("_read", "base", "count", "first_ms", "max_ms", "next", "size")

    def __init__(
        self, read: Callable[[], Columns], base: int, following: int, count: int, first_ms: int, max_ms: int, size: int
    ) -> None:
        self._read = read
        self.base = base
        self.next = following
        self.count = count
        self.first_ms = first_ms
        self.max_ms = max_ms
        self.size = size

    @classmethod
    def of(cls, records: Sequence[Any], *, following: int | None = None, size: int = 0) -> Batch:
        """A batch of records that are objects already."""
        base = records[0].offset if records else 0
        after = following if following is not None else records[-1].offset + 1
        return cls(partial(columns_of, records), base, after, len(records), 0, 0, size)

    def columns(self) -> Columns:
        """The records. The bytes that they come from are let go."""
        read, self._read = self._read, _nothing
        return read()


def _nothing() -> Columns:
    return Columns([], [], 0)


class _KeptRecords:
    """What the fetcher makes of the bytes that came, and the bytes themselves, which aiokafka's own class keeps to itself."""

    __slots__ = ("has_next", "next_batch", "raw", "size_in_bytes")

    def __init__(self, raw: bytes) -> None:
        records = _MemoryRecords(raw)
        self.raw = raw
        self.has_next = records.has_next
        self.next_batch = records.next_batch
        self.size_in_bytes = records.size_in_bytes


_MemoryRecords: Any = getattr(fetcher_module, "MemoryRecords", None)
if not _SHORTCOMINGS:
    fetcher_module.MemoryRecords = _KeptRecords


def observe(consumer: AIOKafkaConsumer, answered: Callable[[TopicPartition, Answer], None]) -> None:
    """Tell of every fetch that a broker answered, also of those that aiokafka logs and forgets. Call after `start()`."""
    client: Any = consumer._client
    _pace(client)
    send = client.send

    async def observed(node_id: Any, request: Any, **options: Any) -> Any:
        response = await send(node_id, request, **options)
        if getattr(response, "API_KEY", None) == _FETCH_API:
            now, version = time.monotonic(), response.API_VERSION
            for topic, partitions in response.topics:
                for partition, error, high, *rest in partitions:
                    stable = rest[0] if version >= 4 else high
                    start = rest[1] if version >= 5 else -1
                    answered(TopicPartition(topic, partition), Answer(now, error, high, stable, start))
        return response

    client.send = observed


def set_long_poll(consumer: AIOKafkaConsumer, wait_ms: int) -> None:
    """How long the broker may hold the next fetch back when it has nothing new."""
    fetcher: Any = consumer._fetcher
    if hasattr(fetcher, "_fetch_max_wait_ms"):
        fetcher._fetch_max_wait_ms = wait_ms


def taker(consumer: AIOKafkaConsumer, *, raw: bool = True) -> Callable[[], Any]:
    """A coroutine function that returns what has been fetched (`list[Taken]`), without waiting for the network."""
    if raw and not _SHORTCOMINGS:
        return _RawTaker(consumer).take
    return _PlainTaker(consumer).take


class _RawTaker:
    """Takes the batches out of the fetcher, as `fetched_records` would, without its object per record."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.fetcher: Any = consumer._fetcher
        self.committed = self.fetcher._isolation_level == fetcher_module.READ_COMMITTED

    async def take(self) -> list[Taken]:
        fetcher = self.fetcher
        out: list[Taken] = []
        for tp in list(fetcher._records):
            result = fetcher._records[tp]
            if type(result) is fetcher_module.FetchResult:
                wanted = result._partition_records
                assignment = result._assignment
                if wanted is None or not assignment.active:
                    del fetcher._records[tp]
                    continue
                state = assignment.state_value(tp)
                if not state.has_valid_position or state.position != wanted.next_fetch_offset:
                    del fetcher._records[tp]  # a seek came between
                    fetcher._notify(fetcher._wait_consume_future)
                    continue
                taken = self._filter(tp, wanted)
                state.consumed_to(taken.next_position)
                result._partition_records = None
            else:
                taken = Taken(tp, -1, error=result._error)
            del fetcher._records[tp]
            fetcher._notify(fetcher._wait_consume_future)
            out.append(taken)
        return out

    def _filter(self, tp: TopicPartition, wanted: Any) -> Taken:
        records, aborting, aborts = wanted._records, set[int](), list(wanted._aborted_transactions)
        taken = Taken(tp, wanted.next_fetch_offset, next_position=wanted.next_fetch_offset)
        check = wanted._check_crcs
        raw: bytes = records.raw
        end, left = 0, records.size_in_bytes()
        while records.has_next():
            batch = records.next_batch()
            start, end = end, end + 12 + int.from_bytes(raw[end + 8 : end + 12], "big")
            if check and not _sound(batch, raw, start, end):
                if taken.batches:
                    return taken  # what stands before it is good; the next fetch begins with the damaged one
                taken.error = CorruptRecordException(f"checksum is wrong in {tp} at {taken.next_position}")
                return taken
            producer_id, control = batch.producer_id, batch.is_control_batch
            skip = control
            if self.committed and producer_id is not None:
                while aborts and aborts[0][1] <= batch.base_offset:
                    aborting.add(aborts.pop(0)[0])
                if control and next(iter(batch)).key[2:4] == _ABORT:
                    aborting.discard(producer_id)
                elif batch.is_transactional and producer_id in aborting:
                    skip = True
            taken.next_position = batch.next_offset
            if not skip:
                taken.batches.append(_describe(batch, left, raw, start, end))
        share = left // max(1, len(taken.batches))
        for made in taken.batches:
            made.size = share
        return taken


def _sound(batch: Any, raw: bytes, start: int, end: int) -> bool:
    """Whether the checksum is right."""
    if columns.compiled is None or raw[start + 16] != 2:
        return batch.validate_crc()
    return HEAD.unpack_from(raw, start)[4] == columns.crc32c(raw, start + CHECKED_FROM, end)


def _describe(batch: Any, size: int, raw: bytes, start: int, end: int) -> Batch:
    base = getattr(batch, "base_offset", None)
    if base is None:  # a format older than version 2 has no head to read
        records = list(batch)
        return Batch.of(records, following=batch.next_offset, size=size)
    count = batch.last_offset_delta + 1
    read = partial(columns_of, batch) if columns.compiled is None else partial(columns.read_batch, raw, start, end)
    return Batch(read, base, batch.next_offset, count, batch.first_timestamp, batch.max_timestamp, size)


class _PlainTaker:
    """The same through `getmany`, with public names only."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.consumer = consumer
        self.positions: dict[TopicPartition, int] = {}

    async def take(self) -> list[Taken]:
        out: list[Taken] = []
        try:
            got: dict[TopicPartition, list[ConsumerRecord[Any, Any]]] = await self.consumer.getmany(timeout_ms=0)
        except KafkaError as error:
            parts = getattr(error, "args", ())
            named = next((part for part in parts if isinstance(part, dict)), None)
            targets = list(named) if named else [p for p in parts if isinstance(p, TopicPartition)]
            return [Taken(tp, -1, error=error) for tp in targets or self.consumer.assignment()]
        for tp in self.consumer.assignment():
            position = await self.consumer.position(tp)
            records = got.get(tp, [])
            if not records and self.positions.get(tp, position) == position:
                self.positions[tp] = position
                continue
            self.positions[tp] = position
            taken = Taken(tp, records[0].offset if records else position, next_position=position)
            if records:
                size = sum(max(r.serialized_value_size, 0) + max(r.serialized_key_size, 0) + 32 for r in records)
                taken.batches.append(Batch.of(records, size=size))
            out.append(taken)
        return out


# ------------------------------------------------------------------------------------------------------------- writing


class Builder:
    """One record batch under construction for one partition. `add` takes columns and says how many records fitted.

    >>> builder = Builder(1 << 16, None, transactional=False)
    >>> builder.add([None, b"k"], [b"a", b"b"], [1, 2], None, 0)
    2
    """

    __slots__ = ("batch", "count", "limit")

    def __init__(self, limit: int, compression: str | None, *, transactional: bool) -> None:
        self.limit = limit
        self.count = 0
        kind = BatchBuilder if _SHORTCOMINGS or columns.compiled is None else _Packed
        self.batch: Any = kind(limit, CODECS[compression], is_transactional=int(transactional))

    def add(
        self,
        keys: Sequence[bytes | None] | None,
        values: Sequence[bytes | None],
        stamps: Sequence[int] | int,
        headers: Sequence[Headers] | None,
        start: int,
    ) -> int:
        """Append records from index `start` on; the index of the first that did not fit (the number of values when all did)."""
        batch = self.batch
        if isinstance(batch, _Packed):
            at = batch.add(keys, values, stamps, headers, start)
            self.count = batch.record_count()
            return at
        for at in range(start, len(values)):
            stamp = stamps if isinstance(stamps, int) else stamps[at]
            key, head = keys[at] if keys is not None else None, headers[at] if headers is not None else []
            if batch.append(timestamp=stamp, key=key, value=values[at], headers=head) is None:
                return at
            self.count += 1
        return len(values)

    @property
    def size(self) -> int:
        """Bytes so far, before compression."""
        return self.batch.size()


class _Packed(BatchBuilder):
    """A batch whose records are packed a column at a time, by the compiled part. For the sender it is as any other."""

    def __init__(self, batch_size: int, compression_type: int, *, is_transactional: int) -> None:
        self._limit = batch_size
        self._codec = compression_type
        self._attributes = 0x10 if is_transactional else 0
        self._parts: list[bytes] = []
        self._size = HEAD.size
        self._relative_offset = 0
        self._first_ms = self._max_ms = 0
        self._producer = (-1, -1, 0)
        self._buffer: bytearray | None = None
        self._closed = False

    def add(self, keys: Any, values: Any, stamps: Any, headers: Any, start: int) -> int:
        """As `Builder.add`."""
        if self._closed:
            return start
        count = self._relative_offset
        if count == 0:
            self._first_ms = self._max_ms = stamps if isinstance(stamps, int) else stamps[start]
        more = count, self._first_ms, self._limit - self._size
        try:
            part, at, max_ms = columns.compiled.write(keys, values, stamps, headers, start, *more)
        except TypeError:
            listed = _listed(keys), _listed(values), stamps if isinstance(stamps, int) else list(stamps)
            named = None if headers is None else [[(n, _plain(v)) for n, v in one] for one in headers]
            part, at, max_ms = columns.compiled.write(*listed, named, start, *more)
        if at > start:
            self._parts.append(part)
            self._size += len(part)
            self._relative_offset += at - start
            self._max_ms = max(self._max_ms, max_ms)
        return at

    def append(self, **record: Any) -> None:
        """Nothing else gets in: aiokafka asks when somebody sends a single record to the same partition."""
        return

    def _set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self._producer = (producer_id, producer_epoch, base_sequence)

    def _build(self) -> bytearray:
        self.close()
        if self._buffer is None:
            body, attributes = b"".join(self._parts), self._attributes
            self._parts = []
            if self._codec:
                packed = ENCODERS[self._codec](body)
                if len(packed) < len(body):
                    body, attributes = packed, attributes | self._codec
            count = self._relative_offset
            times = self._first_ms, self._max_ms
            head = bytearray(HEAD.size)
            length = HEAD.size + len(body) - 12
            HEAD.pack_into(head, 0, 0, length, -1, 2, 0, attributes, count - 1, *times, *self._producer, count)
            whole = head + body
            whole[17:21] = columns.crc32c(whole, CHECKED_FROM, len(whole)).to_bytes(4, "big")
            self._buffer = whole
        return self._buffer

    def size(self) -> int:
        return self._size if self._buffer is None else len(self._buffer)


def _plain(value: Any) -> bytes | None:
    """Whatever aiokafka takes for bytes, as bytes."""
    if value is None or type(value) is bytes:
        return value
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"bytes are wanted, not {type(value).__name__}")
    return bytes(value)


def _listed(column: Any) -> list[bytes | None] | None:
    return None if column is None else [_plain(value) for value in column]


def record_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """An upper bound of what one record takes in a batch of its own, batch head included, before compression."""
    size = BATCH_OVERHEAD + 36 + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += 10 + len(name.encode()) + len(content or b"")
    return size


def knows_topic(producer: AIOKafkaProducer, topic: str) -> bool:
    """Whether the producer's last metadata names the topic; a topic that was deleted is in it no more."""
    return producer.client.cluster.partitions_for_topic(topic) is not None


def look_again(producer: AIOKafkaProducer) -> None:
    """Have the producer ask for metadata now: while a transaction waits for a partition that is gone, nothing else makes it ask."""
    with quiet_metadata():
        producer.client.force_metadata_update()


def cause_of_death(producer: AIOKafkaProducer) -> BaseException | None:
    """What ended the producer's sender, if it has ended."""
    any_producer: Any = producer
    task = any_producer._sender.sender_task
    if task is None or not task.done() or task.cancelled():
        return None
    return task.exception()


def transaction_error(producer: AIOKafkaProducer) -> BaseException | None:
    """Why the open transaction can only be aborted, if that is so: aiokafka tells it at the commit, and sends on until then."""
    any_producer: Any = producer
    manager = any_producer._txn_manager
    waiter = None if manager is None else manager._transaction_waiter
    if waiter is None or not waiter.done() or waiter.cancelled():
        return None
    return waiter.exception()


async def discard(producer: AIOKafkaProducer, *, patience_s: float = 3.0) -> None:
    """Close a producer that may be beyond closing: what it still holds is thrown away."""
    any_producer: Any = producer
    accumulator, sender = any_producer._message_accumulator, any_producer._sender
    accumulator.fail_all(KafkaError("the producer is thrown away"))
    for futures in [
        [b.future for q in accumulator._batches.values() for b in q],
        [b.future for b in accumulator._pending_batches],
    ]:
        for future in futures:
            if future.done() and not future.cancelled():
                future.exception()  # nobody will ask for it
    accumulator._batches.clear()
    any_producer._closed = True
    task = sender.sender_task
    if task is not None and not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=patience_s)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            await any_producer.client.close()
