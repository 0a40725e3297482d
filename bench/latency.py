"""The latency of a record: work A at 1,000 records a second, from just before it is produced until a reader has its output.

    python -m bench latency [--quick] [--peers headgate,headgate-alo,streams,quix] [--seconds 15]

Each record contains the time at which it was given to the producer. librdkafka reads the outputs, read committed, and notes the time of
each. It reads them one at a time, because a call that waits for several would add its own wait to every figure. The first seconds do not
count. `floor` is the same reader on the input: the cost of producing and reading alone. Prints p50, p90 and p99 in ms; writes
`bench/out/latency.json` and `bench/out/latency.png`.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from headgate.agents.broker.broker import Broker

from . import report
from .rig import OUT, PAD, PARTITIONS, drop_topics, loads, make_topic, scratch
from .throughput import Run

PER_SECOND = 1000
PEERS = {
    "headgate": ("headgate", ("guarantee=exactly_once",), "headgate, exactly once, commits each 200 ms"),
    "headgate-50ms": ("headgate", ("commit.interval=50ms",), "headgate, exactly once, commits each 50 ms"),
    "headgate-alo": ("headgate", ("guarantee=at_least_once",), "headgate, at least once"),
    "streams": ("streams", (), "Kafka Streams, exactly_once_v2, as shipped (commits each 100 ms)"),
    "streams-alo": ("streams-alo", (), "Kafka Streams, at least once, as shipped"),
    "quix": ("quix", (), "Quix Streams, as shipped"),
    "faust": ("faust", (), "Faust, as shipped"),
}


class Reader(threading.Thread):
    """Reads each output as it arrives, with the time."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.heard: list[tuple[float, bytes | None, Any]] = []
        """When a record arrived, its key, its value."""
        self.ended = threading.Event()
        self.reader = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"latency-{uuid.uuid4().hex[:6]}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
                "fetch.queue.backoff.ms": 1,
                "log_level": 0,
            }
        )
        self.reader.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])

    def since(self, when: float) -> int:
        """How many records produced since then have arrived."""
        return len(self.delays(when))

    def delays(self, since: float) -> list[float]:
        """Ms from producing to arrival, of the records that were produced since then."""
        return [(now - value["t"]) * 1000 for now, _, value in list(self.heard) if value["t"] >= since]

    def run(self) -> None:
        """Read until told to end."""
        while not self.ended.is_set():
            message = self.reader.poll(0.1)
            if message is not None and message.error() is None:
                self.heard.append((time.time(), message.key(), loads(message.value())))
        self.reader.close()


def produce(bootstrap: str, topic: str, seconds: float) -> int:
    """Produce a steady stream, in steps of a few milliseconds. Returns how many records were written."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "1", "log_level": 0})
    began = time.time()
    made = 0
    while (now := time.time()) - began < seconds:
        while made < (now - began) * PER_SECOND:
            text = b'{"user":"user%d","amount":%d,"t":%.6f,"city":"Leuven","pad":"%s"}'
            value = text % (made % 997, 10 + made % 90, time.time(), PAD.encode())
            producer.produce(topic, value, partition=made % PARTITIONS)
            made += 1
        producer.poll(0.002)
    producer.flush(20)
    return made


def measure(run: Run, name: str, seconds: float, skipped: float) -> dict[str, Any]:
    """Measure one program."""
    peer, settings, label = PEERS[name]
    job = f"late-{name}-{uuid.uuid4().hex[:6]}"
    source, target = f"{job}-in", f"{job}-out"
    make_topic(run.bootstrap, source)
    make_topic(run.bootstrap, target)
    run.settings = settings
    program = run.program("streams" if peer == "streams-alo" else peer, "A", job, source, target)
    if peer == "streams-alo":
        program.command = [word for word in program.command if not word.startswith("processing.guarantee")]
    floor, reader = Reader(run.bootstrap, source), Reader(run.bootstrap, target)
    for one in (floor, reader):
        one.start()
    program.start()
    try:
        produce(run.bootstrap, source, 2.0)  # until it is up, and its caches are warm
        patience = time.monotonic() + 60
        while not reader.heard and time.monotonic() < patience and program.popen.poll() is None:
            produce(run.bootstrap, source, 0.5)
        if not reader.heard:
            raise AssertionError(f"{label} writes nothing:\n{program.told()}")
        while len(reader.heard) < len(floor.heard) and time.monotonic() < patience:
            time.sleep(0.1)  # records from before it was up belong to no figure
        before = time.time()
        made = produce(run.bootstrap, source, seconds + skipped)
        after = time.time()
        patience = time.monotonic() + 20
        while reader.since(before) < made and time.monotonic() < patience:
            time.sleep(0.1)
    finally:
        program.stop()
        for one in (floor, reader):
            one.ended.set()
            one.join(10)
    counted = sorted(reader.delays(before + skipped))
    unread = sorted(floor.delays(before + skipped))
    if not counted:
        raise AssertionError(f"{label} has stopped writing:\n{program.told()}")
    arrived = reader.since(before)
    row = {
        "name": name, "peer": label,
        "p50_ms": percentile(counted, 50), "p90_ms": percentile(counted, 90), "p99_ms": percentile(counted, 99), "max_ms": counted[-1],
        "floor_p50_ms": percentile(unread, 50), "floor_p99_ms": percentile(unread, 99),
        "cpu_per_s": program.cpu_between(before, after) / (after - before),
        "records": made, "arrived": arrived, "load": os.getloadavg()[0],
    }  # fmt: skip
    print(
        f"{label:70} p50 {row['p50_ms']:6.1f}  p90 {row['p90_ms']:6.1f}  p99 {row['p99_ms']:6.1f}  max {row['max_ms']:7.1f} ms  "
        f"(floor {row['floor_p50_ms']:.1f}, {row['floor_p99_ms']:.1f})  cpu {row['cpu_per_s']:.2f}  "
        f"{arrived} of {made} arrived  load {row['load']:.1f}",
        flush=True,
    )
    drop_topics(run.bootstrap, *(topic for topic in run.topics() if job in topic))
    return row


def percentile(ordered: list[float], percent: int) -> float:
    """The smallest value that so many percent do not exceed; NaN for an empty list."""
    if not ordered:
        return float("nan")
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def plot(rows: Sequence[dict[str, Any]]) -> None:
    """One line for each program, from p50 over p90 to p99, on a logarithmic scale."""
    pyplot = report.canvas()
    if pyplot is None or not rows:
        return
    figure, panel = pyplot.subplots(figsize=(9.5, 1.2 + 0.45 * len(rows)))
    for height, row in enumerate(reversed(rows)):
        color = "#1f6f8b" if row["name"].startswith("headgate") else "#8a9ba1"
        at = [row["p50_ms"], row["p90_ms"], row["p99_ms"]]
        panel.plot(at, [height] * 3, color=color, linewidth=3, solid_capstyle="round")
        for value, shape in zip(at, "o|D", strict=True):
            panel.plot(value, height, shape, color=color, markersize=7, markeredgewidth=2)
        panel.annotate(
            f"{at[0]:.0f} / {at[2]:.0f}", (at[2], height), xytext=(9, -3), textcoords="offset points", fontsize=8
        )
    panel.set_yticks(range(len(rows)), [row["peer"] for row in reversed(rows)], fontsize=8)
    panel.set_xscale("log")
    panel.margins(x=0.25, y=0.12)
    panel.set_xlabel(
        f"ms from producer to reader at {PER_SECOND:,} records/s: p50 (dot), p90 (bar), p99 (diamond)", fontsize=8
    )
    figure.tight_layout()
    path = OUT / "latency.png"
    figure.savefig(path, dpi=110)
    print(f"# {path}")


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench latency", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="5 seconds each, headgate only")
    words.add_argument("--peers", default="")
    words.add_argument("--seconds", type=float, default=15.0)
    given = words.parse_args()
    peers = (given.peers or ("headgate,headgate-alo" if given.quick else ",".join(PEERS))).split(",")
    if unknown := [name for name in peers if name not in PEERS]:
        words.error(f"no program {', '.join(unknown)}; there are: {', '.join(PEERS)}")
    seconds = 5.0 if given.quick else given.seconds
    rows: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    with scratch() as directory, Broker.start(directory / "kafka") as broker:
        run = Run(broker, directory, quick=True, rounds=1, settings=())
        for name in peers:
            try:
                if why := run.cannot(PEERS[name][0], "A"):
                    left_out[name] = why
                else:
                    rows.append(measure(run, name, seconds, 3.0 if not given.quick else 1.0))
            except (
                AssertionError,
                KafkaException,
                OSError,
            ) as error:  # a failed program does not prevent the others
                left_out[name] = str(error) or repr(error)
    for name, why in left_out.items():
        print(f"left out: {name}: {why}")
    report.keep("latency", {"records_per_s": PER_SECOND, "rows": rows, "left_out": left_out})
    plot(rows)
    lost = [row["peer"] for row in rows if row["name"].startswith("headgate") and row["arrived"] < row["records"]]
    for name in lost:
        print(f"! not everything arrived: {name}")
    ours = [name for name in peers if name.startswith("headgate")]
    return 1 if lost or not rows or any(name in left_out for name in ours) else 0


if __name__ == "__main__":
    sys.exit(main())
