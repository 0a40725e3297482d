"""Examples of the page about actors and agents: each function is one, and its first line says of what."""

from __future__ import annotations

from typing import Any

import headgate as hg


def actor() -> None:
    """Actor"""
    app = hg.App("orders")
    open_orders = app.table("open-orders")

    @app.actor(app.input("events", timestamp="ts"))
    class Orders(hg.Actor):
        """Reminds of an order that was not paid within ten minutes of event time."""

        def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
            for record in batch:
                if record.value["what"] == "ordered":
                    open_orders[record.key] = record.value
                    ctx.timer(record.key, at=record.timestamp + 600_000)
                else:
                    open_orders.pop(record.key, None)
                    ctx.cancel(record.key)

        def on_timer(self, ctx: hg.Context, name: str, timestamp: int) -> None:
            ctx.emit("reminders", open_orders.pop(name), key=name)

    with hg.testing.Driver(app) as driver:
        driver.send("events", {"what": "ordered", "ts": 0}, key="o1")
        driver.send("events", {"what": "ordered", "ts": 1_000}, key="o2")
        driver.send("events", {"what": "paid", "ts": 60_000}, key="o2")
        driver.send("events", {"what": "ordered", "ts": 700_000}, key="o3")
        assert [record.key for record in driver.read("reminders")] == ["o1"]


def on_start() -> None:
    """Actor.on_start"""
    app = hg.App("greeting")

    @app.actor(app.input("names", serde=hg.text()))
    class Greeting(hg.Actor):
        def on_start(self, ctx: hg.Context) -> None:
            self.words = {"de": "Hallo", "en": "Hello"}  # open a client, load a model

        def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, str]) -> None:
            for name in batch.values:
                ctx.emit("greetings", f"{self.words['en']} {name}")

    with hg.testing.Driver(app) as driver:
        driver.send("names", "Ann")
        assert driver.read("greetings")[0].value == "Hello Ann"


def on_batch() -> None:
    """Actor.on_batch"""
    app = hg.App("largest")

    @app.actor(app.input("numbers"))
    class Largest(hg.Actor):
        def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, int]) -> None:
            ctx.emit("largest", max(batch.values))

    with hg.testing.Driver(app) as driver:
        driver.send_all("numbers", [3, 9, 4])
        assert [record.value for record in driver.read("largest")] == [9]


def on_watermark() -> None:
    """Actor.on_watermark"""
    app = hg.App("times")

    @app.actor(app.input("events", timestamp="ts"))
    class Times(hg.Actor):
        def on_watermark(self, ctx: hg.Context, timestamp: int) -> None:
            ctx.emit("complete-until", timestamp)

    with hg.testing.Driver(app) as driver:
        driver.send("events", {"ts": 5_000})
        assert driver.read("complete-until")[-1].value == 5_000


def on_end_of_stream() -> None:
    """Actor.on_end_of_stream"""
    app = hg.App("total")

    @app.actor(app.input("numbers"))
    class Total(hg.Actor):
        def on_start(self, ctx: hg.Context) -> None:
            self.total = 0

        def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, int]) -> None:
            self.total += sum(batch.values)

        def on_end_of_stream(self, ctx: hg.Context) -> None:
            ctx.emit("total", self.total)

    with hg.testing.Driver(app) as driver:
        driver.send_all("numbers", [1, 2, 3])
        driver.end()
        assert [record.value for record in driver.read("total")] == [6]


def on_drain() -> None:
    """Actor.on_drain"""
    app = hg.App("drained")

    @app.actor(app.input("numbers"))
    class Announce(hg.Actor):
        def on_drain(self, ctx: hg.Context) -> None:
            ctx.emit("news", f"{ctx.task} is drained")

    with hg.testing.Driver(app) as driver:
        driver.send("numbers", 1)
        driver.drain()
        assert driver.read("news")[0].value == "Partition 0 is drained"


def on_timer() -> None:
    """Actor.on_timer"""
    app = hg.App("ticks")

    @app.actor(app.input("numbers"))
    class Ticks(hg.Actor):
        def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, int]) -> None:
            ctx.timer("tick", after="10s")

        def on_timer(self, ctx: hg.Context, name: str, timestamp: int) -> None:
            ctx.emit("ticks", name)

    with hg.testing.Driver(app) as driver:
        driver.send("numbers", 1)
        driver.advance("11s")
        assert [record.value for record in driver.read("ticks")] == ["tick"]


def on_stop() -> None:
    """Actor.on_stop"""
    closed: list[str] = []
    app = hg.App("clients")

    @app.actor(app.input("numbers"))
    class WithClient(hg.Actor):
        def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, int]) -> None:
            pass

        def on_stop(self, ctx: hg.Context) -> None:
            closed.append(ctx.task)

    with hg.testing.Driver(app) as driver:
        driver.send("numbers", 1)
        driver.drain()
    assert closed == ["Partition 0"]


def seen_by(hook: Any, *values: Any, **options: Any) -> hg.testing.Driver:
    """A driver of a job whose only actor does this with each batch, after these values."""

    class Tried(hg.Actor):
        def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
            hook(ctx, batch)

    app = hg.App("tried")
    app.table("totals")
    app.input("orders", timestamp="ts").process(Tried).to("passed-on")
    driver = hg.testing.Driver(app, **options)
    driver.send_all("orders", values)
    return driver


def context() -> None:
    """Context"""

    def hook(ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
        assert ctx.task == "Partition 0"
        ctx.forward({"records": len(batch)})

    with seen_by(hook, {"ts": 1}, {"ts": 2}) as driver:
        assert driver.read("passed-on")[0].value == {"records": 2}


def task() -> None:
    """Context.task"""

    def hook(ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
        ctx.forward(ctx.task)

    with seen_by(hook, {"ts": 1}) as driver:
        assert driver.read("passed-on")[0].value == "Partition 0"


def watermark() -> None:
    """Context.watermark"""
    seen: list[int | None] = []

    def hook(ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
        seen.append(ctx.watermark)

    with seen_by(hook, {"ts": 5_000}) as driver:
        driver.send("orders", {"ts": 6_000})
    assert seen == [None, 5_000]


def now_ms() -> None:
    """Context.now_ms"""

    def hook(ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
        ctx.forward(ctx.now_ms)

    with seen_by(hook, {"ts": 1}, now=1_700_000_000_000) as driver:
        assert driver.read("passed-on")[0].value == 1_700_000_000_000


def table() -> None:
    """Context.table"""

    def hook(ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
        totals = ctx.table("totals")
        totals["n"] = totals.get("n", 0) + len(batch)

    with seen_by(hook, {"ts": 1}, {"ts": 2}) as driver:
        assert driver.table("totals")["n"] == 2


def emit() -> None:
    """Context.emit"""
    app = hg.App("split")

    @app.actor(app.input("orders"))
    class Split(hg.Actor):
        def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
            for record in batch:
                ctx.emit(f"orders-{record.value['country'].lower()}", record.value, key=record.key, timestamp=7)

    with hg.testing.Driver(app) as driver:
        driver.send("orders", {"country": "DE"}, key="o1")
        assert driver.read("orders-de") == [hg.Record("o1", {"country": "DE"}, 7)]


def forward() -> None:
    """Context.forward"""

    def hook(ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
        for record in batch:
            ctx.forward(record.value["ts"], key="time")

    with seen_by(hook, {"ts": 3}) as driver:
        assert driver.read("passed-on") == [hg.Record("time", 3, 3)]


def timer_and_cancel() -> None:
    """Context.timer, Context.cancel"""
    app = hg.App("pauses")

    @app.actor(app.input("clicks", timestamp="ts"))
    class Pauses(hg.Actor):
        """Says which user has made a pause of a minute: each click replaces the timer of its user."""

        def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
            for record in batch:
                if record.value.get("left"):
                    ctx.cancel(record.key)
                else:
                    ctx.timer(record.key, at=record.timestamp + 60_000)

        def on_timer(self, ctx: hg.Context, name: str, timestamp: int) -> None:
            ctx.emit("pauses", timestamp, key=name)

    with hg.testing.Driver(app) as driver:
        driver.send("clicks", {"ts": 0}, key="ann")
        driver.send("clicks", {"ts": 5_000}, key="ann")
        driver.send("clicks", {"ts": 6_000}, key="bob")
        driver.send("clicks", {"ts": 7_000, "left": True}, key="bob")
        driver.send("clicks", {"ts": 90_000}, key="eve")
        assert [(record.key, record.value) for record in driver.read("pauses")] == [("ann", 65_000)]


def commit() -> None:
    """Context.commit"""

    def hook(ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
        ctx.forward("urgent")
        ctx.commit()  # readers see it now, not after the commit interval

    with seen_by(hook, {"ts": 1}) as driver:
        assert driver.read("passed-on")[0].value == "urgent"


def stop() -> None:
    """Context.stop"""

    def hook(ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
        ctx.forward(len(batch))
        ctx.stop()

    with seen_by(hook, {"ts": 1}) as driver:
        driver.send("orders", {"ts": 2})
        assert [record.value for record in driver.read("passed-on")] == [1]


def batches() -> None:
    """Batches"""
    app = hg.App("largest")

    @app.agent(app.input("numbers"), sink="largest")
    async def largest(batches: hg.Batches[Any, int]):
        async for batch in batches:
            yield [max(batch.values)]

    with hg.testing.Driver(app) as driver:
        driver.send_all("numbers", [3, 9, 4])
        assert [record.value for record in driver.read("largest")] == [9]


def table_of_an_agent() -> None:
    """Batches.table"""
    app = hg.App("counts")
    app.table("counts")

    @app.agent(app.input("orders"))
    async def counted(batches: hg.Batches[Any, Any]) -> None:
        counts = batches.table("counts")
        async for batch in batches:
            for record in batch:
                counts[record.key] = counts.get(record.key, 0) + 1

    with hg.testing.Driver(app) as driver:
        driver.send("orders", {}, key="DE")
        assert driver.table("counts")["DE"] == 1


def ticked(fn: Any) -> hg.testing.Driver:
    """A driver of a job that calls this every ten seconds, after the first tick."""
    app = hg.App("ticked")
    app.input("orders").to("copy")
    app.table("ticks")
    app.timer("10s", name="ticking")(fn)
    driver = hg.testing.Driver(app)
    driver.advance("10s")
    return driver


def tick() -> None:
    """Tick, Tick.number, Tick.at, Tick.missed"""

    async def fn(tick: hg.Tick) -> None:
        tick.emit("told", [tick.number, tick.at, tick.missed])

    with ticked(fn) as driver:
        driver.drain()
        driver.advance("35s")
        driver.restart()  # the next run: three ticks were missed, and one comes late
        assert [record.value for record in driver.read("told")] == [[1, 10_000, 0], [2, 40_000, 2]]


def task_of_a_tick() -> None:
    """Tick.task, Tick.now_ms"""

    def fn(tick: hg.Tick) -> None:
        tick.emit("told", [tick.task, tick.now_ms])

    with ticked(fn) as driver:
        assert driver.read("told")[0].value == ["Partition 0", 10_000]


def table_of_a_tick() -> None:
    """Tick.table"""

    def fn(tick: hg.Tick) -> None:
        tick.table("ticks")["newest"] = tick.number

    with ticked(fn) as driver:
        assert driver.table("ticks")["newest"] == 1


def emit_of_a_tick() -> None:
    """Tick.emit"""

    def fn(tick: hg.Tick) -> None:
        tick.emit("reports", {"tick": tick.number}, key="all")

    with ticked(fn) as driver:
        assert driver.read("reports") == [hg.Record("all", {"tick": 1}, 10_000)]


def commit_of_a_tick() -> None:
    """Tick.commit"""

    def fn(tick: hg.Tick) -> None:
        tick.emit("reports", "urgent")
        tick.commit()  # readers see it now, not after the commit interval

    with ticked(fn) as driver:
        assert driver.read("reports")[0].value == "urgent"
