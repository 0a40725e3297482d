"""One target that cannot be written: who wrote to it waits and says why; everybody else on the same worker goes on, in peace."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from headgate.agents.broker.acls import Acl
from headgate.agents.kafka.probe import probe
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.kafka.topics import TopicsAdmin
from headgate.core.names import StreamPartition

from .scenes import asked, asked_in_vain, client_of, life, made, named, split, steadily, why

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio, pytest.mark.usefixtures("swept")]


@pytest.mark.parametrize("guarantee", ["exactly_once", pytest.param("at_least_once", marks=pytest.mark.slow)])
async def test_a_deleted_output_holds_up_its_writers_and_not_the_neighbour(job, topic, monkeypatch, guarantee):
    """Three tasks write to it, one after the other, and one task does not. The worker begins one new incarnation, and no more: the
    target is asked again and again beside, and when it is there again its writers go on, in the same incarnation."""
    monkeypatch.setattr("headgate.agents.runtime.writing.outbox.GONE_AFTER_S", 1.0)
    inp = topic("in", 4)
    bad, good = named("bad", "good")
    await made(job.client, (bad, 3), (good, 1))
    one = await job.start(split(job, inp, bad, good), settings={"guarantee": guarantee})
    await one.until_running(4)
    guilty = ["Partition 0", "Partition 1", "Partition 2"]
    for partition in range(3):
        await job.write(inp, [{"n": -1, "to": "bad"}], partition=partition)
    await job.records(bad, 3)
    before = life(one)
    said = asked(one)
    async with steadily(job, inp, 3, to="good") as written:
        async with job.admin() as admin:
            await admin.delete_topics([bad])
        await job.write(inp, [{"n": n, "to": "bad"} for n in range(10)], partition=0)
        await one.until(lambda: all(bad in why(one, task) for task in guilty), "the tasks say which topic")
        await one.until(lambda: "create the topic" in why(one), "and what to do")
        await job.write(inp, [{"n": n, "to": "bad"} for n in range(10, 20)], partition=1)
        await one.until(lambda: one.state("Partition 3") == "running", "the neighbour goes on")
        neighbour = await asked_in_vain(job, one, said, written, good, guilty)
        await made(job.client, (bad, 2))  # narrower than before
        await one.until_running(4, within_s=240)
    assert one.worker.actors["Partition 3"] is neighbour
    gone_on = [v["n"] for v in await job.values(bad, 20)]
    beside = [v["n"] for v in await job.values(good, len(written))]
    assert set(gone_on) == set(range(20))
    assert set(written) <= set(beside)
    if guarantee == "exactly_once":
        assert len(gone_on) == 20
        assert beside[: len(written)] == written
    assert life(one) == before + 1
    await one.until(lambda: why(one) == "", "the stream says that it runs")


@pytest.mark.slow
async def test_a_revoked_right_holds_up_its_writer_and_not_the_neighbour(job_on, secure_kafka):
    """The same for a right: it is asked for without writing a record, and once it is given back the writer goes on."""
    client = client_of(secure_kafka)
    async with job_on(secure_kafka, client) as job:
        inp, bad, good = named("in", "bad", "good")
        await made(client, (inp, 4), (bad, 1), (good, 1))
        one = await job.start(split(job, inp, bad, good))
        await one.until_running(4)
        await job.write(inp, [{"n": 0, "to": "bad"}], partition=0)
        await job.records(bad, 1)
        before = life(one)
        said = asked(one)
        deny = Acl("app", "topic", bad, "write", allow=False)
        async with steadily(job, inp, 3, to="good") as written:
            await asyncio.to_thread(secure_kafka.allow, deny)
            try:
                await job.write(inp, [{"n": n, "to": "bad"} for n in range(1, 10)], partition=0)
                await one.until(lambda: f"grant WRITE on the topic {bad}" in why(one), "the task says which topic")
                await one.until(lambda: one.state("Partition 3") == "running", "the neighbour goes on")
                neighbour = await asked_in_vain(job, one, said, written, good, ["Partition 0"])
            finally:
                await asyncio.to_thread(secure_kafka.disallow, deny)
            await one.until_running(4, within_s=240)
        assert one.worker.actors["Partition 3"] is neighbour
        assert [v["n"] for v in await job.values(bad, 10)] == list(range(10))
        assert [v["n"] for v in await job.values(good, len(written))][: len(written)] == written
        assert life(one) == before + 1


async def test_a_target_is_asked_without_writing_to_it(kafka, topic):
    """What is well, what is gone, and what has come back with fewer partitions; nothing is created, and no reader sees anything."""
    client = ClientSettings(kafka.bootstrap)
    there, gone = topic("there", 2), named("gone")[0]
    transactional_id = f"probe-{uuid.uuid4().hex}"

    async def asked_of(name, partition, *, narrower=False):
        return await probe(client, transactional_id, StreamPartition(name, partition), narrower=narrower)

    for _ in range(3):
        assert await asked_of(there, 1) == ""
    assert "does not exist" in await asked_of(gone, 0)
    assert "does not exist" in await asked_of(gone, 0, narrower=True)
    assert "has 2 partitions, but no partition 2" in await asked_of(there, 2)
    assert await asked_of(there, 2, narrower=True) == ""
    topics = TopicsAdmin(client)
    await topics.start()
    assert set(await topics.find([there, gone])) == {there}
    await topics.stop()


async def test_a_probe_of_a_broker_that_is_away_is_a_reason(monkeypatch):
    """It is an answer like any other; the next question comes after a longer pause."""
    monkeypatch.setattr("headgate.agents.kafka.probe.PATIENCE_S", 2.0)
    at = StreamPartition("out", 0)
    assert "no " in await probe(ClientSettings("127.0.0.1:1"), "probe", at, narrower=False)


async def test_a_job_stops_and_starts_while_a_target_is_broken(job, topic, monkeypatch):
    """Nobody who waits for a target holds up a stop, and the task that failed is begun anew when the job starts again."""
    monkeypatch.setattr("headgate.agents.runtime.writing.outbox.GONE_AFTER_S", 1.0)
    inp = topic("in", 4)
    bad, good = named("bad", "good")
    await made(job.client, (bad, 1), (good, 1))
    one = await job.start(split(job, inp, bad, good))
    await one.until_running(4)
    async with job.admin() as admin:
        await admin.delete_topics([bad])
    await job.write(inp, [{"n": 0, "to": "bad"}], partition=0)
    await one.until(lambda: bad in why(one), "the task says which topic")
    answer = await job.ask("stop")
    assert answer.state == "done", answer
    assert await one.ended() == 0
    two = await job.start(split(job, inp, bad, good), "w2")
    await job.ask("start", wait=False)
    await two.until_running(4)
    assert [v["n"] for v in await job.values(bad, 1)] == [0]
