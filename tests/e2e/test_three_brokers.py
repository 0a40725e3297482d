"""A fleet while one broker of three is away, each time the one that something depends on: the leader of the coordinator stream's partition,
the coordinator of a worker's transactions, and that of the group in which positions are shown.

Whatever an operator asks meanwhile is done: a setting, a move, a worker that comes and goes. Every record counts once.
"""

from __future__ import annotations

import asyncio
import uuid

import orjson
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.client import AIOKafkaClient, CoordinationType

import headgate as hg
from headgate.agents.broker.broker import Broker
from headgate.agents.process.reading import folded
from headgate.core.names import worker_id

from .scenes import known_everywhere, named

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio, pytest.mark.slow]
USERS, TASKS = 40, 4
WITHIN_S = 240.0
SETTINGS = {"session.timeout": "6s", "placement.prepare": "60s"}


@pytest.fixture
def cluster(guarded):
    """Three nodes for one test."""
    with Broker.start(guarded / f"three-{uuid.uuid4().hex[:8]}", nodes=3, timeout_s=240) as broker:
        yield broker


def counting(job, inp, out):
    """A count for each user, with state in every task."""
    app = hg.App(job.name)
    app.input(inp, key="user").agg(n=hg.count(), name="counts").to(out)
    return app


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


async def counted(job, out, each):
    """Wait until each user has been seen this often; never more."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            last = {r.key.decode(): orjson.loads(r.value)["n"] for r in await job.records(out, 1)}
            assert max(last.values()) <= each
            if len(last) == USERS and set(last.values()) == {each}:
                return


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


@pytest.mark.timeout(1200)
async def test_a_fleet_does_what_it_is_asked_whichever_broker_is_away(job_on, cluster):
    """Three brokers are killed in turn, each for what it does at that moment; each comes back before the next one goes."""
    async with job_on(cluster) as job:
        inp, out = named("in", "out")
        async with job.admin() as admin:
            await admin.create_topics([NewTopic(name, TASKS, 3) for name in (inp, out)])
        await known_everywhere(cluster, inp, out)
        users = [{"user": f"u{n}"} for n in range(USERS)]
        one, two = [await job.start(counting(job, inp, out), name, settings=SETTINGS) for name in ("w1", "w2")]
        await spread(one, two)
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
                lambda task=task: two.state(task) == "running", "the task runs where it is to run", within_s=WITHIN_S
            )
            await spread(one, two)

            three = await job.start(counting(job, inp, out), "w3", settings=SETTINGS)
            await spread(one, two, three)
            await job.write(inp, users)
            await counted(job, out, each := each + 1)
            assert await three.stop() == 0
            await spread(one, two)
            await asyncio.to_thread(cluster.restart, node, timeout_s=240)
            await known_everywhere(cluster, inp, out)
        answer = await job.ask("drain")
        assert answer.state == "done", answer
        assert await asyncio.gather(one.ended(), two.ended()) == [0, 0]
        await counted(job, out, each)
