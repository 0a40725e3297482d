"""Examples of the page about streams of rows: each function is one, and its first line says of what."""

from __future__ import annotations

import asyncio
from typing import Any

import headgate as hg


def steps() -> None:
    """Stream"""
    app = hg.App("sales")
    (
        app.input("orders")
        .filter(lambda order: order["amount"] > 0)
        .map(lambda order: {**order, "cents": order["amount"] * 100})
        .to("paid", key="country")
    )

    with hg.testing.Driver(app) as driver:
        driver.send("orders", {"country": "DE", "amount": 3})
        assert driver.read("paid") == [hg.Record("DE", {"country": "DE", "amount": 3, "cents": 300}, 0)]


def map_values() -> None:
    """Stream.map"""
    app = hg.App("sales")
    app.input("orders").map(lambda order: order["amount"]).to("amounts")

    with hg.testing.Driver(app) as driver:
        driver.send("orders", {"amount": 3})
        assert driver.read("amounts")[0].value == 3


def map_records() -> None:
    """Stream.map"""
    app = hg.App("sales")

    def keyed(record: hg.Record[Any, Any]) -> hg.Record[str, Any]:
        return hg.Record(record.value["country"], record.value["amount"], record.timestamp)

    app.input("orders").map(keyed, with_record=True).to("amounts")

    with hg.testing.Driver(app) as driver:
        driver.send("orders", {"country": "DE", "amount": 3})
        assert driver.read("amounts") == [hg.Record("DE", 3, 0)]


def flat_map() -> None:
    """Stream.flat_map"""
    app = hg.App("words")
    app.input("lines", serde=hg.text()).flat_map(str.split).to("words")

    with hg.testing.Driver(app) as driver:
        driver.send("lines", "to be or not")
        assert [record.value for record in driver.read("words")] == ["to", "be", "or", "not"]


def keep() -> None:
    """Stream.filter"""
    app = hg.App("sales")
    app.input("orders").filter(lambda order: order["amount"] >= 10).to("large")

    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [{"amount": 9}, {"amount": 10}])
        assert [record.value for record in driver.read("large")] == [{"amount": 10}]


def peek() -> None:
    """Stream.peek"""
    seen: list[Any] = []
    app = hg.App("sales")
    app.input("orders").peek(seen.append).filter(lambda order: order["amount"] >= 10).to("large")

    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [{"amount": 9}, {"amount": 10}])
        assert [record.value for record in driver.read("large")] == [{"amount": 10}]
    assert seen == [{"amount": 9}, {"amount": 10}]


def branch() -> None:
    """Stream.branch"""
    app = hg.App("sales")
    large, german = app.input("orders").branch(
        lambda order: order["amount"] >= 100,
        lambda order: order["country"] == "DE",  # of those that are not large
    )
    large.to("large")
    german.to("german")

    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [{"amount": 100, "country": "DE"}, {"amount": 5, "country": "DE"}])
        assert [len(driver.read(topic)) for topic in ("large", "german")] == [1, 1]


def to_columns() -> None:
    """Stream.columns"""
    import msgspec

    class Order(msgspec.Struct, gc=False):
        country: str
        amount: float

    app = hg.App("sales")
    app.input("orders", serde=hg.json(Order)).columns().filter(hg.col("amount") >= 10).to("large")

    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [Order("DE", 9.0), Order("FR", 10.0)])
        assert [record.value for record in driver.read("large")] == [{"country": "FR", "amount": 10.0}]


def await_for_each() -> None:
    """Stream.map_async"""
    app = hg.App("prices")

    async def priced(order: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)  # ask a service
        return {**order, "price": 9.5}

    app.input("orders").map_async(priced, concurrency=4).to("priced")

    with hg.testing.Driver(app) as driver:
        driver.send("orders", {"id": 1})
        assert driver.read("priced")[0].value == {"id": 1, "price": 9.5}


def ask_a_service() -> None:
    """Stream.lookup"""
    app = hg.App("rated")

    async def rate_of(currency: str) -> float | None:
        return {"EUR": 1.0, "USD": 0.9}.get(currency)  # ask a service

    def rated(order: dict[str, Any], rate: float | None) -> dict[str, Any]:
        return {**order, "rate": rate}

    orders = app.input("orders")
    orders.lookup(rate_of, on="currency", cache="5m", rate="500/s", into=rated).to("rated")

    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [{"id": 1, "currency": "USD"}, {"id": 2, "currency": "XYZ"}])
        assert [record.value["rate"] for record in driver.read("rated")] == [0.9, None]


def merge() -> None:
    """Stream.merge"""
    app = hg.App("all")
    app.input("web").merge(app.input("shop")).to("orders")

    with hg.testing.Driver(app) as driver:
        driver.send("web", {"id": 1})
        driver.send("shop", {"id": 2})
        assert [record.value["id"] for record in driver.read("orders")] == [1, 2]


def dedupe() -> None:
    """Stream.dedupe"""
    app = hg.App("shop")
    app.input("payments", key="id").dedupe(ttl="1d").to("payments-once")

    with hg.testing.Driver(app) as driver:
        driver.send_all("payments", [{"id": "a", "n": 1}, {"id": "b", "n": 2}, {"id": "a", "n": 3}])
        assert [record.value["n"] for record in driver.read("payments-once")] == [1, 2]


def updates_as_events() -> None:
    """Stream.as_events"""
    app = hg.App("sales")
    totals = app.input("orders", key="country").agg(n=hg.count())
    totals.as_events().repartition("n", name="by-n").agg(times=hg.count(), name="often").to("how-often")

    with hg.testing.Driver(app) as driver:
        driver.send("orders", {"country": "DE"})
        assert driver.read("how-often")[0].value == {"times": 1}


def rekey() -> None:
    """Stream.rekey"""
    app = hg.App("sales")
    app.input("orders").rekey("country").to("orders-by-country")

    with hg.testing.Driver(app) as driver:
        driver.send("orders", {"country": "DE"})
        assert driver.read("orders-by-country")[0].key == "DE"


def repartition() -> None:
    """Stream.repartition"""
    app = hg.App("sales")
    app.input("orders").repartition("country").agg(n=hg.count()).to("totals")

    with hg.testing.Driver(app, partitions={"orders": 4}) as driver:
        for partition in range(4):
            driver.send("orders", {"country": "DE"}, partition=partition)
        assert driver.read("totals")[-1] == hg.Record("DE", {"n": 4}, 0)


def broadcast() -> None:
    """Stream.broadcast"""
    app = hg.App("sales")
    rates = app.input("rates", key="currency").broadcast("rates-everywhere").table("rates", broadcast=True)
    app.input("orders").join(rates, on="currency", into=lambda order, rate: order["amount"] * rate["rate"]).to("priced")

    with hg.testing.Driver(app, partitions={"orders": 2}) as driver:
        driver.send("rates", {"currency": "USD", "rate": 2})
        driver.send("orders", {"currency": "USD", "amount": 3}, partition=1)
        assert driver.read("priced")[0].value == 6


def running_aggregates() -> None:
    """Stream.agg"""
    app = hg.App("sales")
    orders = app.input("orders", key="country")
    orders.agg(n=hg.count(), total=hg.sum("amount")).to("totals")

    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [{"country": "DE", "amount": 3}, {"country": "DE", "amount": 4}])
        assert driver.read("totals")[-1] == hg.Record("DE", {"n": 2, "total": 7}, 0)


def windows() -> None:
    """Stream.window"""
    app = hg.App("sales")
    orders = app.input("orders", key="country", timestamp="ts")
    orders.window(hg.tumbling("1m", grace="5s"), late="late-orders").agg(n=hg.count()).to("minutes")

    with hg.testing.Driver(app) as driver:
        driver.send("orders", {"country": "DE", "ts": 1_000})
        driver.send("orders", {"country": "DE", "ts": 70_000})  # past the end of the first minute and its grace
        driver.send("orders", {"country": "DE", "ts": 2_000})
        assert driver.read("minutes")[0].value["n"] == 1
        assert [record.value["ts"] for record in driver.read("late-orders")] == [2_000]


def table_of_a_stream() -> None:
    """Stream.table"""
    app = hg.App("sales")
    users = app.input("users", key="id", bootstrap=True).table("users")
    app.input("orders", key="user").join(users, on="user", into=lambda order, user: {**order, "name": user["name"]}).to(
        "named"
    )

    with hg.testing.Driver(app) as driver:
        driver.send("users", {"id": "u7", "name": "Ann"})
        driver.send("orders", {"user": "u7", "amount": 3})
        assert driver.read("named")[0].value == {"user": "u7", "amount": 3, "name": "Ann"}
        assert driver.table("users")["u7"] == {"id": "u7", "name": "Ann"}


def join_with_a_table() -> None:
    """Stream.join"""
    app = hg.App("sales")
    rates = app.input("rates", key="currency").table("rates")
    orders = app.input("orders", key="currency")
    orders.join(rates, how="left", into=lambda order, rate: rate and order["amount"] * rate["rate"]).to("priced")

    with hg.testing.Driver(app) as driver:
        driver.send("orders", {"currency": "USD", "amount": 3})
        driver.send("rates", {"currency": "USD", "rate": 2})
        driver.send("orders", {"currency": "USD", "amount": 3})
        assert [record.value for record in driver.read("priced")] == [None, 6]


def join_of_two_streams() -> None:
    """Stream.join"""
    app = hg.App("payments")
    orders = app.input("orders", timestamp="ts").repartition("id")
    payments = app.input("payments", timestamp="ts").repartition("order")
    orders.join(payments, on=("id", "order"), within="10s", into=lambda order, paid: {**order, **paid}).to("paid")

    with hg.testing.Driver(app) as driver:
        driver.send("orders", {"id": 7, "ts": 1_000})
        driver.send("payments", {"order": 7, "ts": 6_000, "by": "card"})
        assert driver.read("paid")[0].value == {"id": 7, "order": 7, "ts": 6_000, "by": "card"}


def write() -> None:
    """Stream.to"""
    app = hg.App("sales")
    app.input("orders").to("by-country", key="country", partition=lambda record: len(record.value["country"]) % 2)

    with hg.testing.Driver(app, partitions={"by-country": 2}) as driver:
        driver.send("orders", {"country": "DEU"})
        assert driver.read("by-country", partition=1)[0].key == "DEU"


def share() -> None:
    """Stream.share"""
    pricing = hg.App("pricing")
    pricing.input("prices").map(lambda price: {**price, "net": price["gross"] / 2}).share("net-prices", key="id")

    reports = hg.App("reports")
    reports.input("net-prices", producers=["pricing"]).to("report")

    with hg.testing.Driver(pricing) as writer, hg.testing.Driver(reports) as reader:
        writer.send("prices", {"id": 1, "gross": 4})
        reader.follow("net-prices", writer)
        assert reader.read("report")[0].value == {"id": 1, "gross": 4, "net": 2.0}


def sink() -> None:
    """Stream.sink"""
    written: dict[str, list[Any]] = {}

    def store(batch: hg.Batch[Any, Any]) -> None:
        written[batch.meta["id"]] = list(batch.values)  # the same id when it is repeated

    app = hg.App("sales")
    app.input("orders").sink(store)

    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [1, 2, 3])
    assert list(written.values()) == [[1, 2, 3]]


def process() -> None:
    """Stream.process"""

    class Limit(hg.Actor):
        def __init__(self, most: int) -> None:
            self.most = most

        def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
            for record in batch:
                ctx.forward(min(record.value, self.most), key=record.key)

    app = hg.App("limits")
    app.input("numbers").process(Limit, most=10).to("limited")

    with hg.testing.Driver(app) as driver:
        driver.send_all("numbers", [3, 30])
        assert [record.value for record in driver.read("limited")] == [3, 10]


def record() -> None:
    """Record"""
    order = hg.Record("DE", {"amount": 3}, timestamp=1_000, headers=(("trace", b"7"),))
    assert (order.key, order.value, order.timestamp) == ("DE", {"amount": 3}, 1_000)


def with_value() -> None:
    """Record.with_value"""
    app = hg.App("sales")
    orders = app.input("orders")
    orders.map(lambda record: record.with_value(record.timestamp), with_record=True).to("times")

    with hg.testing.Driver(app) as driver:
        driver.send("orders", {}, key="DE", at=1_000)
        assert driver.read("times") == [hg.Record("DE", 1_000, 1_000)]


def park() -> None:
    """park"""
    locked = {"ann"}

    def booked(payment: dict[str, Any]) -> dict[str, Any]:
        if payment["account"] in locked:
            raise ValueError("the account is locked")
        return payment

    app = hg.App("bank")
    app.input("payments").map(booked, on_error=hg.park(after="1m")).to("booked")

    with hg.testing.Driver(app) as driver:
        for account, amount in [("ann", 1), ("bob", 2), ("ann", 3)]:
            driver.send("payments", {"account": account, "amount": amount}, key=account)
        assert [one.value["amount"] for one in driver.read("booked")] == [2]  # those of ann wait
        locked.clear()
        driver.advance("1m")
        assert [one.value["amount"] for one in driver.read("booked")] == [1, 3]


def batch() -> None:
    """Batch"""
    sizes: list[tuple[str, int, int]] = []
    app = hg.App("sizes")
    app.input("orders").sink(lambda batch: sizes.append((batch.stream, batch.partition, len(batch))))

    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [1, 2, 3])
    assert sizes == [("orders", 0, 3)]


def values_of_a_batch() -> None:
    """Batch.values"""
    sums: list[int] = []
    app = hg.App("sums")
    app.input("numbers").sink(lambda batch: sums.append(sum(batch.values)))

    with hg.testing.Driver(app) as driver:
        driver.send_all("numbers", [1, 2, 3])
    assert sums == [6]
