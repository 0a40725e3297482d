"""What the outbox does early, and what it does not hold up, so that a record is not on its way longer than the commit interval."""

from __future__ import annotations

import asyncio

import pytest

from headgate.agents.clients import ClientSettings
from headgate.agents.outbox import LogWrite
from headgate.agents.outbox_errors import OutboxError
from headgate.agents.positions import OffsetReader
from headgate.core.names import StreamPartition

from .test_outbox import outbox_on, read

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


def requests_of(outbox, gate=None):
    """The names of the requests that the outbox's client sends from now on; a produce request waits behind the gate."""
    client, names = outbox._producer.client, []
    send = client.send

    async def told(node, request, **options):
        names.append(type(request).__name__)
        if gate is not None and names[-1] == "ProduceRequest":
            await gate.wait()
        return await send(node, request, **options)

    client.send = told
    return names


async def until(true):
    """Wait for something; the test's own deadline ends it."""
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 - what is waited for is inside of the client
            await asyncio.sleep(0.005)


async def test_a_prepared_commit_need_not_name_its_partitions(kafka, topic):
    """The coordinator hears of the output and of the task's log before the commit, and until then nothing stands in either."""
    name, log = topic(), topic()
    async with outbox_on(kafka, "in-time", name, log) as outbox:
        buffer = outbox.buffer("t")

        def seal():
            return [LogWrite("t", StreamPartition(log, 0), [b"cp"], [b"1"], 1)]

        buffer.emit(name, 0, None, [b"1"], 1)
        buffer.complete()
        await outbox.commit(seal)
        buffer.emit(name, 0, None, [b"2"], 1)
        buffer.complete()
        sent = requests_of(outbox)
        outbox.prepare()
        await until(lambda: len(outbox._producer._txn_manager.txn_partitions) == 2)
        assert set(sent) == {"AddPartitionsToTxnRequest"}
        offsets = OffsetReader(ClientSettings(kafka.bootstrap))
        await offsets.start()
        assert await offsets.ends([StreamPartition(name, 0)]) == {
            StreamPartition(name, 0): 2
        }  # the first, and its marker
        await offsets.stop()
        sent.clear()
        assert (await outbox.commit(seal)).records == 2
        assert sent == ["ProduceRequest", "EndTxnRequest"]
    assert [record.value for record in await read(kafka, name)] == [b"1", b"2"]


async def test_nothing_to_commit_is_nothing_to_prepare(kafka, topic):
    """And a transaction that was prepared and gets nothing more ends with the commit."""
    name = topic()
    async with outbox_on(kafka, "in-time-empty", name) as outbox:
        sent = requests_of(outbox)
        outbox.prepare()
        assert (await outbox.commit()).records == 0
        assert sent == []
        buffer = outbox.buffer("t")
        buffer.emit(name, 0, None, [b"1"], 1)
        buffer.complete()
        outbox.prepare()
        await until(lambda: sent)
        await outbox.commit()
        assert not outbox._producer._txn_manager.is_in_transaction()
    assert [record.value for record in await read(kafka, name)] == [b"1"]


async def test_a_flush_of_the_second_producer_holds_up_nothing(kafka, topic):
    """While a flush waits for the broker, what completes meanwhile is handed over; the flush waits for what was there before."""
    name, gate = topic(), asyncio.Event()
    async with outbox_on(kafka, None, name) as outbox, asyncio.TaskGroup() as group:
        sent = requests_of(outbox, gate)
        buffer = outbox.buffer("t")
        buffer.emit(name, 0, None, [b"before"], 1)
        buffer.complete()
        flush = group.create_task(outbox.commit())
        await until(lambda: sent)
        buffer.emit(name, 0, None, [b"after"], 1)
        buffer.complete()
        assert outbox.pending_bytes > 0
        await until(lambda: outbox.pending_bytes == 0)
        assert not flush.done()
        gate.set()
        assert (await flush).positions == {StreamPartition(name, 0): 1}
        assert (await outbox.commit()).positions == {StreamPartition(name, 0): 2}


async def test_a_flush_hears_of_a_producer_that_is_stopped(kafka, topic):
    """Whoever waits for acknowledgements that never come is told."""
    name, gate = topic(), asyncio.Event()

    async def flush(outbox):
        with pytest.raises(OutboxError):
            await outbox.commit()

    async with outbox_on(kafka, None, name) as outbox, asyncio.TaskGroup() as group:
        sent = requests_of(outbox, gate)
        buffer = outbox.buffer("t")
        buffer.emit(name, 0, None, [b"never"], 1)
        buffer.complete()
        group.create_task(flush(outbox))
        await until(lambda: sent)
        await outbox.stop()
        await flush(outbox)
