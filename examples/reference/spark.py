"""Examples of the page about Spark: each function is one, and its first line says of what. `spark` is a Spark session."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec

import headgate as hg


class Number(msgspec.Struct, gc=False):
    n: int


class Order(msgspec.Struct, gc=False):
    country: str
    amount: float
    ts: int | None = None


def batch_of_rows(spark: Any) -> None:
    """Stream.batch"""

    def revenue(df, batch):
        return df.groupBy("country").sum("amount").toDF("country", "revenue")

    app = hg.App("sales")
    orders = app.input("orders", serde=hg.json(Order))
    orders.batch(max_rows=1_000, max_age="10s").spark(revenue, schema="country string, revenue double").to("revenue")

    with hg.testing.Driver(app, spark=spark) as driver:
        driver.send_all("orders", [Order("DE", 3.0), Order("DE", 4.0)])
        driver.drain()
        assert driver.read("revenue")[0].value == {"country": "DE", "revenue": 7.0}


def a_function_of_a_batch(spark: Any) -> None:
    """BatchedStream, BatchedStream.spark"""

    def numbered(df, batch):
        return df.selectExpr("n", f"{batch.number} as number", f"{batch.rows} as of")

    app = hg.App("numbers")
    numbers = app.input("numbers")
    numbers.batch(max_rows=2).spark(numbered, rows=Number, schema="n long, number int, of int").to("out")

    with hg.testing.Driver(app, spark=spark) as driver:
        driver.send_all("numbers", [{"n": 1}, {"n": 2}])
        assert [record.value["of"] for record in driver.read("out")] == [2, 2]


def batch_of_columns(spark: Any) -> None:
    """ColumnStream.batch"""

    def countries(df, batch):
        return df.select("country")

    app = hg.App("sales")
    large = app.input("orders", serde=hg.json(Order)).columns().filter(hg.col("amount") >= 10)
    large.batch(max_rows=100).spark(countries, schema="country string").to("countries")

    with hg.testing.Driver(app, spark=spark) as driver:
        driver.send_all("orders", [Order("DE", 3.0), Order("FR", 40.0)])
        driver.drain()
        assert [record.value for record in driver.read("countries")] == [{"country": "FR"}]


def rows_of_a_window(spark: Any) -> None:
    """WindowedStream.spark"""

    def count(df, batch):
        return df.groupBy().count().selectExpr("count as n", f"{batch.window_start} as minute")

    app = hg.App("sales")
    orders = app.input("orders", serde=hg.json(Order), timestamp="ts")
    orders.window(hg.tumbling("1m")).spark(count, schema="n long, minute long").to("minutes")

    with hg.testing.Driver(app, spark=spark) as driver:
        driver.send_all("orders", [Order("DE", 3.0, 61_000), Order("FR", 4.0, 62_000)])
        driver.drain()
        assert [record.value for record in driver.read("minutes")] == [{"n": 2, "minute": 60_000}]


def gather(spark: Any) -> None:
    """Stream.gather, ColumnStream.gather"""

    def all_of_them(df, batch):
        return df.groupBy().count().toDF("n")

    app = hg.App("sales")
    orders = app.input("orders", serde=hg.json(Order))
    orders.gather().batch(max_rows=100).spark(all_of_them, schema="n long").to("counts")

    with hg.testing.Driver(app, spark=spark, partitions={"orders": 2}) as driver:
        driver.send("orders", Order("DE", 3.0), partition=0)
        driver.send("orders", Order("FR", 4.0), partition=1)
        driver.drain()
        assert [record.value for record in driver.read("counts")] == [{"n": 2}]


def write_files(spark: Any) -> None:
    """SparkStream, SparkStream.write"""

    def as_it_is(df, batch):
        return df

    with tempfile.TemporaryDirectory() as lake:
        app = hg.App("sales")
        orders = app.input("orders", serde=hg.json(Order))
        orders.batch(max_rows=100).spark(as_it_is, schema="country string, amount double, ts long").write(
            f"{lake}/orders", partition_by=["country"]
        )

        with hg.testing.Driver(app, spark=spark) as driver:
            driver.send_all("orders", [Order("DE", 3.0), Order("FR", 4.0)])
            driver.drain()
        assert {Path(file).parent.name for file in hg.published(f"{lake}/orders")} == {"country=DE", "country=FR"}


def published(spark: Any) -> None:
    """published"""

    def amounts(df, batch):
        return df.select("amount")

    with tempfile.TemporaryDirectory() as lake:
        app = hg.App("sales")
        orders = app.input("orders", serde=hg.json(Order))
        orders.batch(max_rows=100).spark(amounts, schema="amount double").write(f"{lake}/amounts")

        with hg.testing.Driver(app, spark=spark) as driver:
            driver.send("orders", Order("DE", 3.0))
            driver.drain()
        whole = hg.published(f"{lake}/amounts")
        assert [row.amount for row in spark.read.parquet(*whole).collect()] == [3.0]
