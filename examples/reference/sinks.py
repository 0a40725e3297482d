"""Sinks: databases, files, and those of the user's own."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from dataclasses import dataclass
from pathlib import Path

import headgate as hg


@dataclass
class Order:
    """What the topic `orders` holds."""

    country: str
    amount: float


def to_sql() -> None:
    """Stream.to_sql"""
    with tempfile.TemporaryDirectory() as home:
        app = hg.App("sales")
        orders = app.input("orders", serde=hg.json(Order), key="country")
        orders.to_sql(f"sqlite:///{home}/sales.db", "latest", key="country")

        with hg.testing.Driver(app) as driver:
            driver.send_all("orders", [Order("DE", 3.0), Order("FR", 4.0), Order("DE", 5.0)])
            driver.drain()
        with contextlib.closing(sqlite3.connect(f"{home}/sales.db")) as sales:
            assert sorted(sales.execute("SELECT * FROM latest")) == [("DE", 5.0), ("FR", 4.0)]


def columns_to_sql() -> None:
    """ColumnStream.to_sql"""
    with tempfile.TemporaryDirectory() as home:
        app = hg.App("sales")
        orders = app.input("orders", serde=hg.json(Order)).columns()
        orders.with_columns(cents=(hg.col("amount") * 100).cast(int)).to_sql(f"sqlite:///{home}/sales.db", "orders")

        with hg.testing.Driver(app) as driver:
            driver.send("orders", Order("DE", 3.5))
            driver.drain()
        with contextlib.closing(sqlite3.connect(f"{home}/sales.db")) as sales:
            assert list(sales.execute("SELECT country, cents FROM orders")) == [("DE", 350)]


def to_files() -> None:
    """Stream.to_files, ColumnStream.to_files"""
    with tempfile.TemporaryDirectory() as lake:
        app = hg.App("sales")
        orders = app.input("orders", serde=hg.json(Order))
        orders.to_files(f"{lake}/orders", partition_by="country", keep="30d")
        orders.columns().filter(hg.col("amount") > 3).to_files(f"{lake}/large")

        with hg.testing.Driver(app) as driver:
            driver.send_all("orders", [Order("DE", 3.0), Order("FR", 4.0)])
            driver.drain()
        assert {Path(file).parent.name for file in hg.published(f"{lake}/orders")} == {"country=DE", "country=FR"}
        assert len(hg.published(f"{lake}/large")) == 1


def own() -> None:
    """Stream.to_sink, ColumnStream.to_sink, Sink, Sink.open, Sink.write, Sink.close"""
    posted = {}

    class Webhook(hg.Sink):
        def __init__(self, url):
            self.url = url

        def open(self, owner):
            self.client = f"a client of {self.url} for {owner.task}"

        def write(self, rows, batch):
            posted[batch.id] = rows.to_pylist()  # the same id and the same rows, if it is tried again

        def close(self):
            self.client = None

    app = hg.App("sales")
    orders = app.input("orders", serde=hg.json(Order))
    orders.to_sink(Webhook, url="https://example.com/orders", max_rows=500)
    orders.columns().to_sink(Webhook, url="https://example.com/columns", name="columns")

    with hg.testing.Driver(app) as driver:
        driver.send("orders", Order("DE", 3.0))
        driver.drain()
    assert list(posted.values()) == [[{"country": "DE", "amount": 3.0}]] * 2


def transactional() -> None:
    """Sink.begin, Sink.commit, Sink.rollback, RowsRefused, TargetDown"""
    target = {"rows": [], "batch": -1, "note": "", "up": True}

    class Ledger(hg.Sink):
        transactional = True

        def begin(self, batch):
            if not target["up"]:
                raise hg.TargetDown("the ledger does not answer")  # it is tried again for ever
            self.number, self.rows = batch.number, []
            return target["note"] if target["batch"] >= batch.number else None

        def write(self, rows, batch):
            self.rows = rows.to_pylist()
            if any(row["amount"] < 0 for row in self.rows):
                raise hg.RowsRefused("the ledger takes no negative amount")

        def commit(self, note):
            target.update(rows=target["rows"] + self.rows, batch=self.number, note=note)

        def rollback(self):
            self.rows = []

    app = hg.App("sales")
    app.input("orders", serde=hg.json(Order)).to_sink(Ledger, on_error="dead_letter")

    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [Order("DE", 3.0), Order("FR", -4.0), Order("IT", 5.0)])
        driver.drain()
        assert ["takes no negative amount" in letter.exception for letter in driver.dead_letters()] == [True]
    assert [row["country"] for row in target["rows"]] == ["DE", "IT"]
