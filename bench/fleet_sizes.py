"""How steering grows with the fleet: bytes and records of the coordinator stream and of heartbeats, and how long placing, folding, starting
and noticing a death take.

    python -m bench fleet_sizes [--quick] [--real 64x8] [--sizes 64x8,1000x100] [--large 10000x500]

- `--sizes`, tasks x workers: the machines of all workers in one process, on one modelled stream, in modelled time. They are the real ones;
  Kafka and the restoring of state take no time. Seconds are of modelled time, with the default settings.
- `--large`: only the state of such a fleet: its placement, its messages, and a newcomer that folds them.
- `--real`: worker processes on a real broker, on this machine: from their start until all tasks run, what a minute of rest writes, and one
  of them is killed.

Prints tables; writes `bench/out/fleet_sizes.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import uuid
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from headgate.agents.broker.broker import Broker
from headgate.core.coordination import messages as c
from headgate.core.coordination.leader.assignment import tasks_of
from headgate.core.coordination.leader.plan import Plan
from headgate.core.coordination.messages import Entry
from headgate.core.coordination.placement import place
from headgate.core.coordination.state import JobState
from headgate.core.coordination.wire import encode, encode_key
from headgate.core.graph.model import JobModel
from headgate.core.names import JobName, Topics
from headgate.core.orders import TaskState
from tests.core.house import House, graph, plan

from . import report
from .rig import Program, make_topic, scratch

MINUTE_S = 60.0
JOB = """
import os
import headgate as hg

app = hg.App(os.environ["BENCH_JOB"])
app.input(os.environ["BENCH_SOURCE"], key="k").agg(n=hg.count(), name="counts")
"""


class Machines(House):
    """The machines of many workers. What a story checks after each step is checked once, at its end."""

    settled = True
    """Whether what happens takes effect at once; otherwise it does together, later."""

    def settle(self) -> None:
        """Until nothing more happens without time."""
        while self.settled:
            queue, self.queue = self.queue, deque()
            for item in queue:
                if item[0].turns:
                    self.carry_out(*item)
            if not queue and not self.deliver():
                return

    def check_owners(self) -> None:
        """Not at each start of a task."""

    def even(self, tasks: int) -> bool:
        """Whether all tasks run, spread over all workers."""
        shares = [len(one.tasks) for one in self.workers if one.turns]
        return sum(shares) == tasks and max(shares) - min(shares) <= 1

    def until_even(self, tasks: int) -> float:
        """Let time pass until they do; how much it was."""
        began = self.now.mono
        while not self.even(tasks):
            self.run(0.5)
        House.check_owners(self)
        return self.now.mono - began


def sizes(entries: Iterable[Entry]) -> tuple[int, int]:
    """Records and bytes of a part of the stream."""
    records = written = 0
    for entry in entries:
        key, value = (encode_key(entry.key), b"") if entry.message is None else encode(entry.message)
        records, written = records + 1, written + len(key) + len(value)
    return records, written


def modelled(tasks: int, workers: int) -> dict[str, Any]:
    """A fleet starts, rests for a minute, and loses a worker."""
    house, code, began = Machines(tasks), plan(), time.process_time()
    house.settled = False
    for number in range(workers):
        house.worker(f"p{number}", code)
    house.settled = True
    house.settle()
    start_s, cpu_s, at_start = house.until_even(tasks), time.process_time() - began, sizes(house.log)
    before, began = len(house.log), time.process_time()
    house.run(MINUTE_S, step=1.0)
    rest, rest_cpu_s = sizes(house.log[before:]), time.process_time() - began
    before, began = len(house.log), time.process_time()
    house.kill(next(one for one in house.workers if one.processor not in house.leads()))
    death_s, death_cpu_s, death = house.until_even(tasks), time.process_time() - began, sizes(house.log[before:])
    return {
        "tasks": tasks, "workers": workers, "start_s": start_s, "start_cpu_ms": cpu_s / workers * 1000,
        "start_records": at_start[0], "start_bytes": at_start[1], "rest_records": rest[0], "rest_cpu_ms": rest_cpu_s / workers * 1000,
        "death_s": death_s, "death_cpu_ms": death_cpu_s / workers * 1000, "death_records": death[0], "death_bytes": death[1],
    }  # fmt: skip


def large(tasks: int, workers: int) -> dict[str, Any]:
    """The state of a large fleet: who places it, who reads it."""
    names = [f"shop-{number}" for number in range(workers)]
    code = Plan(graph=graph(), deployment="1f3c8f2b9d6e")
    grouped = tasks_of(code, {"orders": tasks}, None)
    assert grouped is not None
    began = time.process_time()
    first = place(grouped, {}, dict.fromkeys(names, "node"), {})
    place_s = time.process_time() - began
    owners = {task: processor for processor, given in first.items() for task in given}
    began = time.process_time()
    place(grouped, {}, dict.fromkeys(names[1:], "node"), owners)
    replace_s = time.process_time() - began
    places = {name: at for at, name in enumerate(names)}
    messages: list[c.Message] = [
        c.SetRun("1796000000000-1", code.deployment, c.RunState.RUNNING, uuid.uuid4().hex),
        *(
            c.SetProcessor(
                name, f"000001-{at:06x}", uuid.uuid4().hex, f"node-{at}", c.ProcessorState.JOINED, code.deployment
            )
            for at, name in enumerate(names)
        ),
        *(c.SetMember(name, f"000001-{at:06x}", f"node-{at}") for at, name in enumerate(names)),
        model_of(grouped, owners, names, code.deployment),
        *(c.SetChangelog(task, at) for at, task in enumerate(grouped)),
        *(c.SetGrant(task, 1, owner, f"000001-{places[owner]:06x}") for task, owner in owners.items()),
        *(c.SetTaskState(task, 1, TaskState.RUNNING) for task in grouped),
    ]
    entries = [Entry(at, c.key_of(one), one, 1_796_000_000_000) for at, one in enumerate(messages)]
    records, written = sizes(entries)
    began = time.process_time()
    state = JobState().fold(entries)
    fold_s = time.process_time() - began
    assert state.model is not None
    model = encode(c.SetJobModel(state.model))
    return {
        "tasks": tasks, "workers": workers, "place_ms": place_s * 1000, "replace_ms": replace_s * 1000,
        "records": records, "bytes": written, "model_bytes": len(model[1]), "fold_ms": fold_s * 1000,
    }  # fmt: skip


def model_of(grouped: Any, owners: dict[str, str], names: list[str], deployment: str) -> c.SetJobModel:
    """The message with the model."""
    run = "1796000000000-1"
    return c.SetJobModel(
        JobModel(
            term=1, version=1, run_id=run, deployment=deployment, tasks=grouped, wanted=owners, processors=tuple(names)
        )
    )


# ----------------------------------------------------------------------------------------------------------- real workers


class Topic:
    """One of the job's topics, read to see how many records and bytes come."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._reader = Consumer({"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "log_level": 0})
        self._at = TopicPartition(name, 0, 0)
        self._reader.assign([self._at])
        self.records = self.bytes = 0

    def read(self) -> tuple[int, int]:
        """All that has come so far."""
        end = self._reader.get_watermark_offsets(TopicPartition(self._at.topic, 0), 30)[1]
        while self._reader.position([self._at])[0].offset < end:
            for message in self._reader.consume(1000, timeout=0.2):
                if message.error() is None:
                    self.records += 1
                    self.bytes += len(message.key() or b"") + len(message.value() or b"")
        return self.records, self.bytes


def runs(programs: list[Program]) -> dict[int, set[str]]:
    """The tasks that run in each process, as its log says."""
    found: dict[int, set[str]] = {}
    for at, program in enumerate(programs):
        tasks = found[at] = set[str]()
        for line in program.log.read_text(errors="replace").splitlines():
            if '"event": "task state"' in line and line.endswith("}"):
                said = json.loads(line)
                tasks.discard(said["task"])
                if said["state"] == "running":
                    tasks.add(said["task"])
    return found


def until_run(programs: list[Program], tasks: int) -> float:
    """Wait until these processes run so many tasks; how long that took."""
    began = time.monotonic()
    while sum(map(len, runs(programs).values())) != tasks or min(map(len, runs(programs).values())) == 0:
        if time.monotonic() - began > 300:
            raise AssertionError(f"not in time: {runs(programs)}\n{programs[0].told()}")
        time.sleep(0.1)
    return time.monotonic() - began


def real(broker: Broker, directory: Path, tasks: int, workers: int) -> dict[str, Any]:
    """Processes start, rest for a minute, and one of them is killed."""
    job = f"sizes-{uuid.uuid4().hex[:6]}"
    source, own = f"{job}-in", Topics(JobName(job))
    make_topic(broker.bootstrap, source, partitions=tasks)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(20 * tasks):
        producer.produce(source, b'{"k":"k%d"}' % number, partition=number % tasks)
    producer.flush(60)
    (directory / "sizes_job.py").write_text(JOB)
    programs: list[Program] = []
    words = [
        sys.executable,
        "-m",
        "headgate.agents.cli",
        "run",
        "sizes_job:app",
        "--app-dir",
        str(directory),
        "-b",
        broker.bootstrap,
    ]
    words += ["--log-format", "json"]
    began = time.monotonic()
    try:
        for number in range(workers):
            own_words = ["--processor-id", f"w{number}", "--state-dir", str(directory / f"disk-{number}")]
            names = {"BENCH_JOB": job, "BENCH_SOURCE": source}
            programs.append(Program([*words, *own_words], names, directory / f"{job}-{number}.log").start())
        until_run(programs, tasks)
        start_s = time.monotonic() - began
        stream, beats = Topic(broker.bootstrap, own.coordinator), Topic(broker.bootstrap, own.heartbeat)
        time.sleep(5)
        first, first_beats, rested = stream.read(), beats.read(), time.monotonic()
        time.sleep(MINUTE_S)
        then, then_beats, minutes = stream.read(), beats.read(), (time.monotonic() - rested) / MINUTE_S
        victim = programs.pop()
        os.killpg(victim.popen.pid, signal.SIGKILL)
        death_s = until_run(programs, tasks)
        victim.stop()
    finally:
        for program in programs:
            program.stop()
    return {
        "tasks": tasks, "workers": workers, "start_s": start_s, "start_records": first[0], "start_bytes": first[1],
        "rest_records": (then[0] - first[0]) / minutes, "beats": (then_beats[0] - first_beats[0]) / minutes,
        "beat_bytes": (then_beats[1] - first_beats[1]) / minutes, "death_s": death_s,
    }  # fmt: skip


def fleets(words: str) -> list[tuple[int, int]]:
    """Sizes: tasks x workers, with commas between.

    >>> fleets("64x8,1000x100")
    [(64, 8), (1000, 100)]
    """
    return [(int(tasks), int(workers)) for tasks, _, workers in (one.partition("x") for one in words.split(",") if one)]


def told(kind: str, row: dict[str, Any]) -> None:
    """One row, for people."""
    figures = "  ".join(
        f"{name} {value:,.1f}" if isinstance(value, float) else f"{name} {value:,}" for name, value in row.items()
    )
    print(f"{kind:9} {figures}", flush=True)


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench fleet_sizes", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="small fleets")
    words.add_argument("--real", default="", help="64x8")
    words.add_argument("--sizes", default="", help="64x8,1000x100")
    words.add_argument("--large", default="", help="1000x100,10000x500")
    given = words.parse_args()
    small = given.quick
    rows: dict[str, list[dict[str, Any]]] = {"modelled": [], "large": [], "real": []}
    for size in fleets(given.sizes or ("16x4" if small else "64x8,250x25,1000x100")):
        rows["modelled"].append(modelled(*size))
        told("modelled", rows["modelled"][-1])
    for size in fleets(given.large or ("64x8" if small else "64x8,1000x100,10000x500")):
        rows["large"].append(large(*size))
        told("large", rows["large"][-1])
    with scratch() as directory, Broker.start(directory / "kafka") as broker:
        for size in fleets(given.real or ("4x2" if small else "64x8")):
            rows["real"].append(real(broker, directory, *size))
            told("real", rows["real"][-1])
    report.keep("fleet_sizes", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
