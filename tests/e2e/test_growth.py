"""Inputs that get partitions while their job works: what its tasks read then, from where, and that nothing is lost or counted twice."""

from __future__ import annotations

import asyncio
from collections import Counter

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewPartitions
from aiokafka.partitioner import murmur2

import headgate as hg

from .schemas import schema, wrong
from .test_keys import headgate

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
LOOK = {"inputs.look-interval": "200ms"}
SELDOM = {"inputs.look-interval": "10m"}


class Shop:
    """A job that counts by key where the producer has put the keys, and what it must have counted."""

    def __init__(self, job, topic, *, width=2, users=3, start="oldest", settings=LOOK):
        self.job, self.settings, self.start_at = job, settings, start
        self.orders, self.users, self.out = topic("orders", width), topic("users", users), topic("out", 2)
        self.width = width
        self.wanted = Counter()

    def app(self):
        app = hg.App(self.job.name, settings=self.settings)
        orders, users = app.input(self.orders, start=self.start_at), app.input(self.users)
        orders.agg(n=hg.count(), name="counts").to(self.out)
        users.agg(n=hg.count(), name="users").to(self.out)
        return app

    async def widen(self, width):
        async with self.job.admin() as admin:
            await admin.create_partitions({self.orders: NewPartitions(width)})
        await self.job.renew_producer()
        self.width = width

    async def write(self, keys, *, counts=True):
        """One record of each of these keys, where a producer that knows all partitions puts it."""
        for key in keys:
            name = f"key-{key}".encode()
            at = (murmur2(name) & 0x7FFFFFFF) % self.width
            await self.job.write(self.orders, [{"key": key}], partition=at, key=name)
            self.wanted[name] += counts

    async def counted(self):
        """The last counts are those that are wanted, and each count was given once and in order."""
        found, seen = {}, []
        while found != dict(self.wanted):
            seen = await self.job.records(self.out, 1)
            found = {one.key: orjson.loads(one.value)["n"] for one in seen}
            assert all(found[key] <= self.wanted[key] for key in found), (found, self.wanted)
        for key in self.wanted:
            counts = [orjson.loads(one.value)["n"] for one in seen if one.key == key]
            assert counts == sorted(set(counts))


def granted(running):
    """The grant of each task, and where it runs."""
    job = running.worker.coordination.member.job
    return {one.task: (one.grant, one.processor) for one in job.grants()}


def model_of(running):
    return running.worker.coordination.member.job.model


async def test_tasks_with_state_read_what_an_input_gets_and_the_others_work_on(job, topic):
    """Two workers under load: each count is exact, and only the tasks that read more were granted again, where they are."""
    shop = Shop(job, topic)
    one, two = await job.start(shop.app(), "w1"), await job.start(shop.app(), "w2")
    await one.until(lambda: len(one.states()) + len(two.states()) == 3, "three tasks on two workers")
    await shop.write(range(20))
    await shop.counted()
    await one.until(lambda: set(one.states().values()) | set(two.states().values()) == {"running"}, "all run")
    before, done = granted(one), asyncio.Event()

    async def load():
        """A producer that does not know of the new partitions yet puts a key where its task is, too."""
        producer = AIOKafkaProducer(**job.client.producer())
        await producer.start()
        try:
            while not done.is_set():
                for key in range(0, 20, 3):
                    name = b"key-%d" % key
                    at = (murmur2(name) & 0x7FFFFFFF) % 2
                    await producer.send_and_wait(shop.orders, orjson.dumps({"key": key}), partition=at, key=name)
                    shop.wanted[name] += 1
        finally:
            await producer.stop()

    loading = asyncio.get_running_loop().create_task(load())
    await shop.widen(4)
    await one.until(lambda: model_of(one).streams[shop.orders] == 4, "the model has four partitions")
    await one.until(
        lambda: (
            granted(one)["Partition 0"][0] > before["Partition 0"][0]
            and granted(one)["Partition 1"][0] > before["Partition 1"][0]
        ),
        "its tasks are granted again",
    )
    await shop.write(range(20, 40))
    done.set()
    await loading
    await shop.counted()
    after = granted(one)
    assert {task: (n - before[task][0], at == before[task][1]) for task, (n, at) in after.items()} == {
        "Partition 0": (1, True),
        "Partition 1": (1, True),
        "Partition 2": (0, True),
    }
    await job.ask("drain")
    assert await asyncio.gather(one.ended(), two.ended()) == [0, 0]


@pytest.mark.parametrize("stateful", [True, False])
async def test_an_input_that_starts_at_its_end_is_read_from_the_beginning_of_what_it_gets(job, topic, stateful):
    """What was written to the new partitions before anyone knew of them, what came while no worker was there, and what came before the
    first worker that was to read them died.
    """
    inp, out = topic("in", 2), topic("out")

    def app():
        one = hg.App(job.name, settings=LOOK)
        rows = one.input(inp, start="newest")
        (rows.dedupe(ttl="1h", name="once") if stateful else rows).to(out)
        return one

    async def widen(width):
        async with job.admin() as admin:
            await admin.create_partitions({inp: NewPartitions(width)})
        await job.renew_producer()

    async def put(first, *partitions):
        for partition in partitions:
            await job.write(inp, [{"v": first + partition}], partition=partition, key=b"k%d" % (first + partition))

    await put(0, 0, 1)
    one = await job.start(app())
    await one.until_running(2)
    await put(100, 0, 1)
    await job.values(out, 2)
    await widen(4)
    await put(200, 2, 3)
    await one.until(lambda: model_of(one).streams[inp] == 4, "four partitions")
    await one.crash()
    again = await job.start(app())
    await put(300, 0, 1, 2, 3)
    wanted = [100, 101, 202, 203, 300, 301, 302, 303]
    assert sorted(one["v"] for one in await job.values(out, 8)) == wanted
    await job.ask("drain")
    assert await again.ended() == 0
    await widen(8)
    await put(400, *range(8))
    last = await job.start(app(), run_id="next")
    assert sorted(one["v"] for one in await job.values(out, 16)) == [*wanted, *range(400, 408)]
    await job.ask("drain")
    assert await last.ended() == 0


async def test_what_does_not_fit_is_refused_with_the_remedy_and_the_job_works_on(job, topic):
    """From 2 to 3 partitions: keys would have to move between tasks. When it has 4, they are read."""
    shop = Shop(job, topic)
    one = await job.start(shop.app())
    await one.until_running(3)
    await shop.write(range(10))
    await shop.widen(3)
    await one.until(lambda: one.worker.coordination.member.job.run.ungrown, "the refusal")
    why = one.worker.coordination.member.job.run.ungrown[shop.orders]
    assert "a job with state can follow only a multiple" in why
    assert "grow it to 4 partitions" in why
    shop.width = 2
    await shop.write(range(10))
    await shop.counted()
    await shop.widen(4)
    await shop.write(range(40))
    await shop.counted()
    assert not one.worker.coordination.member.job.run.ungrown


async def test_who_asks_is_told_what_was_found_and_what_follows(job, topic):
    """The leader looks seldom: only the command makes it look. Status and plan say the same."""
    shop = Shop(job, topic, settings=SELDOM)
    one = await job.start(shop.app())
    await one.until_running(3)

    async def grow():
        done = await headgate(job, "grow", job.name, "--timeout", "2m")
        assert done.returncode == 0, done.stderr
        head, *lines = done.stdout.splitlines()
        assert head.startswith(f"grow of {job.name}: done")
        return head, lines

    head, lines = await grow()
    assert ("(no input has new partitions)" in head, lines) == (True, [])
    await shop.widen(3)
    _, [line] = await grow()
    assert line.startswith(f"  {shop.orders}: 2 → 3 partitions; ")
    assert "grow it to 4 partitions" in line
    status = orjson.loads((await headgate(job, "status", job.name, "-o", "json")).stdout)
    [said] = [one for one in status["warnings"] if shop.orders in one]
    assert "grow it to 4 partitions" in said
    await shop.widen(4)
    await shop.write(range(40))
    done = await headgate(job, "grow", job.name, "--timeout", "2m", "-o", "json")
    document = orjson.loads(done.stdout)
    assert wrong(document, schema("answer")) == []
    found = {"input": shop.orders, "was": 2, "now": 4, "read": True, "then": "each of 2 tasks reads one more"}
    assert (document["state"], document["progress"]["inputs"]) == ("done", [found])
    assert model_of(one).streams[shop.orders] == 4
    await shop.counted()
    status = orjson.loads((await headgate(job, "status", job.name, "-o", "json")).stdout)
    assert [one for one in status["warnings"] if shop.orders in one] == []
    await job.ask("drain")
    assert await one.ended() == 0


async def test_a_job_without_state_gets_tasks_for_the_new_partitions(job, topic):
    inp, out = topic("in", 2), topic("out")
    app = hg.App(job.name, settings=SELDOM)
    app.input(inp).to(out)
    one = await job.start(app)
    await one.until_running(2)
    async with job.admin() as admin:
        await admin.create_partitions({inp: NewPartitions(5)})
    await job.renew_producer()
    for partition in range(5):
        await job.write(inp, [{"v": partition}], partition=partition)
    found = await job.ask("grow")
    assert found.why == f"{inp}: 2 → 5 partitions; 3 new tasks"
    assert len(one.states()) == 5
    assert sorted(one["v"] for one in await job.values(out, 5)) == [0, 1, 2, 3, 4]
    await job.ask("drain")
    assert await one.ended() == 0


async def test_tasks_that_get_more_without_state_go_on_where_they_are(job, topic):
    """The other input has tasks for the new partitions already; nothing is processed twice, under kills too."""
    inp, wide, out = topic("in", 1), topic("wide", 3), topic("out")

    def app():
        one = hg.App(job.name, settings=LOOK)
        one.input(inp).merge(one.input(wide)).to(out)
        return one

    one = await job.start(app())
    await one.until_running(3)
    await job.write(inp, [{"v": n} for n in range(10)])
    await job.values(out, 10)
    async with job.admin() as admin:
        await admin.create_partitions({inp: NewPartitions(3)})
    await job.renew_producer()
    for partition in range(3):
        await job.write(inp, [{"v": 100 + partition}], partition=partition)
    await one.until(lambda: model_of(one).streams[inp] == 3, "three partitions")
    await one.crash()
    again = await job.start(app())
    await job.write(wide, [{"v": 200 + n} for n in range(3)])
    assert sorted(one["v"] for one in await job.values(out, 16)) == [*range(10), 100, 101, 102, 200, 201, 202]
    assert len(model_of(again).tasks) == 3
    await job.ask("drain")
    assert await again.ended() == 0
