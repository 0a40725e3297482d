"""The function of work P: what Spark does with a batch."""

from __future__ import annotations

from typing import Any

WINDOW_MS = 10_000
SCHEMA = "user string, n long, total long, window_start long, window_end long"


def totals(df: Any, batch: Any) -> Any:
    """Counts and sums by user and window."""
    from pyspark.sql import functions as F

    start = (F.col("ts") - F.col("ts") % WINDOW_MS).alias("window_start")
    found = df.groupBy("user", start).agg(F.count("*").alias("n"), F.sum("amount").alias("total"))
    return found.select("user", "n", "total", "window_start", (F.col("window_start") + WINDOW_MS).alias("window_end"))
