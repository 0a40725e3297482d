"""Revenue by country and minute: orders are priced in euros and collected into one-minute windows, and Spark sums up each window when its
watermark has passed.

    headgate kafka up
    headgate run sales:app --app-dir examples

The job reads the topics `orders` and `rates` and writes `revenue`. `make demo` runs it on two workers and kills one on the way.
"""

from __future__ import annotations

from typing import Any

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headgate as hg


class Order(msgspec.Struct, gc=False):
    """What the job needs of an order; other fields are skipped."""

    country: str
    currency: str
    amount: float
    ts: int


class Rate(msgspec.Struct, gc=False):
    """How many euros one unit of a currency is worth."""

    currency: str
    rate: float


class Priced(msgspec.Struct, gc=False):
    """What Spark needs of an order."""

    country: str
    total: float


app = hg.App("sales")

orders = app.input("orders", serde=hg.json(Order), timestamp="ts", max_out_of_order="5s", start="oldest")
# read to the end before the first order
rates = app.input("rates", serde=hg.json(Rate), key="currency").table("rates", broadcast=True)


def priced(order: Order, rate: Rate) -> Priced:
    """The total of an order in euros."""
    return Priced(order.country, order.amount * rate.rate)


def revenue(df: DataFrame, batch: Any) -> DataFrame:
    """Ordinary PySpark, on the rows of one minute."""
    return df.groupBy("country").agg(F.sum("total").alias("revenue"), F.count("*").alias("orders"))


(
    orders.filter(hg.col("amount") > 0)
    .join(rates, on="currency", into=priced)
    .repartition("country")
    .window(hg.tumbling("1m", grace="10s"))
    .spark(revenue, schema="country string, revenue double, orders long")
    .to("revenue", key="country")
)
