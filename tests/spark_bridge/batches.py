"""What tests of real sessions share: rows, stages and a bridge."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headgate.core.batching.batches import BatchInfo, BatchOutcome, Inline, SparkStage
from headgate.spark_bridge.session.session import Spark

PATIENCE_S = 240.0
INFO = BatchInfo("Partition 0", "daily", 1, 3, "rows")
ROWS = [{"country": "DE", "n": 1}, {"country": "FR", "n": 2}, {"country": "DE", "n": 4}]


def contents(spark: Spark, rows: list[dict[str, Any]]) -> Inline:
    """Rows as they wait in a task's store."""
    return Inline((spark.encode([pa.Table.from_pylist(rows)]),))


async def passed(
    spark: Spark, fn: Any, schema: str, rows: list[dict[str, Any]] | None = None, **more: Any
) -> BatchOutcome:
    """The outcome of one stage."""
    (outcome,) = await spark.run(INFO, contents(spark, rows or ROWS), [SparkStage("stage", fn, schema, **more)])
    return outcome


def rows_of(spark: Spark, outcome: BatchOutcome) -> list[dict[str, Any]]:
    """The rows of a result."""
    return [row for block in outcome.blocks for row in spark.decode(block)]


def doubled(df: Any, batch: Any) -> Any:
    """In a Python worker."""
    from pyspark.sql import functions as F

    return df.select("country", F.udf(lambda n: 2 * n, "long")("n").alias("n"))
