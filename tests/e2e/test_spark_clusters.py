"""A job on a real standalone cluster with two workers, and on a real Spark Connect server, while these are killed and come back.

Each process of Spark is one of PySpark's own jars on this machine. The worker is a process of its own, as a user runs it. Every order must
count once: in small batches that are sent to Spark, in large ones that executors read from the spool, and in batches by reference that
executors read from Kafka.

The short form of the cluster always runs. `HEADGATE_TEST_SPARK=1` runs the rest: more deaths, what a cluster lacks, and what is too large.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headgate.agents.cli.see import batches as verb

from ..chaos.spark_processes import CONF, ON_REQUEST, ConnectServer, Standalone
from .scenes import files_below
from .test_batches_seen import Sight
from .test_spark_line import PATIENCE_S, counted, orders
from .test_spark_processes import while_it_lives

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.asyncio, pytest.mark.slow, pytest.mark.timeout(900)]
Topic = Callable[..., str]

SOURCE = """
from typing import TypedDict
import headgate as hg
import shared_rates

SCHEMA = "batch string, country string, n long, total long"


class Order(TypedDict):
    country: str
    n: int


def held(n):
    import os, time
    if os.path.exists("HOLD"):
        with open("HELD", "w") as file:
            file.write(str(os.getpid()))
        while os.path.exists("HOLD"):
            time.sleep(0.02)
    return 2 * n  # a function of this file, which no executor has


def totals(df, batch):
    from pyspark.sql import functions as F
    twice = F.udf(lambda n: held(n) * shared_rates.HALF, "double")
    found = df.groupBy("country").agg(F.count("*").alias("n"), F.sum(twice("n")).cast("long").alias("total"))
    return found.select(F.lit(batch.id).alias("batch"), "country", "n", "total")


app = hg.App("JOB", serde=hg.json(), settings=SETTINGS)
source = app.input("ORDERS")
source.batch(max_rows=100, name="lot").spark(totals, rows=Order, schema=SCHEMA, name="lots").to("LOTS")
source.batch(max_rows=400, name="wide").spark(totals, rows=Order, schema=SCHEMA, name="wides").to("WIDES")
typed = app.input("TYPED", serde=hg.json(Order))
typed.batch(max_rows=100, name="range", by="reference").spark(totals, schema=SCHEMA, name="ranges").to("RANGES")
"""


class Flow:
    """Orders go in, results come out, while things die."""

    def __init__(self, job: Any, topic: Topic, directory: Path) -> None:
        self.job, self.directory = job, directory
        self.topics = {name: topic(name.lower()) for name in ("ORDERS", "LOTS", "WIDES", "RANGES")}
        self.topics["TYPED"] = topic("typed", partitions=2)
        self.written = 0
        self.package = directory / "lib" / "shared_rates"
        self.package.mkdir(parents=True)
        (self.package / "__init__.py").write_text("HALF = 0.5\n")
        self.hold, self.held = directory / "hold", directory / "held"
        self.worker: Any = None

    async def begin(self, **settings: str) -> None:
        """Start the worker."""
        given = {"spark.package": str(self.package), "spark.spool": str(self.directory / "spool")}
        code = SOURCE.replace("HOLD", str(self.hold)).replace("HELD", str(self.held))
        for name, topic in self.topics.items():
            code = code.replace(f'"{name}"', repr(topic))
        code = code.replace("SETTINGS", repr({**given, "spark.batch-memory": "8KiB", **settings}))
        self.worker = await self.job.process(code, "w1", PYTHONPATH=str(self.package.parent))

    async def write(self) -> None:
        """Two batches more of each kind but the large ones."""
        for topic in ("ORDERS", "TYPED"):
            await self.job.write(self.topics[topic], orders(200, self.written))
        self.written += 200

    async def results(self) -> None:
        """Wait for the results of all that is written."""
        for topic in ("LOTS", "RANGES"):
            waiting = self.job.records(self.topics[topic], 3 * (self.written // 100), within_s=PATIENCE_S)
            await while_it_lives(self.worker, waiting)

    async def more(self) -> None:
        """Both."""
        await self.write()
        await self.results()

    async def at_work(self) -> int:
        """Write more, and wait until a Python worker has a row of it in its hands. Returns its process."""
        self.hold.touch()
        await self.write()
        # one look: whoever has the next row in his hands writes it anew
        pid = await self._until(lambda: self.held.exists() and self.held.read_text(), "a batch at work")
        self.held.unlink()
        return int(pid)

    async def spooled(self) -> None:
        """Wait until a large batch is in the spool; all that is held there is for executors."""
        spool = self.directory / "spool"
        await self._until(
            lambda: any(one.match("0*.arrow") for one in files_below(spool)), "a large batch in the spool"
        )

    def go_on(self) -> None:
        """What comes next is not held."""
        self.hold.unlink()

    async def end(self) -> None:
        """Drain; every order counts once in each of the three ways."""
        await self.job.ask("drain", timeout_s=PATIENCE_S)
        assert await self.worker.ended(PATIENCE_S) == 0, self.worker.text()[-3000:]
        wide = -(-self.written // 400)
        for topic, batches in (("LOTS", self.written // 100), ("WIDES", wide), ("RANGES", self.written // 100)):
            rows = await self.job.values(self.topics[topic], 3 * batches)
            assert counted(rows) == (self.written, sum(range(self.written))), topic
            assert len({(row["batch"], row["country"]) for row in rows}) == len(rows) == 3 * batches, topic
        assert not [one for one in (self.directory / "spool").rglob("*") if one.is_file()]

    async def said(self, text: str) -> None:
        """Wait until the worker logs this."""
        await self._until(lambda: text in self.worker.text(), text)

    async def _until(self, true: Callable[[], Any], what: str) -> Any:
        give_up = time.monotonic() + PATIENCE_S
        while not (found := true()):
            assert self.worker.process.returncode is None, self.worker.text()[-3000:]
            assert time.monotonic() < give_up, f"never {what}:\n{self.worker.text()[-3000:]}"
            await asyncio.sleep(0.02)
        return found


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


def executor_of(pid: int) -> psutil.Process:
    """The executor whose Python worker this is."""
    return next(
        one for one in psutil.Process(pid).parents() if "CoarseGrainedExecutorBackend" in " ".join(one.cmdline())
    )


async def test_a_standalone_cluster_loses_an_executor(
    job: Any, topic: Topic, standalone: Standalone, tmp_path: Path
) -> None:
    """In the middle of a batch. Another executor has it; the worker keeps its session."""
    flow = Flow(job, topic, tmp_path)
    await flow.begin(**CONF, **{"spark.master": standalone.url})
    await flow.more()
    executor = executor_of(await flow.at_work())
    await flow.spooled()
    executor.kill()
    flow.go_on()
    await flow.results()
    await flow.end()
    assert flow.worker.text().count("the cluster's executors are ready") == 1


# It takes half a minute on two idle cores.
@ON_REQUEST
async def test_a_connect_server_is_killed_and_comes_back(
    job: Any, topic: Topic, connect: ConnectServer, tmp_path: Path
) -> None:
    """In the middle of a batch. Batches wait while it is away; a new session begins when it is there; no JVM is started here."""
    flow = Flow(job, topic, tmp_path)
    await flow.begin(**{"spark.remote": connect.url, "spark.executor.memory": "2g"})
    await flow.more()
    await flow.said("settings that only the Connect server itself can have are not applied")
    for child in psutil.Process(flow.worker.process.pid).children(recursive=True):
        assert "java" not in child.name()
    await flow.at_work()
    await flow.spooled()
    connect.kill()
    await flow.said("Spark cannot be reached at")
    flow.go_on()
    connect.begin()
    await flow.results()
    await flow.end()


# ---------------------------------------------------------------------------------------------------------------- on request
#
# All of these have been seen to pass.


@ON_REQUEST
async def test_a_standalone_cluster_loses_a_worker_and_its_master(
    job: Any, topic: Topic, standalone: Standalone, tmp_path: Path
) -> None:
    """A worker is killed with its executor, then the master. A new master knows no application, and takes the executors away; the session
    notices and registers again."""
    flow = Flow(job, topic, tmp_path)
    await flow.begin(**CONF, **{"spark.master": standalone.url, "spark.executors-timeout": "60s"})
    await flow.more()
    executor_of(await flow.at_work()).kill()
    standalone.workers[0].kill()
    flow.go_on()
    await flow.results()
    standalone.master.kill()
    standalone.master.begin()
    standalone.master.up()
    standalone.workers[0].begin()
    psutil.wait_procs(standalone.executors(), timeout=240)
    await flow.more()
    await flow.end()
    assert "its cluster has provided no executor for 60 s" in flow.worker.text()


@ON_REQUEST
@pytest.mark.parametrize("lack", ["no python", "wrong python", "brokers", "spool"])
async def test_what_a_cluster_lacks_is_said_before_the_first_batch(
    job: Any, topic: Topic, standalone: Standalone, tmp_path: Path, lack: str
) -> None:
    """With the host, what it lacks, and the setting that helps."""
    there = tmp_path / "there"
    there.mkdir()
    real = Path(sys.executable)
    port = job.bootstrap.rpartition(":")[2]
    settings, wanted = {
        "no python": ({"spark.pyspark.python": "/nowhere/python3"}, ["cannot run Python", "spark.pyspark.python"]),
        "wrong python": (
            {"spark.pyspark.python": str(there / "python3")},
            ["cannot run Python", "PYTHON_VERSION_MISMATCH", "3.99"],
        ),
        "brokers": (
            {"spark.executorEnv.PYTHONPATH": str(there)},
            [f"cannot reach the broker {job.bootstrap}: No route to host", "advertised.listeners"],
        ),
        "spool": (
            {"spark.executorEnv.PYTHONPATH": str(there)},
            [f"cannot read spark.spool, {tmp_path}/spool/", "under the same path"],
        ),
    }[lack]
    (there / "sitecustomize.py").write_text(ELSEWHERE[lack].format(port=port, spool=tmp_path / "spool"))
    (there / "python3").write_text(f'#!/bin/sh\nPYTHONPATH="{there}:$PYTHONPATH" exec "{real}" "$@"\n')
    (there / "python3").chmod(0o755)
    flow = Flow(job, topic, tmp_path)
    await flow.begin(**CONF, **{"spark.master": standalone.url, **settings})
    for text in wanted:
        await flow.said(text)
    flow.worker.kill()
    await flow.worker.ended()


ELSEWHERE = {
    "no python": "",
    "wrong python": """
import collections, sys
kind = collections.namedtuple("version_info", "major minor micro releaselevel serial")
sys.version_info = kind(3, 99, 0, "final", 0)
""",
    "brokers": """
import errno, os, socket
real = socket.create_connection

def create_connection(address, *more, **named):
    if address[1] == {port}:
        raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
    return real(address, *more, **named)

socket.create_connection = create_connection
""",
    "spool": """
import builtins
real = open

def elsewhere(path, *more, **named):
    if str(path).startswith("{spool}"):
        path = "/nowhere" + str(path)
    return real(path, *more, **named)

builtins.open = elsewhere
""",
}
"""What makes an executor of this machine one that is on another."""


@ON_REQUEST
async def test_a_connect_server_says_how_far_a_long_batch_is(
    job: Any, topic: Topic, connect: ConnectServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In `headgate batches`, while the batch is at work."""
    flow = Flow(job, topic, tmp_path)
    await flow.begin(**{"spark.remote": connect.url})
    await flow.at_work()
    sight = Sight(job)
    found = await sight.until(lambda one: any(b["progress"] and b["progress"]["tasks"] for b in one["batches"]))
    (batch, *_) = [one for one in found["batches"] if one["progress"]]
    assert "tasks done" in batch["progress"]["told"]
    (spark,) = found["spark"]
    assert spark["where"] == connect.url
    assert "spark.driver.memory" in spark["memory"]
    verb.show(found, job.name)
    assert batch["progress"]["told"] in capsys.readouterr().out
    flow.go_on()
    await flow.results()
    await flow.end()


LARGE = """
import asyncio, json, sys
import pyarrow as pa
import structlog
from headgate.agents.broker.java import find_java
from headgate.core.batching.batches import BatchInfo, Inline, SparkStage
from headgate.spark_bridge.data import columns
from headgate.spark_bridge.base.errors import SparkError
from headgate.spark_bridge.session.session import Spark
from headgate.spark_bridge.data.spool import Spool
from headgate.spark_bridge.data.tables import Carrier

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
given = json.loads(sys.argv[1])


async def main():
    carrier = Carrier(given["memory"], Spool(given["spool"]), shared=True)
    spark = Spark(**given["where"], conf=given["conf"], java_home=lambda: str(find_java().home), carrier=carrier)
    text = "x" * given["width"]
    blocks = [columns.encode([pa.table({"n": [n], "text": [text]})]) for n in range(given["rows"])]
    contents = Inline(blocks, sum(map(len, blocks)))
    try:
        stage = SparkStage("copied", lambda df, batch: df, "n long, text string")
        (found,) = await spark.run(BatchInfo("Partition 0", "s", 1, len(blocks), "rows"), contents, [stage])
        rows = [row for block in found.blocks for row in spark.decode(block)]
        print("rows", len(rows), sum(row["n"] for row in rows), {len(row["text"]) for row in rows} == {given["width"]})
    except SparkError as error:
        print(type(error).__name__, error.what, error.remedy)
    finally:
        await spark.close()


asyncio.run(main())
"""


async def large(
    directory: Path, where: dict[str, str], conf: dict[str, str], memory: int, rows: int, width: int
) -> str:
    """What becomes of a batch whose rows are this wide, in a process of its own."""
    given = {
        "where": where,
        "conf": conf,
        "memory": memory,
        "spool": str(directory / "spool"),
        "rows": rows,
        "width": width,
    }
    with (directory / "large.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", LARGE, json.dumps(given), stdout=asyncio.subprocess.PIPE, stderr=log
        )
        said, _ = await asyncio.wait_for(process.communicate(), 600)
    return said.decode()


WIDE = {**CONF, "spark.driver.memory": "2g", "spark.executor.memory": "1g"}


@ON_REQUEST
async def test_a_batch_and_its_result_may_be_larger_than_a_message_of_standalone(tmp_path: Path) -> None:
    """200 MB go there and back, though a message may have 128 MiB by Spark's default. What a setting forbids names it."""
    with contextlib.closing(Standalone(tmp_path / "standalone", workers=1, memory="1300m")) as cluster:
        cluster.up()
        where = {"master": cluster.url}
        assert await large(tmp_path, where, WIDE, 1 << 30, 200, 1_000_000) == f"rows 200 {sum(range(200))} True\n"
        said = await large(tmp_path, where, {**WIDE, "spark.driver.maxResultSize": "100m"}, 1 << 30, 200, 1_000_000)
        assert said.startswith("SparkPlanError")
        assert "spark.driver.maxResultSize" in said
        said = await large(tmp_path, where, {**WIDE, "spark.rpc.message.maxSize": "16"}, 1 << 30, 200, 1_000_000)
        assert said.startswith("SparkPlanError")
        assert "raise spark.rpc.message.maxSize" in said


@ON_REQUEST
@pytest.mark.parametrize("memory", [1 << 30, 1 << 20], ids=["inline", "spool"])
async def test_a_batch_and_its_result_may_be_larger_than_a_message_of_connect(tmp_path: Path, memory: int) -> None:
    """200 MB go there and back, though a message of gRPC has 128 MiB: with the plan, or as files."""
    with contextlib.closing(ConnectServer(tmp_path / "connect", memory="3g")) as server:
        server.up()
        said = await large(tmp_path, {"remote": server.url}, {}, memory, 200, 1_000_000)
        assert said == f"rows 200 {sum(range(200))} True\n"


@ON_REQUEST
async def test_what_batches_leave_on_a_connect_server_is_nothing(connect: ConnectServer, tmp_path: Path) -> None:
    """Views and cached DataFrames of each batch stayed in the session, which all batches of a worker share."""
    connect.up()
    said = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", LEFT, connect.url],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert said.stdout == "left [] [] 1 1\n", said.stderr[-2000:]


LEFT = """
import asyncio, sys
import pyarrow as pa
import structlog
from headgate.core.batching.batches import BatchInfo, Inline, SparkStage
from headgate.spark_bridge.data import columns
from headgate.spark_bridge.session.session import Spark

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
cached = []


def leaving(df, batch):
    own = df.sparkSession
    df.createOrReplaceTempView(f"rows_{batch.number}")
    df.groupBy("n").count().createGlobalTempView(f"sums_{batch.number}")
    own.range(3).createOrReplaceTempView("kept")
    found = df.selectExpr("n + 1 AS n").cache()
    cached.append(found)
    assert found.count() == own.table("kept").count() == own.table(f"rows_{batch.number}").count() == 3
    return found


async def main():
    spark = Spark(remote=sys.argv[1])
    for number in range(1, 11):
        contents = Inline([columns.encode([pa.table({"n": [1, 2, number]})])], 100)
        stage = SparkStage("s", leaving, "n long")
        (found,) = await spark.run(BatchInfo("Partition 0", "s", number, 3, "rows"), contents, [stage])
        assert found.rows == 3
    print("left", *await asyncio.to_thread(left, spark.sessions))
    await spark.close()


def left(sessions):
    session = sessions.get()
    views = [one.name for one in session.catalog.listTables() if one.isTemporary]
    shared = [one.name for one in session.catalog.listTables("global_temp") if one.name.startswith("sums")]
    held = [one for one in cached if one.is_cached]
    session.catalog.dropTempView("kept")
    return shared, held, len(views), views.count("kept")


asyncio.run(main())
"""
