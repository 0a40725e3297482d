"""How an actor ends: its last timers at an end and at a drain, and what `ctx.stop()` stops and what it leaves alone."""

from __future__ import annotations

from typing import Any

import pytest

import headgate as hg
from headgate.agents.operators.actors import actor
from headgate.agents.state.table import Table
from headgate.agents.testing.driver import Driver

Context = hg.Context
Batch = hg.Batch[Any, Any]


class Clocks(hg.Actor):
    """Sets timers of both kinds, also in its last hooks; `again` sets itself again."""

    def __init__(self, told: list[Any]) -> None:
        self.told = told

    def on_batch(self, ctx: Context, batch: Batch) -> None:
        if batch.values == ["set"]:
            ctx.timer("event", at=9_000)
            ctx.timer("clock", after="1h")
            ctx.timer("again", at=8_000)

    def on_timer(self, ctx: Context, name: str, timestamp: int) -> None:
        self.told.append(name)
        ctx.emit("out", name)
        if name == "again":
            ctx.timer("again", at=timestamp + 1_000)

    def last(self, ctx: Context, hook: str) -> None:
        self.told.append(hook)
        ctx.timer("last event", at=99_000)
        ctx.timer("last clock", after="2h")

    def on_end_of_stream(self, ctx: Context) -> None:
        self.last(ctx, "end")

    def on_drain(self, ctx: Context) -> None:
        self.last(ctx, "drain")


@pytest.mark.parametrize("how", ["end", "drain"])
def test_every_timer_fires_once_when_time_is_at_its_end(how: str) -> None:
    """Those that were set, and those that the last hook sets. One that sets itself again waits for the next run, and fires there."""
    told: list[Any] = []
    app = hg.App("job")
    app.input("in").process(Clocks, told=told)
    with Driver(app) as d:
        d.send("in", "set", at=1_000)
        assert told == []
        if how == "end":
            d.end("in")
        else:
            d.drain()
        assert told == ["again", "event", "clock", how, "last event", "last clock"]
        assert [one.value for one in d.read("out")] == [name for name in told if name != how]
        told.clear()
        d.restart()
        d.send("in", "", at=8_999)
        d.advance("3h")
        assert told == []
        d.send("in", "", at=9_000)
        d.advance("1s")
        assert told == ["again"]


@pytest.mark.parametrize("timers", [3, 600, 1_200])
def test_timers_that_set_themselves_again_do_not_keep_a_job_from_ending(timers: int) -> None:
    """Also when there are more of them than one step takes, and when the task is restarted in the middle."""
    fired: list[str] = []

    class Periodic(hg.Actor):
        def on_batch(self, ctx: Context, batch: Batch) -> None:
            for n in range(timers):
                ctx.timer(f"t{n}", at=n + 10)

        def on_timer(self, ctx: Context, name: str, timestamp: int) -> None:
            fired.append(name)
            ctx.timer(name, at=timestamp + 10)

    app = hg.App("job")
    app.actor(app.input("in"))(Periodic)
    with Driver(app) as d:
        d.send("in", 1, at=5)
        d.end("in")
        assert d.states == {"Partition 0": "ended"}
        assert sorted(fired) == sorted(f"t{n}" for n in range(timers))


class Stops(hg.Actor):
    """Stops at the word that says so."""

    def __init__(self, told: list[Any]) -> None:
        self.told = told

    def on_batch(self, ctx: Context, batch: Batch) -> None:
        self.told += batch.values
        ctx.timer("clock", after="1h")
        if "stop" in batch.values:
            ctx.stop()
            ctx.stop()

    def on_watermark(self, ctx: Context, timestamp: int) -> None:
        self.told.append(timestamp)

    def on_timer(self, ctx: Context, name: str, timestamp: int) -> None:
        self.told.append(name)

    def on_end_of_stream(self, ctx: Context) -> None:
        self.told.append("end")
        ctx.stop()


def test_stop_leaves_an_input_to_the_steps_that_read_it_too() -> None:
    """The actor is flushed at once and hears nothing more, also after a restart; the rows that still came for it are counted. The other
    step gets every record, and the next run begins with both."""
    told: list[Any] = []
    app = hg.App("job")
    stream = app.input("in").map(lambda value: value)
    stream.process(Stops, told=told).to("forwarded")
    stream.to("out")
    with Driver(app) as d:
        d.send_all("in", ["a", "stop", "b"])
        assert told == ["a", "stop", "b", "clock", "end"]
        d.send("in", "c")
        d.restart()
        d.send("in", "d")
        d.advance("2h")
        assert told == ["a", "stop", "b", "clock", "end"]
        assert d.counters["rows_after_stop"] == 2
        assert d.states == {"Partition 0": "running"}
        d.end("in")
        assert d.states == {"Partition 0": "ended"}
        assert [one.value for one in d.read("out")] == ["a", "stop", "b", "c", "d"]
        assert told == ["a", "stop", "b", "clock", "end"]
        d.restart()
        d.send("in", "e")
        assert told[5:6] == ["e"]


def test_stop_ends_the_inputs_that_nobody_else_needs() -> None:
    """One goes on for another step; the next run reads the other one behind the last record that the actor was given."""
    told: list[Any] = []
    app = hg.App("job")
    own, shared = app.input("own"), app.input("shared")
    own.merge(shared).process(Stops, told=told)
    shared.to("out")
    with Driver(app, partitions={"own": 2, "shared": 2}) as d:
        d.send("own", "stop", partition=0)
        d.send("own", "later", partition=0)
        d.send("own", "other task", partition=1)
        d.send("shared", "x", partition=0)
        d.restart()
        d.send("own", "later still", partition=0)
        assert told == ["stop", "clock", "end", "other task"]
        assert d.states == {"Partition 0": "running", "Partition 1": "running"}
        assert [one.value for one in d.read("out")] == ["x"]
        d.end("own")
        d.end("shared")
        assert set(d.states.values()) == {"ended"}
        del told[:]
        d.restart()
        assert told == ["later", "later still"]


def test_what_an_actor_behind_a_shuffle_stops_costs_no_other_task_a_record() -> None:
    """The input before the shuffle feeds the actors of all tasks; the run ends when the input does."""
    told: dict[str, list[Any]] = {}

    class One(hg.Actor):
        def on_batch(self, ctx: Context, batch: Batch) -> None:
            told.setdefault(ctx.task, []).extend(record.value["n"] for record in batch)
            if ctx.task == "Partition 0":
                ctx.stop()

    app = hg.App("job")
    app.input("in").repartition("k", partitions=2).process(One)
    with Driver(app, partitions={"in": 2}) as d:
        for n in range(20):
            d.send("in", {"k": f"k{n}", "n": n}, partition=n % 2)
        d.end("in")
        assert set(d.states.values()) == {"ended"}
        first, second = told["Partition 0"], told["Partition 1"]
        assert len(first) == 1
        assert len(first) + len(second) + d.counters["rows_after_stop"] == 20
        assert len(second) > 4


def test_a_drain_behind_a_stop_calls_no_further_hook() -> None:
    """The actor was flushed by its stop, and its task drains as any other."""
    told: list[Any] = []
    app = hg.App("job")
    stream = app.input("in")
    stream.process(Stops, told=told)
    stream.to("out")
    with Driver(app) as d:
        d.send("in", "stop")
        d.send("in", "x")
        d.drain()
        assert told == ["stop", "clock", "end"]
        assert d.states == {"Partition 0": "drained"}


def test_a_step_of_the_end_looks_up_no_more_timers_than_it_fires(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the cost of an end would grow with the square of the number of timers."""

    class Many(hg.Actor):
        def on_batch(self, ctx: Context, batch: Batch) -> None:
            for number in range(batch.values[0]):
                ctx.timer(f"t{number}", at=9_000 + number)

        def on_timer(self, ctx: Context, name: str, timestamp: int) -> None:
            ctx.emit("out", name)

    asked: list[int] = []

    def counted(table: Any, keys: list[Any], look: Any = Table.get_many) -> Any:
        asked.append(sum(str(key).startswith("timer:") for key in keys))
        return look(table, keys)

    monkeypatch.setattr(actor, "FLUSH_STEP", 10)
    monkeypatch.setattr(Table, "get_many", counted)
    app = hg.App("job")
    app.input("in").process(Many)
    with Driver(app) as d:
        d.send("in", 200, at=1_000)
        asked.clear()
        d.drain()
        assert [one.value for one in d.read("out")] == [f"t{number}" for number in range(200)]
    assert max(asked) <= 11
