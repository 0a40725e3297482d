"""Actors and agents that users write: every hook, timers, commit and stop, tables, several inputs, failing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver


class Witness(hg.Actor):
    """Writes down everything that it is told; some hooks are plain, some async."""

    story: list[Any] = []  # noqa: RUF012 - one for all, so that the test can see it

    def on_start(self, ctx: hg.Context) -> None:
        self.story.append("start")

    async def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
        await asyncio.sleep(1)
        self.story.append((batch.stream, batch.partition, batch.values))
        ctx.emit("out", {"n": len(batch), "of": ctx.task}, key=batch.stream, headers=[("h", b"1")])

    def on_watermark(self, ctx: hg.Context, timestamp: int) -> None:
        assert ctx.watermark == timestamp
        self.story.append(("watermark", timestamp if timestamp < 2**62 else "max"))

    async def on_end_of_stream(self, ctx: hg.Context) -> None:
        self.story.append("end")
        ctx.emit("out", "end")

    def on_drain(self, ctx: hg.Context) -> None:
        self.story.append("drain")
        ctx.emit("out", "drain")

    async def on_stop(self, ctx: hg.Context) -> None:
        self.story.append("stop")


def witnessed() -> hg.App:
    Witness.story.clear()
    app = hg.App("job")
    app.actor(app.input("a", timestamp="ts"), app.input("b", timestamp="ts"))(Witness)
    return app


def test_all_hooks_to_the_end_of_the_stream() -> None:
    """Event time is the least over both inputs; the end comes once, when both have ended."""
    with Driver(witnessed()) as d:
        d.send("a", {"ts": 5})
        d.send("b", {"ts": 3})
        assert Witness.story == ["start", ("a", 0, [{"ts": 5}]), ("b", 0, [{"ts": 3}]), ("watermark", 3)]
        d.end("a")
        assert "end" not in Witness.story
        d.end("b")
        assert Witness.story[-1] == "end"
        assert Witness.story.count("end") == 1
        assert d.states == {"Partition 0": "ended"}
        first = d.read("out")[0]
        assert first == hg.Record("a", {"n": 1, "of": "Partition 0"}, 5, (("h", b"1"),))
    assert Witness.story[-1] == "stop"


def test_a_drain_is_told_once_and_time_is_over_before_it() -> None:
    """The watermark goes to its maximum, then the drain; the next run begins where this one stopped."""
    with Driver(witnessed()) as d:
        d.send("a", {"ts": 5})
        d.drain()
        assert Witness.story[-2:] == [("watermark", "max"), "drain"]
        assert d.read("out")[-1].value == "drain"
        d.restart()
        d.send("a", {"ts": 6})
        assert Witness.story[-2:] == ["start", ("a", 0, [{"ts": 6}])]
        assert Witness.story.count("drain") == 1


def test_timers_of_both_kinds() -> None:
    """Event time fires when the watermark gets there, processing time when the clock does; a newer one replaces an older one."""
    fired: list[Any] = []

    class Timers(hg.Actor):
        def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
            for record in batch:
                match record.value:
                    case {"at": at}:
                        ctx.timer("event", at=at)
                    case {"after": after}:
                        ctx.timer("clock", after=after)
                    case {"cancel": name}:
                        ctx.cancel(name)
                    case _:
                        pass

        def on_timer(self, ctx: hg.Context, name: str, timestamp: int) -> None:
            fired.append((name, timestamp, ctx.now_ms))
            ctx.emit("out", name)

    app = hg.App("job")
    app.actor(app.input("in", key_serde=hg.text()))(Timers)
    with Driver(app) as d:
        d.send("in", {"at": 100}, at=10)
        d.send("in", {"after": "10s"}, at=20)
        assert fired == []
        d.send("in", {}, at=150)
        assert fired == [("event", 100, 0)]
        d.send("in", {"after": "5s"}, at=160)
        d.advance("1m")
        assert fired[1:] == [("clock", 5000, 5000)]
        d.send("in", {"after": "5s"}, at=160)
        d.send("in", {"cancel": "clock"}, at=160)
        d.advance("1m")
        assert len(fired) == 2
        d.send("in", {"after": "1d"}, at=170)
        d.send("in", {"at": 10**6}, at=170)
        d.restart()
        d.drain()
        assert [name for name, _, _ in fired[2:]] == ["event", "clock"]
        assert [r.value for r in d.read("out")] == ["event", "clock", "event", "clock"]


def test_a_failing_hook_leaves_nothing() -> None:
    """No output, no table change, no timer; the next attempt starts from what was."""
    broken = [True]
    app = hg.App("job", key_serde=hg.text())
    app.table("counts", value=hg.json())

    class Fails(hg.Actor):
        def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
            counts = ctx.table("counts")
            counts["n"] = counts.get("n", 0) + len(batch)
            ctx.emit("out", counts["n"])
            ctx.timer("t", after="1s")
            if broken[0]:
                raise RuntimeError("not now")

        def on_timer(self, ctx: hg.Context, name: str, timestamp: int) -> None:
            ctx.emit("out", "timer")

    app.actor(app.input("in"))(Fails)
    with Driver(app) as d:
        with pytest.raises(hg.UserCodeError, match="not now"):
            d.send("in", 1)
        assert (d.read("out"), dict(d.table("counts"))) == ([], {})
        broken[0] = False
        d.restart()
        d.advance("2s")
        assert [r.value for r in d.read("out")] == [1, "timer"]
        assert d.table("counts")["n"] == 1


def test_a_failing_chunk_is_tried_again_with_backoff() -> None:
    """As often as the setting says, at the times that the machine says; then the task has failed."""
    tries: list[int] = []

    def unlucky(value: int) -> int:
        tries.append(value)
        if len(tries) < 3:
            raise RuntimeError("try again")
        return value

    app = hg.App("job")
    app.input("in").sink(lambda batch: unlucky(batch.values[0]))
    with Driver(app, settings={"error.retries": 3}) as d:
        d.send("in", 7)
        assert tries == [7]
        d.advance("1s")
        d.advance("2s")
        assert (tries, d.states) == ([7, 7, 7], {"Partition 0": "running"})


def test_process_forwards_and_takes_arguments() -> None:
    """An actor in the middle of a chain."""

    class Sample(hg.Actor):
        def __init__(self, every: int) -> None:
            self.every = every

        def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
            for record in batch:
                if record.value % self.every == 0:
                    ctx.forward(record.value, key=str(record.value), timestamp=record.timestamp)

    app = hg.App("job")
    app.input("in").process(Sample, every=2).map(lambda v: v * 10).to("out")
    with Driver(app) as d:
        d.send_all("in", [hg.Record(None, n, n) for n in range(5)])
        assert d.read("out") == [hg.Record("0", 0, 0), hg.Record("2", 20, 2), hg.Record("4", 40, 4)]


def test_stop_ends_the_task() -> None:
    """User code may say that it has seen enough."""

    class Enough(hg.Actor):
        def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
            ctx.commit()
            if batch.values[0] == "stop":
                ctx.stop()

    app = hg.App("job")
    app.actor(app.input("in"))(Enough)
    with Driver(app) as d:
        d.send("in", "go")
        d.send("in", "stop")
        assert d.states == {"Partition 0": "ended"}


def test_an_agent_yields_into_its_sink() -> None:
    """Values, or records that set key, time and headers; nothing for an empty list."""
    app = hg.App("job", key_serde=hg.text())
    counts = app.table("counts", value=hg.json())

    @app.agent(app.input("orders"), sink="alerts")
    async def alert(batches: hg.Batches[Any, Any]) -> Any:
        async for batch in batches:
            counts["n"] = counts.get("n", 0) + len(batch)
            assert batches.table("counts")["n"] == counts["n"]
            yield [record for record in batch if record.value > 10]
            yield [hg.Record("sum", sum(batch.values), 99)]

    with Driver(app, partitions={"orders": 2}) as d:
        d.send_all("orders", [hg.Record("a", 5, 1), hg.Record("b", 50, 2)], partition=0)
        assert d.read("alerts") == [hg.Record("b", 50, 2), hg.Record("sum", 55, 99)]
        d.send("orders", 1, partition=1)
        assert [r.value for r in d.read("alerts")] == [1]
        assert d.table("counts").task("Partition 1") == {"n": 1}


def test_an_agent_that_raises_fails_its_chunk_and_the_next_one_gets_a_fresh_one() -> None:
    """The generator ends with the raise, its finally runs, and what the chunk had yielded is forgotten."""
    lives: list[str] = []
    app = hg.App("job")

    @app.agent(app.input("in"), sink="out", on_error="dead_letter")
    async def fragile(batches: hg.Batches[Any, Any]) -> Any:
        lives.append("born")
        try:
            async for batch in batches:
                for value in batch.values:
                    yield [value]
                    if value == "bad":
                        raise ValueError(value)
        finally:
            lives.append("gone")

    with Driver(app) as d:
        d.send("in", "a")
        assert lives == ["born"]
        d.send_all("in", ["b", "bad", "c"])
        assert [r.value for r in d.read("out")] == ["a", "b", "c"]
        assert [(one.value, one.exception) for one in d.dead_letters()] == [(b'"bad"', "ValueError: bad")]
        d.send("in", "d")
        assert [r.value for r in d.read("out")] == ["d"]
        assert lives.count("born") == lives.count("gone") + 1
    assert lives[-1] == "gone"


def test_an_agent_without_a_sink_and_one_that_returns() -> None:
    """A coroutine just listens; one that stops listening has failed."""
    seen: list[Any] = []
    app = hg.App("job")
    stream = app.input("in")

    @app.agent(stream)
    async def listens(batches: hg.Batches[Any, Any]) -> None:
        async for batch in batches:
            seen.extend(batch.values)

    @app.agent(stream)
    async def returns(batches: hg.Batches[Any, Any]) -> None:
        async for batch in batches:
            if "stop" in batch.values:
                return

    with Driver(app) as d:
        d.send("in", "go")
        with pytest.raises(hg.UserCodeError, match="iterate over its batches until they end"):
            d.send("in", "stop")
    assert seen[:2] == ["go", "stop"]


def test_a_sink_gets_batches_with_an_id() -> None:
    """The id is the same when a chunk comes again; a sink may be async."""
    got: list[Any] = []

    async def write(batch: hg.Batch[Any, Any]) -> None:
        await asyncio.sleep(1)
        got.append((batch.meta["id"], batch.stream, batch.partition, batch.values, list(batch.offsets)))

    app = hg.App("job")
    app.input("in").filter(lambda v: v > 0).sink(write)
    with Driver(app) as d:
        d.send("in", 1)
        d.send_all("in", [2, 3])
        assert got == [("in-0-0-1", "in", 0, [1], [0]), ("in-0-1-3", "in", 0, [2, 3], [1, 2])]


def test_a_hook_that_fails_on_time_is_told_the_time_again() -> None:
    """Watermarks and timers of a letter that failed come again with the next attempt."""
    told: list[Any] = []

    class Late(hg.Actor):
        def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
            ctx.timer("t", at=5)

        def on_timer(self, ctx: hg.Context, name: str, timestamp: int) -> None:
            told.append((name, timestamp))
            if len(told) == 1:
                raise RuntimeError("not yet")
            ctx.emit("out", name)

        def on_watermark(self, ctx: hg.Context, timestamp: int) -> None:
            told.append(timestamp)

    app = hg.App("job")
    app.actor(app.input("in"))(Late)
    with Driver(app, settings={"error.retries": 1}) as d:
        d.send("in", 1, at=9)
        assert told == [("t", 5)]
        d.advance("5s")
        assert told == [("t", 5), ("t", 5), 9]
        assert [r.value for r in d.read("out")] == ["t"]


def test_a_timer_for_a_time_that_has_passed_fires_at_once() -> None:
    """It does not wait for the next watermark, which may be long in coming."""
    fired: list[int] = []

    class Past(hg.Actor):
        def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
            if batch.values == ["set"]:
                ctx.timer("t", at=5)

        def on_timer(self, ctx: hg.Context, name: str, timestamp: int) -> None:
            fired.append(timestamp)

    app = hg.App("job")
    app.actor(app.input("in"))(Past)
    with Driver(app) as d:
        d.send("in", "go", at=100)
        d.send("in", "set", at=50)
        assert fired == [5]


def test_more_timers_than_one_step_takes() -> None:
    """They fire in bounded steps, each in its own transaction, in the order of their times."""
    fired: list[int] = []

    class Many(hg.Actor):
        def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
            for n in range(1200):
                ctx.timer(f"t{n}", at=n)

        def on_timer(self, ctx: hg.Context, name: str, timestamp: int) -> None:
            fired.append(timestamp)

    app = hg.App("job")
    app.actor(app.input("in"))(Many)
    with Driver(app) as d:
        d.send("in", 0, at=599)
        assert fired == list(range(600))
        d.drain()
        assert fired == list(range(1200))


OWN_TOPICS = [
    "sales-1-by-user",
    "shared",
    "foreign",
    "__headgate_coordinator_sales_1",
    "__headgate_log_sales_1",
    "__transaction_state",
]


@pytest.mark.parametrize("topic", OWN_TOPICS)
def test_user_code_writes_no_record_where_only_headgate_writes(topic: str) -> None:
    """Among the frames of a stream it would stop every reader; in the coordinator stream or the log it was silent. Its own record is to
    blame, so the policy decides, and the others go on."""
    app = hg.App("sales", on_error="dead_letter")
    orders = app.input("orders")
    orders.repartition("user").table("seen")
    orders.share("shared")
    app.input("foreign", producers=["pricing"]).to("copies")

    @app.actor(orders)
    class Writer(hg.Actor):
        def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
            for record in batch:
                ctx.emit(record.value["to"], record.value)

    with Driver(app) as d:
        d.send_all("orders", [{"user": "a", "to": "out"}, {"user": "b", "to": topic}, {"user": "c", "to": "out"}])
        assert [one.value["user"] for one in d.read("out")] == ["a", "c"]
        (letter,) = d.dead_letters()
        assert f"ctx.emit('{topic}')" in letter.exception
