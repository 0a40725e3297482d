"""How long a record is on its way: work A at 1,000 records a second, from before it is produced to the reader of the output.

    python -m bench latency [--quick] [--peers headgate,headgate-alo,streams,quix] [--seconds 15]

The record carries the time at which it was handed to the producer; librdkafka reads the outputs, read committed, and takes the time when
it has each in hand. The first seconds do not count. Prints p50 and p99 in ms; writes `bench/out/latency.json`.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
import uuid
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from headgate.agents.broker.broker import Broker

from . import report
from .rig import PAD, PARTITIONS, loads, make_topic, scratch
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
    """Takes each output as it comes, and the time."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.delays: list[tuple[float, float]] = []
        """(when it was produced, ms until it was here)."""
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
        """How many have arrived of those produced since then."""
        return sum(1 for sent, _ in list(self.delays) if sent >= when)

    def run(self) -> None:
        """Until it is told to end."""
        while not self.ended.is_set():
            for message in self.reader.consume(500, timeout=0.02):
                if message.error() is None:
                    now = time.time()
                    sent = loads(message.value())["t"]
                    self.delays.append((sent, (now - sent) * 1000))
        self.reader.close()


def produce(bootstrap: str, topic: str, seconds: float) -> int:
    """A steady stream, in steps of a few milliseconds; how many records were written."""
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
    """One program."""
    peer, settings, label = PEERS[name]
    job = f"late-{name}-{uuid.uuid4().hex[:6]}"
    source, target = f"{job}-in", f"{job}-out"
    make_topic(run.bootstrap, source)
    make_topic(run.bootstrap, target)
    run.settings = settings
    program = run.program("streams" if peer == "streams-alo" else peer, "A", job, source, target)
    if peer == "streams-alo":
        program.command = [word for word in program.command if not word.startswith("processing.guarantee")]
    reader = Reader(run.bootstrap, target)
    reader.start()
    program.start()
    try:
        produce(run.bootstrap, source, 2.0)  # until it is up, and its caches warm
        patience = time.monotonic() + 60
        while not reader.delays and time.monotonic() < patience and program.popen.poll() is None:
            produce(run.bootstrap, source, 0.5)
        if not reader.delays:
            raise AssertionError(f"{label} writes nothing:\n{program.told()}")
        before = time.time()
        made = produce(run.bootstrap, source, seconds + skipped)
        patience = time.monotonic() + 20
        while reader.since(before) < made and time.monotonic() < patience:
            time.sleep(0.1)
    finally:
        program.stop()
        reader.ended.set()
        reader.join(10)
    counted = sorted(delay for sent, delay in reader.delays if sent >= before + skipped)
    arrived = reader.since(before)
    row = {
        "peer": label, "p50_ms": percentile(counted, 50), "p90_ms": percentile(counted, 90), "p99_ms": percentile(counted, 99),
        "max_ms": counted[-1], "records": made, "arrived": arrived, "load": os.getloadavg()[0],
    }  # fmt: skip
    print(
        f"{label:70} p50 {row['p50_ms']:6.1f}  p90 {row['p90_ms']:6.1f}  p99 {row['p99_ms']:6.1f}  max {row['max_ms']:7.1f} ms  "
        f"{arrived} of {made} arrived  load {row['load']:.1f}",
        flush=True,
    )
    return row


def percentile(ordered: list[float], percent: int) -> float:
    """The smallest value that so many percent do not exceed."""
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def main() -> int:
    """Measure, print, keep."""
    words = argparse.ArgumentParser(prog="python -m bench latency", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="5 seconds each, headgate only")
    words.add_argument("--peers", default="")
    words.add_argument("--seconds", type=float, default=15.0)
    given = words.parse_args()
    peers = (given.peers or ("headgate,headgate-alo" if given.quick else ",".join(PEERS))).split(",")
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
            except AssertionError as error:
                left_out[name] = str(error)
    for name, why in left_out.items():
        print(f"left out: {name}: {why}")
    report.keep("latency", {"records_per_s": PER_SECOND, "rows": rows, "left_out": left_out})
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
