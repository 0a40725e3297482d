"""Rows from Kafka into PostgreSQL: `to_sql` beside a loop written by hand.

    python -m bench sinks [--quick] [--records 400000] [--rounds 3] [--max-rows 10000]
    python -m bench sinks --ages 0.1,0.25,0.5,1,2,5       delay and throughput by `max_age` instead: see `sink_ages`

- `append` and `upsert` of rows with four columns, in batches of `--max-rows`, into a server on this machine that does not sync its disk.
- `rows`: headgate, with a typed input. `columns`: the same behind `.columns()`. `loop`: confluent-kafka, orjson and psycopg: fetch up to
  as many, COPY (and INSERT … ON CONFLICT), commit there, then commit the offsets: at least once, and no other task or worker.
- One process, four partitions. The input is in the topic before it starts; the first tenth does not count. CPU time is that of the program.

The tables must be equal. Prints a line for each; writes `bench/out/sinks.json`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import uuid
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
from confluent_kafka import Producer

from headgate.agents.broker.broker import Broker
from tests.postgres import Server, running

from . import report, sink_ages
from .rig import PARTITIONS, Program, drop_topics, make_topic, scratch

PATIENCE_S = 240.0
WAYS = ("rows", "columns", "loop")
MODES = ("append", "upsert")
TABLE = "CREATE TABLE orders (id BIGINT NOT NULL, country TEXT NOT NULL, amount DOUBLE PRECISION NOT NULL, note TEXT NOT NULL"
SAME = "SELECT count(*), sum(id), sum(amount), sum(hashtextextended(country || note, 0)) FROM orders"
JOB = """
import os
from typing import TypedDict
import headgate as hg

class Order(TypedDict):
    id: int
    country: str
    amount: float
    note: str

app = hg.App(os.environ["BENCH_JOB"], serde=hg.json())
orders = app.input(os.environ["BENCH_SOURCE"], serde=hg.json(Order))
if os.environ["BENCH_WAY"] == "columns":
    orders = orders.columns()
how = {"key": "id", "order": "any"} if os.environ["BENCH_MODE"] == "upsert" else {}
orders.to_sql(os.environ["BENCH_URL"], "orders", max_rows=int(os.environ["BENCH_MAX_ROWS"]), **how)
"""
LOOP = """
import os
import orjson, psycopg
from confluent_kafka import Consumer

link = psycopg.connect(os.environ["BENCH_URL"])
reader = Consumer({"bootstrap.servers": os.environ["BENCH_BOOTSTRAP"], "group.id": os.environ["BENCH_JOB"],
    "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0})
reader.subscribe([os.environ["BENCH_SOURCE"]])
upsert = os.environ["BENCH_MODE"] == "upsert"
while True:
    found = [one for one in reader.consume(int(os.environ["BENCH_MAX_ROWS"]), timeout=1.0) if one.error() is None]
    if not found:
        continue
    with link.cursor() as cursor:
        target = "orders"
        if upsert:
            cursor.execute("CREATE TEMPORARY TABLE staging (LIKE orders) ON COMMIT DROP")
            target = "staging"
        with cursor.copy(f"COPY {target} (id, country, amount, note) FROM STDIN") as copy:
            for one in found:
                order = orjson.loads(one.value())
                copy.write_row((order["id"], order["country"], order["amount"], order["note"]))
        if upsert:
            cursor.execute("INSERT INTO orders SELECT DISTINCT ON (id) * FROM staging ON CONFLICT (id) DO UPDATE SET "
                "country = excluded.country, amount = excluded.amount, note = excluded.note")
    link.commit()
    reader.commit(asynchronous=False)
"""


def fill(bootstrap: str, topic: str, records: int) -> None:
    """The input."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.num.messages": 10_000, "log_level": 0})
    for n in range(records):
        value = b'{"id":%d,"country":"%s","amount":%d.5,"note":"%040d"}' % (
            n,
            (b"DE", b"FR", b"IT")[n % 3],
            n % 1000,
            n,
        )
        while True:
            try:
                producer.produce(topic, value, partition=n // 1000 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(120)


def command(way: str, broker: Broker, home: Path) -> list[str]:
    """How the program is started."""
    (home / "sink_job.py").write_text(JOB)
    (home / "loop.py").write_text(LOOP)
    if way == "loop":
        return [sys.executable, str(home / "loop.py")]
    words = [sys.executable, "-m", "headgate.agents.cli", "run", "sink_job:app", "--app-dir", str(home)]
    return [*words, "-b", broker.bootstrap, "--state-dir", str(home / "state"), "--log-format", "json"]


def measure(
    broker: Broker, server: Server, source: str, directory: Path, way: str, mode: str, records: int, max_rows: int
) -> dict[str, Any]:
    """One program, from an empty table to a full one."""
    job, url = f"sinks-{uuid.uuid4().hex[:8]}", server.database()
    home = directory / job
    home.mkdir()
    env = {"BENCH_JOB": job, "BENCH_SOURCE": source, "BENCH_URL": url, "BENCH_WAY": way, "BENCH_MODE": mode}
    env |= {"BENCH_BOOTSTRAP": broker.bootstrap, "BENCH_MAX_ROWS": str(max_rows)}
    curve: list[tuple[float, int]] = []
    with psycopg.connect(url, autocommit=True) as link:
        link.execute((TABLE + (", PRIMARY KEY (id))" if mode == "upsert" else ")")).encode())
        program = Program(command(way, broker, home), env, home / "log").start()
        try:
            give_up = time.monotonic() + PATIENCE_S
            while not curve or curve[-1][1] < records:
                if time.monotonic() > give_up or program.popen.poll() is not None:
                    raise AssertionError(f"{way} {mode}: {curve[-1:]} of {records:,} rows:\n{program.told()}")
                [(count,)] = link.execute("SELECT count(*) FROM orders").fetchall()
                curve.append((time.time(), count))
                time.sleep(0.1)
        finally:
            program.stop()
        [same] = link.execute(SAME).fetchall()
    begin, done = next(one for one in curve if one[1] >= records // 10)
    end = curve[-1][0]
    cpu = program.cpu_between(begin, end)
    return {
        "way": way, "mode": mode, "rows_per_s": (records - done) / (end - begin), "rows_per_cpu_s": (records - done) / max(cpu, 0.01),
        "same": [str(one) for one in same], "load": os.getloadavg()[0],
    }  # fmt: skip


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench sinks", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="100,000 records, one round")
    words.add_argument("--records", type=int, default=0, help="400,000, or 100,000 in a quick run")
    words.add_argument("--rounds", type=int, default=0, help="3, or 1 in a quick run")
    words.add_argument("--max-rows", type=int, default=10_000, help="rows of a batch: 10,000")
    words.add_argument(
        "--ages", default="", help="seconds, separated by commas: measure delay and throughput by max_age"
    )
    words.add_argument("--rate", type=int, default=2_000, help="with --ages: records a second; 2,000")
    words.add_argument("--seconds", type=float, default=12.0, help="with --ages: how long they come; 12")
    given = words.parse_args()
    if given.ages:
        ages = [float(one) for one in given.ages.split(",")]
        return sink_ages.main(ages, given.rate, given.seconds, given.records or 200_000, given.rounds or 3)
    records = given.records or (100_000 if given.quick else 400_000)
    rows: list[dict[str, Any]] = []
    with scratch() as directory, Broker.start(directory / "kafka") as broker, running() as server:
        source = f"sinks-{uuid.uuid4().hex[:6]}"
        make_topic(broker.bootstrap, source)
        fill(broker.bootstrap, source, records)
        for mode, way in [
            (m, w) for _ in range(given.rounds or (1 if given.quick else 3)) for m in MODES for w in WAYS
        ]:
            row = measure(broker, server, source, directory, way, mode, records, given.max_rows)
            rows.append(row)
            print(
                f"{mode:7} {way:8} {row['rows_per_s']:10,.0f} rows/s {row['rows_per_cpu_s']:10,.0f} rows/CPU-s  load {row['load']:.1f}",
                flush=True,
            )
        drop_topics(broker.bootstrap, source)
    equal = len({tuple(row["same"]) for row in rows}) == 1
    for mode in MODES:
        for way in WAYS:
            of = [row for row in rows if (row["way"], row["mode"]) == (way, mode)]
            rate, per_cpu = (median(row[what] for row in of) for what in ("rows_per_s", "rows_per_cpu_s"))
            print(f"{mode} {way}: {rate:,.0f} rows/s, {per_cpu:,.0f} rows/CPU-s in the median")
    print(f"{records:,} rows in each table, {'all equal' if equal else 'NOT EQUAL'}")
    report.keep("sinks", {"quick": given.quick, "records": records, "rows": rows})
    return int(not equal)


if __name__ == "__main__":
    sys.exit(main())
