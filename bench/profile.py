"""Where a worker spends its time: works A, B and C in rows and in columns, and W, under py-spy. Each sample counts for the innermost stage.

    python -m bench profile [--works ABCW] [--peers headgate,headgate-typed,headgate-columns] [--seconds 8]

The worker is sampled for some seconds after a warm-up; only its main thread counts (RocksDB and the heartbeat have threads of their own),
and waiting does not. Columns are sampled for half as long and twice as often, because they are through sooner. Prints a table; writes
`bench/out/profile.json`, and the samples beside it (`profile-A-rows.raw`).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from headgate.agents.broker.broker import Broker

from . import report, tumbling
from .inputs import Input
from .judging import Ends
from .programs import PEERS, Job, without
from .rig import OUT, drop_topics, make_topic, scratch, topics
from .run import Run

RECORDS = {"A": 10_000_000, "B": 4_000_000, "C": 10_000_000, "W": 4_000_000}
IN_COLUMNS = {"A": 10_000_000, "B": 14_000_000, "C": 20_000_000, "W": 4_000_000}
PER_SECOND = 200
WARM = 1_500_000
"""Sampling begins after this many records."""
MAIN = "agents/cli/start/run.py"

STAGES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("JSON to columns", ("records/columns/decoder.py",)),
    ("columns to JSON", ("records/columns/encoder.py",)),
    ("expressions", ("records/columns/expressions.py", "core/columns/")),
    ("JSON to values", ("_json_values", "loads_many", "Serde._slowly", "records/values/typed_json.py")),
    ("values to JSON", ("dumps_many", "_json_column", "_cut_to_size", "records/kafka/writable.py", "target_rules.py")),
    ("user code", ("headgate_work.py", "record_types.py")),
    ("freeing the values of the last chunk", ("Pipeline.runs ", "Pipeline.step ")),
    ("record batches to columns", (
        "columns_of", "read_batch", "_RawTaker", "_describe", "_sound", "records/frames/chunks.py", "columns.c", "records/kafka/spans.py",
        "records/kafka/fetched.py",
    )),
    ("columns to record batches", ("agents/kafka/record_batch.py", "runtime/writing/buffer.py")),
    ("windows", ("window", "core/windows/")),
    ("keyed aggregates", (
        "agents/job/types/aggregates.py", "operators/plain/aggregating.py", "operators/base/addends.py", "operators/shuffle/shuffles.py",
        "records/columns/groups.py", "(<string>",
    )),
    ("tables and the task log", (
        "agents/state/table.py", "agents/state/tables.py", "runtime/store/log.py", "runtime/store/state.py", "records/columns/packing.py",
    )),
    ("RocksDB", ("state/rocks.py",)),
    ("shuffle: partitions and frames", (
        "partitioner.py", "framing.py", "records/frames/arrow", "records/columns/arrow_take.py", "records/memory/taking.py",
        "core/progress/frames", "core/progress/arrow",
        "Pipeline.shuffle", "Pipeline._frames",
    )),
    ("operators", ("agents/operators/", "selecting.py", "record.py", "columns.py", "records.py", "vectors.py")),
    ("commits and the producer", ("writing/outbox.py", "committing.py", "writing/producers.py", "task/commit", "aiokafka/producer")),
    ("Kafka client", (
        "aiokafka/", "kafka/private.py", "kafka/receiving.py", "kafka/connection.py", "runtime/reading/intake.py", "async_timeout",
    )),
    ("actors, choosers, machines", ("core/", "agents/", "faust/", "mode/")),
    ("event loop and sockets", ("asyncio/", "selectors.py")),
)  # fmt: skip


def stage_of(stack: list[str]) -> str:
    """The stage for which a sample counts.

    >>> stage_of(["run (asyncio/runners.py:1)", "take (runtime/reading/intake.py:3)", "Buffer.take (agents/records/frames/chunks.py:9)"])
    'record batches to columns'
    """
    for frame in reversed(stack):
        for stage, marks in STAGES:
            if any(mark in frame for mark in marks):
                return stage
    return "other"


def sampled(raw: str) -> Counter[str]:
    """Samples by stage, from py-spy's collapsed stacks."""
    found: Counter[str] = Counter()
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        if any(MAIN in frame for frame in frames):
            found[stage_of(frames)] += int(count)
    return found


def measure(run: Run, peer: str, work: str, seconds: float) -> dict[str, Any]:
    """Measure one work."""
    often = 2 if PEERS[peer].form == "columns" else 1
    given = Input((IN_COLUMNS if often > 1 else RECORDS)[work] // (4 if run.quick else 1))
    source, name = run.source(given, work), f"bench-profile-{work.lower()}-{uuid.uuid4().hex[:6]}"
    target = f"{name}-out"
    make_topic(run.bootstrap, target)
    program = run.program(peer, Job(work, name, source, target, grace_ms=tumbling.GRACE_MS)).start()
    watch = Ends(run.bootstrap, target)
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not is_warm(program, watch, work, WARM // (4 if run.quick else 1)):
            time.sleep(0.1)
        raw = OUT / f"profile-{work}-{PEERS[peer].form}.raw"
        seconds, rate = seconds / often, PER_SECOND * often
        words = [
            "py-spy",
            "record",
            "--pid",
            str(program.popen.pid),
            "--duration",
            f"{max(1, round(seconds))}",
            "--rate",
            str(rate),
        ]
        subprocess.run([str(Path(sys.executable).parent / words[0]), *words[1:], "--format", "raw", "--output", str(raw)],
                       check=True, capture_output=True)  # fmt: skip
    finally:
        program.stop()
        drop_topics(run.bootstrap, *(topic for topic in topics(run.bootstrap) if name in topic))
    counted = sampled(raw.read_text(encoding="utf-8"))
    total = sum(counted.values())
    shares = {stage: 100 * counted[stage] / max(1, total) for stage in [*(stage for stage, _ in STAGES), "other"]}
    title = f"{work} {PEERS[peer].form}"
    return {
        "work": work,
        "peer": peer,
        "title": title,
        "samples": total,
        "busy": total / (rate * seconds),
        "percent": shares,
    }


def is_warm(program: Any, watch: Ends, work: str, records: int) -> bool:
    """Whether enough records were processed for the worker to run at full speed."""
    watch.silent_s()
    if work == "C":
        return bool(program.marks) and program.marks[-1][1] >= records
    return watch.last >= records // (12 if work in "BW" else 1)


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench profile", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--works", default="ABC")
    words.add_argument("--peers", default="headgate,headgate-columns")
    words.add_argument("--seconds", type=float, default=8.0)
    words.add_argument("--quick", action="store_true", help="2 seconds each")
    given = words.parse_args()
    if not (Path(sys.executable).parent / "py-spy").exists():
        print("left out: py-spy is not installed: make bench")
        return 0
    with scratch() as directory, Broker.start(directory / "kafka") as broker:
        run = Run(broker, directory, quick=given.quick, rounds=1)
        seconds = 2.0 if given.quick else given.seconds
        rows = [
            measure(run, peer, work, seconds)
            for work in given.works
            for peer in given.peers.split(",")
            if not without(peer, work)
        ]
    print(f"{'percentage of the main thread':40}" + "".join(f"{row['title']:>12}" for row in rows))
    for stage in rows[0]["percent"]:
        if any(row["percent"][stage] >= 0.5 for row in rows):
            print(f"{stage:40}" + "".join(f"{row['percent'][stage]:12.1f}" for row in rows))
    print(f"{'busy':40}" + "".join(f"{100 * row['busy']:11.0f}%" for row in rows))
    report.keep("profile", {"rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
