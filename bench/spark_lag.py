"""How long the loop of the actors has to wait beside Spark, and beside a plain CPU hog: `python -m bench.spark_lag [SECONDS]`.

A loop wakes every 5 ms and notes how late it is; once beside as many processes that only compute as there are cores, once beside a Spark
session on all cores whose batches compute in Python workers, in the same process as the loop. Spark must not make the loop wait more than
twice as long: it competes for cores like anybody else, and holds no lock that the loop needs.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import sys
import time
from typing import Any

from headgate.agents.broker.java import find_java
from headgate.core.batches import BatchInfo, Inline, SparkStage
from headgate.spark_bridge.session import Spark

TICK_S = 0.005
ROWS = 20_000
MOST = 2.0


def hog() -> None:
    """Compute."""
    n = 0
    while True:
        n += 1


def busy(df: Any, batch: Any) -> Any:
    """Compute in Python workers on all cores."""
    from pyspark.sql import functions as F

    work = F.udf(lambda n: sum(range(n % 500)), "long")
    return df.repartition(os.cpu_count() or 1).select(work("n").alias("n"))


async def lag(seconds: float) -> dict[str, float]:
    """How late the loop is, in ms."""
    late: list[float] = []
    until = time.monotonic() + seconds
    while (began := time.monotonic()) < until:
        await asyncio.sleep(TICK_S)
        late.append((time.monotonic() - began - TICK_S) * 1000)
    late.sort()
    return {
        name: round(late[int(share * (len(late) - 1))], 2)
        for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    }


async def beside_hogs(seconds: float) -> dict[str, float]:
    """With a process for each core."""
    hogs = [multiprocessing.Process(target=hog, daemon=True) for _ in range(os.cpu_count() or 1)]
    for one in hogs:
        one.start()
    try:
        return await lag(seconds)
    finally:
        for one in hogs:
            one.kill()


async def beside_spark(seconds: float) -> tuple[dict[str, float], int]:
    """With two batches at Spark at any time."""
    spark = Spark(java_home=lambda: str(find_java().home))
    await spark.warm()
    contents = Inline([spark.encode([spark.pack([{"n": n} for n in range(ROWS)])])])
    done = 0

    async def work(number: int) -> None:
        nonlocal done
        while True:
            await spark.run(
                BatchInfo(f"Partition {number}", "busy", 1, ROWS, "rows"),
                contents,
                [SparkStage("busy", busy, "n long")],
            )
            done += 1

    loop = asyncio.get_running_loop()
    working = [loop.create_task(work(number)) for number in range(2)]
    while not done:  # noqa: ASYNC110 - the first batch starts the Python workers
        await asyncio.sleep(0.1)
    before = done
    found = await lag(seconds)
    ran = done - before
    for one in working:
        one.cancel()
    await asyncio.wait(working)
    await spark.close()
    return found, ran


async def measure(seconds: float) -> int:
    """Both, the idle loop first."""
    idle = await lag(min(seconds, 3.0))
    hogs = await beside_hogs(seconds)
    spark, batches = await beside_spark(seconds)
    ratio = round(spark["p99"] / max(hogs["p99"], 1.0), 2)
    print(json.dumps({"idle": idle, "hog": hogs, "spark": spark, "batches": batches, "p99_ratio": ratio}))
    return 0 if ratio <= MOST else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(measure(float(sys.argv[1]) if len(sys.argv) > 1 else 15.0)))
