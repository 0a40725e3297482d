"""Several Spark stages in one job, on a real broker and a real Spark: behind joins and repartitions, and behind one another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypedDict

import pyarrow.parquet as pq
import pytest
import pytest_asyncio

import headgate as hg
from headgate.spark_bridge.process.jvm import Sessions

from .test_spark_line import PATIENCE_S, Line, lend

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.asyncio]
Topic = Callable[..., str]
COUNTRIES = ("DE", "FR", "IT", "US")
COUNT = 400


class Order(TypedDict):
    country: str
    n: int
    ts: int


@pytest_asyncio.fixture
async def line(job: Any, warm: Sessions, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Line]:
    lend(warm, monkeypatch)
    yield Line(job, warm)


def orders() -> list[dict[str, Any]]:
    """Ten orders a second."""
    return [{"country": COUNTRIES[n % 4], "n": n, "ts": 100 * n} for n in range(COUNT)]


def marked(df: Any, batch: Any) -> Any:
    """Every row, with its batch."""
    from pyspark.sql import functions as F

    return df.select("country", "n", F.lit(batch.id).alias("batch"))


def summed(df: Any, batch: Any) -> Any:
    """Rows and their sum by country, with the window."""
    from pyspark.sql import functions as F

    found = df.groupBy("country").agg(F.count("*").alias("rows"), F.sum("n").alias("total"))
    return found.select(F.lit(batch.window_start).alias("start"), "country", "rows", "total")


def sums(target: int) -> dict[str, tuple[int, int]]:
    """Rows and their sum by country."""
    return {one: (target // 4, sum(range(at, target, 4))) for at, one in enumerate(COUNTRIES)}


async def test_a_stage_behind_joins_whose_result_is_repartitioned_windowed_and_a_stage_again(
    line: Line, topic: Topic
) -> None:
    """Each order meets its rate and its payment, is in one batch of the first stage and in one window of the second, which a stage without
    windows reads beside it. Two tasks; the end of the inputs flushes all of them, one behind the other."""
    source, payments, rates = topic("orders", partitions=2), topic("payments", partitions=2), topic("rates")
    windows, copies = topic("windows"), topic("copies")
    app = hg.App(line.job.name, serde=hg.json())
    table = app.input(rates, key="country", bootstrap=True, until="newest").table("rates", broadcast=True)
    priced = (
        app.input(source, timestamp="ts", until="newest")
        .join(table, on="country", into=lambda order, rate: {**order, "rate": rate["rate"]})
        .repartition("n", name="orders")
    )
    paid = app.input(payments, timestamp="ts", until="newest").repartition("n", name="payments")
    both = priced.join(paid, within="5s", into=lambda order, payment: {**order, "paid": payment["ts"]})
    lots = both.batch(max_rows=90, name="lot").spark(
        marked, rows=Order, schema="country string, n long, batch string", name="mark"
    )
    lots.to(copies)
    again = lots.repartition("country").window(hg.tumbling("10s"))
    again.spark(summed, schema="start long, country string, rows long, total long", name="sum").to(windows)
    await line.job.write(rates, [{"country": one, "rate": 2} for one in COUNTRIES])
    await line.job.write(source, orders())
    await line.job.write(payments, [{"n": one["n"], "ts": one["ts"] + 1000} for one in orders()])
    running = await line.start(app)
    assert await running.ended(PATIENCE_S) == 0
    rows = await line.job.values(copies, COUNT)
    assert sorted(one["n"] for one in rows) == list(range(COUNT))
    by_country: dict[str, tuple[int, int]] = {}
    starts: list[tuple[str, int]] = []
    for one in await line.job.values(windows, 4):
        count, total = by_country.get(one["country"], (0, 0))
        by_country[one["country"]] = (count + one["rows"], total + one["total"])
        starts.append((one["country"], one["start"]))
    assert by_country == sums(COUNT)
    assert len(set(starts)) == len(starts), "a window has one result for each country"


async def test_batches_by_reference_are_written_to_files(line: Line, topic: Topic, tmp_path: Path) -> None:
    """Of an input, and of the frames of a repartition: no row passes the worker, in neither direction, and every row is there once."""
    source, out, frames = topic("orders", partitions=2), tmp_path / "out", tmp_path / "frames"
    other = topic("more", partitions=2)
    app = hg.App(line.job.name)
    schema = "country string, n long, batch string"
    direct = app.input(source, serde=hg.json(Order), timestamp="ts", until="newest")
    direct.batch(max_rows=120, name="direct", by="reference").spark(marked, schema=schema, name="files").write(out)
    columns = app.input(other, serde=hg.json(Order), timestamp="ts", until="newest").columns().repartition("country")
    lots = columns.batch(max_rows=150, name="framed", by="reference")
    lots.spark(marked, schema=schema, name="more").write(frames, partition_by="country")
    await line.job.write(source, orders())
    await line.job.write(other, orders())
    running = await line.start(app)
    assert await running.ended(PATIENCE_S) == 0
    for where in (out, frames):
        found = [row for name in hg.published(where) for row in pq.ParquetFile(name).read().to_pylist()]
        assert sorted(row["n"] for row in found) == list(range(COUNT))
        assert not [path for path in (where / "_headgate" / "staging").rglob("*") if path.is_file()]
    logged = await line.job.records(line.job.topics.log, 1)
    assert not any(b'"country"' in (one.value or b"") for one in logged)
