"""How many control messages a second a worker says and hears: n tasks that write to a stream of n partitions, on both routes.

    python -m bench control [--quick] [--sizes 64,256] [--seconds 15]

One worker runs all tasks. Each input partition gets a record now and then, so that each task has a new watermark at each commit. `direct`:
each task tells all n partitions; `aggregated`: it tells one, whose owner tells the others. After a while the job is drained: the maximal
watermark and the drain of each task, told in the same way.

Counted are the control messages in the stream (it is not trimmed) in a span of time; each is read, too. CPU time is that of the worker over
the same time. A *round* is a watermark of all tasks, told to all partitions: the routes are compared by what a round costs, however many
messages it takes. Prints a table; writes `bench/out/control.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import threading
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from headgate.agents.broker.broker import Broker
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.process.requests import Request, ask
from headgate.core.names import JobName, Topics
from headgate.core.progress.frames import HEADER, Watermark, decode

from . import report
from .restart import lines
from .rig import Program, make_topic, read_all, scratch

ROUTES = {"direct": 1 << 40, "aggregated": 0}
"""By route, the setting `control.aggregate-above`."""
STARTS_S = 300.0
EVERY_S = 0.1
JOB = """
import os
import headgate as hg
app = hg.App(os.environ["BENCH_JOB"])
shuffled = app.input(os.environ["BENCH_SOURCE"], timestamp="ts").repartition("k", partitions=int(os.environ["BENCH_SIZE"]), name="shuffled")
shuffled.to(os.environ["BENCH_TARGET"])
"""


class Trickle(threading.Thread):
    """A record for each partition, again and again; their times go on."""

    def __init__(self, bootstrap: str, topic: str, size: int) -> None:
        super().__init__(daemon=True)
        self._topic, self._size = topic, size
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
        self._ended = threading.Event()

    def run(self) -> None:
        """Write until `end()`."""
        while not self._ended.wait(EVERY_S):
            now_ms = int(time.time() * 1000)
            for partition in range(self._size):
                value = b'{"k":"k%d","ts":%d}' % (partition, now_ms)
                self._producer.produce(self._topic, value, partition=partition)
            self._producer.poll(0)

    def end(self) -> None:
        """Stop."""
        self._ended.set()
        self.join(30)
        self._producer.flush(30)


def running(program: Program) -> int:
    """How many tasks run."""
    told = (line for line in lines(program) if line.get("event") == "task state")
    return len({line["task"] for line in told if line["state"] == "running"})


def start(bootstrap: str, directory: Path, name: str, size: int, route: str) -> Program:
    """A worker, once all of its tasks run."""
    (directory / "control_job.py").write_text(JOB)
    words = [sys.executable, "-m", "headgate.agents.cli", "run", "control_job:app", "--app-dir", str(directory)]
    words += ["-b", bootstrap, "--state-dir", str(directory / name), "--log-format", "json"]
    words += ["--set", f"control.aggregate-above={ROUTES[route]}", "--set", "intermediate.trim=false"]
    env = {"BENCH_JOB": name, "BENCH_SOURCE": f"{name}-in", "BENCH_TARGET": f"{name}-out", "BENCH_SIZE": str(size)}
    program = Program(words, env, directory / f"{name}.log").start()
    give_up = time.monotonic() + STARTS_S
    while running(program) < size:
        if time.monotonic() > give_up or program.popen.poll() is not None:
            raise AssertionError(f"{running(program)} of {size} tasks run:\n{program.told()}")
        time.sleep(0.2)
    return program


def measure(bootstrap: str, directory: Path, size: int, route: str, seconds: float) -> dict[str, Any]:
    """One size and route."""
    name = f"control-{uuid.uuid4().hex[:6]}"
    for topic in (f"{name}-in", f"{name}-out"):
        make_topic(bootstrap, topic, partitions=size)
    program = start(bootstrap, directory, name, size, route)
    trickle = Trickle(bootstrap, f"{name}-in", size)
    trickle.start()
    time.sleep(3.0)
    begun, cpu = time.time(), program.cpu[-1][1]
    time.sleep(seconds)
    ended, cpu = time.time(), program.cpu[-1][1] - cpu
    trickle.end()
    asked = time.monotonic()
    answer = asyncio.run(ask(ClientSettings(bootstrap), Topics(JobName(name)), Request("drain"), timeout_s=300))
    drained_s = time.monotonic() - asked
    program.popen.wait(120)
    program.stop()
    said, rounds = counted(bootstrap, f"{name}-1-shuffled", begun * 1000, ended * 1000, size)
    return {
        "tasks": size, "route": route, "seconds": ended - begun, "messages": said, "a_second": said / (ended - begun),
        "rounds_a_second": rounds / (ended - begun), "cpu_s": cpu, "cpu_ms_a_round": cpu / max(rounds, 1e-9) * 1000,
        "drain_s": drained_s, "drained": str(answer.state), "rss_mb": program.rss / 1e6, "load": os.getloadavg()[0],
    }  # fmt: skip


def counted(bootstrap: str, stream: str, begun_ms: float, ended_ms: float, size: int) -> tuple[int, float]:
    """The control messages that were written in this time, and how often all tasks told all partitions."""
    said, told = 0, Counter[tuple[int, str | None]]()
    for message in read_all(bootstrap, stream):
        if begun_ms <= message.timestamp()[1] < ended_ms and (HEADER, b"watermark") in (message.headers() or ()):
            said += 1
            frame = decode(message.value() or b"")
            if isinstance(frame, Watermark):
                told[message.partition() or 0, frame.task] += 1
    named = sum(count for (_, task), count in told.items() if task is not None)
    unnamed = sum(count for (_, task), count in told.items() if task is None)
    return said, named / size / size if not unnamed else named / size


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench control", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="the smaller size only, and a shorter time")
    words.add_argument("--sizes", default="64,256")
    words.add_argument("--seconds", type=float, default=15.0)
    given = words.parse_args()
    sizes = [int(word) for word in given.sizes.split(",")]
    rows: list[dict[str, Any]] = []
    with scratch() as directory, Broker.start(directory / "kafka") as broker:
        for size in sizes[:1] if given.quick else sizes:
            for route in ROUTES:
                row = measure(broker.bootstrap, directory, size, route, 5.0 if given.quick else given.seconds)
                rows.append(row)
                print(
                    f"{size} × {size} {route}: {row['a_second']:,.0f} control messages a second, {row['rounds_a_second']:.1f} rounds; "
                    f"{row['cpu_ms_a_round']:.0f} ms of CPU a round; drained in {row['drain_s']:.1f} s; {row['rss_mb']:.0f} MB, "
                    f"load {row['load']:.1f}",
                    flush=True,
                )
    report.keep("control", {"rows": rows})
    return int(any(row["drained"] != "done" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
