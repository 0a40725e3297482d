"""The code of a job changes between two starts, on the real broker: what is stored keeps its meaning, or the start is refused."""

from __future__ import annotations

import asyncio
import shutil

import pytest
from structlog.testing import capture_logs

import headgate as hg
from headgate.core.names import StreamPartition

from .scenes import why

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
KEPT = pytest.mark.parametrize("disk", ["kept", "lost"])


def aggregating(job, inp, out, **more):
    """Numbers of each user, under a name that stays."""
    app = hg.App(job.name)
    app.input(inp, key="user").agg(name="numbers", **more).to(out)
    return app


async def resumed(job, app, disk="kept"):
    """Stop, and start again with other code; with its disk or without."""
    last = job.workers[-1]
    if not last.task.done():
        await job.ask("stop")
        assert await last.ended() == 0
    if disk == "lost":
        await asyncio.to_thread(shutil.rmtree, job.directory / "state")
    one = await job.start(app)
    await job.ask("start", wait=False)
    return one


async def failed(one):
    await one.until(lambda: why(one), "the task is refused")
    return why(one)


async def remark(one):
    """What the job's stream says beside a task that runs."""
    job = one.worker.coordination.member.job
    await one.until(
        lambda: (said := job.task_state("Partition 0")) is not None and said.state == "running", "it is said"
    )
    return job.task_state("Partition 0").why


@KEPT
async def test_fields_of_an_aggregate_come_go_and_change_places(job, topic, disk):
    """Two swapped arguments under one name once gave swapped numbers, and one more an `IndexError`."""
    inp, out = topic("in", 1), topic("out", 1)
    first = {"n": hg.count(), "total": hg.sum("x"), "most": hg.max("x")}
    one = await job.start(aggregating(job, inp, out, **first))
    await one.until_running(1)
    await job.write(inp, [{"user": "a", "x": 5}, {"user": "a", "x": 7}, {"user": "b", "x": 1}])
    await job.records(out, 2)
    two = await resumed(
        job, aggregating(job, inp, out, most=hg.max("x"), total=hg.sum("x"), mean=hg.mean("x"), n=hg.count()), disk
    )
    await two.until_running(1)
    await job.write(inp, [{"user": "a", "x": 10}])
    assert (await job.values(out, 3))[-1] == {"most": 10, "total": 22, "mean": 10.0, "n": 3}
    three = await resumed(job, aggregating(job, inp, out, n=hg.count()), disk)
    await three.until_running(1)
    await job.write(inp, [{"user": "a", "x": 1}])
    assert (await job.values(out, 4))[-1] == {"n": 4}
    four = await resumed(job, aggregating(job, inp, out, total=hg.sum("x"), n=hg.count()), disk)
    await four.until_running(1)
    await job.write(inp, [{"user": "a", "x": 2}, {"user": "b", "x": 3}])
    assert sorted(await job.values(out, 6), key=str)[-2:] == sorted(
        [{"total": 2, "n": 5}, {"total": 3, "n": 2}], key=str
    )


@KEPT
async def test_what_does_not_fit_is_refused_before_the_first_record(job, topic, disk):
    """A count that becomes a maximum: nothing is read, the difference and the ways out are said, the former code goes on."""
    inp, out = topic("in", 1), topic("out", 1)
    one = await job.start(aggregating(job, inp, out, n=hg.count()))
    await one.until_running(1)
    await job.write(inp, [{"user": "a", "x": 5}])
    await job.records(out, 1)
    two = await resumed(job, aggregating(job, inp, out, n=hg.max("x")), disk)
    await job.write(inp, [{"user": "a", "x": 6}])
    said = await failed(two)
    assert "the table 'numbers' does not fit what is stored in it: 'n' was count, and is to be max" in said
    assert "migrate=" in said
    three = await resumed(job, aggregating(job, inp, out, n=hg.count()), disk)
    await three.until_running(1)
    assert (await job.values(out, 2))[-1] == {"n": 2}


async def test_partial_states_on_their_way_are_read_as_they_were_meant(job, topic):
    """The run is stopped while what one stage has combined stands before the next one: it is not misread by the other code."""
    inp, out = topic("in", 1), topic("out", 1)

    def counting(**fields):
        app = hg.App(job.name)
        app.input(inp).repartition("user").agg(name="numbers", **fields).to(out)
        return app

    one = await job.start(counting(n=hg.count(), total=hg.sum("x")))
    await one.until_running(1)
    await job.write(inp, [{"user": "a", "x": 5}, {"user": "a", "x": 5}])
    await job.records(out, 1)
    (between,) = one.worker.declared.graph.writer
    await job.ask("pause", stream=between)
    await job.write(inp, [{"user": "a", "x": 100}])
    await one.until(
        lambda: one.worker.actors["Partition 0"].contribution.durable.get(StreamPartition(inp, 0), 0) == 3,
        "what was combined is durable",
    )
    two = await resumed(job, counting(total=hg.sum("x"), most=hg.max("x"), n=hg.count()))
    await two.until_running(1)
    await job.ask("resume")
    await job.write(inp, [{"user": "a", "x": 7}])
    async with asyncio.timeout(60):
        while (last := (await job.values(out, 2))[-1])["n"] < 4:
            pass
    assert last == {"total": 117, "most": 7, "n": 4}


async def test_state_that_nobody_owns_any_more_is_named(job, topic):
    """A step without `name=` is called by its fields: with another one its numbers begin again, and that is said, with the mend,
    in the log and beside its task."""
    inp, out = topic("in", 1), topic("out", 1)

    def counting(**fields):
        app = hg.App(job.name)
        app.input(inp, key="user").agg(**fields).to(out)
        return app

    one = await job.start(counting(n=hg.count()))
    await one.until_running(1)
    assert await remark(one) == ""
    await job.write(inp, [{"user": "a", "x": 5}])
    await job.records(out, 1)
    await job.ask("drain")
    await one.ended()
    with capture_logs() as logs:
        two = await job.start(counting(n=hg.count(), total=hg.sum("x")))
        await two.until_running(1)
    said = await remark(two)
    assert "the code no longer declares the table 'agg-n'" in said
    assert "give it name='agg-n'" in said
    assert [one["what"] for one in logs if one["event"] == "state that no code declares"] == [said]


async def test_a_function_makes_new_states_of_old_ones(job, topic):
    """Rows are made anew when they are met and, a few a second, when they are not; until then the code must keep the function."""
    inp, out = topic("in", 1), topic("out", 1)

    def newest(names, old):
        assert names == ("n",)
        return {"most": old["n"] * 100}

    users = [{"user": f"u{n}", "x": n} for n in range(50)]
    one = await job.start(aggregating(job, inp, out, n=hg.count()))
    await one.until_running(1)
    await job.write(inp, users)
    await job.records(out, 50)
    changed = {"n": hg.max("x"), "most": hg.max("x")}
    two = await resumed(job, aggregating(job, inp, out, migrate=newest, **changed))
    await two.until_running(1)
    await job.write(inp, [{"user": "u0", "x": 3}])
    assert (await job.values(out, 51))[-1] == {"n": 3, "most": 100}
    actor = two.worker.actors["Partition 0"]
    await two.until(lambda: not actor.state.table("numbers").layout.history.migrating, "every row was written again")
    await two.until(lambda: actor.machine.ledger.clean, "that is durable")
    three = await resumed(job, aggregating(job, inp, out, **changed), "lost")
    await three.until_running(1)
    await job.write(inp, [{"user": "u7", "x": 5}])
    assert (await job.values(out, 52))[-1] == {"n": 5, "most": 100}
