"""Windows as batches on a real broker and a real Spark: two stages, two tasks, a gather, a kill -9 between closing and result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .test_spark_processes import while_it_lives

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.asyncio]
Topic = Callable[..., str]

PATIENCE_S = 240.0
SOURCE = """
import os, time
from typing import TypedDict
import headgate as hg

class Order(TypedDict):
    country: str
    n: int
    ts: int

def by_country(df, batch):
    from pyspark.sql import functions as F
    with open("SEEN", "a") as seen:
        seen.write(f"{batch.id}|{batch.rows}|{batch.window_start}" + chr(10))
    while not os.path.exists("FLAG"):
        time.sleep(0.02)
    found = df.groupBy("country").agg(F.count("*").alias("n"), F.sum("n").alias("total"))
    return found.select(F.lit(batch.window_start).alias("start"), F.lit(batch.task).alias("task"), "country", "n", "total")

def in_all(df, batch):
    from pyspark.sql import functions as F
    found = df.agg(F.sum("n").alias("n"), F.sum("total").alias("total"), F.countDistinct("task").alias("tasks"))
    facts = [F.lit(one) for one in (batch.window_start, batch.closed_by, batch.task)]
    return found.select(*(one.alias(name) for one, name in zip(facts, ("start", "why", "task"))), "n", "total", "tasks")

app = hg.App("JOB", settings={"spark.master": "local[2]"})
orders = app.input("ORDERS", serde=hg.json(Order), timestamp="ts").columns().repartition("country")
halves = orders.window(hg.tumbling("30s")).spark(by_country, schema="start long, task string, country string, n long, total long")
minutes = halves.gather(name="all").window(hg.tumbling("1m"))
minutes.spark(in_all, schema="start long, why string, task string, n long, total long, tasks long").to("MINUTES")
"""


def orders(first_s: int, behind_s: int) -> list[dict[str, Any]]:
    """Four orders a second."""
    return [
        {"country": ("DE", "FR", "IT", "US")[n % 4], "n": n, "ts": 250 * n} for n in range(4 * first_s, 4 * behind_s)
    ]


def expected(found: list[dict[str, Any]]) -> dict[int, tuple[int, int]]:
    """Count and sum of the orders of each minute."""
    minutes: dict[int, tuple[int, int]] = {}
    for one in found:
        start = one["ts"] // 60_000 * 60_000
        n, total = minutes.get(start, (0, 0))
        minutes[start] = (n + 1, total + one["n"])
    return minutes


async def test_a_kill_between_closing_and_result_and_a_drain_with_open_windows(
    job: Any, topic: Topic, tmp_path: Path
) -> None:
    """Spark had the rows of a window when its worker died: the next worker runs them again under the same id. Each order is in exactly one
    window of the second stage, which has the rows of both tasks of the first; the drain closes what is open."""
    source, target = topic("orders", partitions=2), topic("minutes")
    seen, flag = tmp_path / "seen", tmp_path / "flag"
    code = (
        SOURCE.replace("ORDERS", source)
        .replace("MINUTES", target)
        .replace("SEEN", str(seen))
        .replace("FLAG", str(flag))
    )
    first_part, second_part = orders(0, 65), orders(65, 131)
    await job.write(source, first_part)
    first = await job.process(code, "w1")

    async def at_spark() -> list[str]:
        while not (seen.exists() and (lines := seen.read_text().splitlines())):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.02)
        return lines

    at_kill = await while_it_lives(first, asyncio.wait_for(at_spark(), PATIENCE_S))
    first.kill()
    await first.ended()
    flag.touch()
    second = await job.process(code, "w1")
    (minute,) = await while_it_lives(second, job.values(target, 1, within_s=PATIENCE_S))
    assert {**minute, "task": ""} == {
        "start": 0, "why": "watermark", "task": "", "n": 240, "total": sum(range(240)), "tasks": 2,
    }  # fmt: skip
    await job.write(source, second_part)
    await while_it_lives(second, job.values(target, 2, within_s=PATIENCE_S))
    await job.ask("drain", timeout_s=PATIENCE_S)
    assert await second.ended(PATIENCE_S) == 0
    found = await job.values(target, 3)
    assert {one["start"]: (one["n"], one["total"]) for one in found} == expected([*first_part, *second_part])
    assert [(one["start"], one["why"]) for one in found] == [
        (0, "watermark"),
        (60_000, "watermark"),
        (120_000, "drain"),
    ]
    runs = seen.read_text().splitlines()
    assert set(at_kill) <= set(runs[len(at_kill) :]), "the same rows again, under the same id"
    numbers = dict(line.split("|", 1) for line in runs)
    assert set(runs) == {f"{name}|{rest}" for name, rest in numbers.items()}, "an id stands for one batch"
