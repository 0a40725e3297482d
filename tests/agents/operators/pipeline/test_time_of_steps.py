"""Event time through the steps of a task: over several streams, from one actor to the next, past tables, and as timestamps of rows."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver

from ...forms import Form


class Hears(hg.Actor):
    """Says what it hears of time, and when its timer at 150 s fires."""

    def on_batch(self, ctx: Any, batch: Any) -> None:
        if ctx.watermark is None:
            ctx.timer("late", at=150_000)

    def on_watermark(self, ctx: Any, timestamp: int) -> None:
        ctx.emit("heard", timestamp)

    def on_timer(self, ctx: Any, name: str, timestamp: int) -> None:
        ctx.emit("fired", timestamp)


def job() -> hg.App:
    """Of its two inputs, one ends."""
    app = hg.App("job")
    one, other = app.input("one", timestamp="ts", until="newest"), app.input("other", timestamp="ts")
    app.actor(one, other)(Hears)
    return app


def values(d: Driver, topic: str) -> list[Any]:
    return [record.value for record in d.read(topic)]


@pytest.mark.parametrize("way", ["ended", "idle"])
def test_the_other_one_goes_on(way: str) -> None:
    """The watermark stood still for ever, and with it every event-time timer of the actor."""
    with Driver(job(), settings={"watermark.idle-timeout": "10s"}) as d:
        d.send("one", {"ts": 100_000})
        d.send("other", {"ts": 200_000})
        assert values(d, "heard") == [100_000]
        if way == "ended":
            d.end("one")
        else:
            for n in range(5):  # the other one is not idle
                d.advance("4s")
                d.send("other", {"ts": 201_000 + n})
        assert values(d, "fired") == [150_000]
        assert 200_000 <= values(d, "heard")[-1] < 202_000
        d.send("other", {"ts": 300_000})
        d.advance("1s")
        assert values(d, "heard")[-1] == 300_000


class Later(hg.Actor):
    """Gives each row on when event time is a second behind it, and says when it has heard of a time."""

    def on_batch(self, ctx: Any, batch: Any) -> None:
        for record in batch:
            ctx.timer(f"{record.timestamp}", at=record.timestamp + 1_000)

    def on_timer(self, ctx: Any, name: str, timestamp: int) -> None:
        ctx.forward(name)
        ctx.emit("emitted", name)

    def on_watermark(self, ctx: Any, timestamp: int) -> None:
        ctx.forward("time")


class Order(hg.Actor):
    """Records rows and times in the order in which they come."""

    def on_batch(self, ctx: Any, batch: Any) -> None:
        for record in batch:
            ctx.emit("order", ["row", record.value, record.timestamp])

    def on_watermark(self, ctx: Any, timestamp: int) -> None:
        ctx.emit("order", ["heard", timestamp])


def test_rows_of_a_timer_have_its_time_and_stand_before_that_time() -> None:
    """An actor behind an actor heard the time first, and then the rows that the other one gave on for it, with the time of the clock."""
    app = hg.App("job")
    app.input("in", timestamp="ts").process(Later).process(Order)
    with Driver(app) as d:
        d.advance("1h")
        d.send_all("in", [{"ts": 1_000}, {"ts": 1_500}])
        d.advance("1s")
        d.send("in", {"ts": 2_200})
        d.advance("1s")
        assert values(d, "order") == [
            ["row", "time", 1_500],
            ["heard", 1_500],
            ["row", "1000", 2_000],
            ["row", "time", 2_200],
            ["heard", 2_200],
        ]
        assert [record.timestamp for record in d.read("emitted")] == [2_000]
        d.drain()
        assert values(d, "order")[-3:-1] == [["row", "1500", 2_500], ["row", "2200", 3_200]]


class Late(hg.Actor):
    """Says how far time is, and what comes too late for that."""

    def on_batch(self, ctx: Any, batch: Any) -> None:
        for record in batch:
            if ctx.watermark is not None and record.timestamp < ctx.watermark:
                ctx.emit("late", record.timestamp)

    def on_watermark(self, ctx: Any, timestamp: int) -> None:
        ctx.emit("heard", [ctx.task, timestamp])


def test_rows_of_a_timer_stand_before_that_time_behind_a_shuffle_too() -> None:
    """What an actor gives on at a time passes a shuffle before the next one hears of that time."""
    app = hg.App("job", settings={"watermark.idle-timeout": "1h"})
    app.input("in", timestamp="ts").process(Later).repartition(lambda row: row, name="again", partitions=2).process(
        Late
    )
    with Driver(app, partitions={"in": 2}) as d:
        for start in range(0, 50_000, 10_000):
            for partition in (0, 1):
                d.send_all("in", [{"ts": start + n * 100} for n in range(100)], partition=partition)
        assert (values(d, "late"), len(values(d, "emitted"))) == ([], 2 * 490)
        assert dict(values(d, "heard")) == dict.fromkeys(d.tasks, 49_900)


def test_a_timer_far_in_the_future_that_a_drain_fires_writes_a_record_of_its_time() -> None:
    """What Kafka's timestamp of it is depends on what the topic accepts, as for all that is written."""
    app = hg.App("job")
    app.input("in", timestamp="ts").process(Later)
    with Driver(app) as d:
        d.send("in", {"ts": 10**14})
        d.drain()
        assert [record.timestamp for record in d.read("emitted")] == [10**14 + 1_000]


def test_a_table_holds_neither_time_nor_end() -> None:
    """Rows looked each other up in a table whose own stream is far behind and goes on: the actor heard neither time nor end."""

    class Ends(Order):
        def on_end_of_stream(self, ctx: Any) -> None:
            ctx.emit("order", "end")

    app = hg.App("job", key_serde=hg.text())
    rates = app.input("rates", timestamp="ts")
    rates.to("copy")
    orders = app.input("orders", timestamp="ts")
    orders.join(rates.table("rates"), into=lambda order, rate: order["ts"], how="left").process(Ends)
    with Driver(app) as d:
        d.send("rates", {"ts": 10}, key="k")
        d.send("orders", {"ts": 5_000}, key="k")
        d.advance("1s")
        assert values(d, "order") == [["row", 5_000, 5_000], ["heard", 5_000]]
        d.end("orders")
        assert values(d, "order")[-1] == "end"
        assert d.states == {"Partition 0": "running"}


class Timed(TypedDict):
    ts: int


def test_an_aggregate_gives_its_updates_out_before_a_time_that_passes_them(form: Form) -> None:
    """It holds them back for the commit; an actor behind it, which hears of time before, finds none of them late."""
    app = hg.App("job", key_serde=hg.text())
    form.input(app, "in", Timed, timestamp="ts").agg(n=hg.count(), name="counts").process(Order)
    with Driver(app, settings={"commit.interval": "10s"}) as d:
        d.send("in", {"ts": 1_000}, key="k")
        d.advance("1s")
        d.advance("20s")
        assert values(d, "order")[:2] == [["row", {"n": 1}, 1_000], ["heard", 1_000]]
