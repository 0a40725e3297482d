"""How long a batch of a sink should wait for more rows: throughput and delay of `to_sql` by `max_age`.

    python -m bench sinks --ages 0.1,0.25,0.5,1,2,5 [--rate 2000] [--seconds 12] [--records 200000] [--rounds 3]

For PostgreSQL and SQLite, and each age, two runs of a job that appends typed rows from four partitions:

- *paced*: so many records a second are written while the job runs. The delay of a record begins when it is given to the producer, and ends
  when another connection sees its row, which it looks for each 10 ms. CPU time is that of the program in these seconds.
- *full*: the records are in the topic before the job starts; rows a second, and a CPU second of the program, without the first tenth.
  Their number is a multiple of the rows of four batches, so that none is left to wait for its age.

The ids of a partition grow, and its rows come in their order, so the greatest id of a partition says which of its rows are there.
"""

from __future__ import annotations

import bisect
import os
import sqlite3
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psycopg

from headgate.agents.broker.broker import Broker
from tests.postgres import Server, running

from . import report
from .paced import Paced
from .rig import PARTITIONS, Program, drop_topics, make_topic, scratch

PATIENCE_S = 180.0
LOOK_S = 0.01
BATCH_ROWS = 10_000
"""The default of `sink.max-rows`."""
DATABASES = ("postgresql", "sqlite")
TABLE = "CREATE TABLE orders (id BIGINT NOT NULL, country TEXT NOT NULL, amount DOUBLE PRECISION NOT NULL, note TEXT NOT NULL)"
INDEX = "CREATE INDEX by_country ON orders (country, id)"
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
orders.to_sql(os.environ["BENCH_URL"], "orders", max_age=os.environ["BENCH_MAX_AGE"])
"""


class Orders(Paced):
    """Orders whose country is their partition."""

    def _write(self) -> None:
        i = len(self.times)
        value = b'{"id":%d,"country":"p%d","amount":%d.5,"note":"%040d"}' % (i, i % PARTITIONS, i % 1000, i)
        self.times.append(time.time())
        while True:
            try:
                return self._producer.produce(self.topic, value, partition=i % PARTITIONS)
            except BufferError:
                self._producer.poll(0.05)


class Target:
    """A database, and what another connection sees in it."""

    def __init__(self, kind: str, server: Server, home: Path) -> None:
        self.url = server.database() if kind == "postgresql" else f"sqlite:///{home}/target.db"
        self._open: Callable[[], Any] = (
            (lambda: psycopg.connect(self.url, autocommit=True))
            if kind == "postgresql"
            else (lambda: sqlite3.connect(f"{home}/target.db", timeout=30, isolation_level=None))
        )

    def make(self, *statements: str) -> None:
        """The empty table."""
        link = self._open()
        for one in statements:
            link.execute(one)
        link.close()

    def looks(self) -> Callable[[str], list[tuple[Any, ...]]]:
        """Asks through one connection."""
        link = self._open()
        return lambda query: link.execute(query).fetchall()


class Looking(threading.Thread):
    """Notes when the rows of each partition are there."""

    def __init__(self, target: Target) -> None:
        super().__init__(daemon=True)
        self.seen: list[list[tuple[int, float]]] = [[] for _ in range(PARTITIONS)]
        self.over = threading.Event()
        self._target = target

    def run(self) -> None:
        ask = self._target.looks()
        while not self.over.wait(LOOK_S):
            for number, seen in enumerate(self.seen):
                [(most,)] = ask(f"SELECT max(id) FROM orders WHERE country = 'p{number}'")
                if most is not None and (not seen or most > seen[-1][0]):
                    seen.append((most, time.time()))

    def reached(self, number: int) -> int:
        """The greatest id of a partition."""
        return self.seen[number][-1][0] if self.seen[number] else -1

    def at(self, i: int) -> float:
        """When this record was there."""
        seen = self.seen[i % PARTITIONS]
        return seen[bisect.bisect_left(seen, (i,))][1]


def program(broker: Broker, target: Target, home: Path, source: str, age_s: float) -> Program:
    """The job."""
    (home / "sink_job.py").write_text(JOB)
    words = [sys.executable, "-m", "headgate.agents.cli", "run", "sink_job:app", "--app-dir", str(home)]
    words += ["-b", broker.bootstrap, "--state-dir", str(home / "state"), "--log-format", "json"]
    job = f"ages-{uuid.uuid4().hex[:8]}"
    env = {"BENCH_JOB": job, "BENCH_SOURCE": source, "BENCH_URL": target.url, "BENCH_MAX_AGE": f"{age_s * 1000:.0f}ms"}
    return Program(words, env, home / "log").start()


def until(true: Callable[[], bool], running: Program) -> None:
    """Wait for it, while the program runs."""
    give_up = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > give_up or running.popen.poll() is not None:
            raise AssertionError(f"it did not come:\n{running.told()}")
        time.sleep(0.02)


def paced(broker: Broker, target: Target, home: Path, age_s: float, rate: int, seconds: float) -> dict[str, float]:
    """The delay of records that come at a rate, in ms, and the share of a processor that the program has."""
    source = f"ages-{uuid.uuid4().hex[:6]}"
    make_topic(broker.bootstrap, source)
    target.make(TABLE, INDEX)
    orders, looking = Orders(broker.bootstrap, source, 1), Looking(target)
    one = program(broker, target, home, source, age_s)
    looking.start()
    try:
        orders.at_once(PARTITIONS)
        until(lambda: all(looking.reached(n) >= 0 for n in range(PARTITIONS)), one)
        orders.steadily(2.0, rate)
        first, begin = len(orders.times), time.time()
        orders.steadily(seconds, rate)
        end, last = time.time(), len(orders.times)
        until(lambda: all(looking.reached(n) >= last - PARTITIONS for n in range(PARTITIONS)), one)
    finally:
        one.stop()
        looking.over.set()
        drop_topics(broker.bootstrap, source)
    delays = [1000 * (looking.at(i) - orders.times[i]) for i in range(first, last)]
    cuts = quantiles(delays, n=100)
    return {"p50_ms": cuts[49], "p99_ms": cuts[98], "cpu": one.cpu_between(begin, end) / (end - begin)}


def full(broker: Broker, target: Target, home: Path, age_s: float, source: str, records: int) -> dict[str, float]:
    """Rows a second, and a CPU second of the program, of what is there already."""
    target.make(TABLE)
    one = program(broker, target, home, source, age_s)
    curve: list[tuple[float, int]] = []
    ask = target.looks()

    def whole() -> bool:
        [(count,)] = ask("SELECT count(*) FROM orders")
        curve.append((time.time(), count))
        return count >= records

    try:
        until(whole, one)
    finally:
        one.stop()
    begin, done = next(at for at in curve if at[1] >= records // 10)
    end = curve[-1][0]
    cpu = one.cpu_between(begin, end)
    return {
        "rows_per_s": (records - done) / max(end - begin, LOOK_S),
        "rows_per_cpu_s": (records - done) / max(cpu, LOOK_S),
    }


def main(ages: list[float], rate: int, seconds: float, records: int, rounds: int) -> int:
    """Measure, print and keep the figures. The rounds take turns, so that what else the machine does meets all ages."""
    if records % (PARTITIONS * BATCH_ROWS):
        raise SystemExit(f"--records {records}: a multiple of {PARTITIONS * BATCH_ROWS}")
    rows: list[dict[str, Any]] = []
    cases = [(kind, age_s) for kind in DATABASES for age_s in ages]
    with scratch() as directory, Broker.start(directory / "kafka") as broker, running() as server:
        source = f"ages-{uuid.uuid4().hex[:6]}"
        make_topic(broker.bootstrap, source)
        Orders(broker.bootstrap, source, 1).at_once(records)
        for turn, (kind, age_s) in [(turn, case) for turn in range(rounds) for case in cases]:
            homes = [directory / f"{kind}-{age_s}-{turn}-{name}" for name in ("paced", "full")]
            for home in homes:
                home.mkdir()
            found = paced(broker, Target(kind, server, homes[0]), homes[0], age_s, rate, seconds)
            found |= full(broker, Target(kind, server, homes[1]), homes[1], age_s, source, records)
            rows.append({"database": kind, "max_age_s": age_s, **found, "load": os.getloadavg()[0]})
            print(told(rows[-1:], rate), flush=True)
        drop_topics(broker.bootstrap, source)
    print("medians of the rounds:")
    for kind, age_s in cases:
        print(told([row for row in rows if (row["database"], row["max_age_s"]) == (kind, age_s)], rate))
    report.keep("sink_ages", {"rate": rate, "seconds": seconds, "records": records, "rows": rows})
    return 0


def told(rows: list[dict[str, Any]], rate: int) -> str:
    """A line of medians."""
    of = {name: median(row[name] for row in rows) for name in rows[0] if name != "database"}
    return (
        f"{rows[0]['database']:10} max_age {of['max_age_s']:5g} s  {rate:,} a second: delay {of['p50_ms']:6,.0f} ms, "
        f"p99 {of['p99_ms']:6,.0f} ms, {100 * of['cpu']:3.0f} % of a processor  full: {of['rows_per_s']:8,.0f} rows/s, "
        f"{of['rows_per_cpu_s']:8,.0f} rows/CPU-s  load {of['load']:.1f}"
    )
