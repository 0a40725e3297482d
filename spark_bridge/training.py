"""Creates an archive of the classes that Spark's JVM needs: `python -m headgate.spark_bridge.training ARCHIVE`.

Spark runs once, with the batches that are usual, and its JVM writes the archive when it ends. Promises: the archive is there completely or
not at all; only one process creates it; it and its JVM, which would take a minute to write the archive, end when its standard input is
closed. If Spark fails, the archive is an empty file, and nobody tries again.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import threading
from pathlib import Path

import pyarrow as pa

from .conf import CONF

END_S = 300.0


def main(archive: Path) -> int:
    """Create the archive, unless another process does."""
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)  # a group of its own, which includes its JVM
    threading.Thread(target=_end_with_input, daemon=True).start()
    os.nice(19)
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
        os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={draft} -Xlog:disable"
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
    from pyspark.sql import functions as F

    builder = SparkSession.builder.master("local[1]").appName("headgate")
    for name, value in CONF.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    rows = pa.table({"key": ["a", "b"] * 50, "amount": [0.5] * 100, "ts": range(100)})
    for frame in (session.createDataFrame(rows), session.createDataFrame(rows).coalesce(1)):
        start = (F.col("ts") - F.col("ts") % 10).alias("start")
        sums = F.sum("amount").alias("total"), F.count("*").alias("n")
        frame.filter(F.col("ts") > 3).groupBy("key", start).agg(*sums).select("key", "total", "n").toArrow()
    session.stop()
    context: type[SparkContext] = SparkContext
    gateway = context._gateway
    process = None if gateway is None else gateway.proc
    assert gateway is not None, "the session had a JVM"
    gateway.shutdown()
    if process is not None and process.stdin is not None:
        process.stdin.close()
        process.wait(END_S)


def _end_with_input() -> None:
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
