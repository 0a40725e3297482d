"""How long a task with much state pauses when it moves to a worker with an empty disk: prepared, and as it is.

    python -m bench moves [--quick] [--keys 1000000] [--rounds 5] [--leaves 3] [--kills 2] [--rate 1000]

A job counts records by key in one task, whose log holds a record for each key. Records come at a steady rate. Then a worker with an empty
disk joins at another location, and the task moves there; this is repeated, prepared (`placement.prepare`) and at once in turn, so that both
meet the same machine. The figures of each move: the longest gap between outputs that a read-committed reader sees, the time from the order
to release until the task runs, how many records of the log were replayed under the grant, and how long the move took with its preparation.
Beside it: the longest gap in the same time without a move. Then the owner gets SIGTERM instead: with `stop.prepare`, in which the other
worker prepares the task, and without, in turn. Then it is killed, with its disk out of reach: with a standby (`standby=1`) and without, in
turn. Prints a table; writes `bench/out/moves.json`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import sys
import threading
import time
import uuid
from datetime import datetime
from statistics import median
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from headgate.agents.broker.broker import Broker

from . import report
from .filling import Record, write
from .judging import Ends
from .programs import Job, program
from .rig import Program, command, make_topic, scratch
from .run import Run

TASK = "Partition 0"
MAKE = b'{"user":"user-%010d","amount":%d}'
SETTLE_S = 3.0
PATIENCE_S = 300.0


class Steady:
    """Writes records at a rate, and reads when outputs come, in two threads."""

    def __init__(self, bootstrap: str, source: str, target: str, keys: int, rate: int) -> None:
        self._bootstrap, self._source, self._target = bootstrap, source, target
        self._keys, self._rate = keys, rate
        self._over = threading.Event()
        self.came: list[float] = []
        """When outputs came, by the wall clock."""
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._write, self._read)]
        for thread in self._threads:
            thread.start()

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 0, "acks": "1", "log_level": 0})
        began, made = time.monotonic(), 0
        while not self._over.wait(0.005):
            while made < (time.monotonic() - began) * self._rate:
                producer.produce(self._source, MAKE % (made * 7919 % self._keys, made % 100), partition=0)
                made += 1
            producer.poll(0)
        producer.flush(20)

    def _read(self) -> None:
        reader = Consumer({
            "bootstrap.servers": self._bootstrap, "group.id": "bench-moves", "isolation.level": "read_committed",
            "enable.auto.commit": False, "fetch.wait.max.ms": 10, "log_level": 0,
        })  # fmt: skip
        reader.assign([TopicPartition(self._target, 0, OFFSET_END)])
        while not self._over.is_set():
            if [one for one in reader.consume(10_000, timeout=0.01) if one.error() is None]:
                self.came.append(time.time())
        reader.close()

    def gap_s(self, begin: float, end: float) -> float:
        """The longest time without an output between two moments."""
        there = [begin, *(at for at in self.came if begin < at < end), end]
        return max(after - before for before, after in itertools.pairwise(there))

    def stop(self) -> None:
        """End both threads."""
        self._over.set()
        for thread in self._threads:
            thread.join(30)


def worker(run: Run, name: str, source: str, target: str, number: int) -> Program:
    """Start a worker with a disk and a location of its own."""
    settings = ["location.provider=env:BENCH_RACK"]
    one = program("headgate", Job("B", name, source, target, worker=number), run.bootstrap, run.directory, settings)
    one.env = {**one.env, "BENCH_RACK": f"rack-{number}"}
    return one.start()


def events(one: Program) -> list[dict[str, Any]]:
    """What a worker has logged."""
    found = one.log.read_text(errors="replace").splitlines()
    return [json.loads(line) for line in found if line.startswith("{") and line.endswith("}")]


def moments(one: Program, state: str) -> list[float]:
    """When the task was in this state here."""
    return [
        datetime.fromisoformat(event["timestamp"].replace("Z", "+00:00")).timestamp()
        for event in events(one)
        if event.get("event") == "task state" and event.get("task") == TASK and event["state"] == state
    ]


def wait(one: Program, what: str, found: Any) -> None:
    """Wait until this is true of a worker."""
    until = time.monotonic() + PATIENCE_S
    while not found():
        if time.monotonic() > until or one.popen.poll() is not None:
            raise AssertionError(f"{what}: not in time\n{one.told()}")
        time.sleep(0.05)


def moved(run: Run, name: str, steady: Steady, old: Program, new: Program, number: int, how: str) -> dict[str, Any]:
    """Move the task to a worker that has just joined, and measure."""
    wait(new, "joined", lambda: any(event.get("event") == "readiness" and event.get("ready") for event in events(new)))
    command(run.bootstrap, "config", "set", name, "placement.prepare", "5m" if how == "prepared" else "0s")
    time.sleep(SETTLE_S)
    quiet = steady.gap_s(time.time() - SETTLE_S, time.time())
    asked = time.time()
    command(run.bootstrap, "move", name, TASK, "--to", f"worker-{number}", "--wait")
    wait(new, "runs", lambda: moments(new, "running"))
    time.sleep(SETTLE_S)
    runs = moments(new, "running")[-1]
    releases = [at for at in moments(old, "releasing") if at > asked]
    replayed = [
        event["records"]
        for event in events(new)
        if event.get("event") == "state is restored" and event.get("task") == TASK
    ]
    return {
        "how": how, "gap_s": steady.gap_s(asked, runs + SETTLE_S), "quiet_s": quiet, "switch_s": runs - releases[-1],
        "restore_s": runs - moments(new, "restoring")[-1],
        "move_s": runs - asked, "replayed": replayed[-1] if replayed else None,
    }  # fmt: skip


def logged(one: Program, what: str) -> list[dict[str, Any]]:
    """What a worker has logged under this name."""
    return [event for event in events(one) if event.get("event") == what]


def ended(run: Run, name: str, steady: Steady, old: Program, new: Program, how: str) -> dict[str, Any]:
    """End the owner while another worker is there, and measure."""
    command(run.bootstrap, "config", "set", name, "standby", str(int(how == "standby")))
    command(run.bootstrap, "config", "set", name, "placement.prepare", "5m")
    command(run.bootstrap, "config", "set", name, "stop.prepare", "5m" if how == "leaves, prepared" else "0s")
    wait(new, "joined", lambda: any(event.get("ready") for event in logged(new, "readiness")))
    if how == "standby":
        wait(new, "follows", lambda: logged(new, "a task log is followed"))
    time.sleep(SETTLE_S)
    died = time.time()
    if how.startswith("leaves"):
        old.popen.terminate()
    else:
        os.killpg(old.popen.pid, signal.SIGKILL)
    wait(new, "runs", lambda: moments(new, "running"))
    time.sleep(SETTLE_S)
    runs, restoring = moments(new, "running")[-1], moments(new, "restoring")[-1]
    return {
        "how": how, "gap_s": steady.gap_s(died - 1, runs + SETTLE_S), "quiet_s": 0.0, "switch_s": runs - restoring,
        "restore_s": runs - restoring, "move_s": runs - died, "replayed": logged(new, "state is restored")[-1]["records"],
    }  # fmt: skip


def measure(run: Run, keys: int, rounds: int, leaves: int, kills: int, rate: int) -> list[dict[str, Any]]:
    """All moves of one job, and all ends of an owner."""
    name = f"moves-{uuid.uuid4().hex[:6]}"
    source, target = f"{name}-in", f"{name}-out"
    for topic in (source, target):
        make_topic(run.bootstrap, topic, partitions=1)
    write(run.bootstrap, source, (Record(MAKE % (i, i % 100), 0) for i in range(keys)))
    owner = worker(run, name, source, target, 1)
    ends = Ends(run.bootstrap, target)
    while ends.silent_s() < 4.0 or ends.last < keys:
        time.sleep(0.3)
        if owner.popen.poll() is not None:
            raise AssertionError(owner.told())
    steady = Steady(run.bootstrap, source, target, keys, rate)
    time.sleep(SETTLE_S)
    rows: list[dict[str, Any]] = []
    for number in range(2, 2 * rounds + 2):
        new = worker(run, name, source, target, number)
        rows.append(moved(run, name, steady, owner, new, number, "prepared" if number % 2 == 0 else "as it is"))
        told(rows[-1])
        owner.stop()
        owner = new
    ways = ["leaves, prepared", "leaves"] * leaves + ["standby", "no standby"] * kills
    for number, how in enumerate(ways, 2 * rounds + 2):
        new = worker(run, name, source, target, number)
        rows.append(ended(run, name, steady, owner, new, how))
        told(rows[-1])
        owner.stop()
        owner = new
    owner.stop()
    steady.stop()
    return rows


def told(row: dict[str, Any]) -> None:
    """Print a move."""
    gap, quiet, switch, restore = (row[name] * 1e3 for name in ("gap_s", "quiet_s", "switch_s", "restore_s"))
    print(
        f"{row['how']:>16}   longest gap {gap:7,.0f} ms (without {quiet:4,.0f} ms)   release to running {switch:6,.0f} ms, of it "
        f"restoring {restore:6,.0f} ms   replayed {row['replayed']:>9,}   in all {row['move_s']:6.2f} s",
        flush=True,
    )


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench moves", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="50,000 keys, one of each kind")
    words.add_argument("--keys", type=int, default=1_000_000)
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--leaves", type=int, default=3)
    words.add_argument("--kills", type=int, default=2)
    words.add_argument("--rate", type=int, default=1000)
    given = words.parse_args()
    often = (1, 1, 1) if given.quick else (given.rounds, given.leaves, given.kills)
    keys = 50_000 if given.quick else given.keys
    with scratch() as directory, Broker.start(directory / "kafka") as broker:
        rows = measure(Run(broker, directory, quick=given.quick, rounds=1), keys, *often, given.rate)
    for how in dict.fromkeys(row["how"] for row in rows):
        of = [row for row in rows if row["how"] == how]
        one = {
            what: median(row[what] for row in of)
            for what in ("gap_s", "quiet_s", "switch_s", "restore_s", "move_s", "replayed")
        }
        print(f"{keys:,} keys, {len(of)} times, p50, load {os.getloadavg()[0]:.1f}:", end=" ")
        told({"how": how, **one})
    report.keep("moves", {"keys": keys, "rate": given.rate, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
