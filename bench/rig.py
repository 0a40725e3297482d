"""What the benches of whole jobs share: a broker, a known input, programs that are watched, outputs that are checked.

The rate is measured in the same way for all programs:

- The input is in the topic before the program starts: `warm` records that do not count, then `rounds` of equal size.
- For programs that write (A, B, W), the broker's append times of their committed outputs show the progress. For the others (C), the program
  reports its progress itself, with its sum.
- The rate of a round is its size divided by the time between its first and its last record. The median of the rounds counts.
- CPU time and memory are those of the program and all its children (psutil, 20 times a second), without the broker.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import orjson
import psutil
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 4
USERS = 10_000
PAD = "x" * 30
Marks = list[tuple[float, int, int]]
HERE = Path(__file__).resolve().parent
OUT = HERE / "out"
COMMAND_S = 300.0


def admin(bootstrap: str) -> AdminClient:
    """An admin client."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def make_topic(
    bootstrap: str, name: str, config: Mapping[str, str] | None = None, *, partitions: int = PARTITIONS
) -> None:
    """Create a topic."""
    client = admin(bootstrap)
    for future in client.create_topics([NewTopic(name, partitions, 1, config=dict(config or {}))]).values():
        future.result(30)


def topics(bootstrap: str) -> list[str]:
    """All topics."""
    return list(admin(bootstrap).list_topics(timeout=20).topics)


def drop_topics(bootstrap: str, *names: str) -> None:
    """Delete the topics of a run."""
    client = admin(bootstrap)
    there = set(client.list_topics(timeout=20).topics) & set(names)
    for future in client.delete_topics(list(there)).values() if there else ():
        future.result(30)


def partitions_of(client: Any, topic: str) -> int:
    """How many partitions a topic has; 0 if the broker that was asked does not know it yet."""
    return len(client.list_topics(topic, timeout=20).topics[topic].partitions)


def read_all(bootstrap: str, topic: str) -> Iterator[Any]:
    """Every committed record of a topic, read by librdkafka."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "group.id": "bench-reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 5,
        }
    )
    try:
        left = set(range(partitions_of(reader, topic)))
        reader.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in left])
        while left:
            for message in reader.consume(10_000, timeout=5):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                else:
                    raise AssertionError(f"{topic}: {error}")
    finally:
        reader.close()


def command(bootstrap: str, *words: str) -> str:
    """What a command of headgate prints."""
    done = subprocess.run(
        [sys.executable, "-m", "headgate.agents.cli", *words, "-b", bootstrap],
        capture_output=True, text=True, timeout=COMMAND_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise AssertionError(f"headgate {words[0]}: {done.stderr[-500:]}")
    return done.stdout


_running: list[Program] = []
"""What was started and not stopped."""


class Tree:
    """A process and its children, watched from outside."""

    def __init__(self, pid: int) -> None:
        self.root = psutil.Process(pid)
        self._children: list[psutil.Process] = []
        self._looked = 0.0

    def look(self) -> tuple[float, int]:
        """CPU seconds so far, with those of children that have ended, and bytes of memory. Children are looked for once a second, which
        costs a pass over all processes."""
        now = time.monotonic()
        if now - self._looked > 1:
            self._children, self._looked = self.root.children(recursive=True), now
        cpu, rss = sum(self.root.cpu_times()[:4]), self.root.memory_info().rss
        for child in self._children:
            with contextlib.suppress(psutil.NoSuchProcess):
                cpu += sum(child.cpu_times()[:4])
                rss += child.memory_info().rss
        return cpu, rss


def main_thread(pid: int) -> tuple[float, float]:
    """For how many seconds the main thread of a process has run, and has waited for a core; zeros where the system does not say."""
    try:
        run_ns, ready_ns, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    except OSError:
        return 0.0, 0.0
    return int(run_ns) / 1e9, int(ready_ns) / 1e9


KEPT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""The environment of programs: one that may not keep its bytecode compiles all of headgate at each start."""


@dataclass
class Program:
    """A running peer: its CPU time over time, its memory, and its output."""

    command: Sequence[str]
    env: Mapping[str, str]
    log: Path
    marks: Marks = field(default_factory=list)
    """The marks that a program prints for work C: (wall, records, sum)."""
    cpu: list[tuple[float, float]] = field(default_factory=list)
    ran: list[tuple[float, float]] = field(default_factory=list)
    """For how long its main thread has run, over time."""
    ready: list[tuple[float, float]] = field(default_factory=list)
    """For how long its main thread has waited for a core, over time."""
    rss: int = 0

    def start(self) -> Program:
        """Start it, and the two threads that watch it."""
        self.popen = subprocess.Popen(
            self.command, env={**KEPT, **self.env}, stdout=subprocess.PIPE, stderr=self.log.open("wb"),
            stdin=subprocess.DEVNULL, text=True, start_new_session=True, cwd=self.log.parent,
        )  # fmt: skip
        _running.append(self)
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._hear, self._watch)]
        for thread in self._threads:
            thread.start()
        return self

    def _hear(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            words = line.split()
            if words and words[0] == "MARK":
                self.marks.append((float(words[1]), int(words[2]), int(words[3])))

    def _watch(self) -> None:
        tree = Tree(self.popen.pid)
        while self.popen.poll() is None:
            try:
                cpu, rss = tree.look()
            except psutil.Error:
                return
            now, (ran, ready) = time.time(), main_thread(self.popen.pid)
            self.cpu.append((now, cpu))
            self.ran.append((now, ran))
            self.ready.append((now, ready))
            self.rss = max(self.rss, rss)
            time.sleep(0.05)

    def cpu_between(self, begin: float, end: float) -> float:
        """CPU seconds in an interval of wall-clock time."""
        return at(self.cpu, end) - at(self.cpu, begin)

    def stop(self) -> None:
        """End it, by SIGTERM if it reacts."""
        _running[:] = [one for one in _running if one is not self]
        for number, patience in ((signal.SIGTERM, 15), (signal.SIGKILL, 10)):
            if self.popen.poll() is None:
                os.killpg(self.popen.pid, number)
                try:
                    self.popen.wait(patience)
                except subprocess.TimeoutExpired:
                    continue
        for thread in self._threads:
            thread.join(5)

    def told(self) -> str:
        """The end of its standard error."""
        return "\n".join(line[:400] for line in self.log.read_text(errors="replace").splitlines()[-12:])


def at(curve: Sequence[tuple[float, float]], when: float) -> float:
    """The value of a growing curve at a time, interpolated between two samples."""
    i = bisect_left(curve, (when,))
    if i == 0 or i == len(curve):
        return curve[min(i, len(curve) - 1)][1]
    (t0, v0), (t1, v1) = curve[i - 1], curve[i]
    return v0 + (v1 - v0) * (when - t0) / ((t1 - t0) or 1)


def variant(shape: str, keys: int, partitions: int, workers: int) -> list[str]:
    """What is not as usual."""
    more = [shape] if shape != "as-is" else []
    more += [f"{keys:,} keys"] if keys != USERS else []
    more += [f"{partitions} partitions"] if partitions != PARTITIONS else []
    return more + ([f"{workers} workers"] if workers != 1 else [])


@dataclass(frozen=True)
class Figures:
    """The figures of one program for one work."""

    peer: str
    work: str
    rates: tuple[float, ...]
    """Records per second, round by round."""
    per_cpu: tuple[float, ...]
    rss_mb: float
    start_s: float
    outputs: int
    warm: int
    load: float
    """The machine's load average at the end, as a measure of reliability."""
    proven: str = "equal"
    shape: str = "as-is"
    keys: int = USERS
    partitions: int = PARTITIONS
    workers: int = 1
    ran: float = 0.0
    """In which part of the rounds the main thread of a worker ran."""
    ready: float = 0.0
    """In which part it waited for a core. In the rest it waited for the broker, or for threads of its own."""

    def document(self) -> dict[str, Any]:
        """The figures as JSON."""
        return {
            "peer": self.peer, "work": self.work, "records_per_s": median(self.rates), "records_per_cpu_s": median(self.per_cpu),
            "rounds": list(self.rates), "rss_mb": self.rss_mb, "start_s": self.start_s, "outputs": self.outputs,
            "warm_records": self.warm, "load": self.load, "outputs_are": self.proven, "shape": self.shape, "keys": self.keys,
            "partitions": self.partitions, "workers": self.workers, "main_thread_ran": self.ran, "main_thread_ready": self.ready,
        }  # fmt: skip


def rounds_of(
    curve: Sequence[tuple[float, float]], programs: Sequence[Program], warm: int, size: int, rounds: int
) -> tuple[tuple[float, ...], tuple[float, ...], float, float]:
    """Rates, and rates per CPU second; in which part of the rounds the main threads ran, and waited for a core. `curve` is (wall, records
    done)."""
    swapped = [(done, wall) for wall, done in curve]
    walls = [at(swapped, warm + size * k) for k in range(rounds + 1)]
    pairs = list(itertools.pairwise(walls))
    rates = tuple(size / max(1e-6, end - begin) for begin, end in pairs)
    # CPU time over all rounds at once if a round is shorter than a few samples
    per_cpu = tuple(size / max(1e-3, sum(one.cpu_between(begin, end) for one in programs)) for begin, end in pairs)
    first, last = walls[0], walls[-1]
    ran, ready = (
        sum(at(one, last) - at(one, first) for one in curves) / len(programs) / max(1e-6, last - first)
        for curves in ([one.ran for one in programs], [one.ready for one in programs])
    )
    return rates, per_cpu, ran, ready


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A directory for one bench. Its topics take gigabytes, so it is removed with the bench, also after SIGTERM (`timeout`). So is each
    program that still runs."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    directory = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    try:
        yield directory
    finally:
        for program in list(_running):
            program.stop()
        shutil.rmtree(directory, ignore_errors=True)


def loads(raw: bytes) -> Any:
    """Parse JSON."""
    return orjson.loads(raw)


def has_module(name: str) -> bool:
    """Whether a module can be imported."""
    return subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True, check=False).returncode == 0
