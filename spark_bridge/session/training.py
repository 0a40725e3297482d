"""Creates an archive of the classes that Spark's JVM needs: `python -m headgate.spark_bridge.session.training ARCHIVE [--at-once]`.

Spark runs once, with the batches that are usual, and its JVM writes the archive when it ends. Promises: the archive is there completely or
not at all; only one process creates it; it and its JVM, which would take a minute to write the archive, end when its standard input is
closed. If Spark fails, the archive is an empty file, and no one tries again. Unless someone waits for it (`--at-once`), it takes only the
CPU time that no one else on the machine wants.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...core.batching.batches import BatchInfo, Inline, SparkStage
from ..process.conf import CONF
from .session import Spark

END_S = 300.0
SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A quarter less CPU time, for a JVM that loads classes and computes next to nothing. Whoever uses the archive has a compiler and a
collector of their own.
"""
GROUP = Path("/proc/self/autogroup")
"""Linux shares the CPU among sessions of processes first, so that within a session of its own no priority counts against others."""


def main(archive: Path, *, at_once: bool = False) -> int:
    """Create the archive, unless another process does."""
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)  # a group of its own, which includes its JVM
    threading.Thread(target=_end_with_input, daemon=True).start()
    if not at_once:
        _give_way()
    with archive.with_name(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0  # another one creates it, or one for another Java; the next start tries again
        if archive.exists():
            return 0
        for left in archive.parent.glob("*.new"):  # of a process that was killed: all others wait for the lock
            left.unlink(missing_ok=True)
        draft = archive.with_suffix(".new")
        os.environ["SPARK_SUBMIT_OPTS"] = f"{SMALL} -XX:ArchiveClassesAtExit={draft} -Xlog:disable"
        try:
            run()
        finally:
            if not draft.exists():
                draft.touch()
            draft.replace(archive)
    return 0


def run() -> None:
    """Start a session, run what batches usually do, and wait until the JVM has ended."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").appName("headgate")
    for name, value in CONF.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    asyncio.run(batches(session))
    session.stop()
    context: type[SparkContext] = SparkContext
    gateway = context._gateway
    process = None if gateway is None else gateway.proc
    assert gateway is not None, "the session had a JVM"
    gateway.shutdown()
    if process is not None and process.stdin is not None:
        process.stdin.close()
        process.wait(END_S)


async def batches(session: Any) -> None:
    """Run them as a worker does, so that its JVM has loaded what a worker's needs: for rows, the schema of a result, and the result."""
    bridge = Spark(session=session)
    rows = pa.table({"key": ["a", "b"] * 50, "amount": [0.5] * 100, "ts": range(100)})
    contents = Inline([bridge.encode([rows])])
    for number, fn in enumerate((_sums, lambda df, batch: _sums(df.coalesce(1), batch))):
        stage = SparkStage("sums", fn, "key string, total double, n long")
        await bridge.run(BatchInfo("Partition 0", "sums", number, 100, "rows"), contents, [stage])
    await bridge.close()


def _sums(df: Any, batch: BatchInfo) -> Any:
    from pyspark.sql import functions as F

    start = (F.col("ts") - F.col("ts") % 10).alias("start")
    sums = F.sum("amount").alias("total"), F.count("*").alias("n")
    return df.filter(F.col("ts") > 3).groupBy("key", start).agg(*sums).select("key", "total", "n")


def _give_way() -> None:
    os.nice(19)
    if os.getsid(0) == os.getpid():  # in another one's session it would slow down all that runs there
        with contextlib.suppress(OSError):  # not every kernel has it
            GROUP.write_text("19")


def _end_with_input() -> None:
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), at_once="--at-once" in sys.argv[2:]))
