"""How often a worker with a backlog commits, and what shorter turns of its loop cost.

    python -m bench turns [--quick] [--works ABCWU] [--forms rows,columns] [--tasks 4,64] [--rounds 3] [--before DIRECTORY]

Works A, B, C and W in rows and in columns, and U: rows, each of which costs a function 1 ms. The whole input is there before the program
starts, and `commit.interval` is 0.2 s. Counted are the times at which a task's checkpoints were written, as its log shows them: the gap
between two of them, for each task, from when all tasks are at work until the first has nothing left to do. Wanted are gaps of at most 0.3 s
(U: 0.5 s).

`--before` names another tree of headgate (after `make tree` there), which is measured in turns with this one, on the same inputs, each of
them first in every other round: then the last columns say how many times as many records a CPU second this tree processes, by the median of
the pairs and its 95 % interval.

Records a second, of the clock and of the CPU, count from the start of the process to its last commit. (They cannot count from its first
commit: where commits starve, that one comes when most of the work is done.)

Prints a line for each run and a table; writes `bench/out/turns.json`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from confluent_kafka import KafkaException

from headgate.agents.broker.broker import Broker

from . import report, tumbling
from .inputs import Input
from .judging import Ends
from .paced import percentile
from .programs import Job, program
from .rig import drop_topics, make_topic, read_all, scratch, topics
from .run import Run

WANTED_MS = 300
SLOW_MS = 500
"""Of U."""
SIZES = {"rows": 2_500_000, "columns": 8_000_000}
TOGETHER_MS = 50
SLOW = 24_000
PATIENCE_S = 240.0
SETTLE_S = 8.0
RESTS = 0.3
"""The share of a core that a program with nothing to do uses at most; one with 64 tasks takes a tenth."""
PEER = {"rows": "headgate", "columns": "headgate-columns"}


@dataclass(frozen=True)
class Case:
    """What is measured."""

    work: str
    form: str
    tasks: int

    def __str__(self) -> str:
        return f"{self.work} {self.form}, {self.tasks} tasks"


def commits_of(bootstrap: str, topic: str) -> list[list[int]]:
    """By task, the times (wall ms) of its commits."""
    found: dict[int, set[int]] = {}
    for message in read_all(bootstrap, topic):
        found.setdefault(message.partition(), set()).add(message.timestamp()[1])
    return [sorted(times) for times in found.values()]


def at_work(commits: Sequence[Sequence[int]]) -> tuple[int, int]:
    """From when to when all tasks were at work."""
    return max(times[min(1, len(times) - 1)] for times in commits), min(times[-1] for times in commits)


def gaps_of(commits: Sequence[Sequence[int]], began: int, ended: int) -> list[float]:
    """The gaps between commits in this time."""
    return sorted(
        float(late - early) for times in commits for early, late in pairwise(times) if began <= early and late <= ended
    )


def commits_of_worker(commits: Sequence[Sequence[int]]) -> list[list[int]]:
    """When the worker committed, whatever tasks took part: what is written within `TOGETHER_MS` of another checkpoint is one commit."""
    times = sorted({one for times in commits for one in times})
    return [times[:1] + [late for early, late in pairwise(times) if late - early > TOGETHER_MS]]


def measure(run: Run, case: Case, records: int, tree: Path | None) -> dict[str, Any]:
    """Measure one case with one tree."""
    given = Input(records, partitions=case.tasks)
    source, name = run.source(given, case.work), f"bench-turns-{case.work.lower()}-{uuid.uuid4().hex[:6]}"
    make_topic(run.bootstrap, f"{name}-out", partitions=case.tasks)
    job = Job(case.work, name, source, f"{name}-out", grace_ms=tumbling.GRACE_MS)
    one = program(PEER[case.form], job, run.bootstrap, run.directory, run.settings)
    if tree is not None:
        one.env = {**one.env, "PYTHONPATH": os.pathsep.join([str(tree / "build" / "tree"), str(tree)])}
    first = time.time()
    one.start()
    try:
        log = wait(run.bootstrap, name, one)
        commits = commits_of(run.bootstrap, log)
    finally:
        one.stop()
        drop_topics(run.bootstrap, *(topic for topic in topics(run.bootstrap) if name in topic))
    span = at_work(commits)
    gaps, of_task = gaps_of(commits_of_worker(commits), *span), gaps_of(commits, *span)
    last = max(times[-1] for times in commits) / 1000
    return {
        "case": str(case), "tree": "this" if tree is None else "before", "gaps": len(gaps), "p50_ms": percentile(gaps, 50),
        "p95_ms": percentile(gaps, 95), "max_ms": percentile(gaps, 100),
        "task_p50_ms": percentile(of_task, 50),
        "per_s": records / (last - first),
        "per_cpu_s": records / one.cpu_between(first, last), "rss_mb": one.rss / 1e6, "load": os.getloadavg()[0],
    }  # fmt: skip


def wait(bootstrap: str, name: str, one: Any) -> str:
    """Wait until the program has nothing left to commit. Returns its log."""
    deadline = time.monotonic() + PATIENCE_S
    watch: Ends | None = None
    while time.monotonic() < deadline:
        time.sleep(0.25)
        if one.popen.poll() is not None:
            break
        if watch is None:
            logs = [topic for topic in topics(bootstrap) if name in topic and topic.startswith("__headgate_log_")]
            watch = Ends(bootstrap, logs[0]) if logs else None
        elif watch.silent_s() > SETTLE_S and rests(one):
            return watch.topic
    raise AssertionError(f"not through after {PATIENCE_S:g} s, or ended by itself:\n{one.told()}")


def rests(one: Any) -> bool:
    """Whether the program has done next to nothing for a while: where commits starve, it is silent, too."""
    now = time.time()
    return one.cpu_between(now - SETTLE_S, now) < RESTS * SETTLE_S


def line(row: dict[str, Any]) -> None:
    """Print one figure."""
    print(
        f"{row['case']:24} {row['tree']:6}  gap of commits p50 {row['p50_ms']:6.0f}  p95 {row['p95_ms']:6.0f}  max {row['max_ms']:6.0f} ms "
        f"({row['gaps']}), of a task {row['task_p50_ms']:5.0f}  {row['per_s'] / 1e3:7.1f} k/s  "
        f"{row['per_cpu_s'] / 1e3:7.1f} k/CPU-s  {row['rss_mb']:4.0f} MB  "
        f"load {row['load']:.1f}",
        flush=True,
    )


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median of these ratios, by drawing them again."""
    rng = Random(0)
    medians = sorted(median(rng.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[1949]


def table(rows: Sequence[dict[str, Any]]) -> bool:
    """Print the medians of the rounds. Returns whether the gaps of this tree are as wanted."""
    print(
        f"\n{'median of the rounds':24}{'gap p50 ms':>12}{'p95':>8}{'before':>10}{'p95':>8}{'times as many a CPU second':>30}"
    )
    good = True
    for case in dict.fromkeys(row["case"] for row in rows):
        mine, others = (
            [row for row in rows if row["case"] == case and row["tree"] == tree] for tree in ("this", "before")
        )
        cells = [
            "-" if not of else f"{median(row[what] for row in of):.0f}"
            for of in (mine, others)
            for what in ("p50_ms", "p95_ms")
        ]
        ratios = [a["per_cpu_s"] / b["per_cpu_s"] for a, b in zip(mine, others, strict=False)]
        ratio = "-"
        if ratios:
            low, high = interval(ratios)
            ratio = f"{median(ratios):.2f} ({low:.2f}-{high:.2f})"
        print(f"{case:24}{cells[0]:>12}{cells[1]:>8}{cells[2]:>10}{cells[3]:>8}{ratio:>30}")
        good = good and median(row["p50_ms"] for row in mine) <= (SLOW_MS if case.startswith("U") else WANTED_MS)
    return good


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench turns", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="one round, a third of the records")
    words.add_argument("--works", default="ABCWU")
    words.add_argument("--forms", default="rows,columns")
    words.add_argument("--tasks", default="4,64")
    words.add_argument("--rounds", type=int, default=0, help="3, or 1 in a quick run")
    words.add_argument("--before", type=Path, help="another tree, which is measured in turns with this one")
    words.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of headgate")
    given = words.parse_args()
    cases = [
        Case(work, form, int(tasks))
        for work in given.works
        for form in (["rows"] if work == "U" else given.forms.split(","))
        for tasks in given.tasks.split(",")
    ]
    rows: list[dict[str, Any]] = []
    with scratch() as directory, Broker.start(directory / "kafka") as broker:
        run = Run(broker, directory, quick=given.quick, rounds=1, settings=given.set)
        trees = [None, *([given.before.resolve()] if given.before else [])]
        for number in range(given.rounds or (1 if given.quick else 3)):
            for case in cases:
                records = (SLOW if case.work == "U" else SIZES[case.form]) // (3 if given.quick else 1)
                for tree in reversed(trees) if number % 2 else trees:  # the second of two may find another machine
                    try:
                        rows.append(measure(run, case, records, tree))
                        line(rows[-1])
                    except (AssertionError, KafkaException, OSError) as error:
                        print(f"! {case}: {error or repr(error)}", flush=True)
    good = table(rows)
    report.keep("turns", {"quick": given.quick, "rows": rows})
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
