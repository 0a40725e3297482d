"""A request that ends a transaction may be delivered late: then it must not end the next one. Proven with a network that holds it.

aiokafka repeats an EndTxn that was not answered, in the same epoch. Brokers before KIP-890, and all brokers for clients of before it,
cannot tell the late first one from the end of the next transaction: outputs without their checkpoint, which the next owner writes again.
"""

from __future__ import annotations

import asyncio
import struct

import orjson
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

import headgate as hg
from headgate.agents.kafka import private as rawkafka
from headgate.agents.kafka.port import KafkaPort
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.port.errors import OutcomeUnknown, ProducerBroken
from headgate.core.names import JobName, StreamPartition, worker_id

from ..proxy import END_TXN, INIT_PRODUCER_ID, PRODUCE, Proxy

pytestmark = pytest.mark.kafka
NO_ERROR, FENCED, PRODUCER_FENCED = 0, 47, 90


async def read_all(kafka, name):
    """The committed values of a topic."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        at = TopicPartition(name, 0)
        consumer.assign([at])
        end, values = (await consumer.end_offsets([at]))[at], []
        while await consumer.position(at) < end:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                values += [record.value for record in records]
        return values
    finally:
        await consumer.stop()


def error_of(answer):
    """The error code of the answer to EndTxn, version 0 to 2."""
    return struct.unpack_from(">ih", answer)[1]


@pytest.mark.asyncio
async def test_an_end_that_comes_late_ends_the_next_transaction_of_aiokafka(kafka, topic):
    """What is corrected below is true of this aiokafka and this broker: a commit that was never asked for."""
    outputs, log = topic("outputs"), topic("log")
    with Proxy(kafka.bootstrap) as network:
        producer = AIOKafkaProducer(bootstrap_servers=network.bootstrap, transactional_id=outputs)
        await producer.start()
        await producer.begin_transaction()
        await producer.send_and_wait(outputs, b"first", partition=0)
        await producer.send_and_wait(log, b"checkpoint of the first", partition=0)
        held = network.hold(END_TXN)
        commit = asyncio.ensure_future(producer.commit_transaction())  # noqa: TID251 - awaited below
        assert await asyncio.to_thread(held.caught)
        network.sever()
        await asyncio.wait_for(commit, 240)  # the repetition has passed
        await producer.begin_transaction()
        await producer.send_and_wait(outputs, b"second", partition=0)
        assert error_of(await asyncio.to_thread(held.release)) == NO_ERROR
        await rawkafka.discard(producer)  # as if killed before its checkpoint was sent
    assert await read_all(kafka, outputs) == [b"first", b"second"]
    assert await read_all(kafka, log) == [b"checkpoint of the first"]


def writer(network, transactional_id):
    """A producer as an incarnation has it."""
    return KafkaPort(ClientSettings(network.bootstrap)).producer(
        transactional_id,
        name="writer",
        compression=None,
        batch_bytes=1 << 16,
        request_timeout_ms=60_000,
        transaction_timeout_ms=60_000,
    )


async def written(producer, topic, value):
    batch = producer.batch(1 << 16)
    batch.add(None, [value], 1, None, 0)
    return await (await producer.send(StreamPartition(topic, 0), batch))


@pytest.mark.parametrize("ends", ["commit", "abort"])
@pytest.mark.asyncio
async def test_an_end_without_an_answer_is_not_repeated(kafka, topic, ends):
    """Its outcome is unknown, at once, and the producer writes nothing more: the fence of its successor refuses what is under way."""
    outputs = topic("outputs")
    with Proxy(kafka.bootstrap) as network:
        producer, successor = writer(network, outputs), writer(network, outputs)
        await producer.start(deadline_s=240)
        await producer.begin()
        await written(producer, outputs, b"first")
        held = network.hold(END_TXN)
        end = asyncio.ensure_future(producer.commit() if ends == "commit" else producer.abort())  # noqa: TID251 - awaited below
        assert await asyncio.to_thread(held.caught)
        network.sever()
        with pytest.raises(OutcomeUnknown if ends == "commit" else ProducerBroken, match="EndTxn was not answered"):
            await asyncio.wait_for(end, 240)
        with pytest.raises(ProducerBroken):
            await producer.begin()
        await producer.discard()
        assert network.seen.count(END_TXN) == 1
        await successor.start(deadline_s=240)
        await successor.begin()
        await written(successor, outputs, b"second")
        assert error_of(await asyncio.to_thread(held.release)) == FENCED
        await successor.commit()
        await successor.discard()
    assert await read_all(kafka, outputs) == [b"second"]


@pytest.mark.asyncio
async def test_a_commit_that_could_not_be_sent_is_sent_when_the_broker_is_back(kafka, topic):
    """No request has left: that is no unknown outcome, and a short absence of the broker ends no incarnation."""
    outputs = topic("outputs")
    with Proxy(kafka.bootstrap) as network:
        producer = writer(network, outputs)
        await producer.start(deadline_s=240)
        await producer.begin()
        await written(producer, outputs, b"first")
        network.away()
        commit = asyncio.ensure_future(producer.commit())  # noqa: TID251 - awaited below
        await asyncio.to_thread(network.refused.wait, 240)
        assert not commit.done()
        network.back()
        await asyncio.wait_for(commit, 240)
        await producer.discard()
    assert await read_all(kafka, outputs) == [b"first"]


@pytest.mark.asyncio
async def test_a_commit_whose_answer_is_lost_is_there(kafka, topic):
    """Unknown means both: here it was carried out."""
    outputs = topic("outputs")
    with Proxy(kafka.bootstrap) as network:
        producer = writer(network, outputs)
        await producer.start(deadline_s=240)
        await producer.begin()
        await written(producer, outputs, b"first")
        network.lose(END_TXN)
        with pytest.raises(OutcomeUnknown, match="EndTxn was not answered"):
            await asyncio.wait_for(producer.commit(), 240)
        await producer.discard()
    assert await read_all(kafka, outputs) == [b"first"]


# ------------------------------------------------------------------------------------------------------------- whole workers


class Incarnation:
    """The requests of a worker's incarnation, or of whoever fences it, told by its transactional id."""

    def __init__(self, job, worker):
        self.name = worker_id(JobName(job.name), worker.worker.options.processor, worker.worker.incarnation).encode()

    def __call__(self, frame):
        return self.name in frame.raw

    def another(self, frame):
        """Whether it is a request of another incarnation of the same worker."""
        worker = self.name.rpartition(b".")[0] + b"."
        return worker in frame.raw and self.name not in frame.raw and worker + b"probe" not in frame.raw


async def caught(held):
    """Wait until the rule has caught a request."""
    assert await asyncio.to_thread(held.caught)


@pytest.mark.parametrize("comes", ["before its fence", "before the next checkpoint", "before the next commit"])
@pytest.mark.asyncio
async def test_a_worker_whose_commit_comes_late_writes_everything_once(kafka, job, topic, comes):
    """The connection dies while the end of a transaction is on its way. The worker takes its outcome for unknown and begins anew, and the
    request comes: while its transaction may still be ended, it ends that one, with its checkpoint. Later it ends nothing, also when
    outputs of the next transaction stand without their checkpoint. Whatever it meets, each output is there once, and so is each record
    in the counts."""
    inp, out, counts = topic("in"), topic("out"), topic("counts")
    app = hg.App(job.name)
    source = app.input(inp, start="oldest")
    source.to(out)
    source.repartition("k", name="by").agg(n=hg.count()).to(counts)
    with Proxy(kafka.bootstrap) as network:
        worker = await job.start(app, client=ClientSettings(network.bootstrap))
        await worker.until_running(1)
        await job.write(inp, [{"k": "a", "n": n} for n in range(20)])
        assert len(await job.values(out, 20)) == 20
        first = Incarnation(job, worker)
        wrote = network.delay(PRODUCE, 0.0, lambda frame: first(frame) and out.encode() in frame.raw, times=1)
        late = network.hold(END_TXN, lambda frame: first(frame) and wrote.frame is not None)
        log = job.topics.log.encode()
        api, when = {
            "before its fence": (INIT_PRODUCER_ID, first),
            "before the next checkpoint": (PRODUCE, lambda frame: first.another(frame) and log in frame.raw),
            "before the next commit": (END_TXN, first.another),
        }[comes]
        meanwhile = network.hold(api, when)
        await job.write(inp, [{"k": "a", "n": n} for n in range(20, 40)])
        await caught(late)
        network.sever()
        await caught(meanwhile)
        answer = error_of(await asyncio.to_thread(late.release))
        assert answer in ((NO_ERROR,) if comes == "before its fence" else (FENCED, PRODUCER_FENCED))
        await asyncio.to_thread(meanwhile.release)
        await job.write(inp, [{"k": "a", "n": n} for n in range(40, 60)])
        assert sorted(one["n"] for one in await job.values(out, 60)) == list(range(60))
        told = []
        while told[-1:] != [60]:
            told = [orjson.loads(one.value)["n"] for one in await job.records(counts, len(told) + 1)]
        assert told == sorted(set(told)), "no count is there twice"
        assert worker.worker.incarnation.encode() not in first.name, "it has begun anew"
        assert await worker.stop() == 0
