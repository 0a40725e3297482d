"""aiokafka from within: record batches taken whole, and what its clients get wrong.

Only this file, `record_batch` (the way out), `refusal` (what was not taken) and `contract` (what must hold) touch its private names.
What it decides: how an answer is read and a fetched batch is taken before aiokafka makes an object per record of it, and which of
aiokafka's habits are corrected on the clients that headgate starts (never on others of the same process).

Promises:

- Where aiokafka is not as `contract` expects, `taker()` uses `getmany`: slower, and with the same result.
- A taken batch has passed its checksum, is no control batch, and belongs to no aborted transaction.
- Positions advance over control, aborted and empty batches, also over control batches that the log cleaner has emptied.
- What cannot be read is an error of its partition, at its offset, each time that it is fetched; what stands before it is handed out. This
  and the emptied control batches are corrected for every consumer of the process: aiokafka's own stop for good, or lose records.
- Sequence numbers wrap to zero behind 2**31-1, as Java's do; aiokafka's own go negative, which brokers refuse for ever.
- No client that is started under `quiet_metadata()` makes a broker create a topic, and a corrected one asks for metadata at
  most once in its back-off, where aiokafka spins a whole core while a leader is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import aiokafka.admin.client as admin_module
import aiokafka.client as client_module
import aiokafka.conn as conn_module
import aiokafka.consumer.fetcher as fetcher_module
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    ConsumerStoppedError,
    CorruptRecordException,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.structs import ConsumerRecord

from ...core.errors import EnvironmentFault
from ...core.names import StreamPartition
from ..records import columns
from ..records.columns import CHECKED_FROM, HEAD, DamagedBatch, columns_of
from ..records.fetched import FetchAnswer, OutOfRange, RecordBatch, Taken
from . import contract as rawcontract
from .refusal import hear_refusals

MAX_SEQUENCE = 0x7FFFFFFF
PACE_S = 0.1
"""At most one forced metadata request a client in this time."""
_ABORT = b"\x00\x00"
_FETCH_API = 1


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
    """Sequence numbers that wrap as brokers expect, no spinning while a leader is missing, and refusals as the broker said them."""
    any_producer: Any = producer
    manager = any_producer._txn_manager
    if manager is not None:

        def increment_sequence_number(tp: TopicPartition, increment: int) -> None:
            manager._sequence_numbers[tp] = (manager._sequence_numbers[tp] + increment) & MAX_SEQUENCE

        manager.increment_sequence_number = increment_sequence_number
    _pace(any_producer.client)
    hear_refusals(any_producer.client)
    return producer


def is_dead(producer: AIOKafkaProducer) -> bool:
    """The producer's sender has ended, or its transactions are in a fatal state: nothing will ever be written by it."""
    any_producer: Any = producer
    task = any_producer._sender.sender_task
    manager = any_producer._txn_manager
    return (task is not None and task.done()) or (manager is not None and manager.is_fatal_error())


# ------------------------------------------------------------------------------------------------------------- reading


def reads_no_more(consumer: AIOKafkaConsumer) -> bool:
    """The consumer's fetching was ended by an error: nothing will ever be read by it, and it waits without a word."""
    any_consumer: Any = consumer
    fetching = getattr(any_consumer._fetcher, "_fetch_task", None)
    return fetching is not None and fetching.done()


def unread(tp: TopicPartition, error: BaseException) -> EnvironmentFault:
    """What keeps a partition from being read, in headgate's words."""
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


class _Pieces:
    """What a connection has read: whatever came, in pieces, until an answer is whole.

    asyncio's reader lets one buffer grow by a quarter of a megabyte at a time, and copies it each time; it also stops listening whenever
    more is there than it likes. Only aiokafka's own coroutine reads here, two numbers of bytes in turn: a length, and an answer.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader: Any = reader
        self._pieces: list[bytes] = []
        self._size = 0
        self._wanted = 0

    def feed_data(self, data: bytes) -> None:
        """As `StreamReader.feed_data`; the reading coroutine is woken only when it has what it waits for."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size >= self._wanted:
            self._reader._wakeup_waiter()

    async def readexactly(self, n: int) -> bytes:
        """As `StreamReader.readexactly`."""
        reader = self._reader
        while self._size < n:
            if (error := reader.exception()) is not None:
                raise error
            if reader._eof:
                raise asyncio.IncompleteReadError(self._take(self._size), n)
            self._wanted = n
            try:
                await reader._wait_for_data("readexactly")
            finally:
                self._wanted = 0
        return self._take(n)

    def _take(self, n: int) -> bytes:
        whole = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        rest = whole[n:]
        self._pieces, self._size = [rest] if rest else [], len(rest)
        return whole[:n]


class _Protocol(conn_module.AIOKafkaProtocol):
    """A connection of aiokafka's whose reader takes pieces."""

    def __init__(self, closed: Any, reader: asyncio.StreamReader, **options: Any) -> None:
        pieces, patched = _Pieces(reader), cast("Any", reader)
        patched.feed_data, patched.readexactly = pieces.feed_data, pieces.readexactly
        super().__init__(closed, reader, **options)


if not rawcontract.SHORTCOMINGS:
    conn_module.AIOKafkaProtocol = _Protocol


class _KeptRecords:
    """What the fetcher makes of the bytes that came, and the bytes themselves, which aiokafka's own class keeps to itself."""

    __slots__ = ("has_next", "next_batch", "raw", "size_in_bytes")

    def __init__(self, raw: bytes) -> None:
        records = _MemoryRecords(raw)
        self.raw = raw
        self.has_next: Any = records.has_next
        self.next_batch: Any = records.next_batch
        self.size_in_bytes: Any = records.size_in_bytes

    def let_go(self) -> None:
        """Forget the bytes: who holds this is part of a ring around a generator that nobody runs, and only the collector ends rings."""
        self.raw = b""
        self.has_next = self.next_batch = self.size_in_bytes = None


_MemoryRecords: Any = getattr(fetcher_module, "MemoryRecords", None)
if not rawcontract.SHORTCOMINGS:
    fetcher_module.MemoryRecords = _KeptRecords


def _whole_part(self: Any, max_records: int | None = None) -> list[Any]:
    """As `FetchResult.getall`, which loses the records that stand before a batch that it cannot read."""
    found: list[Any] = []
    if not self.check_assignment(self._topic_partition) or not self.has_more():
        return found
    try:
        for record in self._partition_records:
            found.append(record)
            if max_records is not None and len(found) >= max_records:
                self._update_position()
                return found
    except Exception:
        if not found:
            self._update_position()
            self._partition_records = None
            raise
    self._update_position()
    self._partition_records = None
    return found


def _emptied_or_abort(self: Any, next_batch: Any) -> bool:
    """As `PartitionRecords._contains_abort_marker`, which raises for ever on a control batch that the log cleaner has emptied."""
    return _ends_abort(next_batch)


if not rawcontract.READING_SHORTCOMINGS:
    fetcher_module.FetchResult.getall = _whole_part
    fetcher_module.PartitionRecords._contains_abort_marker = _emptied_or_abort


def observe(consumer: AIOKafkaConsumer, answered: Callable[[StreamPartition, FetchAnswer], None]) -> None:
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
                    refusal = for_code(error).__name__ if error else ""
                    answered(StreamPartition(topic, partition), FetchAnswer(now, refusal, high, stable, start))
        return response

    client.send = observed


def set_long_poll(consumer: AIOKafkaConsumer, wait_ms: int) -> None:
    """How long the broker may hold the next fetch back when it has nothing new."""
    fetcher: Any = consumer._fetcher
    if hasattr(fetcher, "_fetch_max_wait_ms"):
        fetcher._fetch_max_wait_ms = wait_ms


def taker(consumer: AIOKafkaConsumer, *, raw: bool = True) -> Callable[[], Any]:
    """A coroutine function that returns what has been fetched (`list[Taken]`), without waiting for the network."""
    if raw and not rawcontract.SHORTCOMINGS:
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
                wanted._records.let_go()
            else:
                taken = Taken(StreamPartition(*tp), -1, error=unread(tp, result._error))
            del fetcher._records[tp]
            fetcher._notify(fetcher._wait_consume_future)
            out.append(taken)
        return out

    def _filter(self, tp: TopicPartition, wanted: Any) -> Taken:
        records = wanted._records
        position = wanted.next_fetch_offset
        taken = Taken(StreamPartition(*tp), position, next_position=position)
        left = records.size_in_bytes()
        try:
            for batch, start, end in self._readable(tp, wanted, taken):
                taken.batches.append(_describe(batch, left, records.raw, start, end))
                taken.next_position = batch.next_offset
        except Exception as error:  # noqa: BLE001 - damaged bytes raise whatever they like
            if not taken.batches:
                why = error if isinstance(error, CorruptRecordException) else repr(error)
                taken.error = DamagedBatch(f"the batch at offset {taken.next_position} cannot be read: {why}")
            # else: what stands before it is good, and the next fetch begins with the damaged one
        share = left // max(1, len(taken.batches))
        for made in taken.batches:
            made.size = share
        return taken

    def _readable(self, tp: TopicPartition, wanted: Any, taken: Taken) -> Iterator[tuple[Any, int, int]]:
        """The batches that may be seen, each with its place in the bytes; the position moves over the others."""
        records, aborting, aborts = wanted._records, set[int](), list(wanted._aborted_transactions)
        raw: bytes = records.raw
        end = 0
        while records.has_next():
            batch = records.next_batch()
            start, end = end, end + 12 + int.from_bytes(raw[end + 8 : end + 12], "big")
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
                yield batch, start, end


def _ends_abort(batch: Any) -> bool:
    """Whether a producer that was aborting is not any more. A control batch that the log cleaner has emptied says not which end it was,
    and ended the transaction before it, whichever."""
    marker = next(iter(batch), None)
    return marker is None or marker.key[2:4] == _ABORT


def _sound(batch: Any, raw: bytes, start: int, end: int) -> bool:
    """Whether the checksum is right."""
    if columns.compiled is None or raw[start + 16] != 2:
        return batch.validate_crc()
    return HEAD.unpack_from(raw, start)[4] == columns.crc32c(raw, start + CHECKED_FROM, end)


def _describe(batch: Any, size: int, raw: bytes, start: int, end: int) -> RecordBatch:
    base = getattr(batch, "base_offset", None)
    if base is None:  # a format older than version 2 has no head to read
        records = list(batch)
        return RecordBatch.of(records, following=batch.next_offset, size=size)
    count = batch.last_offset_delta + 1
    read = partial(columns_of, batch) if columns.compiled is None else partial(columns.read_batch, raw, start, end)
    return RecordBatch(read, base, batch.next_offset, count, batch.first_timestamp, batch.max_timestamp, size)


class _PlainTaker:
    """The same through `getmany`, with public names only."""

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
            except Exception as error:  # noqa: BLE001 - damaged bytes raise whatever they like
                why = DamagedBatch(f"a batch behind offset {start} cannot be read: {error!r}")
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
    """Whether the producer's last metadata names the topic; a topic that was deleted is in it no more."""
    return producer.client.cluster.partitions_for_topic(topic) is not None


def leaderless(client: client_module.AIOKafkaClient, at: StreamPartition) -> bool:
    """Whether the last metadata names nobody who takes this partition; of brokers that all are away it says what it said before."""
    return client.cluster.leader_for_partition(TopicPartition(*at)) in (None, -1)


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


async def fetch_no_more(client: Any) -> None:
    """Let a consumer's fetches end. aiokafka cancels and awaits them one by one when it closes, and the first that stands in a request that
    nobody answers raises its cancellation out of `stop()`: the others, and the connections, are left open then."""
    fetcher = getattr(client, "_fetcher", None)
    if fetcher is None or not hasattr(fetcher, "_pending_tasks"):
        return
    tasks = [fetcher._fetch_task, *fetcher._pending_tasks]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # nobody will ask for it
    fetcher._pending_tasks.clear()


def hang_up(client: Any) -> None:
    """Close the connections of one of aiokafka's clients, without waiting for anything."""
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
    """Close a producer that may be beyond closing: what it still holds is thrown away."""
    any_producer: Any = producer
    accumulator, sender = any_producer._message_accumulator, any_producer._sender
    accumulator.fail_all(KafkaError("the producer is thrown away"))
    for batch in [*(b for queue in accumulator._batches.values() for b in queue), *accumulator._pending_batches]:
        for future in (batch.future, batch._drain_waiter):
            if future.done() and not future.cancelled():
                future.exception()  # nobody will ask for it
    accumulator._batches.clear()
    any_producer._closed = True
    task = sender.sender_task
    if task is not None and not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=patience_s)
    hang_up(producer)
