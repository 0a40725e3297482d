"""Examples of the page about `hg.App`: each function is one, and its first line says of what."""

from __future__ import annotations

import headgate as hg


def job() -> None:
    """App"""
    app = hg.App("sales", settings={"commit.interval": "500ms"})
    app.input("orders").filter(lambda order: order["amount"] > 0).to("paid")

    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [{"amount": 3}, {"amount": 0}])
        assert [record.value for record in driver.read("paid")] == [{"amount": 3}]


def keyed_and_timed() -> None:
    """App.input"""
    app = hg.App("sales")
    orders = app.input("orders", key="country", timestamp=hg.field("at", unit="iso"), max_out_of_order="5s")
    orders.window(hg.tumbling("1m")).agg(n=hg.count()).to("minutes")

    with hg.testing.Driver(app) as driver:
        driver.send("orders", {"country": "DE", "at": "2026-01-01T00:00:30Z"})
        driver.send("orders", {"country": "DE", "at": "2026-01-01T00:01:06Z"})
        (first,) = driver.read("minutes")
        assert (first.key, first.value["n"]) == ("DE", 1)


def bad_data() -> None:
    """App.input"""
    app = hg.App("sales", on_bad_data="dead_letter")
    app.input("orders").to("copy")

    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [b'{"n": 1}', b"no json"])
        assert [record.value for record in driver.read("copy")] == [{"n": 1}]
        assert len(driver.dead_letters()) == 1


def table_of_user_code() -> None:
    """App.table"""
    app = hg.App("visits")
    seen = app.table("seen", key=hg.text(), value=hg.json(), ttl="1d")

    def counted(user: str) -> int:
        seen[user] = seen.get(user, 0) + 1
        return seen[user]

    app.input("visits", key_serde=hg.text()).map(lambda record: counted(record.key), with_record=True).to("counts")

    with hg.testing.Driver(app) as driver:
        driver.send("visits", {}, key="ann")
        driver.send("visits", {}, key="ann")
        assert [record.value for record in driver.read("counts")] == [1, 2]
        assert driver.table("seen")["ann"] == 2


def agent() -> None:
    """App.agent"""
    app = hg.App("alerts")
    orders = app.input("orders")

    @app.agent(orders, sink="alerts")
    async def alert(batches: hg.Batches):
        async for batch in batches:
            yield [record.value for record in batch if record.value["amount"] > 10_000]

    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [{"amount": 20_000}, {"amount": 5}])
        assert [record.value for record in driver.read("alerts")] == [{"amount": 20_000}]


def actor() -> None:
    """App.actor"""
    app = hg.App("totals")
    totals = app.table("totals")

    @app.actor(app.input("orders"))
    class Totals(hg.Actor):
        def on_batch(self, ctx: hg.Context, batch: hg.Batch) -> None:
            for record in batch:
                totals[record.key] = totals.get(record.key, 0) + record.value["amount"]

    with hg.testing.Driver(app) as driver:
        driver.send("orders", {"amount": 3}, key="DE")
        driver.send("orders", {"amount": 4}, key="DE")
        assert driver.table("totals")["DE"] == 7


def timer() -> None:
    """App.timer"""
    app = hg.App("totals")
    app.input("orders").to("copy")

    @app.timer("1m")
    def alive(tick: hg.Tick) -> None:
        tick.emit("alive", tick.number)

    with hg.testing.Driver(app) as driver:
        driver.advance("2m")
        assert [record.value for record in driver.read("alive")] == [1, 2]


def chooser() -> None:
    """Choice"""

    def fullest(heads, now):
        able = [head for head in heads if head.takeable]
        if not able:
            return None
        best = max(able, key=lambda head: head.ready)
        return hg.Choice(best.at, min(best.ready, 100))

    app = hg.App("sales", chooser=fullest)
    app.input("orders").merge(app.input("returns")).to("all")

    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [1, 2])
        driver.send_all("returns", [3])
        assert [record.value for record in driver.read("all")] == [1, 2, 3]
