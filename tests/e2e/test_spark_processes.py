"""Worker processes with a Spark of their own: what is killed, what is refused, and what has no Spark at all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from .test_spark_line import PATIENCE_S, counted, orders

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.asyncio]
Topic = Callable[..., str]

JOB_SOURCE = """
import os, time
from typing import TypedDict
import headgate as hg

class Order(TypedDict):
    country: str
    n: int

def totals(df, batch):
    from pyspark.sql import functions as F
    while os.path.exists("HOLD"):
        open("HOLD.at", "w").close()
        time.sleep(0.02)
    found = df.groupBy("country").agg(F.count("*").alias("n"), F.sum("n").alias("total"))
    return found.select(F.lit(batch.id).alias("batch"), "country", "n", "total")

app = hg.App("JOB", serde=hg.json(), settings={"spark.master": "local[2]"})
(app.input("SOURCE", serde=hg.json(Order)).batch(max_rows=250, name="lot")
    .spark(totals, schema="batch string, country string, n long, total long").to("TARGET"))
"""


async def while_it_lives(worker: Any, work: Coroutine[Any, Any, Any]) -> Any:
    """What `work` gives. A worker that ends meanwhile is said at once, and with its last words."""
    loop = asyncio.get_running_loop()
    task, ended = loop.create_task(work), loop.create_task(worker.process.wait())
    await asyncio.wait([task, ended], return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    if not task.done():
        task.cancel()
        raise AssertionError(f"the worker ended with {worker.process.returncode}:\n{worker.text()[-4000:]}")
    return await task


def living(pid: int, name: str) -> Iterator[psutil.Process]:
    """Processes below this one that carry the name. One that was killed before, and is not collected yet, is none."""
    for one in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if name in one.name() and one.status() != psutil.STATUS_ZOMBIE:
                yield one


async def leads(worker: Any) -> None:
    """It has fenced whoever led before."""
    while '"event": "leads"' not in worker.text():  # noqa: ASYNC110 - it is another process that leads
        await asyncio.sleep(0.05)


async def held(hold: Path) -> None:
    """A function of Spark has begun, and waits while the file is there."""
    while not hold.with_suffix(".at").exists():  # noqa: ASYNC110 - it is another process that makes it
        await asyncio.sleep(0.02)


async def test_kill_9_of_worker_and_jvm_and_every_row_counts_once(job: Any, topic: Topic, tmp_path: Path) -> None:
    """A worker process is killed at work, and then its successor's JVM is. The successor lives, and the drain finds each order in exactly
    one result. One that is killed while it starts: `tests/spark_bridge/process/test_jvm.py`."""
    source, target = topic("orders", partitions=2), topic("totals")
    hold = tmp_path / "hold"
    code = JOB_SOURCE.replace("SOURCE", source).replace("TARGET", target).replace("HOLD", str(hold))
    await job.write(source, orders(1000))
    first = await job.process(code, "w1")
    await while_it_lives(first, job.records(target, 3, within_s=PATIENCE_S))
    first.kill()
    await first.ended()
    second = await job.process(code, "w1")
    await while_it_lives(second, asyncio.wait_for(leads(second), PATIENCE_S))
    before = len(await job.records(target, 3))  # what comes from here on is of the second
    hold.touch()
    await job.write(source, orders(1000, 1000))
    await while_it_lives(second, asyncio.wait_for(held(hold), PATIENCE_S))
    jvm = list(living(second.process.pid, "java"))
    assert jvm, "the worker has no JVM"
    os.kill(jvm[0].pid, signal.SIGKILL)
    hold.unlink()
    await job.write(source, orders(600, 2000))
    await while_it_lives(second, job.records(target, before + 6, within_s=PATIENCE_S))
    await job.ask("drain", timeout_s=PATIENCE_S)
    assert await second.ended(PATIENCE_S) == 0
    rows = await job.values(target, 1)
    assert counted(rows) == (2600, sum(range(2600)))
    assert len({(row["batch"], row["country"]) for row in rows}) == len(rows)
    (again,) = [one for one in events(second) if one["event"] == "Spark has the batch again"][-1:]
    assert again["after_s"] >= 0
    assert any(one["event"] == "Spark is lost" for one in events(second))


def events(worker: Any) -> list[dict[str, Any]]:
    """What a worker has logged."""
    return [orjson.loads(line) for line in worker.text().splitlines() if line.startswith("{")]


REFUSED = """
from typing import TypedDict
import headgate as hg
Order = TypedDict("Order", {"n": int})
app = hg.App("JOB", serde=hg.json(), settings={"spark.master": "local[2]"})
app.input("NOWHERE").batch(max_rows=5).spark(lambda df, batch: df, rows=Order, schema="n long", name="same").to("TARGET")
"""


async def test_a_job_that_is_refused_says_so_and_nothing_of_spark(job: Any, topic: Topic) -> None:
    """Its JVM was begun before its topics were looked at. It ends with the worker, and the reason is all that is said."""
    nowhere = f"nowhere-{job.name}"
    worker = await job.process(REFUSED.replace("NOWHERE", nowhere).replace("TARGET", topic("out")))
    below: dict[int, psutil.Process] = {}
    with contextlib.suppress(psutil.NoSuchProcess):
        while worker.process.returncode is None:
            below |= {one.pid: one for one in psutil.Process(worker.process.pid).children(recursive=True)}
            await asyncio.sleep(0.02)
    assert await worker.ended() == 1
    assert below, "no JVM was begun"
    _, alive = await asyncio.to_thread(psutil.wait_procs, list(below.values()), PATIENCE_S)
    assert not alive
    text = worker.text()
    assert nowhere in text
    assert "Traceback" not in text
    plain = [line for line in text.splitlines() if not line.startswith("{")]
    assert nowhere in next(line for line in plain if line.startswith("Error")), text
    assert not [one for one in events(worker) if one["level"] != "info" and "Spark" in one["event"]], text


WITHOUT = """
import atexit, sys
import headgate as hg
app = hg.App("JOB", serde=hg.json())
app.input("SOURCE", until="newest", key="country").agg(n=hg.count(), name="counts").to("TARGET")
atexit.register(lambda: print("LOADED", sorted({"pyspark", "pyarrow", "headgate.spark_bridge"} & {*sys.modules}), file=sys.stderr))
"""


async def test_a_job_without_a_spark_stage_never_imports_it(job: Any, topic: Topic) -> None:
    """From its start to its end, with its page, its metrics and its commits; and no JVM is begun."""
    source = topic("orders")
    await job.write(source, orders(30))
    worker = await job.process(WITHOUT.replace("SOURCE", source).replace("TARGET", topic("counts")), "w1", "--bounded")
    assert await worker.ended() == 0
    assert "LOADED []" in worker.text()
    assert "Spark" not in worker.text()
