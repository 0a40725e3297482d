"""Sinks on a real broker: the worker is killed at every step, the database goes away, and every row is in the target once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow.dataset as ds
import pytest
from pyarrow import fs

import headgate as hg

from ..postgres import Server, running
from ..s3 import BUCKET
from ..s3 import running as s3_running
from .scenes import KILLED_AT, files_below
from .test_keys import headgate

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
Topic = Callable[..., str]
PATIENCE_S = 120.0

STEPS = (
    KILLED_AT
    + """
import headgate as hg
from headgate.agents.sinks import postgres, sql
from headgate.spark_bridge.data.files import ArrowFiles, LocalFiles
from headgate.spark_bridge.data.publish import Publisher

around(sql.SqlSink, "write", never, lambda *_: "written")
around(sql.SqlSink, "commit", lambda *_: "committing", lambda *_: "committed")
around(Publisher, "seal", never, lambda *_: "sealed")
around(Publisher, "publish", lambda *_: "named", lambda *_: "published")
around(LocalFiles, "move", never, lambda *_: "moving")
around(ArrowFiles, "move", never, lambda source, target: "" if source.endswith(".tmp") else "moving")

from typing import TypedDict
Order = TypedDict("Order", {"country": str, "n": int})
app = hg.App("JOB", serde=hg.json())
orders = app.input("SOURCE", serde=hg.json(Order), key="n")
"""
)


STALLS = """
import threading
from pathlib import Path
stood, seen = set(), Path("SEEN")

def at(step):
    if step and os.environ.get("AT") == step and step not in stood:
        stood.add(step)
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # a signal to the process may reach this thread later

def told(name):
    real = getattr(sql.SqlSink, name)
    def call(self, *arguments):
        try:
            return real(self, *arguments)
        except Exception as error:
            with seen.open("a") as file:
                file.write(f"{os.environ['AT']} {name} {type(error).__name__}\\n")
            raise
    setattr(sql.SqlSink, name, call)

around(sql.SqlSink, "begin", lambda *_: "beginning", never)
for one in ("open", "begin", "commit"):
    told(one)
postgres.BEGIN = postgres.BEGIN.replace("'60s'", "'3s'")
"""
"""What stops a worker in the middle of a step, and notes what its sink is told afterwards."""


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


def stopped(pid: int) -> bool:
    """Whether a process stands still."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def rows_below(out: Path) -> list[dict[str, Any]]:
    """The rows of whole batches; none before the first one has begun."""
    files = hg.published(out) if out.exists() else []
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


async def test_kill_9_at_each_step_and_running_counts_in_the_table_are_a_recount(
    job: Any, topic: Topic, postgres: Server
) -> None:
    """Updates of an aggregate replace the row of their key, which is that of the record. A batch of them is written once."""
    source, url = topic("orders", partitions=2), postgres.database()
    code = (
        STEPS
        + "orders.repartition('country').agg(n=hg.count()).to_sql('URL', 'counts', key='country', max_age='300ms')"
    )
    code = code.replace("SOURCE", source).replace("URL", url)

    def counts() -> dict[str, int]:
        with psycopg.connect(url) as link:
            return dict(link.execute("SELECT country, n FROM counts").fetchall())

    for at, step in enumerate(("written", "committing", "committed", "committed")):
        await job.write(source, orders(70, 70 * at))
        worker = await job.process(code, "w1", AT=step)
        assert await worker.ended(PATIENCE_S) == -signal.SIGKILL, f"{step}: {worker.text()[-3000:]}"
    await job.write(source, orders(30, 280))
    last = await job.process(code, "w1")
    await until(lambda: sum(counts().values()) == 310)
    await job.ask("drain", timeout_s=PATIENCE_S)
    assert await last.ended(PATIENCE_S) == 0
    assert counts() == Counter(one["country"] for one in orders(310))


@pytest.mark.parametrize("database", ["sqlite", "duckdb"])
async def test_kill_9_and_rows_and_counts_are_in_a_file_of_a_database_once(
    job: Any, topic: Topic, tmp_path: Path, database: str
) -> None:
    """Rows are appended and counts replaced in one file. Between a commit there and the one in Kafka the worker dies."""
    source, path = topic("orders", partitions=2), tmp_path / "target"
    code = STEPS + (
        "orders.to_sql('URL', 'orders', max_rows=40)\n"
        "orders.repartition('country').agg(n=hg.count()).to_sql('URL', 'counts', key='country')"
    )
    code = code.replace("SOURCE", source).replace("URL", f"{database}:///{path}")
    await job.write(source, orders(310))
    worker = await job.process(code, "w1", "--bounded", AT="committed")
    assert await worker.ended(PATIENCE_S) == -signal.SIGKILL, worker.text()[-3000:]
    last = await job.process(code, "w1", "--bounded")
    assert await last.ended(PATIENCE_S) == 0, last.text()[-3000:]
    link: Any = (sqlite3 if database == "sqlite" else duckdb).connect(str(path))
    rows = link.execute("SELECT n, country FROM orders ORDER BY n").fetchall()
    counted = link.execute("SELECT country, n FROM counts").fetchall()
    link.close()
    assert rows == [(one["n"], one["country"]) for one in orders(310)]
    assert dict(counted) == Counter(one["country"] for one in orders(310))


OWN = """
import json

class Lines(hg.Sink):
    def __init__(self, path):
        self.path = path

    def write(self, rows, batch):
        with open(self.path, "a") as file:
            file.write(json.dumps([batch.id, rows.column("n").to_pylist()]) + "\\n")

around(Lines, "write", never, lambda *_: "written by its own")
orders.to_sink(Lines, path="LINES", max_rows=40)
orders.to_sql("URL", "orders", max_rows=40)
"""


async def test_an_own_sink_gets_a_batch_again_with_its_id_and_after_a_reset_no_number_of_before_counts(
    job: Any, topic: Topic, tmp_path: Path
) -> None:
    """The worker dies when the target has the rows and Kafka does not know of it: the batch comes again, the same rows under the same id. A
    reset begins another life of the job, whose batches have the same numbers: the database takes all of them."""
    source, lines, path = topic("orders", partitions=2), tmp_path / "lines", tmp_path / "target"
    code = (STEPS + OWN).replace("SOURCE", source).replace("LINES", str(lines)).replace("URL", f"sqlite:///{path}")
    await job.write(source, orders(200))

    async def bounded(**at: str) -> None:
        worker = await job.process(code, "w1", "--bounded", **at)
        assert await worker.ended(PATIENCE_S) == (-signal.SIGKILL if at else 0), worker.text()[-3000:]

    def written() -> list[int]:
        with sqlite3.connect(path) as link:
            return sorted(n for (n,) in link.execute("SELECT n FROM orders"))

    await bounded(AT="written by its own")
    await bounded()
    seen = [(batch, tuple(rows)) for batch, rows in map(json.loads, lines.read_text().splitlines())]
    assert len(set(seen)) == len({batch for batch, _ in seen}) < len(seen)
    assert sorted(n for _, rows in set(seen) for n in rows) == written() == list(range(200))
    done = await headgate(job, "reset", job.name, "--yes")
    assert done.returncode == 0, done.stderr
    await bounded()
    assert written() == sorted([*range(200), *range(200)])


@pytest.mark.parametrize(
    ("step", "told"),
    [("beginning", "beginning begin FencedSink"), ("written", "written commit TargetDown")],
    ids=["before it", "in the middle of it"],
)
async def test_a_worker_that_stood_still_is_refused_by_the_database(
    job: Any, topic: Topic, postgres: Server, tmp_path: Path, step: str, told: str
) -> None:
    """It stops before the transaction of a batch, or in its middle, where it holds the lock until the server ends it. Another worker
    takes the task over and writes. Then the first one goes on: what it writes is refused, by its grant or as its transaction is over."""
    source, url, seen = topic("orders"), postgres.database(), tmp_path / "seen"
    code = (STEPS + STALLS + "orders.to_sql('URL', 'orders', max_rows=20, max_age='200ms')").replace("SOURCE", source)
    code = code.replace("URL", url).replace("SEEN", str(seen))
    await job.write(source, orders(50))
    first = await job.process(code, "w1", AT=step)
    await until(lambda: stopped(first.process.pid))
    second = await job.process(code, "w2", AT="")
    await job.write(source, orders(50, 50))
    await until(lambda: len(numbers(url)) >= 100)
    os.kill(first.process.pid, signal.SIGCONT)
    await until(lambda: seen.exists() and told in seen.read_text().splitlines())
    first.kill()
    await first.ended(PATIENCE_S)
    await job.write(source, orders(10, 100))
    await until(lambda: len(numbers(url)) >= 110)
    await job.ask("drain", timeout_s=PATIENCE_S)
    assert await second.ended(PATIENCE_S) == 0
    assert numbers(url) == list(range(110))


@pytest.mark.parametrize("step", ["sealed", "moving"])
async def test_what_a_worker_that_stood_still_has_written_to_files_does_not_count(
    job: Any, topic: Topic, tmp_path: Path, step: str
) -> None:
    """It stops when an attempt is written, which no transaction has named, or in the middle of publishing one. Another worker takes
    the task over; then the first one goes on. What it writes is never named, and what it publishes is published already."""
    source, out = topic("orders"), tmp_path / "out"
    code = STEPS + STALLS + "orders.to_files('OUT', partition_by='country', max_rows=20, max_age='200ms')"
    code = code.replace("SOURCE", source).replace("OUT", str(out)).replace("SEEN", str(tmp_path / "seen"))
    await job.write(source, orders(50))
    first = await job.process(code, "w1", AT=step)
    await until(lambda: stopped(first.process.pid))
    second = await job.process(code, "w2", AT="")
    await job.write(source, orders(50, 50))
    await until(lambda: len(rows_below(out)) >= 100)
    os.kill(first.process.pid, signal.SIGCONT)
    await until(
        lambda: first.process.returncode is not None or "fenced" in first.text() or "superseded" in first.text()
    )
    if first.process.returncode is None:
        first.kill()
    await first.ended(PATIENCE_S)
    await job.write(source, orders(30, 100))
    await until(lambda: len(rows_below(out)) >= 130)
    await job.ask("drain", timeout_s=PATIENCE_S)
    assert await second.ended(PATIENCE_S) == 0
    assert sorted(row["n"] for row in rows_below(out)) == list(range(130))
    assert files_below(out / "_headgate" / "staging") == []


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


async def test_kill_9_at_each_step_and_every_row_is_in_the_objects_once(
    job: Any, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same in a store that speaks S3, where a move is a copy and a deletion."""
    source = topic("orders", partitions=2)
    out = f"s3://{BUCKET}/{source}"
    code = (STEPS + "orders.to_files('OUT', partition_by='country', max_rows=40, max_age='300ms')").replace(
        "SOURCE", source
    )
    code = code.replace("OUT", out)
    with s3_running() as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)

        def there() -> list[int]:
            files = hg.published(out)
            if not files:
                return []
            system, _ = fs.FileSystem.from_uri(out)
            table = ds.dataset([one.removeprefix("s3://") for one in files], filesystem=system).to_table(["n"])
            return sorted(table["n"].to_pylist())

        await job.write(source, orders(200))
        for step in ("sealed", "named", "moving", "published"):
            worker = await job.process(code, "w1", AT=step)
            assert await worker.ended(PATIENCE_S) == -signal.SIGKILL, f"{step}: {worker.text()[-3000:]}"
        await job.write(source, orders(110, 200))
        last = await job.process(code, "w1")
        await until(lambda: len(there()) >= 310)
        await job.ask("drain", timeout_s=PATIENCE_S)
        assert await last.ended(PATIENCE_S) == 0
        kept = await asyncio.to_thread(store.keys, source)
        assert there() == list(range(310))
        assert sorted(f"s3://{BUCKET}/{one}" for one in kept if "_headgate" not in one) == sorted(hg.published(out))
        assert [one for one in kept if "/staging/" in one] == []
