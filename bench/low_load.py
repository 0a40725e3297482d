"""What a job costs that has little to do: the CPU share of idle jobs and of small loads, and the latency of the same records.

    python -m bench low_load [--quick] [--cases idle,A1k,B1k,B10k] [--peers headgate,streams] [--seconds 30] [--rounds 3]

- `idle`: work A without input. `A1k`: A at 1,000 records a second. `B1k`: B at 1,000 a second, 10,000 keys. `B10k`: B at 10,000 a second,
  300,000 keys.
- One worker, four tasks. Before a program is measured it works off a backlog, so that its state holds every key, and then gets the load
  for a while. Programs take turns within a round; the median of the rounds counts.
- CPU time is that of the program and its children, as the operating system counts it, per second of the clock. That of the broker is
  shown beside it, because a program can leave its work to the broker.
- The latency is that from just before a record is produced until a reader, read committed, has an output that shows it; in the same
  seconds as the CPU time. It is proven that each record is shown, once by A, and by B in counts that grow.

All programs commit every 200 ms. Prints a line for each figure and a table; writes `bench/out/low_load.json`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import KafkaException

from headgate.agents.broker.broker import Broker

from . import report
from .paced import Paced, Reader, Shown, percentile
from .programs import PEERS, Job, program, without
from .rig import Program, Tree, drop_topics, make_topic, scratch, topics

SHOWN = ("headgate", "headgate-columns", "headgate-alo", "streams", "quix")
BASE = "streams"
"""The others are compared with it."""
PATIENCE_S = 240.0
QUIET_S = 3.0


@dataclass(frozen=True)
class Case:
    """One load."""

    work: str
    per_second: int
    keys: int
    what: str


CASES = {
    "idle": Case("A", 0, 10_000, "idle, four tasks"),
    "A1k": Case("A", 1_000, 10_000, "A at 1,000 records/s"),
    "B1k": Case("B", 1_000, 10_000, "B at 1,000 records/s, 10,000 keys"),
    "B10k": Case("B", 10_000, 300_000, "B at 10,000 records/s, 300,000 keys"),
}


@dataclass(frozen=True)
class Lengths:
    """For how long, and how much before."""

    seconds: float
    warm_s: float
    backlog: int
    """At least one record for each key."""


def measure(
    broker: Broker, directory: Path, peer: str, name: str, lengths: Lengths, settings: Sequence[str]
) -> dict[str, Any]:
    """Measure one program at one load."""
    case, job = CASES[name], f"low-{peer}-{name.lower()}-{uuid.uuid4().hex[:6]}"
    source, target = f"{job}-in", f"{job}-out"
    make_topic(broker.bootstrap, source)
    make_topic(broker.bootstrap, target)
    reader = Reader(broker.bootstrap, target)
    shown, load = Shown(reader, case.work, case.keys), Paced(broker.bootstrap, source, case.keys)
    running = program(peer, Job(case.work, job, source, target), broker.bootstrap, directory, settings)
    load.at_once(max(lengths.backlog, case.keys))
    reader.start()
    running.start()
    try:
        wait(running, shown, len(load.times))
        load.steadily(lengths.warm_s, case.per_second) if case.per_second else time.sleep(QUIET_S)
        first, before, brokers = len(load.times), time.time(), cpu_of(broker)
        load.steadily(lengths.seconds, case.per_second) if case.per_second else time.sleep(lengths.seconds)
        after, brokers = time.time(), cpu_of(broker) - brokers
        wait(running, shown, len(load.times))
    finally:
        running.stop()
        reader.ended.set()
        reader.join(10)
        drop_topics(broker.bootstrap, *(topic for topic in topics(broker.bootstrap) if job in topic))
    delays = shown.delays_ms(load.times, first)
    return {
        "case": name, "peer": peer, "label": PEERS[peer].label, "cpu": running.cpu_between(before, after) / (after - before),
        "broker_cpu": brokers / (after - before), "p50_ms": percentile(delays, 50), "p99_ms": percentile(delays, 99),
        "max_ms": percentile(delays, 100), "records": len(delays), "behind_ms": load.behind_s * 1000, "rss_mb": running.rss / 1e6,
        "outputs_are": f"{shown.wrong} show nothing new" if shown.wrong else "equal", "load": os.getloadavg()[0],
    }  # fmt: skip


def wait(running: Program, shown: Shown, records: int) -> None:
    """Wait until an output shows each of these records."""
    deadline = time.monotonic() + PATIENCE_S
    while not shown.until(records, 1.0):
        if running.popen.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"{len(shown.at):,} of {records:,} records are shown:\n{running.told()}")


def cpu_of(broker: Broker) -> float:
    """CPU seconds of the broker so far."""
    return sum(Tree(pid).look()[0] for pid in broker.pids())


def line(row: dict[str, Any]) -> None:
    """Print one figure."""
    delays = (
        f"p50 {row['p50_ms']:6.1f}  p99 {row['p99_ms']:6.1f}  max {row['max_ms']:6.1f} ms"
        if row["records"]
        else " " * 40
    )
    print(
        f"{row['case']:5} {row['label']:74} cpu {row['cpu']:.3f} (broker {row['broker_cpu']:.3f})  {delays}  {row['rss_mb']:5.0f} MB  "
        f"{row['records']:,} records, outputs {row['outputs_are']}  load {row['load']:.1f}",
        flush=True,
    )


def table(rows: Sequence[dict[str, Any]]) -> None:
    """Print the medians: CPU share, and how much of that of Kafka Streams it is; p50 and p99."""
    by: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        by.setdefault((row["peer"], row["case"]), []).append(row)
    cases = list(dict.fromkeys(row["case"] for row in rows))
    print("\nCPU share, in parentheses how much of that of Kafka Streams; p50/p99 in ms")
    print(f"{'':74}" + "".join(f"{CASES[case].what:>38}" for case in cases))
    for peer in dict.fromkeys(row["peer"] for row in rows):
        cells: list[str] = []
        for case in cases:
            mine, base = by.get((peer, case)), by.get((BASE, case))
            if mine is None:
                cells.append("-")
                continue
            cpu = median(row["cpu"] for row in mine)
            share = f" ({cpu / median(row['cpu'] for row in base):.2f})" if base else ""
            delays = "/".join(f"{median(row[which] for row in mine):.0f}" for which in ("p50_ms", "p99_ms"))
            cells.append(f"{cpu:.3f}{share}" + (f"  {delays} ms" if mine[0]["records"] else ""))
        print(f"{PEERS[peer].label:74}" + "".join(f"{cell:>38}" for cell in cells))


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench low_load", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="8 seconds each, one round; the JVM is not warm")
    words.add_argument("--cases", default=",".join(CASES))
    words.add_argument("--peers", default=",".join(SHOWN))
    words.add_argument("--seconds", type=float, default=0, help="30, or 8 in a quick run")
    words.add_argument("--rounds", type=int, default=0, help="3, or 1 in a quick run")
    words.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of headgate")
    given = words.parse_args()
    cases, peers = given.cases.split(","), given.peers.split(",")
    if unknown := [one for one in cases if one not in CASES] + [one for one in peers if one not in PEERS]:
        words.error(f"unknown: {', '.join(unknown)}; cases: {', '.join(CASES)}; programs: {', '.join(PEERS)}")
    lengths = Lengths(8.0, 3.0, 20_000) if given.quick else Lengths(30.0, 15.0, 300_000)
    lengths = Lengths(given.seconds or lengths.seconds, lengths.warm_s, lengths.backlog)
    rows: list[dict[str, Any]] = []
    left_out = {f"{peer} {case}": why for peer in peers for case in cases if (why := without(peer, CASES[case].work))}
    with scratch() as directory, Broker.start(directory / "kafka") as broker:
        for case in [case for _ in range(given.rounds or (1 if given.quick else 3)) for case in cases]:
            for peer in (peer for peer in peers if f"{peer} {case}" not in left_out):
                try:
                    rows.append(measure(broker, directory, peer, case, lengths, given.set))
                    line(rows[-1])
                except (
                    AssertionError,
                    KafkaException,
                    OSError,
                ) as error:  # a failed program does not prevent the others
                    left_out[f"{peer} {case}"] = str(error) or repr(error)
                    print(f"! {peer} {case}: {left_out[f'{peer} {case}']}", flush=True)
    table(rows)
    for what, why in left_out.items():
        print(f"left out: {what}: {why}")
    report.keep("low_load", {"quick": given.quick, "rows": rows, "left_out": left_out})
    failed = [what for what in left_out if what.startswith("headgate")]
    return 1 if failed or not rows or any(row["outputs_are"] != "equal" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
