"""A job on a real standalone cluster with two workers, and on a real Spark Connect server, while these are killed and come back.

Each process of Spark is one of PySpark's own jars on this machine. The worker is a process of its own, as a user runs it. Every order must
count once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ..chaos.spark_processes import CONF, ON_REQUEST, ConnectServer, Standalone
from .test_spark_line import PATIENCE_S, counted, orders
from .test_spark_processes import while_it_lives

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.asyncio, pytest.mark.slow, pytest.mark.timeout(900)]
Topic = Callable[..., str]

SOURCE = """
import headgate as hg
import shared_rates

def doubled(n):
    return 2 * n  # a function of this file, which no executor has

def totals(df, batch):
    from pyspark.sql import functions as F
    twice = F.udf(lambda n: doubled(n) * shared_rates.HALF, "double")
    found = df.groupBy("country").agg(F.count("*").alias("n"), F.sum(twice("n")).cast("long").alias("total"))
    return found.select(F.lit(batch.id).alias("batch"), "country", "n", "total")

app = hg.App("JOB", serde=hg.json(), settings=SETTINGS)
(app.input("SOURCE").batch(max_rows=100, name="lot")
    .spark(totals, schema="batch string, country string, n long, total long").to("TARGET"))
"""


class Flow:
    """Orders go in, results come out, while things die."""

    def __init__(self, job: Any, topic: Topic, directory: Path) -> None:
        self.job = job
        self.source, self.target = topic("orders"), topic("totals")
        self.written = 0
        package = directory / "lib" / "shared_rates"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("HALF = 0.5\n")
        self.package = package
        self.worker: Any = None

    async def begin(self, **settings: str) -> None:
        """Start the worker."""
        code = SOURCE.replace("SOURCE", self.source).replace("TARGET", self.target)
        code = code.replace("SETTINGS", repr({"spark.package": str(self.package), **settings}))
        self.worker = await self.job.process(code, "w1", PYTHONPATH=str(self.package.parent))

    async def more(self, batches: int = 2) -> None:
        """Write so many batches more, and wait for their results."""
        await self.job.write(self.source, orders(100 * batches, self.written))
        self.written += 100 * batches
        wanted = 3 * (self.written // 100)
        await while_it_lives(self.worker, self.job.records(self.target, wanted, within_s=PATIENCE_S))

    async def end(self) -> None:
        """Drain; every order counts once."""
        await self.job.ask("drain", timeout_s=PATIENCE_S)
        assert await self.worker.ended(PATIENCE_S) == 0
        rows = await self.job.values(self.target, 3 * (self.written // 100))
        assert counted(rows) == (self.written, sum(range(self.written)))
        assert len({(row["batch"], row["country"]) for row in rows}) == len(rows)

    async def said(self, text: str) -> None:
        """Wait until the worker logs this."""
        give_up = time.monotonic() + PATIENCE_S
        while text not in self.worker.text():
            assert time.monotonic() < give_up, f"it never says {text}:\n{self.worker.text()[-3000:]}"
            await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master with two workers."""
    with contextlib.closing(Standalone(tmp_path_factory.mktemp("standalone"))) as one:
        yield one.up()


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """A Connect server."""
    with contextlib.closing(ConnectServer(tmp_path_factory.mktemp("connect"))) as one:
        one.up()
        yield one


@ON_REQUEST
async def test_a_standalone_cluster_loses_executors_a_worker_and_its_master(
    job: Any, topic: Topic, standalone: Standalone, tmp_path: Path
) -> None:
    """An executor, a worker with its executor, and the master are killed. A new master knows no application, and takes the executors
    away; the session notices and registers again."""
    flow = Flow(job, topic, tmp_path)
    await flow.begin(**CONF, **{"spark.master": standalone.url, "spark.executors-timeout": "30s"})
    await flow.more()
    await flow.said("the cluster's executors are ready")
    executor = standalone.executors()[0]
    executor.kill()
    await flow.more()
    standalone.workers[0].kill()
    await flow.more()
    standalone.master.kill()
    standalone.master.begin()
    standalone.master.up()
    standalone.workers[0].begin()
    psutil.wait_procs(standalone.executors(), timeout=60)
    await flow.more()
    await flow.end()


@ON_REQUEST
async def test_a_connect_server_is_killed_and_comes_back(
    job: Any, topic: Topic, connect: ConnectServer, tmp_path: Path
) -> None:
    """Batches wait while it is away; a new session begins when it is there; no JVM is started here."""
    flow = Flow(job, topic, tmp_path)
    await flow.begin(**{"spark.remote": connect.url, "spark.executor.memory": "2g"})
    await flow.more()
    await flow.said("settings that only the Connect server itself can have are not applied")
    for child in psutil.Process(flow.worker.process.pid).children(recursive=True):
        assert "java" not in child.name()
    connect.kill()
    writing = asyncio.get_running_loop().create_task(flow.more())
    await flow.said("Spark cannot be reached at")
    connect.begin()
    await writing
    await flow.end()


async def test_what_a_cluster_lacks_is_said_before_the_first_batch(
    job: Any, topic: Topic, standalone: Standalone, tmp_path: Path
) -> None:
    """With the host and what it lacks: here a Python that is not there."""
    flow = Flow(job, topic, tmp_path)
    await flow.begin(**CONF, **{"spark.master": standalone.url, "spark.pyspark.python": "/nowhere/python3"})
    await flow.said("cannot run Python")
    assert "spark.pyspark.python" in flow.worker.text()
    flow.worker.kill()
    await flow.worker.ended()
