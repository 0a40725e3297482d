"""Sinks on a real broker: the worker is killed at every step, the database goes away, and every row is in the target once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.dataset as ds
import pytest

import headgate as hg

from ..postgres import Server, running
from .scenes import files_below

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
Topic = Callable[..., str]
PATIENCE_S = 120.0

STEPS = """
import os, signal
import headgate as hg
from headgate.agents.sinks import postgres, sql
from headgate.spark_bridge.data.files import LocalFiles
from headgate.spark_bridge.data.publish import Publisher

def at(step):
    if os.environ.get("AT") == step:
        os.kill(os.getpid(), signal.SIGKILL)

def around(owner, name, before, after):
    real = getattr(owner, name)
    def call(self, *arguments):
        at(before(*arguments))
        result = real(self, *arguments)
        at(after(*arguments))
        return result
    setattr(owner, name, call)

never = lambda *_: ""
around(sql.SqlSink, "write", never, lambda *_: "written")
around(sql.SqlSink, "commit", lambda *_: "committing", lambda *_: "committed")
around(Publisher, "seal", never, lambda *_: "sealed")
around(Publisher, "publish", lambda *_: "named", lambda *_: "published")
around(LocalFiles, "move", never, lambda *_: "moving")

from typing import TypedDict
Order = TypedDict("Order", {"country": str, "n": int})
app = hg.App("JOB", serde=hg.json())
orders = app.input("SOURCE", serde=hg.json(Order), key="n")
"""


def orders(count: int, start: int = 0) -> list[dict[str, Any]]:
    """Numbered orders of three countries."""
    return [{"country": ("DE", "FR", "IT")[n % 3], "n": n} for n in range(start, start + count)]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    """A server of this module."""
    with running() as server:
        yield server


def numbers(url: str) -> list[int]:
    """The numbers in the table, in order; none if it is not there."""
    with psycopg.connect(url) as link:
        if link.execute("SELECT to_regclass('orders')").fetchone() == (None,):
            return []
        return [n for (n,) in link.execute("SELECT n FROM orders ORDER BY n")]


def rows_below(out: Path) -> list[dict[str, Any]]:
    """The rows of whole batches."""
    files = hg.published(out)
    return ds.dataset(files, partitioning="hive").to_table().to_pylist() if files else []


async def until(true: Callable[[], bool]) -> None:
    """Wait until something outside has happened."""
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(true):  # noqa: ASYNC110 - it is another process that writes
            await asyncio.sleep(0.1)


async def test_kill_9_at_each_step_and_every_row_is_in_the_table_once(job: Any, topic: Topic, postgres: Server) -> None:
    """While a batch is written, before and after the database commits, after which Kafka does not know of it. A batch that the database has
    is not appended again."""
    source, url = topic("orders", partitions=2), postgres.database()
    code = (STEPS + "orders.to_sql('URL', 'orders', max_rows=40, max_age='300ms')").replace("SOURCE", source)
    code = code.replace("URL", url)
    await job.write(source, orders(200))
    for step in ("written", "committing", "committed", "committed"):
        worker = await job.process(code, "w1", AT=step)
        assert await worker.ended(PATIENCE_S) == -signal.SIGKILL, f"{step}: {worker.text()[-3000:]}"
    await job.write(source, orders(110, 200))
    last = await job.process(code, "w1")
    await until(lambda: len(numbers(url)) >= 310)
    await job.ask("drain", timeout_s=PATIENCE_S)
    assert await last.ended(PATIENCE_S) == 0
    assert numbers(url) == list(range(310))


async def test_a_database_that_is_away_is_waited_for(job: Any, topic: Topic, postgres: Server) -> None:
    """The task stays, says what it waits for, and nothing is lost or doubled."""
    source, url = topic("orders"), postgres.database()
    code = (STEPS + "orders.to_sql('URL', 'orders', max_rows=10, max_age='200ms')").replace("SOURCE", source)
    worker = await job.process(code.replace("URL", url), "w1")
    await job.write(source, orders(30))
    await until(lambda: len(numbers(url)) == 30)
    postgres.stop("immediate")
    try:
        await job.write(source, orders(30, 30))
        await until(lambda: "PostgreSQL: connection" in worker.text())
    finally:
        postgres.start()
    await until(lambda: len(numbers(url)) >= 60)
    await job.ask("drain", timeout_s=PATIENCE_S)
    assert await worker.ended(PATIENCE_S) == 0
    assert numbers(url) == list(range(60))


async def test_kill_9_at_each_step_and_every_row_is_in_the_files_once(job: Any, topic: Topic, tmp_path: Path) -> None:
    """Before and after the attempt is named, while files are moved, before the batch is forgotten. Spark is not there."""
    source, out = topic("orders", partitions=2), tmp_path / "out"
    code = (STEPS + "orders.to_files('OUT', partition_by='country', max_rows=40, max_age='300ms')").replace(
        "SOURCE", source
    )
    code = code.replace("OUT", str(out))
    await job.write(source, orders(200))
    for step in ("sealed", "named", "moving", "published"):
        worker = await job.process(code, "w1", AT=step)
        assert await worker.ended(PATIENCE_S) == -signal.SIGKILL, f"{step}: {worker.text()[-3000:]}"
    await job.write(source, orders(110, 200))
    last = await job.process(code, "w1")
    await until(lambda: len(rows_below(out)) >= 310)
    await job.ask("drain", timeout_s=PATIENCE_S)
    assert await last.ended(PATIENCE_S) == 0
    rows = rows_below(out)
    assert sorted(row["n"] for row in rows) == list(range(310))
    assert all(row["country"] == ("DE", "FR", "IT")[row["n"] % 3] for row in rows)
    assert files_below(out / "_headgate" / "staging") == []
