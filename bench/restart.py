"""How long a restart on the same location takes, by the number of keys: it must not grow with the state.

    python -m bench restart [--quick] [--keys 10000,100000,1000000,10000000]

A job counts records by key. Its worker is ended by SIGTERM and started again, then killed and started again, then started on an empty disk.
The figures are the time that its tasks spend restoring (from `restoring` to `running` in its log), the CPU time of the process meanwhile,
and the time from the start of the process until it logs that it is ready. Prints a table; writes `bench/out/restart.json` and `.png`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
import uuid
from datetime import datetime
from typing import Any

from headgate.agents.broker.broker import Broker

from . import report
from .filling import Record, write
from .judging import Ends
from .programs import Job
from .rig import OUT, PARTITIONS, Program, make_topic, scratch
from .run import Run

STARTS = (("same_disk", "same disk"), ("after_kill", "same disk after kill -9"), ("empty_disk", "empty disk"))


def fill(bootstrap: str, topic: str, keys: int) -> None:
    """Write one record for each key."""
    make = b'{"user":"user-%010d","amount":%d}'
    write(bootstrap, topic, (Record(make % (i, i % 100), i % PARTITIONS) for i in range(keys)))


def lines(program: Program) -> list[dict[str, Any]]:
    """The worker's log."""
    found: list[dict[str, Any]] = []
    for line in program.log.read_text(errors="replace").splitlines():
        if line.startswith("{"):
            found.append(json.loads(line))
    return found


def wait_ready(program: Program, seconds: float) -> float:
    """Wait until all tasks run and the worker logs that it is ready. Returns how long that took."""
    began = time.monotonic()
    while not is_ready(program):
        if time.monotonic() - began > seconds or program.popen.poll() is not None:
            raise AssertionError(f"not ready:\n{program.told()}")
        time.sleep(0.02)
    return time.monotonic() - began


def is_ready(program: Program) -> bool:
    """Whether every task runs, and the worker has logged that it is ready."""
    running: set[str] = set()
    for line in lines(program):
        if line.get("event") == "task state" and line["state"] == "running":
            running.add(line["task"])
        if line.get("event") == "readiness" and line.get("ready") and len(running) == PARTITIONS:
            return True
    return False


def restoring_s(program: Program) -> float:
    """The longest time that a task spent restoring."""
    began: dict[str, datetime] = {}
    longest = 0.0
    for line in lines(program):
        if line.get("event") == "task state":
            at = datetime.fromisoformat(line["timestamp"].replace("Z", "+00:00"))
            if line["state"] == "restoring":
                began[line["task"]] = at
            elif line.get("before") == "restoring" and line["task"] in began:
                longest = max(longest, (at - began[line["task"]]).total_seconds())
    return longest


def restoring_cpu_s(program: Program) -> float:
    """The CPU time of the process from the moment in which the first task restores until the last one runs."""
    moments: dict[str, list[float]] = {"restoring": [], "running": []}
    for line in lines(program):
        if line.get("event") == "task state" and line["state"] in moments:
            at = datetime.fromisoformat(line["timestamp"].replace("Z", "+00:00"))
            moments[line["state"]].append(at.timestamp())
    return program.cpu_between(min(moments["restoring"]), max(moments["running"]))


def started(run: Run, name: str, source: str, target: str, number: int) -> Program:
    """Start the worker once more."""
    program = run.program("headgate", Job("B", name, source, target))
    program.log = run.directory / f"{name}-{number}.log"
    return program.start()


def measure(run: Run, keys: int) -> dict[str, Any]:
    """Measure one size."""
    name = f"restart-{keys}-{uuid.uuid4().hex[:6]}"
    source, target = f"{name}-in", f"{name}-out"
    make_topic(run.bootstrap, source)
    make_topic(run.bootstrap, target)
    fill(run.bootstrap, source, keys)
    program = started(run, name, source, target, 0)
    watch = Ends(run.bootstrap, target)
    while watch.silent_s() < 4.0 or watch.last < keys:
        time.sleep(0.3)
        if program.popen.poll() is not None:
            raise AssertionError(program.told())
    row: dict[str, Any] = {"keys": keys, "load": os.getloadavg()[0]}
    for number, (what, _) in enumerate(STARTS, 1):
        if what == "after_kill":
            os.killpg(program.popen.pid, signal.SIGKILL)
            program.popen.wait(10)
        program.stop()
        if what == "empty_disk":
            for place in (run.directory / name).iterdir():
                if place.name != "location":
                    shutil.rmtree(place, ignore_errors=True)
        program = started(run, name, source, target, number)
        row[f"{what}_ready_s"] = wait_ready(program, 300)
        row[f"{what}_restoring_s"] = restoring_s(program)
    row["empty_disk_cpu_s"] = restoring_cpu_s(program)
    program.stop()
    rate = keys / max(row["empty_disk_restoring_s"], 1e-3)
    cells = [f"{row[f'{what}_restoring_s']:6.2f} s (ready {row[f'{what}_ready_s']:5.2f})" for what, _ in STARTS]
    told = "   ".join(f"{label} {cell}" for (_, label), cell in zip(STARTS, cells, strict=True))
    print(
        f"{keys:>10,} keys   {told}   {rate / 1e3:.0f} k keys/s from empty, "
        f"{row['empty_disk_cpu_s'] / keys * 1e6:.2f} CPU s per million   load {row['load']:.1f}",
        flush=True,
    )
    return row


def plot(rows: list[dict[str, Any]]) -> None:
    """Plot the time by the number of keys."""
    pyplot = report.canvas()
    if pyplot is None or not rows:
        return
    figure, panel = pyplot.subplots(figsize=(6, 3.5))
    for what, label in (
        ("same_disk", "same disk"),
        ("after_kill", "same disk, after kill -9"),
        ("empty_disk", "empty disk"),
    ):
        panel.plot([row["keys"] for row in rows], [row[f"{what}_restoring_s"] for row in rows], marker="o", label=label)
    panel.set_xscale("log")
    panel.set_xlabel("keys")
    panel.set_ylabel("seconds restoring")
    panel.legend()
    figure.tight_layout()
    figure.savefig(OUT / "restart.png", dpi=110)


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench restart", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="up to 10^5 keys")
    words.add_argument("--keys", default="")
    given = words.parse_args()
    sizes = [
        int(word)
        for word in (given.keys or ("10000,100000" if given.quick else "10000,100000,1000000,10000000")).split(",")
    ]
    with scratch() as directory, Broker.start(directory / "kafka") as broker:
        run = Run(broker, directory, quick=True, rounds=1)
        rows = [measure(run, keys) for keys in sizes]
    report.keep("restart", {"rows": rows})
    plot(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
