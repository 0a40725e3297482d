"""The code of a job changes between two starts, on the real broker: what is stored keeps its meaning, or the start is refused.

What fits what is told without a broker: `tests/agents/operators/pipeline/test_changed_code.py` and `windows/test_windowed.py` beside it.
"""

from __future__ import annotations

import asyncio
import shutil

import orjson
import pytest
from structlog.testing import capture_logs

import headgate as hg
from headgate.agents.cli.data.reset import _look
from headgate.agents.cli.options import Target
from headgate.agents.process.configuration import CommandLine, configure
from headgate.agents.process.requests import Refused
from headgate.core.names import JobName, StreamPartition

from .scenes import why

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


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
    await one.until(lambda: hasattr(one.worker.coordination, "member") and why(one), "the task is refused")
    return why(one)


async def remark(one):
    """What the job's stream says beside a task that runs."""
    job = one.worker.coordination.member.job
    await one.until(
        lambda: (said := job.task_state("Partition 0")) is not None and said.state == "running", "it is said"
    )
    return job.task_state("Partition 0").why


@pytest.mark.parametrize("disk", ["kept", "lost"])
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


async def test_what_does_not_fit_is_refused_before_the_first_record(job, topic):
    """A count that becomes a maximum: nothing is read, the difference and the ways out are said, the former code goes on."""
    inp, out = topic("in", 1), topic("out", 1)
    one = await job.start(aggregating(job, inp, out, n=hg.count()))
    await one.until_running(1)
    await job.write(inp, [{"user": "a", "x": 5}])
    await job.records(out, 1)
    two = await resumed(job, aggregating(job, inp, out, n=hg.max("x")))
    await job.write(inp, [{"user": "a", "x": 6}])
    said = await failed(two)
    assert "the table 'numbers' does not fit what is stored in it: 'n' was count, and would become max" in said
    assert "migrate=" in said
    three = await resumed(job, aggregating(job, inp, out, n=hg.count()))
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
    async with asyncio.timeout(240):
        while (last := (await job.values(out, 2))[-1])["n"] < 4:
            pass
    assert last == {"total": 117, "most": 7, "n": 4}


async def test_state_that_no_one_owns_any_more_is_named(job, topic):
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


BASE = 1_700_000_000_000


def windowed(job, inp, out, window, *, at_end="close", **more):
    """Windows of each user, under a name that stays."""
    app = hg.App(job.name)
    app.input(inp, key="user", timestamp="ts").window(window, name="spans", at_end=at_end).agg(**more).to(out)
    return app


def at(ms, x=1, user="a"):
    return {"user": user, "ts": BASE + ms, "x": x}


async def test_windows_of_another_length_wait_until_those_that_are_open_have_closed(job, topic):
    """The same end would mean other rows. A drain closes what is open; then the length may change, and what has closed stays closed."""
    inp, out = topic("in", 1), topic("out", 1)
    one = await job.start(windowed(job, inp, out, hg.tumbling("10s"), at_end="keep", n=hg.count()))
    await one.until_running(1)
    await job.write(inp, [at(0), at(12_000)])
    assert (await job.values(out, 1))[-1]["window_start"] == BASE
    await job.ask("drain")
    assert await one.ended() == 0
    two = await job.start(windowed(job, inp, out, hg.tumbling("20s"), n=hg.count()))
    said = await failed(two)
    assert "it belongs to a window tumbling-10s, not to a window tumbling-20s" in said
    assert "drain the job with the old code" in said
    three = await resumed(job, windowed(job, inp, out, hg.tumbling("10s"), n=hg.count()))
    await three.until_running(1)
    await job.ask("drain")
    assert await three.ended() == 0
    assert [(v["window_start"], v["closed_by"]) for v in await job.values(out, 2)][1:] == [(BASE + 10_000, "drain")]
    four = await job.start(windowed(job, inp, out, hg.session("20s"), n=hg.count()))
    await four.until_running(1)
    await job.write(inp, [at(15_000), at(60_000), at(90_000)])
    assert [(v["n"], v["window_start"], v["window_end"]) for v in await job.values(out, 4)][2:] == [
        (1, BASE + 15_000, BASE + 35_000), (1, BASE + 60_000, BASE + 80_000),
    ]  # fmt: skip


async def test_a_stopped_run_goes_on_with_its_own_grace_and_keys_only(job, topic):
    """Other code for its windows waits, and is refused with the difference and the way out; the former code goes on."""
    inp, out = topic("in", 1), topic("out", 1)

    def app(grace, **given):
        made = hg.App(job.name, **given)
        rows = made.input(inp, timestamp="ts").repartition("user")
        rows.window(hg.tumbling("10s", grace=grace), name="spans").agg(n=hg.count()).to(out)
        return made

    one = await job.start(app("2s"))
    await one.until_running(1)
    await job.write(inp, [at(0), at(12_000), at(21_999)])
    assert [v["n"] for v in await job.values(out, 1)] == [1]
    await job.ask("stop")
    assert await one.ended() == 0
    for other, said in (
        (app("0s"), "stage 'spans': grace was '2s', is '0ms'"),
        (app("1h"), "stage 'spans': grace was '2s', is '1h'"),
        (app("2s", key_serde=hg.text()), "key_serde was 'key', is 'text'"),
    ):
        two = await job.start(other)
        await two.until(lambda: "cannot go on with it" in two.worker.participant.why, "it waits, and says why")  # noqa: B023
        assert said in two.worker.participant.why
        with pytest.raises(Refused) as error:
            await job.ask("start")
        assert said in str(error.value)
        assert "`headgate drain` has closed its run" in str(error.value)
        assert await two.stop() == 0
    three = await job.start(app("2s"))
    await job.ask("start", wait=False)
    await three.until_running(1)
    await job.write(inp, [at(15_000), at(22_000)])
    assert [(v["window_start"] - BASE, v["n"]) for v in await job.values(out, 2)] == [(0, 1), (10_000, 2)]


async def test_a_version_that_comes_back_goes_on_where_it_was(job, topic):
    """A step is renamed, and the old version comes back: it read its stream from the beginning, and counted all of it again. So it was with
    an input that the version in between did not read."""
    inp, other, out = topic("in", 1), topic("other", 1), topic("out", 1)

    def version(step, names):
        app = hg.App(job.name, settings={"intermediate.trim": False})
        for name in names:
            app.input(name).repartition("k", name=f"{step}-{name}").agg(n=hg.count(), name=f"of-{name}").to(out)
        return app

    async def run(step, names, count):
        """A run of this version that takes all that it reads."""
        for name in (inp, other):
            await job.write(name, [{"k": name}] * 3)
        one = await job.start(version(step, names), run_id=f"r{count}")
        await one.until_running(1)
        task = one.worker.actors["Partition 0"]
        await one.until(lambda: {task.contribution.durable.get((name, 0)) for name in names} == {count}, "all is read")
        await job.ask("drain")
        assert await one.ended() == 0

    await run("old", [inp, other], 3)
    await run("new", [inp], 6)
    await run("old", [inp, other], 9)
    last = {record.key.decode(): orjson.loads(record.value)["n"] for record in await job.records(out, 2)}
    assert last == {inp: 9, other: 9}
    # a reset deletes the streams of all versions: that of `new` stayed, and was counted again when a step got its name back
    asked = Target(JobName(job.name), job.topics, configure(CommandLine(job.bootstrap)))
    own = {f"{job.name}-1-{step}" for step in (f"old-{inp}", f"old-{other}", f"new-{inp}")}
    assert own <= {*(await _look(asked, False)).topics}
