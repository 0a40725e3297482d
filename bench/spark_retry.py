"""How soon a batch runs again when what runs it dies or hangs: `python -m bench spark_retry [--quick]`.

A local master, no Kafka. One batch meets the fault in its first attempt: its Python worker exits, its JVM is killed, the JVM needs more
memory than it has, or is stopped (SIGSTOP) and answers no one. Meanwhile another task has batches at Spark all the time, and each of them
must have its result, too. Counted is the time from the failure of the attempt until Spark has the batch again. A JVM that hangs fails its
attempts when that is noticed (`spark.probe-timeout`, here 5 s).

Prints a line for each figure; writes `bench/out/spark_retry.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import psutil
import pyarrow as pa

from headgate.agents.worker.spark_jvm import java_home, prepare
from headgate.core.batching.batches import BatchInfo, Inline, SparkStage
from headgate.spark_bridge.data.terms import Terms
from headgate.spark_bridge.session.session import Spark

from . import report

PROBE_S = 5.0
MOST_S = 10.0
ROWS = 2_000
ROUNDS = 5, 1


def jvm() -> int:
    """The process id of this process's JVM."""
    (found,) = (
        one.pid
        for one in psutil.Process().children()
        if one.status() != psutil.STATUS_ZOMBIE and "pyspark-shell" in one.cmdline()
    )
    return found


def python_dies(df: Any) -> Any:
    """Its Python worker exits."""
    from pyspark.sql import functions as F

    return df.select(F.udf(lambda n: os._exit(3), "long")("n").alias("n"))


def jvm_dies(df: Any) -> Any:
    """kill -9."""
    os.kill(jvm(), signal.SIGKILL)
    return df


def jvm_hangs(df: Any) -> Any:
    """It keeps its connections and answers no one."""
    os.kill(jvm(), signal.SIGSTOP)
    return df


def no_memory(df: Any) -> Any:
    """The JVM needs more than its heap."""
    from pyspark.sql import functions as F

    return df.select(F.expr("length(repeat('x', 2000000000)) + n").alias("n"))


FAULTS: dict[str, Callable[[Any], Any]] = {
    "a Python worker dies": python_dies,
    "the JVM is killed": jvm_dies,
    "the JVM is out of memory": no_memory,
    "the JVM hangs": jvm_hangs,
}


def same(df: Any, batch: Any) -> Any:
    """In a Python worker."""
    from pyspark.sql import functions as F

    return df.select(F.udf(lambda n: n, "long")("n").alias("n"))


async def measure(rounds: int) -> dict[str, dict[str, float]]:
    """All faults, a few times."""
    spark = Spark(java_home=java_home, terms=Terms(probe_s=PROBE_S))
    await spark.warm()
    contents = Inline([spark.encode([pa.table({"n": range(ROWS)})])])

    async def run(task: str, number: int, fn: Any) -> Any:
        (outcome,) = await spark.run(
            BatchInfo(task, "lot", number, ROWS, "rows"), contents, [SparkStage("same", fn, "n long")]
        )
        assert outcome.rows == ROWS, f"{outcome.rows} rows of {ROWS}"
        return outcome

    ended, others = asyncio.Event(), 0

    async def beside() -> None:
        nonlocal others
        while not ended.is_set():
            await run("Partition 1", others, same)
            others += 1

    found: dict[str, dict[str, float]] = {}
    other = asyncio.get_running_loop().create_task(beside())
    try:
        await run("Partition 0", 0, same)
        for what, fault in FAULTS.items():

            def once(df: Any, batch: Any, fault: Callable[[Any], Any] = fault) -> Any:
                return fault(df) if batch.attempt == 1 else same(df, batch)

            retries: list[float] = []
            took: list[float] = []
            before = others
            for number in range(rounds):
                began = time.monotonic()
                outcome = await run("Partition 0", number + 1, once)
                took.append(time.monotonic() - began)
                assert outcome.retried.times == 1, outcome.retried
                retries.append(outcome.retried.longest_ms / 1000)
                if other.done():
                    other.result()
            found[what] = {"again_s": median(retries), "longest_s": max(retries), "result_s": median(took)}
            print(
                f"{what:26} Spark has the batch again after {median(retries):5.2f} s, at most {max(retries):5.2f} s; its result after "
                f"{median(took):5.1f} s; beside it {others - before} batches, all with results; load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    finally:
        ended.set()
        await asyncio.wait([other], timeout=60)
        await spark.close()
    other.result()
    return found


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench spark_retry", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="each fault once")
    given = words.parse_args()
    prepare()
    found = asyncio.run(measure(ROUNDS[given.quick]))
    worst = max(one["longest_s"] for one in found.values())
    print(f"must: the retry begins {worst:.1f} s after the failure at most, {MOST_S:g} s allowed")
    report.keep("spark_retry", {"quick": given.quick, "probe_s": PROBE_S, "retries": found})
    return int(worst > MOST_S)


if __name__ == "__main__":
    sys.exit(main())
