"""Work P on Spark's Structured Streaming, with the state in RocksDB. It runs in an environment of its own (`spark_streaming.py`).

`fast`: triggers follow each other as fast as possible. `now`: everything that is there, once for the warm topic and once for the other.
"""

import os
import signal
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

FORM, SOURCE, TARGET = os.environ["BENCH_FORM"], os.environ["BENCH_SOURCE"], os.environ["BENCH_TARGET"]
BOOTSTRAP, STATE = os.environ["BENCH_BOOTSTRAP"], os.environ["BENCH_STATE"]
LAG = os.environ["BENCH_LAG_MS"] + " milliseconds"
SETTINGS = {
    "spark.jars": os.environ["BENCH_JARS"],
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": os.environ["BENCH_HEAP"],
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": os.environ["BENCH_CORES"],
    "spark.sql.streaming.stateStore.providerClass":
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}  # fmt: skip
builder = SparkSession.builder.master(f"local[{os.environ['BENCH_CORES']}]").appName(os.environ["BENCH_JOB"])
for name, value in SETTINGS.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()


def query(source, target, checkpoint, **trigger):
    """Start the query on a topic."""
    read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", BOOTSTRAP).option("subscribe", source)
    read = read.option("startingOffsets", "earliest").option("kafka.isolation.level", "read_committed")
    if most := os.environ.get("BENCH_MOST"):
        read = read.option("maxOffsetsPerTrigger", most)
    event = F.from_json(F.col("value").cast("string"), "user string, amount long, ts long")
    events = read.load().select(event.alias("e")).select("e.user", "e.amount", F.timestamp_millis("e.ts").alias("time"))
    windows = events.withWatermark("time", LAG).groupBy(F.window("time", "10 seconds"), "user")
    found = windows.agg(F.count("*").alias("n"), F.sum("amount").alias("total"))
    start, end = (F.unix_millis(f"window.{side}").alias(f"window_{side}") for side in ("start", "end"))
    if files := os.environ["BENCH_FILES"]:
        write = found.select("user", "n", "total", start, end).writeStream.format("parquet").option("path", files)
    else:
        value = F.to_json(F.struct("user", "n", "total", start, end))
        out = found.select(F.col("user").alias("key"), value.alias("value"))
        write = out.writeStream.format("kafka").option("kafka.bootstrap.servers", BOOTSTRAP).option("topic", target)
    write = write.option("checkpointLocation", f"{STATE}/{checkpoint}").outputMode("append")
    return (write.trigger(**trigger) if trigger else write).start()


def told(records):
    """Say how far it is."""
    print(f"MARK {time.time()} {records} 0", flush=True)


if FORM == "now":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    query(os.environ["BENCH_WARM"], f"{TARGET}-warm", "warm", availableNow=True).awaitTermination()
    told(0)
    running = query(SOURCE, TARGET, "main", availableNow=True)
    running.awaitTermination()
    told(sum(one["numInputRows"] for one in running.recentProgress))
    signal.pause()
else:
    running = query(SOURCE, TARGET, "main")
    signal.signal(signal.SIGTERM, lambda *_: (running.stop(), spark.stop(), sys.exit(0)))
    running.awaitTermination()
