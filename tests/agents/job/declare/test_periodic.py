"""`@app.timer`: the clock calls a function once per period in the whole job, and each tick is committed once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.job.derive.plans import parts
from headgate.agents.testing.driver import Driver


def reporting(period: str = "10s") -> hg.App:
    """Counts, and says every ten seconds how many there were."""
    app = hg.App("job")
    counts = app.table("counts", key=hg.text())

    @app.agent(app.input("in"))
    async def counted(batches: hg.Batches[Any, Any]) -> None:
        async for batch in batches:
            counts["n"] = counts.get("n", 0) + len(batch)

    @app.timer(period)
    async def report(tick: hg.Tick) -> None:
        await asyncio.sleep(0)
        told = {"number": tick.number, "missed": tick.missed, "n": counts.get("n", 0), "task": tick.task}
        tick.emit("reports", told, key="all", headers=[("h", b"1")])
        tick.table("counts")["ticks"] = tick.number

    return app


def told(d: Driver) -> list[Any]:
    return [(one.timestamp, one.value["number"], one.value["missed"]) for one in d.read("reports")]


def test_one_of_several_tasks_calls_once_per_period() -> None:
    """Its ticks stand on the calendar, and so does the time of what they write."""
    with Driver(reporting(), partitions={"in": 3}, now=1_700_000_004_000) as d:
        d.advance("5s")
        assert d.read("reports") == []
        d.advance("25s")
        records = d.read("reports")
        assert [one.timestamp for one in records] == [1_700_000_010_000, 1_700_000_020_000, 1_700_000_030_000]
        assert [one.value["number"] for one in records] == [1, 2, 3]
        assert {one.value["task"] for one in records} == {"Partition 2"}
        assert (records[0].key, records[0].headers) == ("all", (("h", b"1"),))
        assert d.counters["ticks"] == 3


def test_ticks_go_on_over_a_restart_with_the_state_of_their_task() -> None:
    """The newest tick is a row of the task's log."""
    with Driver(reporting()) as d:
        d.send_all("in", [1, 2])
        d.advance("10s")
        d.restart()
        d.send("in", 3)
        d.advance("10s")
        assert [(one.value["number"], one.value["n"]) for one in d.read("reports")] == [(1, 2), (2, 3)]
        assert d.table("counts")["ticks"] == 2


def test_ticks_that_nobody_called_are_told_and_not_made_up_for() -> None:
    """While the first one waits to be tried again, time goes on: one comes late, and the next one in time."""
    tries: list[int] = []
    app = hg.App("job")
    app.input("in").to("out")

    @app.timer("1s")
    def flaky(tick: hg.Tick) -> None:
        tries.append(tick.at)
        if len(tries) < 3:
            raise RuntimeError("not now")
        tick.emit("reports", {"number": tick.number, "missed": tick.missed})

    with Driver(app, settings={"error.retries": 3}) as d:
        d.advance("5s")
        assert (tries[:3], told(d)) == ([1000, 2000, 4000], [(4000, 1, 3), (5000, 2, 0)])
        assert d.counters["ticks_missed"] == 3


def test_a_tick_that_fails_has_not_happened() -> None:
    """It is tried again with its number; the third failure in a row would fail its task."""
    tries: list[int] = []
    app = hg.App("job")
    app.input("in").to("out")

    @app.timer("10s")
    def flaky(tick: hg.Tick) -> None:
        tries.append(tick.number)
        tick.emit("ticks", tick.number)
        if len(tries) == 1:
            raise RuntimeError("not now")

    with Driver(app, settings={"error.retries": 2}) as d:
        d.advance("10s")
        d.advance("2s")
        assert (tries, [one.value for one in d.read("ticks")]) == ([1, 1], [1])
        assert d.states == {"Partition 0": "running"}


def test_no_tick_follows_an_end_or_a_drain_and_none_holds_it_up() -> None:
    """The clock is no input; the next run goes on counting."""
    with Driver(reporting()) as d:
        d.advance("10s")
        d.drain()
        assert d.states == {"Partition 0": "drained"}
        d.advance("60s")
        assert [number for _, number, _ in told(d)] == [1]
        d.restart()
        assert [(number, missed) for _, number, missed in told(d)] == [(2, 5)]
        d.end()
        assert d.states == {"Partition 0": "ended"}
        d.advance("60s")
        assert told(d) == []


def test_a_pause_does_not_stop_the_clock() -> None:
    """It stops what is read."""
    with Driver(reporting()) as d:
        d.metadata.put("requests", "pause", {"verb": "pause"})
        d.advance("20s")
        assert [number for _, number, _ in told(d)] == [1, 2]


def test_a_worker_with_another_period_is_of_another_deployment() -> None:
    """Two workers of one run would call at different times."""
    ten, five = (parts(Declared(reporting(period)), {}) for period in ("10s", "5s"))
    assert [part for part in ten if ten[part] != five[part]] == ["stage:timer-report"]


def test_a_job_with_a_timer_keeps_its_tasks() -> None:
    """When it was called is state: another number of tasks would give the timer to another one."""
    assert Declared(reporting()).graph.stateful


def tick(tick: hg.Tick) -> None:
    """A function."""


async def yields(tick: hg.Tick):
    """No function for a timer."""
    yield 1


@pytest.mark.parametrize(
    ("period", "fn", "why"),
    [
        ("0s", tick, "a period is at least 1 ms"),
        ("soon", tick, "timer: 'soon'"),
        ("10s", lambda: None, "is called with"),
        ("10s", lambda tick: None, "has no name"),
        ("10s", yields, "tick.emit"),
        ("10s", "tick", "needs a function"),
    ],
)
def test_what_cannot_be_called_is_refused(period: str, fn: Any, why: str) -> None:
    """When the job is declared, at the line that is wrong."""
    app = hg.App("job")
    app.input("in").to("out")
    with pytest.raises(hg.DeclarationError, match=why):
        app.timer(period)(fn)


def test_two_timers_have_two_names_and_a_job_has_inputs() -> None:
    """A job reads something; the clock alone is no job."""
    app = hg.App("job")
    app.timer("1s")(tick)
    with pytest.raises(hg.DeclarationError, match="two steps are named 'timer-tick'"):
        app.timer("2s")(tick)
    app.timer("2s", name="slower")(tick)
    with pytest.raises(hg.DeclarationError, match="has no inputs"):
        app.graph()


def test_a_timer_writes_to_no_stream_of_frames() -> None:
    """As an actor does not."""
    app = hg.App("job")
    app.input("in").repartition("k").to("out")

    @app.timer("1s")
    def wrong(tick: hg.Tick) -> None:
        tick.emit("job-1-by-k", 1)

    with Driver(app, settings={"error.retries": 0}) as d, pytest.raises(hg.UserCodeError, match=r"tick\.emit"):
        d.advance("1s")


class Daily(hg.Actor):
    """Says what its clock says, from the start on."""

    def on_start(self, ctx: hg.Context) -> None:
        ctx.timer("again", after="10s")

    def on_timer(self, ctx: hg.Context, name: str, timestamp: int) -> None:
        ctx.emit("said", ctx.task)
        ctx.timer("again", after="10s")


def test_the_timers_of_an_actor_start_without_a_record() -> None:
    """In each task; and go on after a restart."""
    app = hg.App("job")
    app.actor(app.input("in"))(Daily)
    with Driver(app, partitions={"in": 2}) as d:
        d.advance("10s")
        assert sorted(one.value for one in d.read("said")) == ["Partition 0", "Partition 1"]
        d.restart()
        d.advance("10s")
        assert len(d.read("said")) == 2
        d.drain()


def test_an_actor_without_timers_starts_with_its_first_record() -> None:
    """A task that nothing reaches opens no client."""
    started: list[str] = []

    class Client(hg.Actor):
        def on_start(self, ctx: hg.Context) -> None:
            started.append(ctx.task)

        def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
            """Nothing."""

    app = hg.App("job")
    app.actor(app.input("in"))(Client)
    with Driver(app, partitions={"in": 2}) as d:
        d.advance("10s")
        assert started == []
        d.send("in", 1, partition=1)
        assert started == ["Partition 1"]
