"""How long the loop of the actors has to wait beside Spark, and beside a plain CPU hog: `python -m bench spark_lag [--quick]`.

A loop wakes every 5 ms and notes how late it is: alone; beside as many processes that only compute as there are cores; and beside a Spark
session on all cores in its own process, with two batches at Spark at any time. These either compute in Python workers, or in the JVM alone.
Spark must not make the loop wait more than twice as long as the hogs do: it competes for cores like anybody else, and holds no lock that
the loop needs. All take turns, so that a busy machine is busy for all.

Prints a line for each figure; writes `bench/out/spark_lag.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from statistics import median
from typing import Any

import pyarrow as pa

from headgate.agents.worker.spark_jvm import java_home, prepare
from headgate.core.batching.batches import BatchInfo, Inline, SparkStage
from headgate.spark_bridge.session.session import Spark

from . import report

TICK_S = 0.005
ROWS = 20_000
MOST = 2.0
"""How many times as late beside Spark as beside the hogs."""
SHARES = (("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0))
"""Percentiles."""
SECONDS, ROUNDS = (15.0, 5.0), (3, 1)
"""Of each neighbour; and in a quick run."""
HOG = "n = 0\nwhile True: n += 1"

Beside = Callable[[], contextlib.AbstractAsyncContextManager[Callable[[], int]]]
"""Keeps the machine busy; gives how many batches are done."""


def python(df: Any, batch: Any) -> Any:
    """Compute in Python workers on all cores."""
    from pyspark.sql import functions as F

    work = F.udf(lambda n: sum(range(n % 500)), "long")
    return df.repartition(os.cpu_count() or 1).select(work("n").alias("n"))


def native(df: Any, batch: Any) -> Any:
    """Compute in the JVM."""
    from pyspark.sql import functions as F

    return df.groupBy((F.col("n") % 500).alias("n")).agg(F.sum("n").alias("total"))


async def lateness(seconds: float) -> dict[str, float]:
    """How late the loop is, in ms."""
    late: list[float] = []
    until = time.monotonic() + seconds
    while (began := time.monotonic()) < until:
        await asyncio.sleep(TICK_S)
        late.append((time.monotonic() - began - TICK_S) * 1000)
    late.sort()
    return {name: round(late[int(share * (len(late) - 1))], 2) for name, share in SHARES}


@contextlib.asynccontextmanager
async def nothing() -> AsyncIterator[Callable[[], int]]:
    """An idle machine."""
    yield lambda: 0


@contextlib.asynccontextmanager
async def hogs() -> AsyncIterator[Callable[[], int]]:
    """A process for each core."""
    running = [await asyncio.create_subprocess_exec(sys.executable, "-c", HOG) for _ in range(os.cpu_count() or 1)]
    try:
        yield lambda: 0
    finally:
        for one in running:
            one.kill()
            await one.wait()


def batches(spark: Spark, fn: Any, schema: str) -> Beside:
    """Two batches at Spark at any time."""
    contents = Inline([spark.encode([pa.table({"n": range(ROWS)})])])
    done = 0

    async def work(number: int) -> None:
        nonlocal done
        info = BatchInfo(f"Partition {number}", "busy", 1, ROWS, "rows")
        while True:
            await spark.run(info, contents, [SparkStage("busy", fn, schema)])
            done += 1

    @contextlib.asynccontextmanager
    async def beside() -> AsyncIterator[Callable[[], int]]:
        before, loop = done, asyncio.get_running_loop()
        working = [loop.create_task(work(number)) for number in range(2)]
        try:
            while done < before + 4:  # the first ones start the Python workers
                await asyncio.sleep(0.1)
                for one in working:
                    if one.done():
                        one.result()
            yield lambda: done
        finally:
            for one in working:
                one.cancel()
            await asyncio.wait(working)

    return beside


async def measure(seconds: float, rounds: int) -> dict[str, Any]:
    """All of them, in turn."""
    spark = Spark(java_home=java_home)
    await spark.warm()
    neighbours: dict[str, Beside] = {
        "nothing": nothing,
        "hogs": hogs,
        "Spark, Python workers": batches(spark, python, "n long"),
        "Spark, JVM": batches(spark, native, "n long, total long"),
    }
    found: defaultdict[str, list[dict[str, float]]] = defaultdict(list)
    try:
        for _ in range(rounds):
            for name, beside in neighbours.items():
                async with beside() as done:
                    before = done()
                    late = await lateness(seconds)
                    late["batches_per_s"] = round((done() - before) / seconds, 1)
                found[name].append(late)
                told = "  ".join(f"{share} {late[share]:6.2f}" for share, _ in SHARES)
                print(
                    f"late beside {name:22} {told} ms  {late['batches_per_s']:5.1f} batches/s  load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )
    finally:
        await spark.close()
    return {name: {key: median(one[key] for one in all_) for key in all_[0]} for name, all_ in found.items()}


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench spark_lag", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="one round of five seconds each")
    given = words.parse_args()
    prepare()
    figures = asyncio.run(measure(SECONDS[given.quick], ROUNDS[given.quick]))
    ratios = {
        name: round(late["p99"] / max(figures["hogs"]["p99"], 1.0), 2)
        for name, late in figures.items()
        if name.startswith("Spark")
    }
    for name, ratio in ratios.items():
        print(f"must: beside {name}: {ratio:.2f} times as late as beside hogs (p99), {MOST:g} allowed")
    report.keep("spark_lag", {"quick": given.quick, "late_ms": figures, "p99_ratios": ratios})
    return int(any(ratio > MOST for ratio in ratios.values()))


if __name__ == "__main__":
    sys.exit(main())
