"""Examples of the page about tables: each function is one, and its first line says of what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import headgate as hg


def done(work: Callable[[hg.Table[Any, Any]], Any]) -> Any:
    """What a step of a job returns that works with a table."""
    app = hg.App("tables")
    table = app.table("prices", key=hg.text(), value=hg.json())
    app.input("events").map(lambda _: work(table)).to("results")
    with hg.testing.Driver(app) as driver:
        driver.send("events", {})
        return driver.read("results")[0].value


def table() -> None:
    """Table"""

    def work(prices: hg.Table[str, int]) -> Any:
        prices["apple"] = 3  # a part of the letter: stored with its results, or not at all
        prices["pear"] = 4
        del prices["pear"]
        return ["apple" in prices, len(prices), dict(prices.items())]

    assert done(work) == [True, 1, {"apple": 3}]


def get() -> None:
    """Table.get"""
    assert done(lambda prices: [prices.get("apple"), prices.get("apple", 0)]) == [None, 0]


def get_many() -> None:
    """Table.get_many"""

    def work(prices: hg.Table[str, int]) -> Any:
        prices["apple"] = 3
        return prices.get_many(["apple", "pear"])

    assert done(work) == [3, None]


def update() -> None:
    """Table.update"""

    def work(prices: hg.Table[str, int]) -> Any:
        prices.update({"apple": 3, "pear": 4})
        return prices["pear"]

    assert done(work) == 4


def range_() -> None:
    """Table.range"""

    def work(prices: hg.Table[str, int]) -> Any:
        prices.update({"2026-01": 1, "2026-02": 2, "2026-03": 3})
        return [*prices.range("2026-01", "2026-03"), *prices.range("2026-03", reverse=True)]

    assert done(work) == [["2026-01", 1], ["2026-02", 2], ["2026-03", 3]]


def view() -> None:
    """TableView"""
    app = hg.App("sales")
    rates = app.input("rates", key="currency").table("rates", ttl="1d")
    app.input("orders", key="currency").join(rates, into=lambda order, rate: order["n"] * rate["rate"]).to("priced")

    with hg.testing.Driver(app) as driver:
        driver.send("rates", {"currency": "USD", "rate": 2})
        driver.send("orders", {"currency": "USD", "n": 3})
        assert driver.read("priced")[0].value == 6


def name_of_a_view() -> None:
    """TableView.name"""
    app = hg.App("sales")
    rates = app.input("rates", key="currency").table("rates")
    assert rates.name == "rates"  # `headgate tables get sales rates USD` shows a row
