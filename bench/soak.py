"""Whether the memory of workers grows: B for half an hour, while its workers lose their incarnations, tasks move and the broker restarts.

    python -m bench soak [--quick] [--minutes 30] [--rate 2000] [--workers 3] [--peer headgate] [--seed 1] [--set NAME=VALUE]

Workers of one job count and sum by key behind a shuffle, at a steady rate that is not the most they can do, with 10,000 keys that are all
there from the first seconds on: what they hold does not grow with time. Meanwhile they are disturbed, one disturbance after the other:

- A worker is stopped (SIGSTOP) for longer than `session.timeout`, so that others take its tasks. When it goes on, it is fenced, and the
  same process begins a new incarnation. That is where a process can leak: clients, producers, stores and tasks of the old one.
- A task moves to another worker (`headgate move`).
- The broker restarts, by kill -9 and in good order in turn.

The memory of each process is sampled once a second. The first third does not count: allocators, caches and write buffers fill up in it, and
each worker has had each task by then. The slope of the rest, by least squares, must be at most 1 MB a minute for each worker, and at least
fifty incarnations must have ended in half an hour. In the end the counts and sums of all keys are compared with a recount of the input,
and no count may have come twice or gone back. In a quick run (2 minutes) the slope is shown and not judged. Writes `bench/out/soak.json`,
`bench/out/soak-light.svg` and `bench/out/soak-dark.svg`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from statistics import linear_regression, mean
from typing import Any

import psutil
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from headgate.agents.broker.broker import Broker

from . import report, soak_plot
from .programs import PEERS, Job, program
from .rig import OUT, PARTITIONS, USERS, Program, Tree, command, loads, make_topic, read_all, scratch
from .run import Run

LIMIT_MB = 1.0
"""By which the memory of a worker may grow in a minute."""
INCARNATIONS, IN_MINUTES = 50, 30.0
SESSION_S = 3.0
SETTINGS = (f"session.timeout={SESSION_S:g}s", "heartbeat.interval=500ms", "state.memory=16MiB")
"""With 256 MiB for tables, as shipped, caches and write buffers would still fill up when the measured time begins."""
WARM = 1 / 3
ROUND = ("stop", "move", "broker", *("stop",) * 5, "move", *("stop",) * 5, "move", *("stop",) * 4)
"""In this order, again and again."""
PAUSE_S = 6.0
"""Between two disturbances: time to restore, and to work."""
AWAITED_S = 30.0
"""A worker that was stopped is not stopped again before it has begun a new incarnation, or for so long: on a machine that is busy with
other things that may come late, or not at all. Others may be stopped meanwhile. What is counted are the incarnations, not the stops."""
PATIENCE_S = 240.0
MAKE = b'{"user":"user%d","amount":%d,"i":%d,"city":"Leuven"}'


class Load(threading.Thread):
    """Writes records at a rate, whatever happens to the broker: what it could not write in time follows."""

    def __init__(self, bootstrap: str, topic: str, rate: int) -> None:
        super().__init__(daemon=True)
        self._address, self._topic, self._rate = bootstrap, topic, rate
        self._over = threading.Event()
        self.written = 0
        self.failed = 0

    def run(self) -> None:
        """Write until told to end."""
        settings = {
            "bootstrap.servers": self._address, "linger.ms": 5, "enable.idempotence": True, "log_level": 0,
            "message.timeout.ms": 300_000, "queue.buffering.max.messages": 1_000_000,
        }  # fmt: skip
        producer = Producer(settings)
        began, made = time.monotonic(), 0
        while not self._over.wait(0.01):
            while made < (time.monotonic() - began) * self._rate:
                value = MAKE % (made * 7919 % USERS, 1 + made % 97, made)
                producer.produce(self._topic, value, partition=made % PARTITIONS, on_delivery=self._told)
                made += 1
            producer.poll(0)
        producer.flush(PATIENCE_S)

    def _told(self, error: Any, _: Any) -> None:
        self.failed += error is not None
        self.written += error is None

    def end(self) -> int:
        """End, and return how many records were written."""
        self._over.set()
        self.join(PATIENCE_S + 10)
        return self.written


class Shown(threading.Thread):
    """Follows the outputs: the last count and sum of each user, and what came that was no progress."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.last: dict[bytes, tuple[int, int]] = {}
        self.records = self.wrong = 0
        self._reader = Consumer({
            "bootstrap.servers": bootstrap, "group.id": "bench-soak", "isolation.level": "read_committed",
            "enable.auto.commit": False, "log_level": 0,
        })  # fmt: skip
        self._reader.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])

    def run(self) -> None:
        """Read until told to end. Errors of a broker that is away are none of the outputs."""
        while not self.over.is_set():
            for message in self._reader.consume(10_000, timeout=0.2):
                if message.error() is None:
                    self._take(message.key() or b"", loads(message.value() or b""))
        self._reader.close()

    def _take(self, key: bytes, value: dict[str, int]) -> None:
        before = self.last.get(key, (0, 0))
        self.wrong += value["n"] <= before[0]
        self.records += value["n"] - before[0]
        self.last[key] = value["n"], value["total"]


@dataclass
class Worker:
    """A worker, what it has logged, and its memory over time."""

    name: str
    running: Program
    incarnations: dict[str, float] = field(default_factory=dict)
    """When the log has named each of them first."""
    tasks: set[str] = field(default_factory=set)
    """Those that run here, as its log says."""
    samples: list[tuple[float, float, float]] = field(default_factory=list)
    """(wall, MB resident, MB with its share of shared pages)."""
    awaited: tuple[int, float] = 0, 0.0
    """How many incarnations it had when it was stopped, and until when another one is awaited."""
    _read: int = 0

    def __post_init__(self) -> None:
        self._tree = Tree(self.running.popen.pid)

    def look(self) -> None:
        """Take in what it has logged since."""
        with self.running.log.open("rb") as log:
            log.seek(self._read)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                if line.startswith(b"{"):
                    self._take(json.loads(line))

    def _take(self, said: dict[str, Any]) -> None:
        at = datetime.fromisoformat(said["timestamp"].replace("Z", "+00:00")).timestamp()
        if said.get("event") == "readiness" and said.get(
            "incarnation"
        ):  # a leader names those of others, too, in other events
            self.incarnations.setdefault(said["incarnation"], at)
        if said.get("event") == "task state":
            (self.tasks.add if said["state"] == "running" else self.tasks.discard)(said["task"])

    def is_awaited(self, now: float) -> bool:
        """Whether it was stopped, and has not begun another incarnation yet."""
        return len(self.incarnations) <= self.awaited[0] and now < self.awaited[1]

    def sample(self) -> None:
        """Note its memory."""
        rss = self._tree.look()[1]
        self.samples.append((time.time(), rss / 1e6, self._tree.root.memory_full_info().pss / 1e6))

    def slope(self, since: float, which: int = 1) -> float:
        """MB a minute since then: of what is resident (1), or of its share (2)."""
        counted = [one for one in self.samples if one[0] >= since]
        if len(counted) < 3:
            return math.nan
        return linear_regression([one[0] / 60 for one in counted], [one[which] for one in counted]).slope


class Soak:
    """A job at work, and what disturbs it."""

    def __init__(self, run: Run, broker: Broker, peer: str, workers: int, rate: int, seed: int) -> None:
        """The settings of `run` come before those of every soak."""
        self.run, self.broker = run, broker
        self.job = f"soak-{uuid.uuid4().hex[:6]}"
        self.source, self.target = f"{self.job}-in", f"{self.job}-out"
        for topic in (self.source, self.target):
            make_topic(run.bootstrap, topic)
        self.chance = random.Random(seed)
        self.disturbances: list[tuple[float, str, str]] = []
        """(wall, kind, what it did)."""
        self.began = math.nan
        """When all tasks ran, and the disturbances began."""
        self.loads: list[float] = []
        """The load average of the machine, at each sample."""
        self.load = Load(run.bootstrap, self.source, rate)
        self.shown = Shown(run.bootstrap, self.target)
        jobs = [Job("B", self.job, self.source, self.target, worker=number + 1) for number in range(workers)]
        started = [program(peer, job, run.bootstrap, run.directory, (*SETTINGS, *run.settings)).start() for job in jobs]
        self.workers = [Worker(f"worker-{job.worker}", one) for job, one in zip(jobs, started, strict=True)]
        self._over = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self.load.start()
        self.shown.start()

    def _sample(self) -> None:
        while not self._over.wait(1.0):
            self.loads.append(os.getloadavg()[0])
            for one in self.workers:
                try:
                    one.sample()
                except psutil.Error:
                    return  # `look` names the worker that has ended

    def look(self) -> None:
        """Take in what the workers have logged; raises if one has ended."""
        for one in self.workers:
            one.look()
            if (code := one.running.popen.poll()) is not None:
                raise AssertionError(f"{one.name} ended by itself ({code}):\n{one.running.told()}")

    def until(self, what: str, done: Any, seconds: float = PATIENCE_S) -> None:
        """Wait until this is true."""
        give_up = time.monotonic() + seconds
        while not done():
            self.look()
            if time.monotonic() > give_up:
                told = "\n".join(f"-- {one.name}\n{one.running.told()}" for one in self.workers)
                raise AssertionError(f"{what}: not in {seconds:g} s\n{told}")
            time.sleep(0.1)

    def running(self) -> bool:
        """Whether each task runs on one worker."""
        tasks = [task for one in self.workers for task in one.tasks]
        return len(tasks) == PARTITIONS == len(set(tasks))

    def go(self, minutes: float) -> None:
        """Disturb it for so long."""
        self.until("all tasks run", self.running)
        self._sampler.start()
        self.began = began = time.time()
        self._said_at = began
        for kind in self._kinds():
            pause = min(began + minutes * 60, time.time() + PAUSE_S)
            while time.time() < pause:
                self.look()
                time.sleep(0.2)
            if time.time() >= began + minutes * 60:
                break
            at = time.time()
            self.disturbances.append((at, kind, ""))
            what = getattr(self, f"_{kind}")()
            self.disturbances[-1] = (at, kind, what)
            self._say(began)
        self._over.set()
        self._sampler.join(10)

    def _kinds(self) -> Iterator[str]:
        while True:
            yield from ROUND

    def _say(self, began: float) -> None:
        """A line each minute."""
        if time.time() < self._said_at + 60:
            return
        self._said_at = time.time()
        now = ", ".join(f"{one.samples[-1][1]:.0f}" for one in self.workers)
        print(
            f"{(self._said_at - began) / 60:5.1f} min   {now} MB   {self.ended()} incarnations ended   "
            f"{self.load.written:,} records written, {self.shown.records:,} shown   load {os.getloadavg()[0]:.1f}",
            flush=True,
        )

    def ended(self, since: float = 0.0) -> int:
        """How many incarnations have ended, by the ones that followed."""
        return sum(at >= since for one in self.workers for at in sorted(one.incarnations.values())[1:])

    # ------------------------------------------------------------------------------------------------------- disturbances

    def _stop(self) -> str:
        """A worker is stopped for longer than others wait for it; then it is another incarnation."""
        there = [one for one in self.workers if not one.is_awaited(time.monotonic())]
        if not there:
            return "none: each worker still begins an incarnation"
        one = self.chance.choice([one for one in there if one.tasks] or there)
        one.awaited = len(one.incarnations), time.monotonic() + AWAITED_S
        pid = one.running.popen.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(SESSION_S + self.chance.uniform(1.0, 3.0))
        finally:
            os.kill(pid, signal.SIGCONT)
        return one.name

    def _move(self) -> str:
        """A task moves to a worker that does not have it."""
        owners = {task: one for one in self.workers for task in one.tasks}
        task = self.chance.choice(sorted(owners) or ["Partition 0"])
        to = self.chance.choice([one.name for one in self.workers if one is not owners.get(task)])
        try:
            command(self.run.bootstrap, "move", self.job, task, "--to", to, "--wait", "--timeout", "60s")
        except subprocess.CalledProcessError as error:
            return f"{task} to {to}: exit code {error.returncode}"
        return f"{task} to {to}"

    def _broker(self) -> str:
        """The broker is gone for some seconds."""
        hard = sum(kind == "broker" for _, kind, _ in self.disturbances) % 2 == 1
        if hard:
            self.broker.kill()
        self.broker.restart()
        return "kill -9" if hard else "in good order"

    # -------------------------------------------------------------------------------------------------------------- the end

    def settle(self) -> str:
        """End the load, wait for the last outputs, and compare. Returns what is wrong."""
        made = self.load.end()
        self.until("all records are shown", lambda: self.shown.records >= made)
        for one in self.workers:
            one.running.popen.terminate()
        for one in self.workers:
            one.running.popen.wait(PATIENCE_S)
            one.look()
        wanted: dict[bytes, tuple[int, int]] = {}
        read = 0
        for message in read_all(self.run.bootstrap, self.source):
            value = loads(message.value())
            n, total = wanted.get(value["user"].encode(), (0, 0))
            wanted[value["user"].encode()] = n + 1, total + value["amount"]
            read += 1
        self.until_shown(read)
        found = {key.strip(b'"'): value for key, value in self.shown.last.items()}
        differ = sum(found.get(key) != value for key, value in wanted.items()) + len(found.keys() - wanted.keys())
        faults = [f"{differ} of {len(wanted):,} keys differ from a recount"] * bool(differ)
        faults += [f"{self.shown.wrong} outputs are no progress"] * bool(self.shown.wrong)
        faults += [f"{self.load.failed} records could not be written"] * bool(self.load.failed)
        return ", ".join(faults)

    def until_shown(self, records: int) -> None:
        """Wait for the reader of outputs, for what the topic holds."""
        give_up = time.monotonic() + 30
        while self.shown.records < records and time.monotonic() < give_up:
            time.sleep(0.1)
        self.shown.over.set()
        self.shown.join(30)


def document(soak: Soak, began: float, warm: float, minutes: float, wrong: str) -> dict[str, Any]:
    """All figures."""
    workers = [
        {
            "name": one.name, "slope_mb_per_min": one.slope(warm), "pss_slope_mb_per_min": one.slope(warm, 2),
            "first_mb": one.samples[0][1], "last_mb": one.samples[-1][1], "max_mb": max(mb for _, mb, _ in one.samples),
            "incarnations": sorted(round(at - began, 1) for at in one.incarnations.values()),
            "samples": [(round(at - began, 1), round(rss, 2), round(pss, 2)) for at, rss, pss in one.samples],
        }
        for one in soak.workers
    ]  # fmt: skip
    return {
        "minutes": minutes, "warm_s": warm - began, "records": soak.load.written, "keys": len(soak.shown.last),
        "incarnations_ended": soak.ended(began), "of_them_after_warm_up": soak.ended(warm),
        "disturbances": [(round(at - began, 1), kind, what) for at, kind, what in soak.disturbances],
        "load_mean": mean(soak.loads), "load_max": max(soak.loads), "wrong": wrong, "workers": workers,
    }  # fmt: skip


def told(found: dict[str, Any]) -> None:
    """Print the figures."""
    kinds = [kind for _, kind, _ in found["disturbances"]]
    print(
        f"\n{found['minutes']:g} minutes, {found['records']:,} records, {found['keys']:,} keys: {found['incarnations_ended']} incarnations "
        f"ended, {found['of_them_after_warm_up']} of them after the warm-up of {found['warm_s'] / 60:.1f} minutes; {kinds.count('move')} "
        f"moves, {kinds.count('broker')} restarts of the broker; load {found['load_mean']:.1f} in the mean, {found['load_max']:.1f} at most"
    )
    for one in found["workers"]:
        print(
            f"{one['name']}   {one['slope_mb_per_min']:+.2f} MB a minute resident ({one['pss_slope_mb_per_min']:+.2f} by its share of "
            f"pages)   {one['first_mb']:.0f} MB at first, {one['last_mb']:.0f} in the end, {one['max_mb']:.0f} at most   "
            f"{len(one['incarnations'])} incarnations"
        )
    print(f"counts and sums of all keys: {found['wrong'] or 'equal to a recount, and no output came twice'}")


def faults(found: dict[str, Any], *, quick: bool) -> list[str]:
    """What is not as it must be."""
    wanted = math.floor(INCARNATIONS * found["minutes"] / IN_MINUTES)
    missing = [found["wrong"]] if found["wrong"] else []
    if found["incarnations_ended"] < wanted:
        missing.append(f"{found['incarnations_ended']} incarnations have ended, {wanted} were wanted")
    for one in found["workers"] if not quick else ():
        if not one["slope_mb_per_min"] <= LIMIT_MB:
            missing.append(f"{one['name']} grows by {one['slope_mb_per_min']:.2f} MB a minute, {LIMIT_MB:g} is allowed")
    return missing


def main() -> int:
    """Disturb, measure, and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench soak", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="2 minutes; the slope is not judged")
    words.add_argument("--minutes", type=float, default=0, help="30, or 2 in a quick run")
    words.add_argument("--rate", type=int, default=2000, help="records a second")
    words.add_argument("--workers", type=int, default=3)
    words.add_argument("--peer", default="headgate", choices=[name for name in PEERS if name.startswith("headgate")])
    words.add_argument("--seed", type=int, default=1, help="of what is disturbed")
    words.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of headgate")
    given = words.parse_args()
    if given.workers < 2:
        words.error("--workers: at least 2, so that another one takes the tasks of one that is stopped")
    minutes = given.minutes or (2.0 if given.quick else IN_MINUTES)
    with scratch() as directory, Broker.start(directory / "kafka") as broker:
        soak = Soak(
            Run(broker, directory, quick=True, rounds=1, settings=given.set),
            broker,
            given.peer,
            given.workers,
            given.rate,
            given.seed,
        )
        try:
            soak.go(minutes)
            wrong = soak.settle()
        except AssertionError as error:  # what was measured until then is kept
            if math.isnan(soak.began):
                raise
            wrong = str(error)
        found = document(soak, soak.began, soak.began + minutes * 60 * WARM, minutes, wrong)
    told(found)
    report.keep("soak", found)
    for scheme, drawing in soak_plot.drawn(found).items():
        (OUT / f"soak-{scheme}.svg").write_text(drawing, encoding="utf-8")
        print(f"# {OUT / f'soak-{scheme}.svg'}")
    for one in (missing := faults(found, quick=given.quick)):
        print(f"! {one}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
