"""Intake on a real broker: chunks, bounds, frames, every codec, with and without aiokafka's private side."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.record.util import calc_crc32c

from headgate.agents.kafka.port import WallClock
from headgate.agents.kafka.private import _KeptRecords
from headgate.agents.kafka.record_batch import Builder
from headgate.agents.records.frames.chunks import Chunk
from headgate.agents.records.native import chosen
from headgate.agents.records.values.serdes import json
from headgate.agents.runtime.reading.intake import PartitionSource
from headgate.agents.runtime.reading.read_ahead import SHARED, WITHOUT_ROOM, ReadAhead
from headgate.core.names import StreamPartition
from headgate.core.progress.frames import BatchFrame, EndOfStream, UserFrame, encode

from .scenes import intake_on

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
both = pytest.mark.parametrize("spanned", [False, True])
"""Records are read as lists, or in spans."""


async def write(kafka, topic, values, partition=0, **options):
    """Records through a plain producer."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, **options)
    await producer.start()
    futures = [
        await producer.send(
            topic, v, key=b"k%d" % i, partition=partition, timestamp_ms=1000 + i, headers=[("h", b"%d" % i)]
        )
        for i, v in enumerate(values)
    ]
    await asyncio.gather(*futures)
    await producer.stop()


async def chunks_of(intake, at, most=100, seconds=60.0) -> list[Chunk]:
    """All chunks until the partition is at its end or its bound."""
    out = []
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        await intake.fill(0.1)
        while (chunk := intake.take(at, most)) is not None:
            out.append(chunk)
        if intake.head(at).at_end or intake.head(at).end_reached:
            return out
    raise AssertionError(f"no end: {intake.head(at)}")


@both
@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_every_column_comes_back(kafka, topic, codec, raw, spanned):
    """Values, keys, timestamps, headers and offsets, whatever the codec, by either path; reading begins in the middle of a batch."""
    name = topic()
    at = StreamPartition(name, 0)
    await write(kafka, name, [b"v%d" % i for i in range(250)], compression_type=codec, linger_ms=50)
    async with intake_on(kafka, PartitionSource(at, 7, spanned=spanned), raw=raw) as intake:
        chunks = await chunks_of(intake, at)
    assert max(map(len, chunks)) <= 100
    assert [v for c in chunks for v in c.values] == [b"v%d" % i for i in range(7, 250)]
    assert [k for c in chunks for k in c.keys] == [b"k%d" % i for i in range(7, 250)]
    assert [t for c in chunks for t in c.timestamps] == [1000 + i for i in range(7, 250)]
    assert [o for c in chunks for o in c.offsets] == list(range(7, 250))
    assert [h for c in chunks for h in c.headers] == [[("h", b"%d" % i)] for i in range(7, 250)]
    assert chunks[-1].next_position == 250
    assert chunks[0].has_keys
    assert chunks[0].has_headers


async def test_a_full_buffer_is_not_polled_and_hinders_no_other(kafka, topic):
    """One partition is not taken from: its buffer stays bounded, and the other one flows."""
    name = topic(partitions=2)
    slow, quick = StreamPartition(name, 0), StreamPartition(name, 1)
    for partition in (0, 1):
        await write(kafka, name, [b"x" * 1000] * 3000, partition=partition, linger_ms=20, max_batch_size=100_000)
    async with intake_on(
        kafka, PartitionSource(slow, 0), PartitionSource(quick, 0), buffer_bytes=300_000, fetch_bytes=100_000
    ) as intake:
        assert sum(map(len, await chunks_of(intake, quick))) == 3000
        assert 300_000 <= intake.head(slow).size <= 600_000
        assert sum(map(len, await chunks_of(intake, slow))) == 3000


async def test_without_room_a_partition_is_read_in_smaller_pieces(kafka, topic):
    """Others hold all that the worker may read ahead: it waits for its turn, and what it fetches then is smaller. With room it is not."""
    name = topic()
    at = StreamPartition(name, 0)
    await write(kafka, name, [bytes(1000)] * 4000, linger_ms=20, max_batch_size=20_000)
    ahead = ReadAhead(WallClock())
    ahead.change(SHARED * (4 << 20))
    async with intake_on(kafka, PartitionSource(at, 0), ahead=ahead) as intake:

        async def piece():
            give_up = time.monotonic() + 60
            while not intake.head(at).count and time.monotonic() < give_up:
                await intake.fill(0.1)
            size = intake.head(at).size
            while intake.take(at, 10_000) is not None:
                pass
            intake.let_go()
            return size

        assert [0 < await piece() <= WITHOUT_ROOM for _ in range(3)] == [True] * 3
        ahead.change(-SHARED * (4 << 20))
        await piece()  # it was fetched without room
        assert await piece() > WITHOUT_ROOM


def kept_records():
    """All answers of fetches that are alive."""
    return [one for one in gc.get_objects() if isinstance(one, _KeptRecords)]


async def test_what_was_taken_is_let_go_without_the_collector(kafka, topic):
    """aiokafka keeps each answer in a ring of objects; the collector, which a worker seldom runs, must not be what frees a megabyte."""
    name = topic("ring")
    at = StreamPartition(name, 0)
    gc.collect()
    others = kept_records()  # of another test, some of whose objects live on
    gc.disable()
    try:
        async with intake_on(kafka, PartitionSource(at, 0)) as intake:
            for n in range(5):
                await write(kafka, name, [b"%d" % n])
                while intake.take(at, 10) is None:
                    await intake.fill(0.1)
            held = [one for one in kept_records() if not any(one is other for other in others)]
            assert len(held) >= 5
            assert [one.raw for one in held] == [b""] * len(held)
    finally:
        gc.enable()


@both
async def test_bounds_in_offset_and_time(kafka, topic, spanned):
    """What stands at or behind `until` is not handed out; a chunk up to a time ends before what is younger."""
    name = topic()
    at = StreamPartition(name, 0)
    await write(kafka, name, [b"%d" % i for i in range(10)])
    async with intake_on(kafka, PartitionSource(at, 0, until=6, spanned=spanned)) as intake:
        while intake.head(at).count == 0:
            await intake.fill(0.1)
        assert intake.head(at).timestamp == 1000
        assert intake.take(at, 10, up_to_ms=999) is None
        assert intake.take(at, 10, up_to_ms=1002).values == [b"0", b"1", b"2"]
        assert intake.take(at, 2).values == [b"3", b"4"]
        assert intake.drains_to(at) == 10
        rest = await chunks_of(intake, at)
        assert [c.values for c in rest] == [[b"5"]]
        assert intake.head(at).end_reached
        assert intake.take(at, 10) is None
        intake.bound(at, None)  # what stood behind it took no room, so it is fetched again
        assert [c.values for c in await chunks_of(intake, at)] == [[b"6", b"7", b"8", b"9"]]


async def test_pause_seek_and_resume(kafka, topic):
    """What is buffered stays through a pause, and is dropped by a seek."""
    name = topic()
    at = StreamPartition(name, 0)
    await write(kafka, name, [b"%d" % i for i in range(10)])
    async with intake_on(kafka, PartitionSource(at, 0)) as intake:
        intake.pause(at)
        assert intake.head(at).paused
        await intake.fill(0.2)
        intake.resume(at)
        assert sum(map(len, await chunks_of(intake, at))) == 10
        intake.seek(at, 8)
        assert [c.values for c in await chunks_of(intake, at)] == [[b"8", b"9"]]


async def test_control_frames_cut_chunks_and_batch_frames_are_taken_whole(kafka, topic):
    """An intermediate stream: records, a batch frame, an end of stream, another record, and rubbish."""
    name = topic()
    at = StreamPartition(name, 0)
    end = EndOfStream("sales/1", "r1", "Partition 0", 1, 0)
    batch = BatchFrame([b"a", None, b"c"], [1, 2, 3], [b"1", b"2", None])
    frames = [UserFrame(b"u0"), batch, end, UserFrame(b"u1")]
    await write(kafka, name, [*map(encode, frames), b"\x63rubbish", encode(UserFrame(b"u2"))])
    async with intake_on(kafka, PartitionSource(at, 0, framed=json())) as intake:
        while intake.head(at).count < 6:
            await intake.fill(0.1)
        first = intake.take(at, 100)
        assert first.values == [b"u0", b"1", b"2", None]
        assert first.keys == [b"k0", b"a", None, b"c"]
        assert first.offsets == [0, 1, 1, 1]
        assert first.next_position == 2
        assert intake.control(at) == (2, end)
        control = intake.take(at, 100)
        assert (control.control, len(control), control.next_position) == (end, 0, 3)
        assert intake.control(at) is None
        assert intake.take(at, 100).values == [b"u1"]
        bad = intake.take(at, 100)
        assert bad.bad.reason == "unknown type 99"
        assert bad.values == [b"\x63rubbish"]
        assert intake.take(at, 100).values == [b"u2"]
        intake.seek(at, 0)
        while intake.head(at).count < 6:
            await intake.fill(0.1)
        assert intake.take(at, 1).values == [b"u0"]
        assert len(intake.take(at, 1)) == 3


def with_crc(batch: bytearray) -> bytes:
    """A batch of format 2 whose checksum and length fit what stands in it now."""
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[17:21] = calc_crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def altered(monkeypatch, change):
    """From now on fetched bytes pass through this, batch by batch."""

    def read(raw):
        out, at = b"", 0
        while at + 12 <= len(raw):
            end = at + 12 + int.from_bytes(raw[at + 8 : at + 12], "big")
            out += change(bytearray(raw[at:end]))
            at = end
        return _KeptRecords(out)

    monkeypatch.setattr("aiokafka.consumer.fetcher.MemoryRecords", read)


@both
@pytest.mark.parametrize("raw", [True, False])
async def test_a_damaged_batch_is_never_skipped_whoever_looks(kafka, topic, monkeypatch, raw, spanned):
    """One batch of the input cannot be decoded. A page that looked at the buffer first lost its records for good, and nobody was told.
    It stands still at that batch, says so with the way out, hinders no other partition, and goes on when the bytes are whole again."""
    name = topic(partitions=2)
    at, other = StreamPartition(name, 0), StreamPartition(name, 1)
    for values in ([b"a", b"b"], [b"c"], [b"d", b"e"]):
        await write(kafka, name, values)
    await write(kafka, name, [b"x"], partition=1)
    whole = asyncio.Event()

    def damage(batch):
        hurt = batch[:8] == bytes(7) + b"\x02" and not whole.is_set()
        return with_crc(batch[:61] + b"\xff" * (len(batch) - 61)) if hurt else bytes(batch)

    altered(monkeypatch, damage)
    async with intake_on(kafka, PartitionSource(at, 0, spanned=spanned), PartitionSource(other, 0), raw=raw) as intake:
        got = []
        give_up = time.monotonic() + 240
        while not (intake.head(at).degraded and intake.head(other).at_end) and time.monotonic() < give_up:
            await intake.fill(0.1)
            looked = [
                [(head.offset, head.count, head.size, head.position) for head in intake.heads().values()]
                for _ in (1, 2)
            ]
            assert looked[0] == looked[1]
            for one in (at, other):
                chunk = intake.take(one, 100)
                got += chunk.values if chunk is not None else []
        assert sorted(got) == [b"a", b"b", b"x"]
        head = intake.head(at)
        assert "cannot be read" in head.degraded
        assert f"headgate seek JOB {at} --to" in head.degraded
        assert (head.position, head.count, head.at_end) == (2, 0, False)
        whole.set()
        while intake.head(at).position < 5 and time.monotonic() < give_up:
            await intake.fill(0.1)
            chunk = intake.take(at, 100)
            got += chunk.values if chunk is not None else []
        assert sorted(got) == [b"a", b"b", b"c", b"d", b"e", b"x"]
        assert intake.head(at).degraded is None


@pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")
@pytest.mark.parametrize("raw", [True, False])
async def test_the_name_of_a_header_may_be_any_bytes(kafka, topic, raw):
    """Brokers accept it, and other clients read it. The whole batch was damaged, and nothing behind it was ever read."""
    at = StreamPartition(topic(), 0)
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap)
    await producer.start()
    builder = Builder(1 << 16, None, transactional=False)
    builder.add(None, [b"a", b"b", b"c"], 1000, [[("fine", b"1")], [("NAME", b"2")], []], 0)
    builder.batch._parts = [part.replace(b"NAME", b"caf\xe9") for part in builder.batch._parts]
    await (await producer.send_batch(builder.batch, at.stream, partition=at.partition))
    await producer.stop()
    for spanned in (False, True):
        async with intake_on(kafka, PartitionSource(at, 0, spanned=spanned), raw=raw) as intake:
            (chunk,) = await chunks_of(intake, at)
            assert chunk.values == [b"a", b"b", b"c"]
            assert chunk.headers == [[("fine", b"1")], [("caf\\xe9", b"2")], []]


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("to", [1, 7])
async def test_a_seek_while_the_intake_waits_is_not_followed_by_records_of_before(kafka, topic, monkeypatch, to, raw):
    """An operator seeks in the moment in which the intake asks the broker about another partition, with records in its hands: they were
    put behind the new position, so a range was skipped, or read again."""
    name = topic(partitions=2)
    at, gone = StreamPartition(name, 0), StreamPartition(name, 1)
    await write(kafka, name, [b"%d" % i for i in range(10)])
    async with intake_on(kafka, PartitionSource(at, 3), PartitionSource(gone, 99), raw=raw) as intake:
        taken = intake._consumer.take
        sought = asyncio.Event()

        async def late():
            found = await taken()
            if any(one.batches for one in found) and not sought.is_set():
                intake.seek(at, to)
                sought.set()
            return found

        monkeypatch.setattr(intake._consumer, "take", late)
        chunks = await chunks_of(intake, at)
        assert sought.is_set()
        assert [o for c in chunks for o in c.offsets] == list(range(to, 10))
        assert chunks[-1].next_position == 10


@both
@pytest.mark.parametrize("raw", [True, False])
async def test_control_batches_that_the_log_cleaner_has_emptied_stop_no_one(kafka, topic, monkeypatch, raw, spanned):
    """The cleaner removes old markers and keeps their empty batches, for the producers' sequence numbers. Such a partition was never read
    any further, by us (a `StopIteration` out of a coroutine) or by aiokafka (an error at each fetch, and what stood before it was lost)."""
    name = topic()
    at = StreamPartition(name, 0)
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=name)
    await producer.start()
    for value, good in ((b"a", True), (b"b", False), (b"c", True), (b"d", False), (b"e", True)):
        await producer.begin_transaction()
        await producer.send_and_wait(name, value, partition=0)
        await (producer.commit_transaction() if good else producer.abort_transaction())
    await producer.stop()

    def clean(batch):
        if not batch[22] & 0x20:
            return bytes(batch)
        batch[57:61] = bytes(4)
        return with_crc(batch[:61])

    altered(monkeypatch, clean)
    async with intake_on(kafka, PartitionSource(at, 0, spanned=spanned), raw=raw) as intake:
        chunks = await chunks_of(intake, at)
        assert [v for c in chunks for v in c.values] == [b"a", b"c", b"e"]
        assert intake.positions()[at] == 10
