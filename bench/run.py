"""One run of the benches of whole jobs: a broker, inputs, and programs one after the other, each measured and judged."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from headgate.agents.broker.broker import Broker

from . import avro_records, pairing, report, tumbling
from .inputs import Input, fill
from .judging import Ends, counted, judged
from .programs import PEERS, Job, program, without
from .rig import (
    PARTITIONS,
    USERS,
    Figures,
    Marks,
    Program,
    drop_topics,
    loads,
    make_topic,
    read_all,
    rounds_of,
    topics,
    variant,
)

PATIENCE_S = 900.0
SETTLE_S = 3.0
"""After the last input was read, the time for outstanding outputs."""

#            warm      round      and in a quick run
FAST = (4_000_000, 2_000_000), (400_000, 600_000)
MIDDLE = (4_000_000, 500_000), (200_000, 200_000)
SLOW = (200_000, 100_000), (40_000, 20_000)
SIZES = {
    "headgate-typed": FAST,
    "headgate-columns": FAST,
    "quix": SLOW,
    "bytewax": SLOW,
    "faust": ((20_000, 8_000), (4_000, 4_000)),
}
"""Of the others: MIDDLE. A round of the fast ones must be longer than a few commits. The slow ones have no JIT to warm up, and four million
records would take Faust half an hour."""
GRACE_MS = {"W": tumbling.GRACE_MS, "J": pairing.GRACE_MS}
QUICK_W = (500_000, 200_000)
"""The first results of W need 400,000 records."""


@dataclass(frozen=True)
class Trial:
    """What is measured: a program with a work, on an input."""

    peer: str
    work: str
    shape: str = "as-is"
    keys: int = USERS
    partitions: int = PARTITIONS
    workers: int = 1

    def __str__(self) -> str:
        return " ".join([self.peer, self.work, *variant(self.shape, self.keys, self.partitions, self.workers)])


class Run:
    """A broker, and what was measured on it."""

    def __init__(
        self,
        broker: Broker,
        directory: Path,
        *,
        quick: bool,
        rounds: int,
        settings: Sequence[str] = (),
        registry: str = "",
        size: int = 0,
    ) -> None:
        """`registry`: where the schemas of records in Avro stand. `size`: of a round, if not that of its program."""
        self.bootstrap = broker.bootstrap
        self.directory = directory
        self.quick = quick
        self.rounds = rounds
        self.settings = settings
        """Of headgate."""
        self.registry = registry
        self.size = size
        self.figures: list[Figures] = []
        self.left_out: dict[str, str] = {}
        self._filled: dict[tuple[Input, str], str] = {}

    def source(self, given: Input, work: str) -> str:
        """The topic of an input. All works but W, S and J read the same."""
        kind = work if work in "WSJ" else ""
        if (given, kind) not in self._filled:
            name = f"bench-in{kind.lower()}-{given.records}-{uuid.uuid4().hex[:6]}"
            began = time.monotonic()
            if kind == "W":
                row = partial(tumbling.row, partitions=given.partitions)
                fill(self.bootstrap, name, given.records + tumbling.BEYOND, row, partitions=given.partitions)
            elif kind == "J":
                pairing.fill(self.bootstrap, name, given.records)
            else:
                head = avro_records.head_of(self.registry, name) if given.shape == avro_records.SHAPE else b""
                given.fill(self.bootstrap, name, tumbling.BASE_MS if kind == "S" else 0, head)
            print(f"# input written in {time.monotonic() - began:.0f} s: {given}", flush=True)
            self._filled[given, kind] = name
        return self._filled[given, kind]

    def forget(self) -> None:
        """Delete all inputs, which take gigabytes."""
        names = self._filled.values()
        drop_topics(self.bootstrap, *names, *map(pairing.payments_of, names))
        self._filled.clear()

    def sizes(self, trial: Trial) -> tuple[int, int]:
        """How many records warm a program up, and how many are a round. Each key is there before the first round begins."""
        if self.quick and trial.work == "W":
            return QUICK_W
        warm, size = (MIDDLE if trial.work == "J" else SIZES.get(trial.peer, MIDDLE))[self.quick]
        return max(warm, trial.keys if trial.work == "B" else 0), self.size or size

    def measure(self, trial: Trial, look: Callable[[Sequence[str]], None] | None = None) -> Figures | None:
        """Measure one program with one work. `look` gets its topics before they are deleted. A program that fails is left out."""
        try:
            if why := without(trial.peer, trial.work, trial.shape):
                self.left_out[str(trial)] = why
                return None
            return self._measure(trial, look)
        except (AssertionError, KafkaException, OSError) as error:
            self.left_out[str(trial)] = str(error) or repr(error)
            print(f"! {trial}: {self.left_out[str(trial)]}", flush=True)
            return None

    def _measure(self, trial: Trial, look: Callable[[Sequence[str]], None] | None) -> Figures:
        peer, work = trial.peer, trial.work
        warm, size = self.sizes(trial)
        given = Input(warm + size * self.rounds, trial.shape, trial.keys, trial.partitions)
        source, name = self.source(given, work), f"bench-{peer}-{work.lower()}-{uuid.uuid4().hex[:6]}"
        target = f"{name}-out"
        make_topic(self.bootstrap, target, {"message.timestamp.type": "LogAppendTime"}, partitions=trial.partitions)
        programs = [
            self.program(
                peer, Job(work, name, source, target, trial.shape, GRACE_MS.get(work, 0), number, self.registry)
            )
            for number in range(trial.workers)
        ]
        began = time.time()
        try:
            for one in programs:
                one.start()
            self.wait(programs, work, target, given)
        finally:
            for one in programs:
                one.stop()
        curve, outputs, wrong = judged(self.bootstrap, work, target, marks_of(programs), given, self.read(given))
        rates, per_cpu, ran, ready = rounds_of(curve, programs, warm, size, self.rounds)
        figures = Figures(
            PEERS[peer].label, work, rates, per_cpu, sum(one.rss for one in programs) / 1e6, curve[0][0] - began, outputs, warm,
            os.getloadavg()[0], wrong or "equal", trial.shape, trial.keys, trial.partitions, trial.workers,
            ran, ready,
        )  # fmt: skip
        self.figures.append(figures)
        report.line(figures)
        mine = [topic for topic in topics(self.bootstrap) if name in topic]
        if look:
            look(mine)
        drop_topics(self.bootstrap, *mine)
        return figures

    def read(self, given: Input) -> Callable[[bytes], Any]:
        """What reads the outputs that belong to an input."""
        return avro_records.reads(self.registry) if given.shape == avro_records.SHAPE else loads

    def program(self, peer: str, job: Job) -> Program:
        """A program of this run, with the settings that were given."""
        return program(peer, job, self.bootstrap, self.directory, self.settings)

    def wait(self, programs: Sequence[Program], work: str, target: str, given: Input) -> None:
        """Wait until everything is processed: C reports it, A has written nine tenths, the output of the others has been silent for a
        while. W has a number of results; a program that gives fewer is judged when nothing has come for long."""
        deadline = time.monotonic() + PATIENCE_S
        watch, records = Ends(self.bootstrap, target), given.records
        while time.monotonic() < deadline:
            time.sleep(0.25)
            for one in programs:
                if one.popen.poll() is not None:
                    raise AssertionError(f"the program ended by itself ({one.popen.returncode}):\n{one.told()}")
            if work == "C":
                marks = marks_of(programs)
                if marks and marks[-1][1] >= records:
                    return
                continue
            if (silent_s := watch.silent_s()) < SETTLE_S:
                continue
            if work == "W":
                done = sum(1 for _ in read_all(self.bootstrap, target))
                if done >= tumbling.windows(records) * USERS or silent_s > 10 * SETTLE_S:
                    return
            elif work == "J":
                if watch.last * 2 / pairing.PAIRED >= records or silent_s > 10 * SETTLE_S:
                    return
            elif (
                watch.last / 0.9 if work == "A" else counted(self.bootstrap, target, given, self.read(given))
            ) >= records:
                return
        raise AssertionError(f"not through after {PATIENCE_S:g} s:\n" + "\n".join(one.told() for one in programs))


def marks_of(programs: Sequence[Program]) -> Marks:
    """The marks of programs that do one job together: what all of them have reported by each time."""
    last = [(0, 0)] * len(programs)
    found: Marks = []
    marks = sorted((wall, n, seen, total) for n, one in enumerate(programs) for wall, seen, total in list(one.marks))
    for wall, number, seen, total in marks:
        last[number] = seen, total
        found.append((wall, sum(pair[0] for pair in last), sum(pair[1] for pair in last)))
    return found
