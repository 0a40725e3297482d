"""What quiet partitions cost: frames in the stream of the shuffle, commits, and CPU time, where nothing or only one partition has records.

    python -m bench quiet [--quick] [--tasks 4,64] [--seconds 30] [--rounds 3] [--before DIRECTORY]

Work W (a count in event time behind a shuffle that is as wide as the input) with one worker; an input is idle after three seconds. `none`:
each partition gets one record, and then no more. `one`: after that the first partition gets 20 records a second, so that every other task
confirms again and again that it is idle. Counted are the frames that appear in the stream of the shuffle, as the broker's append times
show, and the commits of all tasks, by their log, each per second.

`--before` names another tree of headgate (after `make tree` there), which is measured in turns with this one.

Prints a line for each run and a table; writes `bench/out/quiet.json`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import KafkaException, Producer

from headgate.agents.broker.broker import Broker
from headgate.core.progress.frames import HEADER

from . import report
from .low_load import cpu_of
from .programs import Job, program
from .rig import drop_topics, make_topic, read_all, scratch, topics

IDLE_S = 3.0
SETTLE_S = 3 * IDLE_S
PER_SECOND = 20
SETTINGS = (f"watermark.idle-timeout={IDLE_S:g}s", "intermediate.trim=false")


@dataclass(frozen=True)
class Case:
    """What is measured."""

    tasks: int
    speaking: str
    """`none` or `one` of the partitions."""

    def __str__(self) -> str:
        return f"{self.tasks} x {self.tasks}, {self.speaking}"


def feed(bootstrap: str, topic: str) -> tuple[Callable[[int], None], Callable[[float, bool], None]]:
    """What writes one record to a partition; and what lets time pass, while the first partition speaks or not."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "1", "log_level": 0})
    written = 0

    def write(partition: int) -> None:
        nonlocal written
        now = time.time_ns() // 1_000_000
        producer.produce(topic, b'{"user":"user%d","amount":1,"ts":%d}' % (written % 1000, now), partition=partition)
        written += 1

    def pass_time(seconds: float, speaking: bool) -> None:
        began, told = time.monotonic(), 0
        while (passed := time.monotonic() - began) < seconds:
            while speaking and told < passed * PER_SECOND:
                write(0)
                told += 1
            producer.poll(0.01)
        producer.flush(30)

    return write, pass_time


def count(bootstrap: str, topic: str, first_ms: float, last_ms: float, *, frames: bool) -> int:
    """The frames of a stream in a span of time; or the commits that a log shows there, by task."""
    found: set[tuple[int, int]] = set()
    total = 0
    for message in read_all(bootstrap, topic):
        when = message.timestamp()[1]
        if not first_ms <= when < last_ms:
            continue
        found.add((message.partition(), when))
        total += (HEADER, b"watermark") in (message.headers() or ())
    return total if frames else len(found)


def measure(broker: Broker, directory: Path, case: Case, seconds: float, tree: Path | None) -> dict[str, Any]:
    """Measure one case with one tree."""
    name = f"bench-quiet-{uuid.uuid4().hex[:6]}"
    source = f"{name}-in"
    make_topic(broker.bootstrap, source, partitions=case.tasks)
    make_topic(broker.bootstrap, f"{name}-out", partitions=case.tasks)
    write, pass_time = feed(broker.bootstrap, source)
    for partition in range(case.tasks):
        write(partition)
    one = program("headgate", Job("W", name, source, f"{name}-out"), broker.bootstrap, directory, SETTINGS)
    if tree is not None:
        one.env = {**one.env, "PYTHONPATH": os.pathsep.join([str(tree / "build" / "tree"), str(tree)])}
    one.start()
    try:
        log = wait(broker.bootstrap, name, case.tasks, one.told)
        speaking = case.speaking == "one"
        pass_time(SETTLE_S, speaking)
        begin, brokers = time.time(), cpu_of(broker)
        pass_time(seconds, speaking)
        end, brokers = time.time(), cpu_of(broker) - brokers
        span = begin * 1000, end * 1000
        (stream,) = (topic for topic in topics(broker.bootstrap) if name in topic and topic.endswith("-by-user"))
        frames = count(broker.bootstrap, stream, *span, frames=True)
        commits = count(broker.bootstrap, log, *span, frames=False)
    finally:
        one.stop()
        drop_topics(broker.bootstrap, *(topic for topic in topics(broker.bootstrap) if name in topic))
    return {
        "case": str(case), "tree": "this" if tree is None else "before", "frames_per_s": frames / seconds,
        "commits_per_s": commits / seconds, "cpu": one.cpu_between(begin, end) / seconds,
        "broker_cpu": brokers / seconds, "load": os.getloadavg()[0],
    }  # fmt: skip


def wait(bootstrap: str, name: str, tasks: int, told: Callable[[], str]) -> str:
    """Wait until each task has committed. Returns the log."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        time.sleep(0.5)
        logs = [topic for topic in topics(bootstrap) if name in topic and topic.startswith("__headgate_log_")]
        if logs and len({message.partition() for message in read_all(bootstrap, logs[0])}) == tasks:
            return logs[0]
    raise AssertionError(f"not all of {tasks} tasks have committed:\n{told()}")


def line(row: dict[str, Any]) -> None:
    """Print one figure."""
    print(
        f"{row['case']:14} {row['tree']:6}  {row['frames_per_s']:8.1f} frames/s  {row['commits_per_s']:6.1f} commits/s  "
        f"cpu {row['cpu']:.3f} (broker {row['broker_cpu']:.3f})  load {row['load']:.1f}",
        flush=True,
    )


def table(rows: Sequence[dict[str, Any]]) -> None:
    """Print the medians of the rounds, in parentheses those of the other tree."""
    print(f"\n{'median':14}{'frames/s':>22}{'commits/s':>20}{'CPU':>20}")
    for case in dict.fromkeys(row["case"] for row in rows):
        mine, others = (
            [row for row in rows if row["case"] == case and row["tree"] == tree] for tree in ("this", "before")
        )
        cells: list[str] = []
        for what, form in (("frames_per_s", ".1f"), ("commits_per_s", ".1f"), ("cpu", ".3f")):
            of = [format(median(row[what] for row in some), form) for some in (mine, others) if some]
            cells.append(of[0] + (f" ({of[1]})" if others else ""))
        print(f"{case:14}{cells[0]:>22}{cells[1]:>20}{cells[2]:>20}")


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench quiet", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="ten seconds each, one round")
    words.add_argument("--tasks", default="4,64")
    words.add_argument("--seconds", type=float, default=0, help="30, or 10 in a quick run")
    words.add_argument("--rounds", type=int, default=0, help="3, or 1 in a quick run")
    words.add_argument("--before", type=Path, help="another tree, which is measured in turns with this one")
    given = words.parse_args()
    seconds = given.seconds or (10.0 if given.quick else 30.0)
    cases = [Case(int(tasks), speaking) for tasks in given.tasks.split(",") for speaking in ("none", "one")]
    trees = [None, *([given.before.resolve()] if given.before else [])]
    rows: list[dict[str, Any]] = []
    failed = False
    with scratch() as directory, Broker.start(directory / "kafka") as broker:
        for case in [case for _ in range(given.rounds or (1 if given.quick else 3)) for case in cases]:
            for tree in trees:
                try:
                    rows.append(measure(broker, directory, case, seconds, tree))
                    line(rows[-1])
                except (AssertionError, KafkaException, OSError) as error:
                    failed = True
                    print(f"! {case}: {error or repr(error)}", flush=True)
    table(rows)
    report.keep("quiet", {"quick": given.quick, "rows": rows})
    return int(failed or not rows)


if __name__ == "__main__":
    sys.exit(main())
