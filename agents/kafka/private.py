"""Reaches into aiokafka: takes whole record batches, and corrects faults of its clients.

Only this file, `receiving` and `connection`, `record_batch` (writing), `refusal` (rejected batches), `topic_ids` and `contract` (what they
rely on) use aiokafka's private names.

It decides how fetched batches are taken before aiokafka makes an object of each record, and which of aiokafka's faults are corrected.
Corrections apply to the clients that headgate starts; those that apply to the whole process are named below.

Promises:

- If aiokafka is not as `contract` expects, `taker()` uses `getmany`: slower, with the same result.
- A batch that is returned has passed its checksum, is no control batch, and belongs to no aborted transaction.
- Positions advance over control batches, aborted batches and empty batches, also over control batches that the log cleaner has emptied.
- An unreadable batch is an error of its partition, at its offset, whenever it is fetched. The records before it are returned. This, and the
  handling of emptied control batches, is corrected for every consumer of the process; without it, aiokafka's consumers stop for good or
  lose records.
- A header whose name is not UTF-8 is read like any other. This, too, is corrected for every consumer of the process; aiokafka's parser
  refuses the whole batch.
- An EndTxn that has left is sent once. Without an answer the producer is dead, and the outcome unknown: aiokafka would send it again
  in the same epoch, and a delayed first one would end the next transaction.
- Sequence numbers continue at zero after 2**31-1, as in the Java client. aiokafka's become negative, and brokers then reject them for good.
- A client that is started under `quiet_metadata()` never makes a broker create a topic. A corrected client requests metadata at most once
  every `PACE_S`, where aiokafka keeps a core busy while a leader is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import aiokafka.admin.client as admin_module
import aiokafka.client as client_module
import aiokafka.conn as conn_module
import aiokafka.consumer.fetcher as fetcher_module
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    ConsumerStoppedError,
    CorruptRecordException,
    KafkaError,
    NodeNotReadyError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.protocol.transaction import EndTxnRequest
from aiokafka.record.legacy_records import LegacyRecordBatch
from aiokafka.structs import ConsumerRecord

from ...core.errors import EnvironmentFault
from ...core.names import StreamPartition
from ..records.kafka import columns
from ..records.kafka.columns import CHECKED_FROM, HEAD, Columns, DamagedBatch, OversizedBatch, Raw, crc32c
from ..records.kafka.fetched import FetchAnswer, OutOfRange, RecordBatch, Taken
from ..records.kafka.plain_records import PlainRecord, records_of
from ..records.kafka.spans import SpannedRecords, read_run, read_spans
from ..records.kafka.visible import CONTROL, TRANSACTIONAL
from . import contract as rawcontract
from .connection import Connection
from .receiving import Protocol
from .refusal import hear_refusals
from .topic_ids import IdentifyingRequest

MAX_SEQUENCE = 0x7FFFFFFF
PACE_S = 0.1
"""The shortest time between two forced metadata requests of a client."""
_ABORT = b"\x00\x00"
_FETCH_API = 1
_OVERHEAD = 12
"""Each batch begins with its offset and the length of what follows."""
_MAGIC = 16
_LEAST = (26, 34, HEAD.size)
"""The shortest batch of each format."""


# ---------------------------------------------------------------------------------------------------- corrected clients

_quiet: contextvars.ContextVar[bool] = contextvars.ContextVar("headgate_quiet_metadata", default=False)
_MetadataRequest = client_module.MetadataRequest


def _metadata_request(
    topics: list[str] | None = None, allow_auto_topic_creation: bool | None = None, *, make: Any = IdentifyingRequest
) -> Any:
    if _quiet.get() and allow_auto_topic_creation is None:
        allow_auto_topic_creation = False
    return make(topics, allow_auto_topic_creation)


client_module.MetadataRequest = _metadata_request
admin_module.MetadataRequest = partial(_metadata_request, make=_MetadataRequest)


@contextlib.contextmanager
def quiet_metadata() -> Iterator[None]:
    """Clients started in this context never make a broker create a topic, because their metadata task inherits the context.

    An admin client is different: it requests metadata in the context of each caller.
    """
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def _pace(client: Any) -> None:
    """The first request is answered as soon as the broker answers; one that follows too soon, when its time has come."""
    original: Callable[[], asyncio.Future[bool]] = client.force_metadata_update
    due = -math.inf

    def force_metadata_update() -> asyncio.Future[bool]:
        nonlocal due
        loop = asyncio.get_running_loop()
        if client._md_update_fut is None:  # otherwise one is under way, and this call waits for its answer
            due = max(loop.time(), due + PACE_S)
        own_due, inner, outer = due, original(), loop.create_future()

        def release(result: bool) -> None:
            if not outer.done():
                outer.set_result(result)

        def answered(done: asyncio.Future[bool]) -> None:
            updated = not done.cancelled() and done.exception() is None and bool(done.result())
            if (wait_s := own_due - loop.time()) > 0:
                loop.call_later(wait_s, release, updated)
            else:
                release(updated)

        inner.add_done_callback(answered)
        return outer

    client.force_metadata_update = force_metadata_update


def correct_producer(producer: AIOKafkaProducer) -> AIOKafkaProducer:
    """Correct a producer: sequence numbers wrap, transactions are ended once, metadata requests are paced, and the broker's reasons for
    rejecting a batch are kept.
    """
    any_producer: Any = producer
    manager = any_producer._txn_manager
    if manager is not None:

        def increment_sequence_number(tp: TopicPartition, increment: int) -> None:
            manager._sequence_numbers[tp] = (manager._sequence_numbers[tp] + increment) & MAX_SEQUENCE

        manager.increment_sequence_number = increment_sequence_number
        _end_once(any_producer.client, manager)
    _pace(any_producer.client)
    hear_refusals(any_producer.client)
    return producer


class Unanswered(KafkaError):
    """A request that ends a transaction has left, and its answer will not come."""


def _end_once(client: Any, manager: Any) -> None:
    """Make an EndTxn without an answer fatal for its producer. Answers that ask for a repetition are answers: nothing is under way."""
    send = client.send

    async def sent_once(node_id: Any, request: Any, **options: Any) -> Any:
        if type(request) is not EndTxnRequest:
            return await send(node_id, request, **options)
        try:
            return await send(node_id, request, **options)
        except NodeNotReadyError:  # there was no connection: nothing has left
            raise
        except KafkaError as error:
            manager.fatal_error(Unanswered(f"EndTxn was not answered: {error!r}"))
            raise

    client.send = sent_once


def is_dead(producer: AIOKafkaProducer) -> bool:
    """Whether the producer can never write again: its sender has ended, or its transaction manager is in a fatal state."""
    any_producer: Any = producer
    task = any_producer._sender.sender_task
    manager = any_producer._txn_manager
    return (task is not None and task.done()) or (manager is not None and manager.is_fatal_error())


# ------------------------------------------------------------------------------------------------------------- reading


def reads_no_more(consumer: AIOKafkaConsumer) -> bool:
    """Whether an error has ended the consumer's fetching. It will never read again, and waits silently."""
    any_consumer: Any = consumer
    fetching = getattr(any_consumer._fetcher, "_fetch_task", None)
    return fetching is not None and fetching.done()


def unread(tp: TopicPartition, error: BaseException) -> EnvironmentFault:
    """headgate's error for what keeps a partition from being read."""
    said = str(error.args[0] if error.args else error)
    if isinstance(error, OffsetOutOfRangeError | NoOffsetForPartitionError):
        return OutOfRange(said or type(error).__name__)
    if isinstance(error, CorruptRecordException):
        return DamagedBatch(said)
    if isinstance(error, TopicAuthorizationFailedError):
        return EnvironmentFault(f"no permission to read {tp.topic}; grant READ on the topic")
    if isinstance(error, RecordTooLargeError):
        return EnvironmentFault(
            f"a record of {StreamPartition(*tp)} is larger than max.partition.fetch.bytes; raise it"
        )
    return EnvironmentFault(str(error) or type(error).__name__)


if not rawcontract.SHORTCOMINGS:
    conn_module.AIOKafkaProtocol, conn_module.AIOKafkaConnection = Protocol, Connection


class _Batch:
    """A batch of version 2, with what aiokafka's consumers ask of their own reader of one."""

    __slots__ = ("_head", "_raw")

    def __init__(self, raw: Raw) -> None:
        self._raw, self._head = raw, HEAD.unpack_from(raw)

    def validate_crc(self) -> bool:
        """Whether the checksum is right."""
        return self._head[4] == crc32c(self._raw, CHECKED_FROM, len(self._raw))

    @property
    def base_offset(self) -> int:
        return self._head[0]

    @property
    def last_offset_delta(self) -> int:
        return self._head[6]

    @property
    def next_offset(self) -> int:
        return self._head[0] + self._head[6] + 1

    @property
    def first_timestamp(self) -> int:
        return self._head[7]

    @property
    def max_timestamp(self) -> int:
        return self._head[8]

    @property
    def producer_id(self) -> int:
        return self._head[9]

    @property
    def is_transactional(self) -> bool:
        return bool(self._head[5] & TRANSACTIONAL)

    @property
    def is_control_batch(self) -> bool:
        return bool(self._head[5] & CONTROL)

    def __iter__(self) -> Iterator[PlainRecord]:
        return records_of(self._raw, 0, len(self._raw))


class _KeptRecords:
    """The records of a fetch answer together with their bytes, which aiokafka's own class hides, and takes as `bytes` alone."""

    __slots__ = ("at", "raw")

    def __init__(self, raw: Raw | None) -> None:
        self.raw: Raw = b"" if raw is None else raw
        self.at = 0
        """Where the next batch begins."""

    def size_in_bytes(self) -> int:
        """How many bytes there are, also of a batch that was cut off."""
        return len(self.raw)

    def has_next(self) -> bool:
        """Whether another whole batch follows."""
        return len(self.raw) - self.at >= _OVERHEAD and self._behind() <= len(self.raw)

    def _behind(self) -> int:
        return self.at + _OVERHEAD + int.from_bytes(self.raw[self.at + 8 : self.at + 12], "big", signed=True)

    def next_batch(self) -> Any:
        """aiokafka's reader of the next batch; None if there is none."""
        if not self.has_next():
            return None
        start, self.at = self.at, max(self._behind(), self.at + _OVERHEAD)
        one, magic = self.raw[start : self.at], self.raw[start + _MAGIC] if len(self.raw) > start + _MAGIC else 0
        if len(one) < _LEAST[min(magic, 2)]:
            raise CorruptRecordException(f"a batch of {len(one)} bytes is too short")
        return _Batch(one) if magic >= 2 else LegacyRecordBatch(bytes(one), magic)

    def let_go(self) -> None:
        """Drop the bytes. This object is in a reference cycle with a generator that no one resumes, and only the garbage collector frees
        cycles.
        """
        self.raw = b""


if not rawcontract.READING_SHORTCOMINGS:
    fetcher_module.MemoryRecords = _KeptRecords


def _whole_part(self: Any, max_records: int | None = None) -> list[Any]:
    """Replaces `FetchResult.getall`, which loses the records before a batch that it cannot read."""
    found: list[Any] = []
    if not self.check_assignment(self._topic_partition) or not self.has_more():
        return found
    try:
        for record in self._partition_records:
            found.append(record)
            if max_records is not None and len(found) >= max_records:
                self._update_position()
                return found
    except Exception as error:
        if not found:
            self._update_position()
            self._partition_records = None
            if isinstance(error, OversizedBatch):
                error.at = StreamPartition(*self._topic_partition)
            raise
    self._update_position()
    self._partition_records = None
    return found


def _emptied_or_abort(self: Any, next_batch: Any) -> bool:
    """Replaces `PartitionRecords._contains_abort_marker`, which keeps raising on a control batch that the log cleaner has emptied."""
    return _ends_abort(next_batch)


if not rawcontract.READING_SHORTCOMINGS:
    fetcher_module.FetchResult.getall = _whole_part
    fetcher_module.PartitionRecords._contains_abort_marker = _emptied_or_abort


class _InFlight(set[Any]):
    """The nodes with a fetch under way. aiokafka's fetcher may look at them between the end of a fetch and the callback that removes its
    node, if a partition is resumed in that moment; then it fetched nothing more until its timeout. This wakes it up.
    """

    def __init__(self, fetcher: Any) -> None:
        super().__init__(fetcher._in_flight)
        self._fetcher = fetcher

    def discard(self, node: Any) -> None:
        """See `set`."""
        super().discard(node)
        self._fetcher._notify(self._fetcher._wait_consume_future)


def observe(consumer: AIOKafkaConsumer, answered: Callable[[StreamPartition, FetchAnswer], None]) -> None:
    """Report every fetch answer, also those that aiokafka only logs. Call it after `start()`."""
    client: Any = consumer._client
    fetcher: Any = consumer._fetcher
    _pace(client)
    if hasattr(fetcher, "_in_flight"):
        fetcher._in_flight = _InFlight(fetcher)
    send = client.send

    async def observed(node_id: Any, request: Any, **options: Any) -> Any:
        response = await send(node_id, request, **options)
        if getattr(response, "API_KEY", None) == _FETCH_API:
            now, version = time.monotonic(), response.API_VERSION
            for topic, partitions in response.topics:
                for partition, error, high, *rest in partitions:
                    stable = rest[0] if version >= 4 else high
                    start = rest[1] if version >= 5 else -1
                    refusal = for_code(error).__name__ if error else ""
                    answered(StreamPartition(topic, partition), FetchAnswer(now, refusal, high, stable, start))
        return response

    client.send = observed


def client_of(consumer: AIOKafkaConsumer) -> client_module.AIOKafkaClient:
    """The client below a consumer."""
    return consumer._client


def asked_again(consumer: AIOKafkaConsumer) -> asyncio.Future[bool]:
    """Metadata that is requested now, or was a moment ago; whether it came."""
    with quiet_metadata():
        return consumer._client.force_metadata_update()


def set_long_poll(consumer: AIOKafkaConsumer, wait_ms: int) -> None:
    """Set how long the broker may hold back the next fetch answer when there is nothing new."""
    fetcher: Any = consumer._fetcher
    if hasattr(fetcher, "_fetch_max_wait_ms"):
        fetcher._fetch_max_wait_ms = wait_ms


def set_fetch_bytes(consumer: AIOKafkaConsumer, most: int) -> None:
    """Set how many bytes of a partition the next fetch asks for."""
    fetcher: Any = consumer._fetcher
    if hasattr(fetcher, "_max_partition_fetch_bytes"):
        fetcher._max_partition_fetch_bytes = most


def taker(consumer: AIOKafkaConsumer, *, raw: bool = True) -> Callable[[], Any]:
    """A coroutine function that returns what has been fetched (`list[Taken]`), without waiting for the network."""
    if raw and not rawcontract.SHORTCOMINGS:
        return _RawTaker(consumer).take
    return _PlainTaker(consumer).take


class _RawTaker:
    """Takes the batches out of the fetcher as `fetched_records` does, but without an object for each record."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.fetcher: Any = consumer._fetcher
        self.committed = self.fetcher._isolation_level == fetcher_module.READ_COMMITTED

    async def take(self) -> list[Taken]:
        fetcher = self.fetcher
        out: list[Taken] = []
        for tp in list(fetcher._records):
            result = fetcher._records.pop(tp)
            fetcher._notify(fetcher._wait_consume_future)  # it may be fetched again
            if type(result) is fetcher_module.FetchResult:
                wanted = result._partition_records
                assignment = result._assignment
                if wanted is None or not assignment.active:
                    continue
                state = assignment.state_value(tp)
                if not state.has_valid_position or state.position != wanted.next_fetch_offset:
                    continue  # a seek came in between
                taken = self._filter(tp, wanted)
                state.consumed_to(taken.next_position)
                result._partition_records = None
                wanted._records.let_go()
            else:
                taken = Taken(StreamPartition(*tp), -1, error=unread(tp, result._error))
            out.append(taken)
        return out

    def _filter(self, tp: TopicPartition, wanted: Any) -> Taken:
        records = wanted._records
        position = wanted.next_fetch_offset
        taken = Taken(StreamPartition(*tp), position, next_position=position)
        left = records.size_in_bytes()
        try:
            for made in self._readable(wanted, taken, left):
                taken.batches.append(made)
                taken.next_position = made.next
        except Exception as error:  # noqa: BLE001 - damaged bytes raise whatever they like
            if not taken.batches:
                why = error if isinstance(error, CorruptRecordException) else repr(error)
                taken.error = DamagedBatch(f"the batch at offset {taken.next_position} cannot be read: {why}")
            # else: the records before it are good, and the next fetch begins with the damaged batch
        share = left // max(1, len(taken.batches))
        for made in taken.batches:
            made.size = share
        return taken

    def _readable(self, wanted: Any, taken: Taken, size: int) -> Iterator[RecordBatch]:
        """The visible batches; a run of small ones is one. The position advances over the others."""
        records, aborting, aborts = wanted._records, set[int](), list(wanted._aborted_transactions)
        raw: Raw = records.raw
        while records.has_next():
            start = records.at
            if (run := read_run(raw, start)) is not None:
                records.at, following, spans = run
                yield _run_of(spans, following, size)
                continue
            batch, end = records.next_batch(), records.at
            if wanted._check_crcs and not _sound(batch, raw, start, end):
                raise CorruptRecordException("its checksum is wrong")
            producer_id, control = batch.producer_id, batch.is_control_batch
            skip = control
            if self.committed and producer_id is not None:
                while aborts and aborts[0][1] <= batch.base_offset:
                    aborting.add(aborts.pop(0)[0])
                if control and _ends_abort(batch):
                    aborting.discard(producer_id)
                elif batch.is_transactional and producer_id in aborting:
                    skip = True
            if skip:
                taken.next_position = batch.next_offset
            else:
                yield _describe(batch, size, raw, start, end)


def _not_decompressed(error: OversizedBatch) -> RecordBatch:
    """A batch that was found to be too large."""

    def read(most: int) -> Columns:
        raise error

    count, ms = error.following - error.base, error.greatest_ms
    return RecordBatch(read, error.base, error.following, count, ms, ms, len(error.packed))


def _run_of(spans: SpannedRecords, following: int, size: int) -> RecordBatch:
    base = spans.base
    return RecordBatch(
        lambda most: spans.columns(),
        base,
        following,
        len(spans),
        0,
        0,
        size,
        spans=lambda most: spans,
        transactional=False,
    )


def _ends_abort(batch: Any) -> bool:
    """Whether this control batch ends the aborted transaction of its producer. A control batch that the log cleaner has emptied does not
    say whether it committed or aborted; it ended the transaction before it in either case.
    """
    marker = next(iter(batch), None)
    return marker is None or marker.key[2:4] == _ABORT


def _sound(batch: Any, raw: Raw, start: int, end: int) -> bool:
    """Whether the checksum is right."""
    if raw[start + 16] != 2:
        return batch.validate_crc()
    return HEAD.unpack_from(raw, start)[4] == columns.crc32c(raw, start + CHECKED_FROM, end)


def _describe(batch: Any, size: int, raw: Raw, start: int, end: int) -> RecordBatch:
    base = getattr(batch, "base_offset", None)
    if base is None:  # a format before version 2: there is no header to read
        records = list(batch)
        made = RecordBatch.of(records, following=batch.next_offset, size=size)
        made.transactional = False
        return made
    count = batch.last_offset_delta + 1
    times = batch.first_timestamp, batch.max_timestamp
    spans = partial(read_spans, raw, start, end)
    return RecordBatch(
        partial(columns.read_batch, raw, start, end), base, batch.next_offset, count, *times, size, spans=spans,
        transactional=batch.is_transactional,
    )  # fmt: skip


class _PlainTaker:
    """Does the same through `getmany`, with public names only."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.consumer = consumer

    async def take(self) -> list[Taken]:
        out: list[Taken] = []
        for tp in self.consumer.assignment():
            start = await self.consumer.position(tp)
            try:
                got = await self.consumer.getmany(tp, timeout_ms=0)
            except ConsumerStoppedError:
                raise
            except KafkaError as error:
                out.append(Taken(StreamPartition(*tp), start, error=unread(tp, error)))
                continue
            except OversizedBatch as error:
                self.consumer.seek(tp, error.following)
                out.append(Taken(StreamPartition(*tp), start, [_not_decompressed(error)], error.following))
                continue
            except Exception as error:  # noqa: BLE001 - damaged bytes raise whatever they like
                why = DamagedBatch(f"a batch after offset {start} cannot be read: {error!r}")
                out.append(Taken(StreamPartition(*tp), start, error=why))
                continue
            position = await self.consumer.position(tp)
            records: list[ConsumerRecord[Any, Any]] = got.get(tp, [])
            if not records and position == start:
                continue
            taken = Taken(StreamPartition(*tp), start, next_position=position)
            if records:
                size = sum(max(r.serialized_value_size, 0) + max(r.serialized_key_size, 0) + 32 for r in records)
                taken.batches.append(RecordBatch.of(records, size=size))
            out.append(taken)
        return out


# ------------------------------------------------------------------------------------------------- the end of a producer


def knows_topic(producer: AIOKafkaProducer, topic: str) -> bool:
    """Whether the producer's latest metadata contains the topic. A deleted topic disappears from it."""
    return producer.client.cluster.partitions_for_topic(topic) is not None


def lacks_partition(producer: AIOKafkaProducer, at: StreamPartition) -> bool:
    """Whether the producer's latest metadata contains the topic, and not this partition of it."""
    found = producer.client.cluster.partitions_for_topic(at.stream)
    return found is not None and at.partition not in found


def leaderless(client: client_module.AIOKafkaClient, at: StreamPartition) -> bool:
    """Whether the latest metadata shows no leader for this partition. While all brokers are away, the metadata does not change."""
    return client.cluster.leader_for_partition(TopicPartition(*at)) in (None, -1)


def look_again(producer: AIOKafkaProducer) -> None:
    """Make the producer request metadata now. While a transaction waits for a partition that is gone, nothing else makes it do so."""
    with quiet_metadata():
        producer.client.force_metadata_update()


def cause_of_death(producer: AIOKafkaProducer) -> BaseException | None:
    """The error that ended the producer's sender, if one did."""
    any_producer: Any = producer
    task = any_producer._sender.sender_task
    if task is None or not task.done() or task.cancelled():
        return None
    return task.exception()


def transaction_error(producer: AIOKafkaProducer) -> BaseException | None:
    """Why the open transaction can only be aborted, if so. aiokafka itself reports this only at the commit, and continues to send until
    then.
    """
    any_producer: Any = producer
    manager = any_producer._txn_manager
    waiter = None if manager is None else manager._transaction_waiter
    if waiter is None or not waiter.done() or waiter.cancelled():
        return None
    return waiter.exception()


async def fetch_no_more(client: Any) -> None:
    """Cancel a consumer's fetches before it is closed. aiokafka's `stop()` cancels and awaits them one by one; the first that waits for an
    unanswered request raises `CancelledError` out of `stop()`, which leaves the other fetches and the connections open.
    """
    fetcher = getattr(client, "_fetcher", None)
    if fetcher is None or not hasattr(fetcher, "_pending_tasks"):
        return
    tasks = [fetcher._fetch_task, *fetcher._pending_tasks]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # mark as retrieved
    fetcher._pending_tasks.clear()


def hang_up(client: Any) -> None:
    """Close the connections of an aiokafka client, without waiting for anything."""
    inner = getattr(client, "_client", None) or getattr(client, "client", None)
    if not isinstance(inner, client_module.AIOKafkaClient):
        return
    any_client: Any = inner
    sync = any_client._sync_task
    if sync is not None:
        sync.cancel()
    for connection in list(any_client._conns.values()):
        connection.close(reason=conn_module.CloseReason.SHUTDOWN)


async def discard(producer: AIOKafkaProducer, *, patience_s: float = 3.0) -> None:
    """Close a producer that may be broken. Batches that it still holds are dropped."""
    any_producer: Any = producer
    accumulator, sender = any_producer._message_accumulator, any_producer._sender
    accumulator.fail_all(KafkaError("the producer is discarded"))
    for batch in [*(b for queue in accumulator._batches.values() for b in queue), *accumulator._pending_batches]:
        for future in (batch.future, batch._drain_waiter):
            if future.done() and not future.cancelled():
                future.exception()  # mark as retrieved
    accumulator._batches.clear()
    any_producer._closed = True
    task = sender.sender_task
    if task is not None and not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=patience_s)
    hang_up(producer)
