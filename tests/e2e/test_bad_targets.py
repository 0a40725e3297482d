"""One target that cannot be written: who wrote to it waits and says why; everybody else on the same worker goes on, in peace."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import uuid

import pytest
from aiokafka.admin import NewTopic

import headgate as hg
from headgate.agents.broker.acls import Acl
from headgate.agents.broker.broker import Broker
from headgate.agents.kafka.probe import probe
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.kafka.topics import TopicsAdmin
from headgate.core.names import StreamPartition

from .scenes import known_everywhere, life, made, named, why

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


@pytest.fixture(autouse=True)
def _swept():
    """What a thrown-away producer never told anybody is logged now, and not while pytest parses something: that would end the run."""
    yield
    gc.collect()


def asked(one):
    """Has every question to a target counted from now on."""
    count = itertools.count(1)
    said = {"questions": 0}
    before = one.worker.coordination.member_edge.probe

    async def probe(target):
        answer = await before(target)
        said["questions"] = next(count)
        return answer

    one.worker.coordination.member_edge.probe = probe
    return said


@contextlib.asynccontextmanager
async def steadily(job, inp, partition, **more):
    """Records for a neighbour, as long as the block lasts; how many there were is in the list."""
    written = []

    async def feed():
        for n in itertools.count():
            await job.write(inp, [{"n": n, **more}], partition=partition)
            written.append(n)
            await asyncio.sleep(0.05)

    task = asyncio.get_running_loop().create_task(feed())
    try:
        yield written
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def split(job, inp, bad, good):
    """Each record says where it goes, so that each task writes to one of the outputs only."""
    app = hg.App(job.name)
    records = app.input(inp)
    records.filter(lambda v: v["to"] == "bad").to(bad)
    records.filter(lambda v: v["to"] == "good").to(good)
    return app


async def asked_in_vain(job, one, said, written, good, guilty):
    """The target is asked three times; all the while the neighbour's records come out, and nobody is disturbed."""
    neighbour, now = one.worker.actors["Partition 3"], life(one)
    for questions in (1, 2, 3):
        await one.until(lambda n=questions: said["questions"] >= n, "the target is asked", within_s=240)
        await job.values(good, len(written), more_s=0)
        assert all(why(one, task) for task in guilty)
        assert one.worker.actors["Partition 3"] is neighbour
        assert life(one) == now
    return neighbour


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
    given = secure_kafka.client_settings("app")
    client = ClientSettings.parse(
        given["bootstrap.servers"], [f"{k}={v}" for k, v in given.items() if k != "bootstrap.servers"]
    )
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


@pytest.fixture
def cluster(guarded):
    """Three nodes for one test."""
    with Broker.start(guarded / f"three-{uuid.uuid4().hex[:8]}", nodes=3, timeout_s=240) as broker:
        yield broker


@pytest.mark.slow
async def test_a_partition_without_a_leader_holds_up_its_writer_and_not_the_neighbour(job_on, cluster, monkeypatch):
    """The only broker that has the partition dies; everything else has copies. When it is back, the writer goes on."""
    monkeypatch.setattr("headgate.agents.runtime.writing.outbox.LEADERLESS_AFTER_S", 2.0)
    async with job_on(cluster) as job:
        inp, bad, good = named("in", "bad", "good")
        async with job.admin() as admin:
            once = NewTopic(bad, -1, -1, replica_assignments={0: [3]}, topic_configs={"min.insync.replicas": "1"})
            # what the test writes with a plain producer must not depend on the broker that dies
            kept = NewTopic(inp, -1, -1, replica_assignments={n: [1, 2] for n in range(4)})
            await admin.create_topics([once, kept])
        await made(job.client, (good, 1))
        await known_everywhere(cluster, inp, bad, good)
        one = await job.start(split(job, inp, bad, good))
        await one.until_running(4, within_s=240)
        await job.write(inp, [{"n": 0, "to": "bad"}], partition=0)
        await job.records(bad, 1)
        before = life(one)
        said = asked(one)
        async with steadily(job, inp, 3, to="good") as written:
            await asyncio.to_thread(cluster.kill, 3)
            await job.write(inp, [{"n": n, "to": "bad"} for n in range(1, 10)], partition=0)
            says = (bad, "it has no leader")
            await one.until(lambda: all(part in why(one) for part in says), "the task says which topic", within_s=240)
            await one.until(lambda: one.state("Partition 3") == "running", "the neighbour goes on")
            neighbour, now = await asked_in_vain(job, one, said, written, good, ["Partition 0"]), life(one)
            await asyncio.to_thread(cluster.restart, 3, timeout_s=240)
            await one.until_running(4, within_s=240)
        assert one.worker.actors["Partition 3"] is neighbour
        assert [v["n"] for v in await job.values(bad, 10)] == list(range(10))
        assert [v["n"] for v in await job.values(good, len(written))][: len(written)] == written
        assert life(one) == now
        # one for the target; one more if the broker that died had the answer to a commit
        assert now - before in (1, 2)
