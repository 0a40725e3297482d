"""Outbox on a real broker: chunks, transactions, codecs, keys, back-pressure, and the second producer of at-least-once."""

from __future__ import annotations

import asyncio
import gc

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from headgate.agents.kafka.offsets import KafkaOffsets
from headgate.agents.kafka.port import KafkaPort
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.port.errors import OutboxError, ProducerBroken
from headgate.agents.records.kafka.partitioner import partition_of
from headgate.agents.runtime.writing.buffer import LogWrite
from headgate.agents.runtime.writing.outbox import Outbox
from headgate.core.errors import EnvironmentFault
from headgate.core.names import StreamPartition

from .commits import committed
from .scenes import outbox_on

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


async def read(kafka, topic, partitions=1):
    """What a plain read-committed reader, which is none of our code, sees."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap, isolation_level="read_committed", enable_auto_commit=False
    )
    await consumer.start()
    parts = [TopicPartition(topic, n) for n in range(partitions)]
    consumer.assign(parts)
    await consumer.seek_to_beginning()
    offsets = KafkaOffsets(
        ClientSettings(kafka.bootstrap)
    )  # read uncommitted: a commit is answered before its markers stand
    await offsets.start()
    ends = {tp: await offsets.end_of(StreamPartition(*tp), committed=False) for tp in parts}
    await offsets.stop()
    records = []
    while any([await consumer.position(tp) < ends[tp] for tp in parts]):
        for got in (await consumer.getmany(timeout_ms=200)).values():
            records += got
    await consumer.stop()
    return records


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_every_column_goes_out(kafka, topic, codec):
    """Keys, values, tombstones, timestamps and headers, in every codec, in batches that are split at their size."""
    name = topic()
    async with outbox_on(kafka, name, name, compression=codec, batch_bytes=2000) as outbox:
        buffer = outbox.buffer("t")
        buffer.emit(
            name,
            0,
            [b"k%d" % i for i in range(100)],
            [b"v" * 50] * 99 + [None],
            list(range(1, 101)),
            [[("h", b"%d" % i)] for i in range(100)],
        )
        buffer.emit(name, 0, None, [b"last"], 7)
        buffer.emit(name, 0, None, [], 7)
        buffer.complete()
        assert await committed(outbox) == {StreamPartition(name, 0): 101}
    records = await read(kafka, name)
    assert [r.key for r in records] == [b"k%d" % i for i in range(100)] + [None]
    assert [r.value for r in records] == [b"v" * 50] * 99 + [None, b"last"]
    assert [r.timestamp for r in records] == [*range(1, 101), 7]
    assert records[3].headers == (("h", b"3"),)


async def test_a_chunk_is_all_or_nothing_and_seals_go_with_it(kafka, topic):
    """A dropped chunk leaves no trace; what is added at the division stands in the same transaction, behind the data."""
    name, log = topic(), topic("log")
    async with outbox_on(kafka, name, name, log) as outbox:
        good, bad = outbox.buffer("good"), outbox.buffer("bad")
        good.emit(name, 0, None, [b"kept"], 1)
        bad.emit(name, 0, None, [b"dropped"], 1)
        bad.drop()
        bad.complete()
        good.complete()
        assert outbox.writers == {"good"}
        positions = await committed(outbox, [LogWrite("good", StreamPartition(log, 0), [b"cp"], [b"1"], 1)])
        assert positions == {StreamPartition(name, 0): 1, StreamPartition(log, 0): 1}
        assert await committed(outbox) == {}
    assert [r.value for r in await read(kafka, name)] == [b"kept"]
    assert [r.value for r in await read(kafka, log)] == [b"1"]


async def test_keys_go_where_javas_partitioner_sends_them(kafka, topic):
    """Also when many keys share a call; records without a key stay together."""
    name = topic(partitions=4)
    async with outbox_on(kafka, name, name, partitions=4) as outbox:
        buffer = outbox.buffer("t")
        keys = [b"user-%d" % i for i in range(50)]
        buffer.emit(name, None, keys, keys, list(range(1, 51)))
        buffer.emit(name, None, None, [b"a", b"b"], 1)
        buffer.complete()
        with pytest.raises(EnvironmentFault, match="is unknown"):
            buffer.emit("never-declared", None, None, [b"a"], 1)
        await committed(outbox)
    records = await read(kafka, name, 4)
    assert {r.key: r.partition for r in records if r.key} == {key: partition_of(key, 4) for key in keys}
    assert {r.key: r.timestamp for r in records if r.key} == {key: i + 1 for i, key in enumerate(keys)}
    assert len({r.partition for r in records if r.key is None}) == 1


async def test_too_much_that_is_unsent_makes_its_writers_wait(kafka, topic):
    """Room comes back as batches leave, without a commit."""
    name = topic()
    async with outbox_on(kafka, name, name, batch_bytes=10_000, max_pending_bytes=30_000) as outbox:
        buffer = outbox.buffer("t")
        for _ in range(50):
            buffer.emit(name, 0, None, [b"x" * 1000] * 10, 1)
            buffer.complete()
            await asyncio.wait_for(outbox.room(), 240)
        assert outbox.pending_bytes <= 45_000
        await committed(outbox)
        assert outbox.pending_bytes == 0
    assert len(await read(kafka, name)) == 500


async def test_the_second_producer_sends_at_once_and_flushes(kafka, topic):
    """at_least_once: what is complete is on its way without a commit, and a commit is a flush with positions."""
    name = topic()
    async with outbox_on(kafka, None, name) as outbox:
        buffer = outbox.buffer("t")
        buffer.emit(name, 0, None, [b"1"], 1)
        buffer.complete()
        for _ in range(200):
            if len(await read(kafka, name)) == 1:
                break
        assert [r.value for r in await read(kafka, name)] == [b"1"]
        for n in range(200):
            buffer.emit(name, 0, None, [b"%d" % n], 1)
            buffer.complete()
            await asyncio.sleep(0)
        assert await committed(outbox) == {StreamPartition(name, 0): 201}
    assert len(await read(kafka, name)) == 201


async def test_a_stopped_outbox_says_so(kafka, topic):
    """And what was not committed is aborted at once: nobody waits for its transaction's timeout."""
    name = topic()
    async with outbox_on(kafka, name, name) as outbox:
        buffer = outbox.buffer("t")
        buffer.emit(name, 0, None, [b"x" * 1000] * 3000, 1)
        buffer.complete()
        offsets = KafkaOffsets(ClientSettings(kafka.bootstrap))
        await offsets.start()
        async with asyncio.timeout(240):
            while await offsets.end_of(StreamPartition(name, 0), committed=False) == 0:
                pass  # until something of it is in the log
        await offsets.stop()
    with pytest.raises(ProducerBroken, match="stopped"):
        await committed(outbox)
    assert await read(kafka, name) == []


@pytest.mark.parametrize("exactly", [True, False])
async def test_a_commit_does_not_wait_for_tasks_to_fall_silent(kafka, topic, exactly):
    """Tasks that fill batches as fast as they are handed over: commits come through all the same, and hold each record once."""
    name = topic(partitions=2)
    made, filled = 0, asyncio.Event()
    bounds = {"batch_bytes": 2000, "max_pending_bytes": 100_000}
    async with outbox_on(kafka, name if exactly else None, name, partitions=2, **bounds) as outbox:
        busy = True

        async def fill():
            nonlocal made
            buffer = outbox.buffer("t")
            while busy:
                for partition in range(2):
                    buffer.emit(name, partition, None, [b"%d" % n for n in range(made, made + 200)], made)
                    made += 200
                buffer.complete()
                filled.set()
                await asyncio.sleep(0)
                await outbox.room()  # there is always some more than can be handed over now

        async with asyncio.timeout(240), asyncio.TaskGroup() as group:
            group.create_task(fill())
            await filled.wait()
            for _ in range(3):
                assert await committed(outbox)
            busy = False
        await committed(outbox)
    records = await read(kafka, name, 2)
    assert sorted(int(record.value) for record in records) == list(range(made))


async def test_whoever_throws_a_producer_away_leaves_no_unread_failure(kafka, topic):
    """Every incarnation that ended left a traceback for each batch that was under way, minutes later and without a culprit; and one that
    somebody did forget could not be told from them."""
    out = topic("out", 8)
    said = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context["message"]))
    outbox = Outbox(
        KafkaPort(ClientSettings(kafka.bootstrap)), None
    )  # else it is aborted first, which sends what is under way
    outbox.know(out, 8)
    await outbox.start(deadline_s=240)
    sent, send = [], outbox._producer.send

    async def noted(at, batch):
        sent.append(await send(at, batch))
        return sent[-1]

    outbox._producer.send = noted
    running = asyncio.get_running_loop().create_task(outbox.run())
    buffer = outbox.buffer("t")
    for partition in range(8):
        buffer.emit(out, partition, None, [b"x" * 1000] * 500, 1)
    buffer.complete()
    committing = asyncio.get_running_loop().create_task(committed(outbox))
    while not sent or all(future.done() for future in sent):
        assert not committing.done()
        await asyncio.sleep(0)
    await outbox.stop()
    found = await asyncio.gather(running, committing, return_exceptions=True)
    assert any(isinstance(one, OutboxError) for one in found)
    forgotten = asyncio.get_running_loop().create_future()
    forgotten.set_exception(ValueError("forgotten"))
    sent.clear()
    del found, running, committing, buffer, outbox, forgotten, noted
    for _ in range(3):
        await asyncio.sleep(0)
        gc.collect()
    assert said == ["Future exception was never retrieved"]
