"""Work P as a bare loop: an Arrow table in memory goes to Spark, and its result comes back, again and again. No Kafka, no state.

Spark has the settings that headgate gives it. Prints MARK with the time, the number of batches and the milliseconds of one.
"""

from __future__ import annotations

import os
import sys
import time

import pyarrow as pa
from spark_totals import totals

from headgate.agents.broker.java import find_java
from headgate.spark_bridge.process.conf import CONF, HERE

ROWS, SECONDS = int(os.environ["BENCH_ROWS"]), float(os.environ["BENCH_SECONDS"])
os.environ["JAVA_HOME"] = str(find_java().home)
os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession  # noqa: E402 - it looks for Java

base = 1_700_000_000_000
table = pa.table({
    "user": [f"user{i * 7919 % 500 * 2}" for i in range(ROWS)],
    "amount": [i * 37 % 100 for i in range(ROWS)],
    "ts": [base + i * 10_000 // ROWS for i in range(ROWS)],
})  # fmt: skip
builder = SparkSession.builder.master("local[*]").appName("bare")
for name, value in {**CONF, **HERE}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
began = time.time()
batches = 0
while True:
    start = time.time()
    found = totals(spark.createDataFrame(table), None).toArrow()
    assert found.num_rows == min(500, ROWS)
    batches += 1
    print(f"MARK {time.time()} {batches} {round((time.time() - start) * 1e6)}", flush=True)
    if time.time() - began > SECONDS and (batches >= 20 or not SECONDS):
        break
spark.stop()
