"""Revenue by country: orders are priced in euros and collected into batches, and Spark sums up each batch.

    headgate kafka up
    headgate run sales:app --app-dir examples

The job reads the topics `orders` and `rates` and writes `revenue`. `make demo` runs it and kills its worker on the way.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headgate as hg

app = hg.App("sales", serde=hg.json())

orders = app.input("orders", timestamp="ts", max_out_of_order="5s", start="oldest")
rates = app.input("rates", key="currency").table("rates", broadcast=True)  # read to the end before the first order


def priced(order: dict[str, Any], rate: dict[str, Any]) -> dict[str, Any]:
    """Add the total in euros to an order."""
    return {**order, "total": order["amount"] * rate["rate"]}


def revenue(df: DataFrame, batch: Any) -> DataFrame:
    """Ordinary PySpark, on the rows of one batch."""
    return df.groupBy("country").agg(F.sum("total").alias("revenue"), F.count("*").alias("orders"))


(
    orders.filter(lambda order: order["amount"] > 0)
    .join(rates, on="currency", into=priced)
    .batch(max_rows=2_000, max_age="2s")
    .spark(revenue, schema="country string, revenue double, orders long")
    .to("revenue", key="country")
)
