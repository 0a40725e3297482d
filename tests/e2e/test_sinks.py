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
around(Publisher, "publish", lambda *_: "named", never)
around(LocalFiles, "move", never, lambda *_: "moving")
around(ArrowFiles, "move", never, lambda source, target: "" if source.endswith(".tmp") else "copying")

committed = sql.SqlSink.commit
def commit(self, note):
    at(f"committing {self.table.name}")
    committed(self, note)
    at(f"committed {self.table.name}")
sql.SqlSink.commit = commit

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


async def test_kill_9_at_each_step_and_rows_and_running_counts_are_in_their_tables_once(
    job: Any, topic: Topic, postgres: Server
) -> None:
    """Before the database commits, and after it, when Kafka does not know of it: rows that are appended, and updates of an aggregate, which
    replace the row of their key. A batch that the database has is not written again."""
    source, url = topic("orders", partitions=2), postgres.database()
    code = STEPS + (
        "orders.to_sql('URL', 'orders', max_rows=40, max_age='300ms')\n"
        "orders.repartition('country').agg(n=hg.count()).to_sql('URL', 'counts', key='country', max_age='300ms')"
    )
    code = code.replace("SOURCE", source).replace("URL", url)

    def counts() -> dict[str, int]:
        with psycopg.connect(url) as link:
            return dict(link.execute("SELECT country, n FROM counts").fetchall())

    for at, step in enumerate(("committing orders", "committed counts", "committed orders")):
        await job.write(source, orders(80, 80 * at))
        worker = await job.process(code, "w1", AT=step)
        assert await worker.ended(PATIENCE_S) == -signal.SIGKILL, f"{step}: {worker.text()[-3000:]}"
    await job.write(source, orders(70, 240))
    last = await job.process(code, "w1")
    await until(lambda: len(numbers(url)) >= 310 and sum(counts().values()) >= 310)
    await job.ask("drain", timeout_s=PATIENCE_S)
    assert await last.ended(PATIENCE_S) == 0
    assert numbers(url) == list(range(310))
    assert counts() == Counter(one["country"] for one in orders(310))


async def test_kill_9_and_rows_and_counts_are_in_files_of_databases_once(
    job: Any, topic: Topic, tmp_path: Path
) -> None:
    """Rows are appended to one file, and counts replaced in another. Between a commit there and the one in Kafka the worker dies."""
    source, lite, duck = topic("orders", partitions=2), tmp_path / "lite", tmp_path / "duck"
    code = STEPS
    for name, target in (("sqlite", f"sqlite:///{lite}"), ("duckdb", f"duckdb:///{duck}")):
        code += f"orders.to_sql('{target}', 'orders_{name}', max_rows=40)\n"
        code += f"counts = orders.repartition('country', name='{name}').agg(n=hg.count(), name='{name}-n')\n"
        code += f"counts.to_sql('{target}', 'counts_{name}', key='country')\n"
    code = code.replace("SOURCE", source)
    await job.write(source, orders(310))
    for step in ("committed orders_sqlite", "committed orders_duckdb"):
        worker = await job.process(code, "w1", "--bounded", AT=step)
        assert await worker.ended(PATIENCE_S) == -signal.SIGKILL, worker.text()[-3000:]
    last = await job.process(code, "w1", "--bounded")
    assert await last.ended(PATIENCE_S) == 0, last.text()[-3000:]
    links: dict[str, Any] = {"sqlite": sqlite3.connect(lite), "duckdb": duckdb.connect(str(duck))}
    for name, link in links.items():
        rows = link.execute(f"SELECT n, country FROM orders_{name} ORDER BY n").fetchall()
        counted = link.execute(f"SELECT country, n FROM counts_{name}").fetchall()
        link.close()
        assert rows == [(one["n"], one["country"]) for one in orders(310)], name
        assert dict(counted) == Counter(one["country"] for one in orders(310)), name


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


async def test_a_worker_that_stood_still_is_refused_by_the_database(
    job: Any, topic: Topic, postgres: Server, tmp_path: Path
) -> None:
    """It stops in the middle of the transaction of a batch, where it holds the lock until the server ends it. Another worker takes the task
    over and writes. Then the first one goes on: what it writes is refused, as its transaction is over."""
    source, url, seen = topic("orders"), postgres.database(), tmp_path / "seen"
    code = (STEPS + STALLS + "orders.to_sql('URL', 'orders', max_rows=20, max_age='200ms')").replace("SOURCE", source)
    code = code.replace("URL", url).replace("SEEN", str(seen))
    await job.write(source, orders(50))
    first = await job.process(code, "w1", AT="written")
    await until(lambda: stopped(first.process.pid))
    second = await job.process(code, "w2", AT="")
    await job.write(source, orders(50, 50))
    await until(lambda: len(numbers(url)) >= 100)
    os.kill(first.process.pid, signal.SIGCONT)
    await until(lambda: seen.exists() and "written commit TargetDown" in seen.read_text().splitlines())
    first.kill()
    await first.ended(PATIENCE_S)
    await job.write(source, orders(10, 100))
    await until(lambda: len(numbers(url)) >= 110)
    await job.ask("drain", timeout_s=PATIENCE_S)
    assert await second.ended(PATIENCE_S) == 0
    assert numbers(url) == list(range(110))


async def test_what_a_worker_that_stood_still_has_written_to_files_does_not_count(
    job: Any, topic: Topic, tmp_path: Path
) -> None:
    """It stops in the middle of publishing an attempt. Another worker takes the task over; then the first one goes on. What it writes is
    never named, and what it publishes is published already."""
    source, out = topic("orders"), tmp_path / "out"
    code = STEPS + STALLS + "orders.to_files('OUT', partition_by='country', max_rows=20, max_age='200ms')"
    code = code.replace("SOURCE", source).replace("OUT", str(out)).replace("SEEN", str(tmp_path / "seen"))
    await job.write(source, orders(50))
    first = await job.process(code, "w1", AT="moving")
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


async def test_kill_9_at_each_step_and_every_row_is_in_the_files_and_the_objects_once(
    job: Any, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When an attempt is named, and while files are moved, also in a store that speaks S3, where a move is a copy and a deletion. All
    other steps: tests/spark_bridge/data/test_publish.py. Spark is not there."""
    source, out = topic("orders", partitions=2), tmp_path / "out"
    objects = f"s3://{BUCKET}/{source}"
    code = STEPS.replace("SOURCE", source) + "".join(
        f"orders.to_files('{where}', partition_by='country', max_rows=40, max_age='300ms')\n"
        for where in (out, objects)
    )
    with s3_running() as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)

        def there() -> list[int]:
            files = hg.published(objects)
            if not files:
                return []
            system, _ = fs.FileSystem.from_uri(objects)
            table = ds.dataset([one.removeprefix("s3://") for one in files], filesystem=system).to_table(["n"])
            return sorted(table["n"].to_pylist())

        await job.write(source, orders(200))
        for step in ("named", "moving", "copying"):
            worker = await job.process(code, "w1", AT=step)
            assert await worker.ended(PATIENCE_S) == -signal.SIGKILL, f"{step}: {worker.text()[-3000:]}"
        await job.write(source, orders(110, 200))
        last = await job.process(code, "w1")
        await until(lambda: len(there()) >= 310 and len(rows_below(out)) >= 310)
        await job.ask("drain", timeout_s=PATIENCE_S)
        assert await last.ended(PATIENCE_S) == 0
        kept = await asyncio.to_thread(store.keys, source)
        assert there() == list(range(310))
        assert sorted(f"s3://{BUCKET}/{one}" for one in kept if "_headgate" not in one) == sorted(hg.published(objects))
        assert [one for one in kept if "/staging/" in one] == []
    rows = rows_below(out)
    assert sorted(row["n"] for row in rows) == list(range(310))
    assert all(row["country"] == ("DE", "FR", "IT")[row["n"] % 3] for row in rows)
    assert files_below(out / "_headgate" / "staging") == []
