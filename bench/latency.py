"""The latency of a record: work A at 1,000 records a second, from just before it is produced until a reader has its output.

    python -m bench latency [--quick] [--peers headgate,headgate-alo,streams,quix] [--seconds 15]

librdkafka reads the outputs, read committed, and notes the time of each. The first seconds do not count. `floor` is the same reader on the
input: the cost of producing and reading alone. Prints p50, p90 and p99 in ms, and those of columns as a share of those of rows; writes
`bench/out/latency.json` and `bench/out/latency.png`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from headgate.agents.broker.broker import Broker

from . import report
from .paced import Paced, Reader, Shown, percentile
from .programs import PEERS, Job, program, without
from .rig import OUT, drop_topics, make_topic, scratch, topics

PER_SECOND = 1000
KEYS = 997
SHOWN = (
    *("headgate", "headgate-columns", "headgate-50ms", "headgate-alo", "headgate-columns-alo"),
    *("streams-shipped", "streams-alo", "quix", "faust"),
)
PATIENCE_S = 60.0


def measure(broker: Broker, directory: Path, peer: str, seconds: float, skipped: float) -> dict[str, Any]:
    """Measure one program."""
    label, job = PEERS[peer].label, f"late-{peer}-{uuid.uuid4().hex[:6]}"
    source, target = f"{job}-in", f"{job}-out"
    make_topic(broker.bootstrap, source)
    make_topic(broker.bootstrap, target)
    readers = Reader(broker.bootstrap, source), Reader(broker.bootstrap, target)
    floor, shown = (Shown(reader, "A", KEYS) for reader in readers)
    load = Paced(broker.bootstrap, source, KEYS)
    for one in readers:
        one.start()
    running = program(peer, Job("A", job, source, target), broker.bootstrap, directory).start()
    try:
        load.steadily(2.0, PER_SECOND)  # until it is up, and its caches are warm
        if not shown.until(len(load.times), PATIENCE_S):
            raise AssertionError(f"{label} writes nothing:\n{running.told()}")
        before, begun = time.time(), len(load.times)
        load.steadily(skipped, PER_SECOND)
        first = len(load.times)
        load.steadily(seconds, PER_SECOND)
        after, made = time.time(), len(load.times)
        shown.until(made, 20)
        floor.until(made, 20)
    finally:
        running.stop()
        for one in readers:
            one.ended.set()
            one.join(10)
    counted, unread = shown.delays_ms(load.times, first), floor.delays_ms(load.times, first)
    if not counted:
        raise AssertionError(f"{label} has stopped writing:\n{running.told()}")
    row = {
        "name": peer, "peer": label,
        "p50_ms": percentile(counted, 50), "p90_ms": percentile(counted, 90), "p99_ms": percentile(counted, 99), "max_ms": counted[-1],
        "floor_p50_ms": percentile(unread, 50), "floor_p99_ms": percentile(unread, 99),
        "cpu_per_s": running.cpu_between(before, after) / (after - before),
        "records": made - begun, "arrived": sum(i >= begun for i in shown.at), "doubled": shown.wrong, "load": os.getloadavg()[0],
    }  # fmt: skip
    print(
        f"{label:70} p50 {row['p50_ms']:6.1f}  p90 {row['p90_ms']:6.1f}  p99 {row['p99_ms']:6.1f}  max {row['max_ms']:7.1f} ms  "
        f"(floor {row['floor_p50_ms']:.1f}, {row['floor_p99_ms']:.1f})  cpu {row['cpu_per_s']:.2f}  "
        f"{row['arrived']} of {row['records']} arrived, {row['doubled']} twice  load {row['load']:.1f}",
        flush=True,
    )
    drop_topics(broker.bootstrap, *(topic for topic in topics(broker.bootstrap) if job in topic))
    return row


def beside_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Print how much longer records take in columns than in rows."""
    by = {row["name"]: row for row in rows}
    for columns, plain in (("headgate-columns", "headgate"), ("headgate-columns-alo", "headgate-alo")):
        if columns in by and plain in by:
            ratios = [
                f"{which} {by[columns][f'{which}_ms'] / by[plain][f'{which}_ms']:.2f}" for which in ("p50", "p99")
            ]
            print(f"{PEERS[columns].label}: {' and '.join(ratios)} of those of rows")


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
    wanted = (
        [name for name in SHOWN if name.startswith("headgate") and "50ms" not in name] if given.quick else list(SHOWN)
    )
    peers = given.peers.split(",") if given.peers else wanted
    if unknown := [name for name in peers if name not in PEERS]:
        words.error(f"no program {', '.join(unknown)}; there are: {', '.join(PEERS)}")
    seconds, skipped = (5.0, 1.0) if given.quick else (given.seconds, 3.0)
    rows: list[dict[str, Any]] = []
    left_out = {name: why for name in peers if (why := without(name, "A"))}
    with scratch() as directory, Broker.start(directory / "kafka") as broker:
        for name in (name for name in peers if name not in left_out):
            try:
                rows.append(measure(broker, directory, name, seconds, skipped))
            except (AssertionError, KafkaException, OSError) as error:  # a failed program does not prevent the others
                left_out[name] = str(error) or repr(error)
    beside_rows(rows)
    for name, why in left_out.items():
        print(f"left out: {name}: {why}")
    report.keep("latency", {"records_per_s": PER_SECOND, "rows": rows, "left_out": left_out})
    plot(rows)
    ours = [row for row in rows if row["name"].startswith("headgate")]
    lost = [row["peer"] for row in ours if row["arrived"] < row["records"] or row["doubled"]]
    for name in lost:
        print(f"! not everything arrived exactly once: {name}")
    return 1 if lost or not rows or any(name.startswith("headgate") for name in left_out) else 0


if __name__ == "__main__":
    sys.exit(main())
