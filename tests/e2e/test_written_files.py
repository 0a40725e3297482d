"""Results in files, on a real broker: the worker is killed at work, stalls in the middle of two steps, and every row is there once.

Plain code stands for Spark's writer, so that no JVM has to start; everything around it is what runs. The real one writes in
`test_spark_stages`, and is killed at work in `test_by_reference`. All other steps: `tests/spark_bridge/data/test_publish.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headgate as hg

from .scenes import files_below

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
Topic = Callable[..., str]
PATIENCE_S = 240.0

STEPS = """
import os, signal, threading
import headgate as hg
from headgate.spark_bridge.data import publish
from headgate.spark_bridge.data.files import LocalFiles
from headgate.spark_bridge.data.publish import Publisher

def at(step, where=""):
    if os.environ.get("AT") == step:
        os.kill(os.getpid(), signal.SIGKILL)

def before(owner, name, step):
    real = getattr(owner, name)
    def call(self, *arguments):
        at(step(*arguments))
        return real(self, *arguments)
    setattr(owner, name, call)

def after(owner, name, step):
    real = getattr(owner, name)
    def call(self, *arguments):
        result = real(self, *arguments)
        at(step(*arguments))
        return result
    setattr(owner, name, call)

before(Publisher, "publish", lambda *_: "named")
after(LocalFiles, "move", lambda *_: "moving")
after(LocalFiles, "put", lambda path, text: "listed" if "/manifest/" in path else "")
"""

PLAIN = """
import asyncio, json, pathlib
from headgate.spark_bridge.session import session

class Frame:
    columns = ["country", "n", "batch"]
    def __init__(self, rows): self.rows, self.write = rows, self
    def __getattr__(self, name): return lambda *_, **__: self
    def save(self, path):
        for country in ("DE", "FR", "IT"):
            where = pathlib.Path(path.removeprefix("file://"), f"country={country}")
            where.mkdir(parents=True)
            lines = [json.dumps(row) + "\\n" for row in self.rows if row["country"] == country]
            (where / "part-00000-x-c000.json").write_text("".join(lines))
            at("writing", path)

class Plain(session.Spark):
    async def warm(self): pass
    async def apply(self, fn, rows, batch, schema, stage="", finish=None):
        rows = [{**row, "batch": batch.id} for row in rows.to_pylist()]
        return await asyncio.to_thread(finish, None, Frame(rows))

session.Spark = Plain
"""

APP = """
from typing import TypedDict
Order = TypedDict("Order", {"country": str, "n": int})
app = hg.App("JOB", serde=hg.json())
(app.input("SOURCE").batch(max_rows=40, name="lot")
    .spark(lambda df, batch: df, rows=Order, schema="country string, n long, batch string", name="copy")
    .write("OUT", format="json", partition_by="country"))
"""


def orders(count: int, start: int = 0) -> list[dict[str, Any]]:
    """Numbered orders of three countries."""
    return [{"country": ("DE", "FR", "IT")[n % 3], "n": n} for n in range(start, start + count)]


def whole(out: Path) -> list[dict[str, Any]]:
    """The rows of whole batches."""
    return [
        json.loads(line)
        for name in (hg.published(out) if out.exists() else ())
        for line in Path(name).read_text().splitlines()
    ]


def seen(out: Path) -> set[str]:
    """The files that plain readers see."""
    return {str(path) for path in files_below(out) if path.match("part-*") and "_headgate" not in path.parts}


def left(out: Path) -> list[Path]:
    """The files in staging directories."""
    return files_below(out / "_headgate" / "staging")


def in_one_batch(rows: list[dict[str, Any]]) -> bool:
    """Whether no batch has more than its rows."""
    return max(Counter(row["batch"] for row in rows).values()) <= 40


async def comes(out: Path, rows: int) -> None:
    """So many rows are in whole batches: all that fill one. What is behind them was fetched with them."""
    async with asyncio.timeout(PATIENCE_S):
        while len(whole(out)) < rows:  # noqa: ASYNC110 - it is another process that writes
            await asyncio.sleep(0.1)


async def test_kill_9_at_each_step_and_every_row_is_there_once(job: Any, topic: Topic, tmp_path: Path) -> None:
    """While Spark writes, when the attempt is named, and when the batch is listed. Every successor goes on where its predecessor
    died, a drain ends the last one, and nothing is left in staging."""
    source, out = topic("orders", partitions=2), tmp_path / "out"
    code = (STEPS + PLAIN + APP).replace("SOURCE", source).replace("OUT", str(out))
    await job.write(source, orders(200))
    for step in ("writing", "named", "listed"):
        worker = await job.process(code, "w1", AT=step)
        assert await worker.ended(PATIENCE_S) == -signal.SIGKILL, f"{step}: {worker.text()[-3000:]}"
        assert set(hg.published(out)) <= seen(out)
    await job.write(source, orders(110, 200))
    last = await job.process(code, "w1")
    await comes(out, 240)
    await job.ask("drain", timeout_s=PATIENCE_S)
    assert await last.ended(PATIENCE_S) == 0
    rows = whole(out)
    assert sorted(row["n"] for row in rows) == list(range(310))
    assert (set(hg.published(out)), left(out)) == (seen(out), [])
    assert in_one_batch(rows)


STALLS = """
meet, passed = threading.Barrier(2), set()

def at(step, where=""):
    mine = step == "moving" or (step == "writing" and "Partition-1" in where)
    if mine and step not in passed and os.environ.get("AT") == "both":
        passed.add(step)
        if meet.wait() == 0:
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # a signal to the process may reach this thread later
        meet.wait()
"""


def stopped(pid: int) -> bool:
    """Whether a process stands still."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def test_a_worker_that_stalls_and_goes_on_later_changes_nothing(job: Any, topic: Topic, tmp_path: Path) -> None:
    """It is stopped in the middle of publishing one batch, while the job of another still writes. Its successor publishes the first and
    runs the second again; then the first worker goes on: its files have gone, its job ends, and its attempt is never published."""
    source, out = topic("orders", partitions=2), tmp_path / "out"
    code = (STEPS + PLAIN + STALLS + APP).replace("SOURCE", source).replace("OUT", str(out))
    await job.write(source, orders(40), partition=0)
    first = await job.process(code, "w1", AT="both")
    pid = first.process.pid
    async with asyncio.timeout(PATIENCE_S):
        while not left(out):  # noqa: ASYNC110 - it is another process that writes
            await asyncio.sleep(0.05)
        await job.write(source, orders(40, 40), partition=1)
        while not stopped(pid):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    second = await job.process(code, "w2")
    await job.write(source, orders(100, 80))
    await comes(out, 160)
    before = seen(out)
    os.kill(pid, signal.SIGCONT)
    async with asyncio.timeout(PATIENCE_S):
        while not left(out):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert (before <= seen(out), sorted(row["n"] for row in whole(out))) == (True, list(range(160)))
    first.kill()
    await job.ask("drain", timeout_s=PATIENCE_S)
    assert await second.ended(PATIENCE_S) == 0
    rows = whole(out)
    assert (sorted(row["n"] for row in rows), set(hg.published(out)), left(out)) == (
        list(range(180)),
        seen(out),
        [],
    )
    assert in_one_batch(rows)
