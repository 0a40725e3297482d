"""Work W: counts and sums by key and tumbling window of 10 s in event time, final results, beside Kafka Streams in one run.

    python -m bench windows [--quick] [--peers headgate-columns,streams] [--rounds 5] [--seconds 40]

Kafka Streams closes its windows with `suppress(untilWindowCloses)`. All programs commit every 200 ms. `tumbling.py` describes the input,
and which windows are compared: each result of each program, with a recount.

- Throughput and memory are measured as those of the other works: everything is in the topic before the program starts. Results come in
  bursts of whole windows, so the last lines give the rate of all rounds together, which is their harmonic mean.
- The delay is measured at 5,000 records a second, with 1,000 keys. Event time runs five times as fast as the clock, so a window takes two
  seconds. Counted is the time from the moment at which event time passes the end of a window and its grace, when the record that closes
  the window is produced, until a reader, read committed, has a result of it. The window's last record is older by the grace: 1 s.

Prints a line for each figure; writes `bench/out/windows.json`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import uuid
from statistics import harmonic_mean, median
from typing import Any

from confluent_kafka import KafkaException, Producer

from headgate.agents.broker.broker import Broker

from . import report, tumbling
from .paced import Reader, percentile
from .programs import PEERS, Job
from .rig import PAD, PARTITIONS, drop_topics, loads, make_topic, scratch, topics
from .run import Run, Trial
from .tumbling import BASE_MS, WINDOW_MS, Window

PER_SECOND = 5000
KEYS = 1000
SPEED = 5
GRACE_MS = 1000 * SPEED
"""One second of the clock."""
WARM_S = 15.0
AFTER_MS = 200 * SPEED
"""Event time goes on for so long after the last window that counts has closed."""


class Produced:
    """A steady stream of rows, and its recount."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "1", "log_level": 0})
        self.recount: dict[Window, list[int]] = {}
        self.began = time.time()
        self.made = 0

    def now_ms(self) -> int:
        """Event time."""
        return BASE_MS + int((time.time() - self.began) * 1000 * SPEED)

    def closes_at(self, end: int) -> float:
        """When event time passes the end of a window and its grace."""
        return self.began + (end + GRACE_MS - BASE_MS) / 1000 / SPEED

    def up_to(self, last_ms: int) -> None:
        """Write until event time is there."""
        while self.now_ms() <= last_ms:
            while self.made < (time.time() - self.began) * PER_SECOND:
                self._write(f"user{self.made * 7919 % KEYS}", self.made % 100, self.now_ms())
            self.producer.poll(0.002)
        if left := self.producer.flush(20):
            raise AssertionError(f"{left} records of the input were not written")

    def _write(self, user: str, amount: int, ts: int) -> None:
        value = f'{{"user":"{user}","amount":{amount},"ts":{ts},"city":"Leuven","pad":"{PAD}"}}'
        self.producer.produce(self.topic, value, partition=self.made % PARTITIONS)
        self.made += 1
        pair = self.recount.setdefault((ts - ts % WINDOW_MS + WINDOW_MS, user), [0, 0])
        pair[0] += 1
        pair[1] += amount


def delay(run: Run, peer: str, seconds: float) -> dict[str, Any]:
    """Measure the delay of one program."""
    job = f"window-{peer}-{uuid.uuid4().hex[:6]}"
    source, target = f"{job}-in", f"{job}-out"
    make_topic(run.bootstrap, source)
    make_topic(run.bootstrap, target)
    reader = Reader(run.bootstrap, target)
    reader.start()
    program = run.program(peer, Job("W", job, source, target, grace_ms=GRACE_MS)).start()
    try:
        rows = Produced(run.bootstrap, source)
        first, last = (BASE_MS + int(s * 1000 * SPEED) // WINDOW_MS * WINDOW_MS for s in (WARM_S, WARM_S + seconds))
        rows.up_to(last + GRACE_MS + AFTER_MS)
        wanted = {window: pair for window, pair in rows.recount.items() if first < window[0] <= last}
        patience = time.monotonic() + 20
        results: list[tumbling.Result] = []
        while len(results) < len(wanted) and time.monotonic() < patience:
            time.sleep(0.2)
            heard = (tumbling.parsed(1000 * at, key or b"", loads(value)) for at, key, value in list(reader.heard))
            results = [one for one in heard if one.end > first]
        if not results:
            raise AssertionError(f"{PEERS[peer].label} gives no results:\n{program.told()}")
        begin, end = rows.closes_at(first), rows.closes_at(last)
        cpu = program.cpu_between(begin, end) / (end - begin)
    finally:
        program.stop()
        reader.ended.set()
        reader.join(10)
    delays = [one.at - 1000 * rows.closes_at(one.end) for one in results]
    complete: dict[int, float] = {}
    for one, late in zip(results, delays, strict=True):
        complete[one.end] = max(late, complete.get(one.end, late))
    delays.sort()
    found = {
        "peer": PEERS[peer].label, "p50_ms": percentile(delays, 50), "p90_ms": percentile(delays, 90), "p99_ms": percentile(delays, 99),
        "max_ms": delays[-1], "complete_p50_ms": median(complete.values()), "windows": len(complete), "results": len(results),
        "outputs_are": tumbling.wrong(results, wanted) or "equal", "cpu_per_s": cpu, "rss_mb": program.rss / 1e6,
        "load": os.getloadavg()[0],
    }  # fmt: skip
    print(
        f"delay  {found['peer']:68} p50 {found['p50_ms']:6.0f}  p90 {found['p90_ms']:6.0f}  p99 {found['p99_ms']:6.0f}  "
        f"max {found['max_ms']:6.0f} ms  window complete {found['complete_p50_ms']:.0f} ms  cpu {cpu:.2f}  {found['rss_mb']:.0f} MB  "
        f"{len(results):,} results of {len(complete)} windows {found['outputs_are']}  load {found['load']:.1f}",
        flush=True,
    )
    drop_topics(run.bootstrap, *(topic for topic in topics(run.bootstrap) if job in topic))
    return found


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench windows", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="small rounds, and delays of 10 seconds; no JVM is warm")
    words.add_argument("--peers", default="headgate-columns,headgate,streams,streams-tuned")
    words.add_argument("--rounds", type=int, default=0, help="5, or 3 in a quick run")
    words.add_argument("--seconds", type=float, default=0, help="of delays: 40, or 10 in a quick run")
    words.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of headgate")
    given = words.parse_args()
    peers = given.peers.split(",")
    delays: list[dict[str, Any]] = []
    with scratch() as directory, Broker.start(directory / "kafka") as broker:
        rounds = given.rounds or (3 if given.quick else 5)
        run = Run(broker, directory, quick=given.quick, rounds=rounds, settings=given.set)
        for peer in peers:
            try:
                if run.measure(Trial(peer, "W")) is not None:
                    delays.append(delay(run, peer, given.seconds or (10.0 if given.quick else 40.0)))
            except (AssertionError, KafkaException, OSError) as error:  # a failed program does not prevent the others
                run.left_out[f"{peer} W"] = str(error) or repr(error)
    for figures in run.figures[1:]:
        ours, theirs = run.figures[0], figures
        rates, per_cpu = ([harmonic_mean(side) / 1e3 for side in sides]
                          for sides in ((ours.rates, theirs.rates), (ours.per_cpu, theirs.per_cpu)))  # fmt: skip
        print(
            f"all rounds together: {ours.peer} {rates[0]:.0f} k/s ({per_cpu[0]:.0f} k/CPU-s), {theirs.peer} {rates[1]:.0f} k/s "
            f"({per_cpu[1]:.0f} k/CPU-s): {rates[0] / rates[1]:.2f} times as fast, {per_cpu[0] / per_cpu[1]:.2f} times a CPU second, "
            f"with {ours.rss_mb / theirs.rss_mb:.2f} of its memory"
        )
    for what, why in run.left_out.items():
        print(f"left out: {what}: {why}")
    throughput = [figures.document() for figures in run.figures]
    report.keep("windows", {"quick": given.quick, "throughput": throughput, "delays": delays, "left_out": run.left_out})
    proven = [one["outputs_are"] for one in (*throughput, *delays) if one["peer"].startswith("headgate")]
    return 0 if proven and all(word == "equal" for word in proven) else 1


if __name__ == "__main__":
    sys.exit(main())
