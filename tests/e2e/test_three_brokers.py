"""Three brokers: replicas are settings, and one broker may be away, each time the one that something depends on: the leader of the
coordinator stream, the coordinator of transactions, that of the group in which positions are shown, the leader of an output.

Whatever an operator asks meanwhile is done: a setting, a move. A worker that dies is replaced from the copies of its state, one that comes
back gets its tasks, one that is restarted pauses for a move. Every record counts once.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import uuid
from functools import partial

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.client import AIOKafkaClient, CoordinationType

from headgate.agents.broker.broker import Broker
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.kafka.topics import TopicsAdmin
from headgate.agents.process.reading import folded
from headgate.core.names import worker_id

from .. import forked
from .scenes import asked, asked_in_vain, counted, counting, known_everywhere, life, made, named, split, steadily, why

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio, pytest.mark.slow]
USERS, TASKS = 40, 4
WITHIN_S = 240.0
SETTINGS = {"session.timeout": "6s", "placement.prepare": "60s"}


@pytest.fixture(scope="module")
def cluster(guarded):
    """Three nodes for these tests: each that kills one has it back before it ends."""
    with Broker.start(guarded / f"three-{uuid.uuid4().hex[:8]}", nodes=3, timeout_s=240) as broker:
        yield broker


async def test_everything_is_there_three_times(cluster):
    """The settings say three and two, for the topics of users and for Kafka's own."""
    assert (len(cluster.pids()), len(cluster.bootstrap.split(","))) == (3, 3)
    text = (cluster.data / "node-2/server.properties").read_text()
    wanted = ["default.replication.factor=3", "min.insync.replicas=2", "offsets.topic.replication.factor=3"]
    wanted += ["transaction.state.log.replication.factor=3", "transaction.state.log.min.isr=2"]
    assert [line for line in wanted if line not in text.splitlines()] == []


REPLICATED = """\
import headgate as hg

app = hg.App("replicated")
app.input("orders").repartition("n", partitions=2).agg(n=hg.count(), name="counts").to("totals")
"""


async def test_replicas_and_retention_are_settings(cluster, tmp_path):
    """Each topic that the job creates has them. A topic that is there otherwise is used, and named: at the start, and in the plan."""
    (tmp_path / "job.py").write_text(REPLICATED)
    place = {"HEADGATE_BOOTSTRAP": cluster.bootstrap, "HEADGATE_STATE_DIR": str(tmp_path / "state")}
    said = {"HEADGATE_TOPIC_REPLICAS": "2", "HEADGATE_TOPIC_MIN_INSYNC": "1"}
    kept = {"HEADGATE_TOPIC_OUTPUT_RETENTION": "2d", "HEADGATE_TOPIC_DEAD_LETTERS_RETENTION": "3d"}
    environment = {**os.environ, **place, **said, **kept, "HEADGATE_TOPIC_CREATE_OUTPUTS": "true"}

    def headgate(line, **other):
        done = forked.run(shlex.split(line), env={**environment, **other}, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, done.stderr

    headgate("topics create orders --partitions 2")
    headgate("""send orders '{"n": 1}'""")
    commands, _ = headgate("topics plan job:app")
    assert len(commands.splitlines()) == 6
    assert all("--replication-factor 2" in one and "min.insync.replicas=1" in one for one in commands.splitlines())
    headgate("run job:app --bounded")
    topics = TopicsAdmin(ClientSettings(cluster.bootstrap))
    await topics.start()
    try:
        own = [one for one in await topics.names() if "replicated" in one or one == "totals"]
        found = await topics.find(own)
    finally:
        await topics.stop()
    assert len(found) == 6
    assert {(one.replicas, one.config["min.insync.replicas"]) for one in found.values()} == {(2, "1")}
    dead = next(one for name, one in found.items() if name.endswith("dead-letters"))
    assert (found["totals"].config["retention.ms"], dead.config["retention.ms"]) == ("172800000", "259200000")

    assert json.loads(headgate("plan job:app -o json")[0])["differs"] == []
    more = {"HEADGATE_TOPIC_REPLICAS": "3", "HEADGATE_TOPIC_OUTPUT_RETENTION": "7d"}
    differs = json.loads(headgate("plan job:app -o json", **more)[0])["differs"]
    assert sorted({one["topic"] for one in differs}) == sorted(found)
    assert {one["what"] for one in differs} == {
        "it has 2 replicas, and the settings say 3",
        "retention.ms is 172800000, and the settings say 604800000",
    }
    assert "Note: the topic totals: it has 2 replicas, and the settings say 3" in headgate("plan job:app", **more)[1]
    log = headgate("run job:app --bounded --log-format json", **more)[1]
    lines = [json.loads(one) for one in log.splitlines() if one.startswith("{")]
    warned = [one for one in lines if one["event"] == "a topic is not as the settings say"]
    assert sorted((one["topic"], one["what"]) for one in warned) == sorted(
        (one["topic"], one["what"]) for one in differs
    )


async def node_of(job, role):
    """The node that has this role now."""
    client = AIOKafkaClient(bootstrap_servers=job.bootstrap)
    await client.bootstrap()
    try:
        if role == "leader of the coordinator stream":
            await client.add_topic(job.topics.coordinator)
            await client.force_metadata_update()
            return client.cluster.leader_for_partition(TopicPartition(job.topics.coordinator, 0))
        if role == "coordinator of the group":
            return await client.coordinator_lookup(CoordinationType.GROUP, job.name)
        state = await folded(job.client, job.topics)
        own = worker_id(job.topics.job, "w1", state.newest("w1").incarnation)
        return await client.coordinator_lookup(CoordinationType.TRANSACTION, own)
    finally:
        await client.close()


async def spread(*workers):
    """Wait until each of these workers runs a task, and together they run all."""
    for one in workers:
        await one.until(
            lambda: (
                sum(list(w.states().values()).count("running") for w in workers) == TASKS
                and all(w.states() for w in workers)
            ),
            "all tasks run, some on each",
            within_s=WITHIN_S,
        )


def follows(standby, owner):
    """Whether a worker has followed the logs of all tasks of another one to where nothing is missing."""
    left = standby.worker.runtime.followers.left()
    return [left.get(task) for task in owner.worker.actors] == [0] * len(owner.worker.actors)


@pytest.mark.timeout(1200)
async def test_a_fleet_does_what_it_is_asked_whichever_broker_is_away(job_on, cluster):
    """Three brokers are killed in turn, each for what it does at that moment; each comes back before the next one goes. Two workers, at two
    locations, follow each other's logs."""
    async with job_on(cluster) as job:
        inp, out = named("in", "out")
        async with job.admin() as admin:
            await admin.create_topics([NewTopic(name, TASKS, 3) for name in (inp, out)])
        await known_everywhere(cluster, inp, out)
        users = [{"user": f"u{n}"} for n in range(USERS)]

        async def started(name):
            disk = job.directory / f"disk-{name}"
            return await job.start(counting(job, inp, out), name, settings=SETTINGS, location=name, state_dir=disk)

        one, two = await started("w1"), await started("w2")
        await spread(one, two)
        assert (await job.ask("set-config", setting="standby", value="1")).state == "done"
        await job.write(inp, users)
        await counted(job, out, each := 1)
        roles = (
            "leader of the coordinator stream",
            "coordinator of a worker's transactions",
            "coordinator of the group",
        )
        for role in roles:
            node = await node_of(job, role)
            assert node in (1, 2, 3), role
            await asyncio.to_thread(cluster.kill, node)
            assert len(cluster.pids()) == 2
            await job.write(inp, users)
            await counted(job, out, each := each + 1)

            value = f"{50 + each}ms"
            answer = await job.ask("set-config", setting="commit.interval", value=value)
            assert answer.state == "done", (role, answer)
            assert (await folded(job.client, job.topics)).overrides["commit.interval"] == value

            task = sorted(one.worker.actors)[0]
            answer = await job.ask("move", task=task, to="w2")
            assert answer.state == "done", (role, answer)
            await two.until(
                lambda task=task, two=two: two.state(task) == "running",
                "the task runs where it is to run",
                within_s=WITHIN_S,
            )
            await spread(one, two)

            if role != "coordinator of the group":  # there, positions are shown, and nothing else
                followed = set(two.worker.actors)
                await one.until(partial(follows, one, two), "the logs are followed")
                await two.crash()
                await one.until_running(TASKS, within_s=WITHIN_S)
                assert all(one.worker.actors[task].state.prepared for task in followed)
                await job.write(inp, users)
                await counted(job, out, each := each + 1)
                two = await started("w2")
                await spread(one, two)
                assert await one.stop() == 0
                one = await started("w1")
                await spread(one, two)
                await job.write(inp, users)
                await counted(job, out, each := each + 1)
            await asyncio.to_thread(cluster.restart, node, timeout_s=240)
            await known_everywhere(cluster, inp, out)
        answer = await job.ask("drain")
        assert answer.state == "done", answer
        assert await asyncio.gather(one.ended(), two.ended()) == [0, 0]
        await counted(job, out, each)


@pytest.mark.usefixtures("swept")
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
