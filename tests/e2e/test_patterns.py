"""Inputs by pattern: topics that match are read, and those that come later join the live run; tasks keep their state and worker."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiokafka.admin import NewPartitions

from .schemas import schema, wrong
from .test_keys import headgate

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

JOB = """
import headgate as hg

app = hg.App("JOB")


def with_topic(value, topic):
    return {**value, "topic": topic[len("PREFIX"):]}


orders = app.input(pattern="PREFIX[a-z]+", into=with_topic)
orders.repartition("topic").agg(n=hg.count(), name="counts").to("OUT")
"""


class Shop:
    """The job, its topics, and the counts that it has written."""

    def __init__(self, job, topic):
        self.job = job
        self.out = topic("out", 1)
        self.prefix = f"{topic('orders', 1)[:-1]}."
        self.source = JOB.replace("PREFIX", self.prefix).replace("OUT", self.out)

    async def make(self, name, width):
        done = await headgate(self.job, "topics", "create", self.prefix + name, "--partitions", str(width))
        assert done.returncode == 0, done.stderr

    async def widen(self, name, width):
        async with self.job.admin() as admin:
            await admin.create_partitions({self.prefix + name: NewPartitions(width)})
        await self.job.renew_producer()

    async def delete(self, name):
        async with self.job.admin() as admin:
            await admin.delete_topics([self.prefix + name])

    async def write(self, name, values):
        await self.job.write(self.prefix + name, [{"n": n} for n in values])

    async def worker(self, processor, *words):
        return await self.job.process(self.source, processor, "--set", "inputs.look-interval=500ms", *words)

    async def counts(self, wanted):
        """Wait until the last counts are these, and none is ever higher."""
        found = {}
        while found != wanted:
            found = {
                record.key.decode(): json.loads(record.value)["n"] for record in await self.job.records(self.out, 1)
            }
            assert all(found[name] <= wanted[name] for name in found), found
            await asyncio.sleep(0.1)

    async def status(self):
        return json.loads((await headgate(self.job, "status", self.job.name, "-o", "json")).stdout)

    async def warned(self, *words):
        warnings = []
        while not any(all(word in one for word in words) for one in warnings):
            warnings = (await self.status())["warnings"]

    async def plan(self):
        """What the plan says of the pattern, to programs and to people."""
        words = ["plan", "the_job:app", "--app-dir", str(self.job.directory)]
        done, said = await headgate(self.job, *words, "-o", "json"), await headgate(self.job, *words)
        assert (done.returncode, said.returncode) == (0, 0), said.stderr
        document = json.loads(done.stdout)
        assert wrong(document, schema("plan")) == []
        [of] = document["patterns"]
        short = {name: [one.removeprefix(self.prefix) for one in of[name]] for name in ("topics", "joins", "leaves")}
        return {**short, "widths": of["widths"]}, said.stdout

    async def drain(self, *workers):
        """Drain the run, once all of these take part in it: one that comes when it is over waits for the next run."""
        for one in workers:
            while '"ready": true' not in one.text():
                assert one.process.returncode is None, one.text()[-3000:]
                await asyncio.sleep(0.1)
        done = await headgate(self.job, "drain", self.job.name, "--wait")
        assert done.returncode == 0, done.stderr
        for one in workers:
            await one.ended()


def owners(status):
    return {one["task"]: one["worker"] for one in status["tasks"]}


async def test_a_topic_that_comes_joins_the_live_run_and_the_next_run_goes_on(job, topic):
    """No process is started again and no task moves; a worker that comes later reads it, too, and so does the next run, from where the
    drain has left it.
    """
    shop = Shop(job, topic)
    await shop.make("a", 1)
    await shop.make("b", 2)
    first, second = await shop.worker("w1"), await shop.worker("w2")
    await shop.write("a", range(3))
    await shop.write("b", range(4))
    await shop.counts({"a": 3, "b": 4})
    before = {}
    while len(set(before.values())) < 2:
        before = owners(await shop.status())
    await shop.make("c", 2)
    await shop.write("c", range(5))
    await shop.counts({"a": 3, "b": 4, "c": 5})
    assert owners(await shop.status()) == before
    assert not (await shop.status())["warnings"]
    second.kill()
    await second.ended()
    third = await shop.worker("w2")
    await shop.write("c", range(5, 9))
    await shop.counts({"a": 3, "b": 4, "c": 9})
    await shop.drain(first, third)
    await shop.write("c", range(9, 11))
    await shop.worker("w3")
    await shop.write("a", [3])
    await shop.counts({"a": 4, "b": 4, "c": 11})


async def test_a_topic_joins_while_its_workers_are_killed(job, topic):
    """Whoever dies around the decision, nothing is lost or counted twice."""
    shop = Shop(job, topic)
    await shop.make("a", 2)
    workers = {one: await shop.worker(one) for one in ("w1", "w2")}
    await shop.write("a", range(4))
    await shop.counts({"a": 4})
    wanted = {"a": 4}
    for number, name in enumerate("bc"):
        await shop.make(name, 1 + number % 2)
        await shop.write(name, range(6))
        await asyncio.sleep(0.35 * number)
        dies = ("w1", "w2")[number % 2]
        workers[dies].kill()
        await workers[dies].ended()
        workers[dies] = await shop.worker(dies)
        wanted[name] = 6
    await shop.counts(wanted)
    await shop.drain(*workers.values())
    await shop.counts(wanted)


async def test_tasks_that_come_with_more_partitions_write_to_a_log_that_has_grown(job, topic):
    """The task log of a job without state grows while the producer of its worker writes to it: nothing fails, and no task begins again."""
    shop = Shop(job, topic)
    aggregate = 'orders.repartition("topic").agg(n=hg.count(), name="counts")'
    assert aggregate in shop.source
    shop.source = shop.source.replace(aggregate, "orders")
    await shop.make("a", 1)
    worker = await shop.worker("w1")
    await shop.write("a", range(2))
    await job.values(shop.out, 2)
    await shop.widen("a", 3)
    for partition in range(3):
        await job.write(f"{shop.prefix}a", [{"n": 10 + partition}], partition=partition)
    found = await job.values(shop.out, 5)
    assert sorted(one["n"] for one in found) == [0, 1, 10, 11, 12]
    assert [line for line in worker.text().splitlines() if '"level": "error"' in line] == []


async def test_what_does_not_fit_and_what_is_deleted_is_said_and_the_others_are_read_on(job, topic):
    """A topic that is wider than the tasks of a job with state waits; one that is deleted stops nothing but itself."""
    shop = Shop(job, topic)
    await shop.make("a", 2)
    await shop.make("b", 1)
    worker = await shop.worker("w1")
    await shop.write("a", range(2))
    await shop.write("b", range(2))
    await shop.counts({"a": 2, "b": 2})
    await shop.make("wide", 3)
    await shop.write("wide", range(3))
    await shop.warned(f"{shop.prefix}wide", "has 3 partitions", "not read in this run")
    await shop.make("c", 1)
    await shop.write("c", range(2))
    await shop.counts({"a": 2, "b": 2, "c": 2})
    await shop.delete("b")
    await shop.delete("c")
    await shop.warned(f"{shop.prefix}b", f"{shop.prefix}c", "do not exist any more")
    await shop.write("a", range(2, 4))
    await shop.counts({"a": 4, "b": 2, "c": 2})
    worker.kill()
    await worker.ended()
    again = await shop.worker("w1")
    await shop.write("a", range(4, 6))
    await shop.counts({"a": 6, "b": 2, "c": 2})
    await shop.drain(again)
    await shop.delete("wide")
    await shop.widen("a", 4)
    await shop.make("d", 1)
    planned, said = await shop.plan()
    widths = [{"topic": f"{shop.prefix}a", "was": 2, "now": 4}]
    assert planned == {"topics": ["a", "d"], "joins": ["d"], "leaves": ["b", "c"], "widths": widths}
    assert f"{shop.prefix}a 2 → 4" in said
    await shop.worker("w2")
    await shop.write("a", range(6, 8))
    await shop.counts({"a": 8, "b": 2, "c": 2})


async def test_the_plan_of_a_run_that_goes_on_names_the_topics_that_were_deleted(job, topic):
    """The run reads the others on, so this is no error: one with which it began and one that has joined it leave with the next run."""
    shop = Shop(job, topic)
    await shop.make("a", 2)
    await shop.make("b", 1)
    worker = await shop.worker("w1")
    await shop.make("c", 1)
    for name in "abc":
        await shop.write(name, range(2))
    await shop.counts({"a": 2, "b": 2, "c": 2})
    planned, _ = await shop.plan()
    assert planned == {"topics": ["a", "b", "c"], "joins": [], "leaves": [], "widths": []}
    await shop.delete("b")
    await shop.delete("c")
    await shop.warned(f"{shop.prefix}b", f"{shop.prefix}c", "do not exist any more")
    planned, said = await shop.plan()
    assert planned == {"topics": ["a"], "joins": [], "leaves": ["b", "c"], "widths": []}
    rows = {line.split()[0]: line.split()[-1] for line in said.splitlines() if " input " in line}
    assert rows == {shop.prefix + name: now for name, now in (("a", "there"), ("b", "deleted"), ("c", "deleted"))}
    await shop.write("a", range(2, 4))
    await shop.counts({"a": 4, "b": 2, "c": 2})
    await shop.drain(worker)
    planned, _ = await shop.plan()
    assert planned == {"topics": ["a"], "joins": [], "leaves": ["b", "c"], "widths": []}


WINDOWS = """
import headgate as hg

app = hg.App("JOB", settings={"watermark.idle-timeout": "1s"})


def with_topic(value, topic):
    return {**value, "topic": topic[len("PREFIX"):]}


orders = app.input(pattern="PREFIX[a-z]+", into=with_topic, timestamp="ts")
tens = orders.repartition("topic").window(hg.tumbling("10s"), name="tens", late="LATE")
tens.agg(n=hg.count()).to("OUT")
"""


def late_in(found):
    """How many late rows a document of the status counts."""
    if isinstance(found, dict):
        return (found.get("late_rows") or 0) + sum(late_in(one) for one in found.values())
    return sum(late_in(one) for one in found) if isinstance(found, list) else 0


async def test_records_of_a_topic_that_joins_behind_the_time_of_its_tasks_are_late_and_kept(job, topic):
    """Time does not go back for a topic that comes. What lies behind it opens no window that has closed: it is counted, and goes to `late=`
    as it was; what does not, is as good as any other record. A worker that dies when it has joined changes nothing of that.
    """
    shop, late = Shop(job, topic), topic("late", 1)
    shop.source = WINDOWS.replace("PREFIX", shop.prefix).replace("LATE", late).replace("OUT", shop.out)

    async def closed():
        return {
            (record.key.decode(), value["window_start"]): value["n"]
            for record in await job.records(shop.out, 0)
            for value in [json.loads(record.value)]
        }

    await shop.make("a", 2)
    worker = await shop.worker("w1")
    for partition in (0, 1):
        await job.write(f"{shop.prefix}a", [{"ts": 1000 * n} for n in range(101)], partition=partition)
    wanted = {("a", 10_000 * n): 20 for n in range(10)}
    while await closed() != wanted:  # noqa: ASYNC110 - another process writes them
        await asyncio.sleep(0.1)
    await shop.make("b", 1)
    await job.write(f"{shop.prefix}b", [{"ts": 1000 * n, "n": n} for n in (5, 15, 95, 105, 106)])
    await job.records(late, 3)
    while late_in(await shop.status()) != 3:  # noqa: ASYNC110 - another process counts them
        await asyncio.sleep(0.1)
    worker.kill()
    await worker.ended()
    again = await shop.worker("w1")
    await job.write(f"{shop.prefix}b", [{"ts": 25_000, "n": 25}, {"ts": 107_000, "n": 107}])
    await job.records(late, 4)
    await shop.drain(again)
    assert await closed() == {**wanted, ("a", 100_000): 2, ("b", 100_000): 3}
    rows = [json.loads(record.value) for record in await job.records(late, 4)]
    assert [(row["n"], row["ts"], row["topic"]) for row in rows] == [(n, 1000 * n, "b") for n in (5, 15, 95, 25)]


OLDER = """
import os
from dataclasses import replace
from headgate.core.coordination.member.member import Member

said = Member._record_of
if os.environ.get("OLDER"):
    Member._record_of = lambda self, state: replace(said(self, state), widens=False, version="0.1.0")
"""


async def test_no_topic_joins_during_a_rolling_upgrade_and_then_it_does(job, topic):
    """A worker whose record does not say that it can take up topics would fail the tasks that got one. The status says who it is; after the
    upgrade the topic is read from its beginning. One that comes back in an older version later gets no tasks, and the others go on.
    """
    shop = Shop(job, topic)
    shop.source = OLDER + shop.source
    await shop.make("a", 2)
    first = await shop.worker("w1")
    old = await job.process(shop.source, "w2", "--set", "inputs.look-interval=500ms", OLDER="yes")
    await shop.write("a", range(4))
    await shop.counts({"a": 4})
    before = {}
    while len(set(before.values())) < 2:
        before = owners(await shop.status())
    await shop.make("b", 2)
    await shop.write("b", range(6))
    await shop.warned(f"{shop.prefix}b", "worker 'w2' has version 0.1.0", "when all workers are upgraded")
    await shop.write("a", range(4, 6))
    await shop.counts({"a": 6})
    assert owners(await shop.status()) == before
    old.kill()
    await old.ended()
    second = await shop.worker("w2")
    await shop.counts({"a": 6, "b": 6})
    assert not (await shop.status())["warnings"]
    second.kill()
    await second.ended()
    old = await job.process(shop.source, "w2", "--set", "inputs.look-interval=500ms", OLDER="yes")
    await shop.warned("worker 'w2' of version 0.1.0 gets no tasks", "upgrade it")
    await shop.write("b", range(6, 8))
    await shop.counts({"a": 6, "b": 8})
    assert set(owners(await shop.status()).values()) == {"w1"}
    await shop.drain(first, old)
