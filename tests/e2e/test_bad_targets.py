"""One target that cannot be written: who wrote to it waits and says why; everybody else on the same worker goes on, in peace."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import uuid

import pytest

import headgate as hg
from headgate.agents.topics import Topics, TopicSpec
from headgate.core.names import incarnation_order

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


async def made(client, *specs):
    topics = Topics(client)
    await topics.start()
    await topics.ensure([TopicSpec(name, partitions) for name, partitions in specs])
    await topics.stop()


def named(*fronts):
    return [f"{front}-{uuid.uuid4().hex[:8]}" for front in fronts]


def why(one, task="Partition 0"):
    """Why the job's stream says that a task has failed."""
    said = one.worker.coordination.member.job.task_states(task)
    last = said[max(said)] if said else None
    return last.why if last is not None and last.state == "failed" else ""


def life(one):
    """Which incarnation of the worker this is."""
    return incarnation_order(one.worker.incarnation)[0]


def asked(one):
    """Has every question to a target counted from now on."""
    count = itertools.count(1)
    said = {"questions": 0}
    before = one.worker.probe

    async def probe(target):
        answer = await before(target)
        said["questions"] = next(count)
        return answer

    one.worker.probe = probe
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


async def test_a_deleted_output_holds_up_its_writer_and_not_the_neighbour(job, topic, monkeypatch):
    """One new incarnation, and no more: the target is asked again and again beside, and when it is there again its writer goes on."""
    monkeypatch.setattr("headgate.agents.outbox.GONE_AFTER_S", 1.0)
    inp = topic("in", 2)
    bad, good = named("bad", "good")
    await made(job.client, (bad, 1), (good, 1))
    one = await job.start(split(job, inp, bad, good))
    await one.until_running(2)
    await job.write(inp, [{"n": -1, "to": "bad"}], partition=0)
    await job.records(bad, 1)
    before = life(one)
    said = asked(one)
    async with steadily(job, inp, 1, to="good") as written:
        async with job.admin() as admin:
            await admin.delete_topics([bad])
        await job.write(inp, [{"n": n, "to": "bad"} for n in range(10)], partition=0)
        await one.until(lambda: bad in why(one), "the task says which topic", within_s=40)
        assert "create the topic" in why(one)
        await one.until(lambda: one.state("Partition 1") == "running", "the neighbour goes on")
        assert life(one) == before + 1
        neighbour = one.worker.actors["Partition 1"]
        for questions in (1, 2, 3):
            await one.until(lambda n=questions: said["questions"] >= n, "the target is asked")
            await job.values(good, len(written), more_s=0)
            assert why(one)
            assert one.worker.actors["Partition 1"] is neighbour
            assert life(one) == before + 1
        await made(job.client, (bad, 1))
        await one.until_running(2, within_s=60)
    assert one.worker.actors["Partition 1"] is neighbour
    assert [v["n"] for v in await job.values(bad, 10)] == list(range(10))
    assert [v["n"] for v in await job.values(good, len(written))][: len(written)] == written
    assert life(one) == before + 1
    assert why(one) == ""
