"""Examples of the page about windows and aggregates: each function is one, and its first line says of what."""

from __future__ import annotations

from typing import Any

import headgate as hg


def results(window: hg.Window, *times: int, **options: Any) -> list[tuple[int, int, int]]:
    """Start, end and number of records of each window that these times make, once event time has passed all of them."""
    app = hg.App("windows")
    app.input("clicks", key="user", timestamp="ts").window(window, **options).agg(n=hg.count()).to("counts")
    with hg.testing.Driver(app) as driver:
        driver.send_all("clicks", [{"user": "ann", "ts": ts} for ts in times])
        driver.drain()
        values = [record.value for record in driver.read("counts")]
    return [(value["window_start"], value["window_end"], value["n"]) for value in values]


def tumbling() -> None:
    """tumbling"""
    assert results(hg.tumbling("1m"), 1_000, 59_999, 60_000) == [(0, 60_000, 2), (60_000, 120_000, 1)]


def hopping() -> None:
    """hopping"""
    found = results(hg.hopping("1m", every="30s"), 70_000)
    assert found == [(30_000, 90_000, 1), (60_000, 120_000, 1)]


def session() -> None:
    """session"""
    found = results(hg.session("10s"), 1_000, 9_000, 30_000)
    assert found == [(1_000, 19_000, 2), (30_000, 40_000, 1)]


def sliding() -> None:
    """sliding"""
    found = results(hg.sliding("10s"), 1_000, 9_000, 11_000)  # the last one is ten seconds behind the first
    assert found == [(-8_999, 1_001, 1), (-999, 9_001, 2), (1_001, 11_001, 2)]


def window() -> None:
    """Window"""
    assert str(hg.tumbling("1m", grace="10s")) == "tumbling-1m"  # the name of a window that is given none
    assert str(hg.hopping("1h", every="5m")) == "hopping-1h-every-5m"


def window_key() -> None:
    """window_key"""
    app = hg.App("sales")
    orders = app.input("orders", key="country", timestamp="ts")
    minutes = orders.window(hg.tumbling("1m"), at_end="keep").agg(n=hg.count())
    minutes.to("minutes", key=hg.window_key)

    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [{"country": "DE", "ts": 1_000}, {"country": "DE", "ts": 61_000}])
        assert [record.key for record in driver.read("minutes")] == [("DE", 0)]


def aggregates_of_a_window() -> None:
    """WindowedStream, WindowedStream.agg"""
    app = hg.App("sales")
    orders = app.input("orders", key="country", timestamp="ts")
    orders.window(hg.tumbling("1m")).agg(n=hg.count(), total=hg.sum("amount")).to("minutes")

    with hg.testing.Driver(app) as driver:
        driver.send("orders", {"country": "DE", "amount": 3, "ts": 1_000})
        driver.send("orders", {"country": "DE", "amount": 4, "ts": 61_000})
        (closed,) = driver.read("minutes")
        assert closed.value == {
            "n": 1, "total": 3, "window_start": 0, "window_end": 60_000, "closed_by": "watermark",
        }  # fmt: skip


def rows_of_a_window() -> None:
    """WindowedStream.process"""

    class Median(hg.Actor):
        def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
            amounts = sorted(order["amount"] for order in batch.values)
            ctx.forward({"median": amounts[len(amounts) // 2], "minute": batch.meta["window_start"]})

    app = hg.App("sales")
    orders = app.input("orders", key="country", timestamp="ts")
    orders.window(hg.tumbling("1m")).process(Median).to("medians")

    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [{"country": "DE", "amount": n, "ts": n} for n in (5, 1, 3)])
        driver.drain()
        (found,) = driver.read("medians")
        assert (found.key, found.value["median"], found.value["minute"]) == ("DE", 3, 0)


def totals(*values: Any, **aggregates: hg.Aggregate) -> dict[str, Any]:
    """What running aggregates say after these values of one key."""
    app = hg.App("totals")
    app.input("orders").agg(**aggregates).to("totals")
    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [hg.Record("DE", value) for value in values])
        return driver.read("totals")[-1].value


def count() -> None:
    """count"""
    assert totals({"amount": 3}, {"amount": 4}, n=hg.count()) == {"n": 2}
    assert totals({"amount": 3}, {"amount": 4}, large=hg.count(where=lambda order: order["amount"] > 3)) == {"large": 1}


def sum_() -> None:
    """sum"""
    orders = {"amount": 3, "items": 2}, {"amount": 4, "items": 1}
    found = totals(*orders, amount=hg.sum("amount"), pieces=hg.sum(lambda order: order["items"]))
    assert found == {"amount": 7, "pieces": 3}


def min_() -> None:
    """min"""
    assert totals({"amount": 3}, {"amount": 4}, least=hg.min("amount")) == {"least": 3}


def max_() -> None:
    """max"""
    assert totals({"amount": 3}, {"amount": 4}, most=hg.max("amount")) == {"most": 4}


def mean() -> None:
    """mean"""
    assert totals({"amount": 3}, {"amount": 4}, mean=hg.mean("amount")) == {"mean": 3.5}


def first() -> None:
    """first"""
    assert totals({"amount": 3}, {"amount": 4}, first=hg.first("amount")) == {"first": 3}


def last() -> None:
    """last"""
    assert totals({"amount": 3}, {"amount": 4}, last=hg.last("amount")) == {"last": 4}


def arg_max() -> None:
    """arg_max"""
    orders = {"item": "tea", "amount": 3}, {"item": "rice", "amount": 4}, {"item": "oats", "amount": 4}
    assert totals(*orders, most=hg.arg_max("item", by="amount")) == {"most": "oats"}


def arg_min() -> None:
    """arg_min"""
    orders = {"item": "tea", "amount": 3}, {"item": "rice", "amount": 4}
    assert totals(*orders, least=hg.arg_min("item", by="amount")) == {"least": "tea"}


def top() -> None:
    """top"""
    orders = {"item": "tea", "amount": 3}, {"item": "rice", "amount": 5}, {"item": "oats", "amount": 4}
    assert totals(*orders, two=hg.top(2, "item", by="amount"), most=hg.top(1, "amount")) == {
        "two": ["rice", "oats"],
        "most": [5],
    }


def count_distinct() -> None:
    """count_distinct"""
    orders = [{"user": f"u{n % 5}"} for n in range(20)]
    assert totals(*orders, users=hg.count_distinct("user")) == {"users": 5}


def quantile() -> None:
    """quantile"""
    orders = [{"amount": n} for n in range(1, 102)]
    median = totals(*orders, median=hg.quantile("amount", 0.5))["median"]
    assert abs(median - 51) <= 0.01 * 51


def collect() -> None:
    """collect"""
    assert totals({"amount": 3}, {"amount": 4}, all=hg.collect("amount")) == {"all": [3, 4]}


def reduce() -> None:
    """reduce"""
    assert totals({"amount": 3}, {"amount": 4}, product=hg.reduce("amount", lambda a, b: a * b)) == {"product": 12}


def aggregate() -> None:
    """aggregate"""
    longest = hg.aggregate(
        str, lambda state, order: max(state, order["name"], key=len), lambda a, b: max(a, b, key=len)
    )
    assert totals({"name": "Ann"}, {"name": "Robert"}, longest=longest) == {"longest": "Robert"}


def aggregates_are_values() -> None:
    """Aggregate"""
    amounts = {"n": hg.count(), "total": hg.sum("amount")}  # one for several streams
    assert totals({"amount": 3}, **amounts) == {"n": 1, "total": 3}
