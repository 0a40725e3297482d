"""Bounded inputs on the real broker: every kind of bound ends the run through several shuffles, completely and once, whatever happens."""

from __future__ import annotations

import asyncio
from collections import Counter

import orjson
import pytest
from aiokafka.admin import NewPartitions

import headgate as hg

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

BOUND = 1_700_000_000_000


def rows(count, first=0):
    return [{"k": f"k{n % 7}", "g": f"g{n % 3}", "v": n} for n in range(first, first + count)]


def same(value):
    return value


def app_of(job, inp, out, sums, hold=same, **options):
    """Two shuffles, and behind them each row as it is, and a count of each group."""
    app = hg.App(job.name, settings={"chunk.max-records": 50})
    stream = app.input(inp, **options).repartition("k", partitions=2).map_async(hold).repartition("g", partitions=3)
    stream.to(out)
    stream.agg(n=hg.count(), total=hg.sum("v")).to(sums)
    return app


async def passed(value):
    return value


async def complete(job, out, sums, values):
    """Each row once, and each group complete."""
    found = Counter(orjson.loads(record.value)["v"] for record in await job.records(out, len(values)))
    assert found == Counter(one["v"] for one in values)
    last = {record.key.decode(): orjson.loads(record.value) for record in await job.records(sums, 3)}
    groups = {one["g"] for one in values}
    assert last == {
        group: {"n": len(own), "total": sum(own)}
        for group in groups
        for own in [[one["v"] for one in values if one["g"] == group]]
    }


async def ended(*workers):
    """Every worker exits with 0, and the run says that it has ended."""
    assert await asyncio.gather(*(worker.ended() for worker in workers)) == [0] * len(workers)
    assert [one.worker.coordination.member.job.run.state for one in workers] == ["ended"] * len(workers)


BOUNDS = {"newest": "newest", "offsets": {0: 100, 1: 100, 2: 0}, "time": BOUND}


@pytest.mark.parametrize("until", BOUNDS.values(), ids=BOUNDS)
async def test_every_kind_of_bound_ends_the_run_on_all_workers(job, topic, until):
    """Two partitions with records within and behind the bound, one that is empty; two workers, two shuffles."""
    inp, out, sums = topic("in", 3), topic("out"), topic("sums")
    values = rows(200)
    for partition in (0, 1):
        await job.write(inp, values[partition::2], partition=partition, timestamp_ms=BOUND - 1)
    if until != "newest":
        for partition in (0, 1):
            await job.write(inp, rows(10, 1000), partition=partition, timestamp_ms=BOUND)
    workers = [await job.start(app_of(job, inp, out, sums, passed, until=until), name) for name in ("w1", "w2")]
    await ended(*workers)
    await complete(job, out, sums, values)


async def test_partitions_that_are_added_meanwhile_are_read_by_the_next_run(job, topic):
    """The end of a run is that of its beginning: the run ends without them, and with every record that it had to read."""
    inp, out = topic("in", 2), topic("out")
    await job.write(inp, rows(300))
    go, reached = asyncio.Event(), asyncio.Event()

    async def hold(value):
        reached.set()
        await go.wait()
        return value

    def app():
        one = hg.App(job.name)
        one.input(inp, until="newest").map_async(hold).repartition("k", partitions=2).to(out)
        return one

    worker = await job.start(app())
    await asyncio.wait_for(reached.wait(), 240)
    async with job.admin() as admin:
        await admin.create_partitions({inp: NewPartitions(4)})
    await job.renew_producer()
    for partition in range(4):
        await job.write(inp, rows(10, 1000 + 10 * partition), partition=partition)
    go.set()
    await ended(worker)
    assert sorted(one["v"] for one in await job.values(out, 300)) == list(range(300))
    await ended(await job.start(app(), run_id="next"))
    assert sorted(one["v"] for one in await job.values(out, 340)) == [*range(300), *range(1000, 1040)]


async def test_a_job_without_state_reads_added_partitions_at_once(job, topic):
    """Its tasks grow with its input, on both workers, and its task log with them."""
    inp, out = topic("in", 2), topic("out")

    def app():
        one = hg.App(job.name, settings={"inputs.look-interval": "200ms"})
        one.input(inp).repartition("k", partitions=2).to(out)
        return one

    one, two = await job.start(app(), "w1"), await job.start(app(), "w2")
    await job.write(inp, rows(20))
    await job.records(out, 20)
    async with job.admin() as admin:
        await admin.create_partitions({inp: NewPartitions(5)})
    await one.until(lambda: len(one.states()) + len(two.states()) == 5, "there are five tasks")
    await job.renew_producer()
    for partition in range(5):
        await job.write(inp, rows(10, 1000 + 10 * partition), partition=partition)
    assert sorted(one["v"] for one in await job.values(out, 70)) == [*range(20), *range(1000, 1050)]
    await job.ask("drain")
    assert await asyncio.gather(one.ended(), two.ended()) == [0, 0]


async def test_the_last_hook_may_emit_commit_set_timers_stop_and_raise(job, topic):
    """`on_end_of_stream` is called behind every record; what it forwards, and what the timer that it sets forwards, goes through another
    shuffle, and the run ends. A hook that raises is called again, and nothing of its first call remains."""
    inp, out = topic("in", 2), topic("out")
    app = hg.App(job.name)
    raised = set()

    class Teller(hg.Actor):
        def on_start(self, ctx):
            self.seen = 0

        def on_batch(self, ctx, batch):
            self.seen += len(batch)

        def on_end_of_stream(self, ctx):
            ctx.forward({"seen": self.seen, "timers": 0}, key=ctx.task)
            ctx.timer("last", at=BOUND)
            ctx.commit()
            ctx.stop()
            if ctx.task not in raised:
                raised.add(ctx.task)
                raise ValueError("not yet")

        def on_timer(self, ctx, name, timestamp):
            ctx.forward({"seen": 0, "timers": 1}, key=ctx.task)

    app.input(inp, until="newest").repartition("k", partitions=2).process(Teller).repartition(
        lambda value: "all", name="all"
    ).agg(told=hg.count(), seen=hg.sum("seen"), timers=hg.sum("timers")).to(out)
    await job.write(inp, rows(100))
    workers = [await job.start(app, name) for name in ("w1", "w2")]
    await ended(*workers)
    assert (await job.values(out, 1))[-1] == {"told": 4, "seen": 100, "timers": 2}
    assert len(raised) == 2


async def test_a_last_hook_that_always_raises_stops_the_run_with_the_reason(job, topic):
    """Nothing else can move: the worker exits with 1, and corrected code goes on with the same run and ends it."""
    inp, out = topic("in"), topic("out")

    def app(fails):
        class Last(hg.Actor):
            def on_end_of_stream(self, ctx):
                if fails:
                    raise ValueError("never")
                ctx.forward("end")

        one = hg.App(job.name, settings={"error.retries": 1})
        one.input(inp, until="newest").process(Last).to(out)
        return one

    await job.write(inp, rows(10))
    worker = await job.start(app(True))
    assert await worker.ended() == 1
    run = worker.worker.coordination.member.job.run
    assert (run.state, "never" in run.failed) == ("stopped", True)
    again = await job.start(app(False), bounded=True)
    await ended(again)
    assert again.worker.coordination.member.job.run.run_id == run.run_id
    assert await job.values(out, 1) == ["end"]


async def test_a_stopped_actor_ends_only_what_no_one_else_reads(job, topic):
    """Two inputs: one is the actor's alone, and ends where it stopped, also after a crash of the worker. The other goes on for the
    step beside it. The next run begins behind both."""
    own, shared, out, beside = topic("own"), topic("shared"), topic("out"), topic("beside")

    class Enough(hg.Actor):
        def on_batch(self, ctx, batch):
            for record in batch:
                ctx.forward(record.value["v"])
            if batch.stream == own:
                ctx.stop()

        def on_end_of_stream(self, ctx):
            ctx.forward("end")

    def app():
        one = hg.App(job.name)
        rest = one.input(shared, until={0: 5})
        one.input(own).merge(rest).process(Enough).to(out)
        rest.map(lambda value: value["v"]).to(beside)
        return one

    worker = await job.start(app())
    await job.write(own, rows(1))
    assert await job.values(out, 2) == [0, "end"]
    await job.write(own, rows(3, 50))
    await job.write(shared, rows(2, 100))
    assert await job.values(beside, 2) == [100, 101]
    await worker.crash()
    again = await job.start(app())
    await job.write(shared, rows(3, 102))
    await ended(again)
    assert await job.values(beside, 5) == [100, 101, 102, 103, 104]
    assert await job.values(out, 2) == [0, "end"]
    await ended(await job.start(app(), run_id="next"))
    assert await job.values(out, 6) == [0, "end", 50, 51, 52, "end"]
