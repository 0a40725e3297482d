"""How fast rows with a ttl are deleted while a task writes new ones as fast as it can: they must not pile up.

    python -m bench expiry [--keys 600000] [--ttl 2] [--rounds 3] [--quick]

First without Kafka, on RocksDB alone: the CPU time of each stage in the life of a row (written, committed, expired, committed), with a
commit for every 10,000 keys. Then one task of a real worker on a real broker: each record is a row with a key of its own. librdkafka reads
from the task log, read committed, what was written and deleted, and when. Runs with and without a ttl alternate.

Prints a table; writes `bench/out/expiry.json`.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from headgate.agents.broker.broker import Broker
from headgate.agents.records.values import serdes as serde
from headgate.agents.runtime.store.log import log_write
from headgate.agents.state.rocks import StoreMemory, open_rocks
from headgate.agents.state.store import Owner, StoreBusy
from headgate.agents.state.tables import TaskTables
from headgate.core.names import StreamPartition
from headgate.core.task.stored.checkpoint import table_prefix

from . import report
from .filling import Record, write
from .inputs import Input
from .rig import HERE, Program, admin, drop_topics, make_topic, scratch

CHUNK = 2000
CHUNKS_A_COMMIT = 5
PATIENCE_S = 300.0
PREFIX = table_prefix("seen")


def on_rocks(directory: Path, keys: int, ttl_s: float) -> dict[str, float]:
    """Microseconds of CPU for each key, by stage. A simulated clock runs at 50,000 keys a second."""
    now = [0]
    store = open_rocks(directory / f"rocks-{uuid.uuid4().hex[:6]}", StoreMemory(), Owner("bench"))
    tables = TaskTables(store, clock=lambda: now[0])
    table = tables.declare("seen", serde.text(), serde.json(), ttl_ms=int(ttl_s * 1000))
    names = [f"user-{n:010d}" for n in range(keys)]
    value = {"user": "user1", "amount": 1, "city": "Leuven"}
    log = StreamPartition("log", 0)
    spent: dict[str, float] = {}

    def stage(name: str, work: Callable[[], Any]) -> Any:
        began = time.process_time()
        done = work()
        spent[name] = spent.get(name, 0.0) + time.process_time() - began
        return done

    def applied(position: int) -> None:
        while True:
            try:
                tables.applied(position)
                return
            except StoreBusy:
                time.sleep(0.02)

    def commit(position: int) -> None:
        changes = stage("sealed and framed for the log", lambda: log_write("t", log, tables.seal(), None, now_ms=0))
        del changes
        stage("applied to the store", lambda: applied(position))

    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)  # as in a worker
    gone = at = commits = 0
    while gone < keys:
        for _ in range(CHUNKS_A_COMMIT):
            part = names[at : at + CHUNK]
            at += CHUNK
            table.update(dict.fromkeys(part, value))
            stage("completed with its chunk", tables.complete)
            now[0] += CHUNK // 50
            gone += stage("found expired", lambda: tables.expire(now[0])).gone
        commits += 1
        commit(commits)
    store.close()
    return {name: seconds / keys * 1e6 for name, seconds in spent.items()}


def fill(bootstrap: str, topic: str, keys: int) -> None:
    """Write one record for each key, all to one partition."""
    make_topic(bootstrap, topic, partitions=1)
    make = Input(keys).maker()
    write(bootstrap, topic, (Record(make(0, i), 0) for i in range(keys)))


class Log:
    """The task log as it grows: (time, rows written, rows deleted) for each commit."""

    def __init__(self, bootstrap: str, job: str, program: Program) -> None:
        self.written = self.gone = self.most = 0
        self.curve: list[tuple[float, int, int]] = []
        self._program = program
        client = admin(bootstrap)
        deadline = time.monotonic() + PATIENCE_S
        while not (found := [t for t in client.list_topics(timeout=20).topics if job in t and re.search(r"log", t)]):
            self._alive(deadline)
            time.sleep(0.1)
        self._deadline = deadline
        self._reader = Consumer(
            {
                "bootstrap.servers": bootstrap, "log_level": 0, "group.id": "bench-log", "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )  # fmt: skip
        self._reader.assign([TopicPartition(found[0], 0, OFFSET_BEGINNING)])

    def _alive(self, deadline: float) -> None:
        if time.monotonic() > deadline or self._program.popen.poll() is not None:
            raise AssertionError(f"{self.written} rows written, {self.gone} deleted:\n{self._program.told()}")

    def until(self, enough: Callable[[Log], bool]) -> None:
        """Read until there is enough."""
        while not enough(self):
            self._alive(self._deadline)
            for message in self._reader.consume(20_000, timeout=0.2):
                if message.error() is None and (message.key() or b"").startswith(PREFIX):
                    self._count(message)

    def _count(self, message: Any) -> None:
        if message.value() is None:
            self.gone += 1
        else:
            self.written += 1
        self.most = max(self.most, self.written - self.gone)
        row = (message.timestamp()[1] / 1000, self.written, self.gone)
        if self.curve and self.curve[-1][0] == row[0]:
            self.curve[-1] = row
        else:
            self.curve.append(row)

    def close(self) -> None:
        self._reader.close()

    def span(self, which: int) -> tuple[float, float]:
        """When the first and the last of these were committed."""
        steps = [
            now
            for before, now in zip([(0.0, 0, 0), *self.curve], self.curve, strict=False)
            if now[which] > before[which]
        ]
        return steps[0][0], steps[-1][0]


def on_kafka(broker: Broker, directory: Path, source: str, keys: int, ttl_s: float) -> dict[str, float]:
    """One worker with one task."""
    name = f"bench-expiry-{uuid.uuid4().hex[:6]}"
    env = {
        "BENCH_JOB": name,
        "BENCH_SOURCE": source,
        "BENCH_TTL": f"{ttl_s:g}s" if ttl_s else "",
        "PYTHONUNBUFFERED": "1",
    }
    words = [sys.executable, "-m", "headgate.agents.cli", "run", "expiry_work:app", "--app-dir", str(HERE / "peers")]
    words += ["-b", broker.bootstrap, "--state-dir", str(directory / name), "--log-format", "json"]
    program = Program(words, env, directory / f"{name}.log").start()
    try:
        log = Log(broker.bootstrap, name, program)
        log.until(lambda one: one.written >= keys and (not ttl_s or one.gone >= keys))
    finally:
        program.stop()
    log.close()
    drop_topics(broker.bootstrap, *[t for t in admin(broker.bootstrap).list_topics(timeout=20).topics if name in t])
    began, ended = log.span(1)
    first = log.curve[0][1]
    row = {
        "written_per_s": (keys - first) / max(ended - began, 1e-3),
        "written_cpu_us": program.cpu_between(began, ended) / (keys - first) * 1e6,
    }
    if ttl_s:
        from_, to = log.span(2)
        whole = program.cpu_between(began, to)
        row |= {
            "expired_per_s": keys / max(to - from_, 1e-3), "whole_cpu_us": whole / keys * 1e6,
            "expired_while_written": next(gone for at, _, gone in log.curve if at >= ended),
            "most": log.most, "empty_after_s": to - ended, "took_s": ended - began,
        }  # fmt: skip
    return row


def told(what: str, rows: list[dict[str, float]]) -> dict[str, float]:
    """Print the median of each figure."""
    middle = {name: median(row[name] for row in rows) for name in rows[0]}
    line = f"{what:12} written {middle['written_per_s'] / 1e3:6.1f} k/s"
    if "most" in middle:
        line += (
            f", expired {middle['expired_per_s'] / 1e3:6.1f} k/s, at most {middle['most']:,.0f} rows, empty {middle['empty_after_s']:.2f} s"
            f" after the last write; CPU of a row's whole life {middle['whole_cpu_us']:.2f} µs"
        )
    else:
        line += f"; CPU of a row {middle['written_cpu_us']:.2f} µs"
    print(f"{line}; load {os.getloadavg()[0]:.1f}", flush=True)
    return middle


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench expiry", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="one round of 200,000 keys")
    words.add_argument("--keys", type=int, default=0)
    words.add_argument("--ttl", type=float, default=2.0, help="seconds")
    words.add_argument("--rounds", type=int, default=0)
    given = words.parse_args()
    keys = given.keys or (200_000 if given.quick else 600_000)
    rounds = given.rounds or (1 if given.quick else 3)
    with scratch() as directory:
        alone = [on_rocks(directory, keys, given.ttl) for _ in range(rounds)]
        stages = {name: median(one[name] for one in alone) for name in alone[0]}
        print(f"{keys:,} keys, ttl {given.ttl:g} s, median of {rounds}; µs of CPU a key on RocksDB, without Kafka")
        for name, cost in {**stages, "a row's whole life": sum(stages.values())}.items():
            print(f"  {name:32} {cost:6.2f}", flush=True)
        with Broker.start(directory / "kafka") as broker:
            source = f"bench-expiry-in-{uuid.uuid4().hex[:6]}"
            fill(broker.bootstrap, source, keys)
            rows: dict[str, list[dict[str, float]]] = {"without ttl": [], "with ttl": []}
            for _ in range(rounds):
                rows["without ttl"].append(on_kafka(broker, directory, source, keys, 0))
                rows["with ttl"].append(on_kafka(broker, directory, source, keys, given.ttl))
            middle = {what: told(what, found) for what, found in rows.items()}
    report.keep(
        "expiry",
        {"keys": keys, "ttl_s": given.ttl, "rounds": rounds, "rocksdb_cpu_us": stages, "kafka": middle, "rows": rows},
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
