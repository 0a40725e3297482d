"""One program with one query: started, fed phase by phase, measured and judged.

What it decides:

- A phase begins when its transaction is committed. It is through when the offsets that the program has committed have
  reached the ends of its topics, also of those in which Kafka Streams shuffles, and its output has been silent for a while.
  Its end is the last append of an output; of windows, if that is later, when these offsets were seen there, which headgate
  publishes once a second.
- The rate of a phase is its records divided by this time; the rate per CPU second is its records divided by the CPU time
  of the program and its children from the beginning of the phase to its end.
- The first phase, which warms caches and compilers, and the tail do not count.
- The time to first result is from the start of the process until the first append, with the first phase there already.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Literal

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ..judging import Ends
from ..paced import percentile
from ..peers import kafka_streams
from ..programs import EXACTLY_ONCE
from ..rig import HERE, PARTITIONS, Program, drop_topics, make_topic, read_all, topics
from . import flink
from .delays import delays_ms, paced
from .feed import Encoded, Feed, Load
from .judging import wrong

PATIENCE_S = 120.0
SILENT_S = 1.2
WINDOWS = ("q4", "q5", "q6", "q7", "q8", "q11", "q12", "ysb")
"""Their last outputs in a phase come before its last records are processed, so a phase ends when the positions are there."""
NO_RESULT_S = 4.0
"""How much longer to wait where there is no result at all yet."""
CLOCK_S = 12.0
"""For windows of 10 s by the clock."""
FLINK_LACKS = {"q6": "Flink SQL cannot say q6 (FLINK-19059)"}
STREAMS_HAS = ("q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "ysb", "shuffle")


@dataclass(frozen=True)
class Engine:
    """A program."""

    label: str
    parallelism: int = 1
    kind: Literal["headgate", "flink", "streams"] = "flink"
    mini_batch: bool = True
    settings: tuple[str, ...] = ()
    """Of Kafka Streams."""

    def lacks(self, query: str) -> str:
        """Why it does not run a query; empty if it does."""
        match self.kind:
            case "headgate":
                return ""
            case "flink":
                return FLINK_LACKS.get(query) or flink.absent()
            case "streams":
                return kafka_streams.absent() if query in STREAMS_HAS else f"{query} is not written for Kafka Streams"


ENGINES = {
    "headgate": Engine("headgate", kind="headgate"),
    "flink": Engine("Flink, parallelism 1"),
    "flink-2": Engine("Flink, parallelism 2", 2),
    "flink-plain": Engine("Flink, parallelism 1, without mini-batch", mini_batch=False),
    "streams": Engine("Kafka Streams, 1 thread", kind="streams", settings=(EXACTLY_ONCE, *kafka_streams.EQUAL_COMMITS)),
    "streams-tuned": Engine(
        "Kafka Streams, 1 thread, tuned to our batches", kind="streams", settings=(EXACTLY_ONCE, *kafka_streams.TUNED)
    ),
}


@dataclass(frozen=True)
class Measured:
    """The figures of one program for one query."""

    query: str
    engine: str
    records: int
    """In a phase."""
    rates: tuple[float, ...]
    per_cpu: tuple[float, ...]
    p50_ms: float
    """NaN if delays were not measured."""
    p99_ms: float
    delays: int
    """How many results were timed."""
    rss_mb: float
    first_s: float
    outputs: int
    wrong: str
    load: float

    @property
    def line(self) -> str:
        """The figures as text."""
        spread = f"({min(self.per_cpu) / 1e3:.0f}-{max(self.per_cpu) / 1e3:.0f})"
        delays = f"p50 {self.p50_ms:.0f} p99 {self.p99_ms:.0f} ms ({self.delays:,})  " if self.delays else ""
        return (
            f"{self.query:4} {ENGINES[self.engine].label:44} {median(self.rates) / 1e3:7.1f} k/s  "
            f"{median(self.per_cpu) / 1e3:7.1f} k/CPU-s {spread}  {delays}{self.rss_mb:5.0f} MB  first {self.first_s:4.1f} s  "
            f"outputs {self.outputs:,} {self.wrong or 'equal'}  load {self.load:.1f}"
        )

    def document(self) -> dict[str, object]:
        """The figures as JSON."""
        return {**asdict(self), "records_per_s": median(self.rates), "records_per_cpu_s": median(self.per_cpu)}


class Place:
    """A broker and a directory for trials."""

    def __init__(self, bootstrap: str, directory: Path, settings: Sequence[str] = ()) -> None:
        self.bootstrap, self.directory, self.settings = bootstrap, directory, settings

    def measure(
        self,
        query: str,
        engine: str,
        load: Load,
        phases: Sequence[list[Encoded]],
        wanted: Mapping[Any, Any],
        paced_s: float,
    ) -> Measured:
        """Measure one program. `phases`: the encoded load; `wanted`: what it must give. With `paced_s`, the phase before the tail is
        written evenly over so many seconds, and gives delays instead of a rate."""
        job = f"nexmark-{query}-{engine}-{uuid.uuid4().hex[:6]}"
        feed, target = Feed(self.bootstrap, f"{job}-in", load), f"{job}-out"
        make_topic(self.bootstrap, target, {"message.timestamp.type": "LogAppendTime"})
        program = self.program(query, ENGINES[engine], job, feed, target)
        group = f"{job}-1" if ENGINES[engine].kind == "headgate" else job
        feed.prepare(phases[0])
        feed.show()
        began = time.time()
        try:
            program.start()
            watch = Watch(self.bootstrap, group, feed.read, target, program, CLOCK_S if query == "q12" else SILENT_S)
            watch.until_through()
            times: list[tuple[float, float, int]] = []
            made: list[tuple[int, float]] = []
            for phase in phases[1:]:
                start = time.time()
                if paced_s and phase is phases[-2]:
                    made = paced(self.bootstrap, feed.names, phase, paced_s)
                else:
                    feed.prepare(phase)
                    start = time.time()
                    feed.show()
                times.append((start, watch.until_through(), len(phase)))
        finally:
            program.stop()
        messages = [(one.timestamp()[1] / 1000, one.key(), one.value()) for one in read_all(self.bootstrap, target)]
        stamps = sorted(at for at, _, _ in messages)
        rates, per_cpu = figures(query, program, times[: len(phases) - (3 if paced_s else 2) + 1], stamps)
        timed = made and not (
            ENGINES[engine].kind == "streams" and query in WINDOWS
        )  # its windows wait for their grace
        delays = delays_ms(query, made, ((at, value) for at, _, value in messages)) if timed else []
        found = Measured(
            query, engine, len(phases[1]), rates, per_cpu, percentile(delays, 50), percentile(delays, 99), len(delays),
            program.rss / 1e6, (stamps[0] if stamps else began) - began, len(messages),
            wrong(query, wanted, ((key, value) for _, key, value in messages)), os.getloadavg()[0],
        )  # fmt: skip
        drop_topics(self.bootstrap, *(topic for topic in topics(self.bootstrap) if job in topic))
        return found

    def program(self, query: str, engine: Engine, job: str, feed: Feed, target: str) -> Program:
        """The program, not started."""
        state = self.directory / job
        state.mkdir()
        log, side = self.directory / f"{job}.log", self.directory / f"{job}.side"
        side.write_text("".join(f"{key},{value}\n" for key, value in feed.load.source.side()))
        if engine.kind == "streams":
            words = kafka_streams.command(query, self.bootstrap, feed.read[0], target, job, state)
            env = {f"BENCH_TOPIC_{kind.upper()}": name for kind, name in feed.names.items()}
            return Program([*words, *engine.settings], env | {"BENCH_RULES": str(side)}, log)
        if engine.kind == "headgate":
            env = {f"NEXMARK_{kind.upper()}": name for kind, name in feed.names.items()}
            env |= {"NEXMARK_JOB": job, "NEXMARK_QUERY": query, "NEXMARK_OUT": target, "NEXMARK_SIDE": str(side)}
            words = [sys.executable, "-m", "headgate.agents.cli", "run", "bench.nexmark.work:app"]
            words += [
                "--app-dir",
                str(HERE.parent),
                "-b",
                self.bootstrap,
                "--state-dir",
                str(state),
                "--log-format",
                "json",
            ]
            for pair in self.settings:
                words += ["--set", pair]
            return Program(words, env | {"PYTHONUNBUFFERED": "1"}, log)
        sources = {
            kind.upper(): f"'connector' = 'kafka', 'topic' = '{name}', 'properties.bootstrap.servers' = '{self.bootstrap}', "
            f"'properties.group.id' = '{job}', 'properties.isolation.level' = 'read_committed', "
            f"'format' = '{feed.load.source.value_format}', 'scan.startup.mode' = 'earliest-offset'"
            for kind, name in feed.names.items()
        }
        names = {f"{kind.upper()}_TOPIC": name for kind, name in feed.names.items()}
        file = state / flink.file_of(query)
        values = {"BOOTSTRAP": self.bootstrap, "JOB": job, "OUT": target, **sources, **names}
        file.write_text(flink.statements(query, values, feed.load.source.declarations))
        command = flink.command(file, state, side, engine.parallelism, mini_batch=engine.mini_batch)
        return Program(command, {}, log)


def figures(
    query: str, program: Program, times: Sequence[tuple[float, float, int]], stamps: Sequence[float]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The rates, and the rates per CPU second. `times`: phases with their beginning, when the positions had reached the ends, and their
    records; the last one is not counted. `stamps`: when outputs were appended."""
    rates: list[float] = []
    per_cpu: list[float] = []
    for (start, reached, size), (following, _, _) in pairwise(times):
        so_far = bisect_left(stamps, following)
        last = stamps[so_far - 1] if so_far else 0.0
        through = max(reached, last) if query in WINDOWS or last < start else last
        rates.append(size / (through - start))
        per_cpu.append(size / max(0.01, program.cpu_between(start, through + 0.05)))
    return tuple(rates), tuple(per_cpu)


class Watch:
    """Whether a program is through with what there is."""

    def __init__(
        self, bootstrap: str, group: str, read: Sequence[str], target: str, program: Program, silent_s: float
    ) -> None:
        self._program, self._silent_s, self._group = program, silent_s, group
        self._ends = Ends(bootstrap, target)
        self._client = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
        self._places = [TopicPartition(topic, p) for topic in read for p in range(PARTITIONS)]

    def until_through(self) -> float:
        """Wait. Returns when the positions had reached the ends."""
        deadline, reached, beyond = time.monotonic() + PATIENCE_S, 0.0, 0.0
        while time.monotonic() < deadline:
            if self._program.popen.poll() is not None:
                raise AssertionError(
                    f"the program ended by itself ({self._program.popen.returncode}):\n{reasons(self._program)}"
                )
            silent = self._ends.silent_s()
            if not reached and self._left() <= 0:
                reached, beyond = time.time(), time.monotonic()
            since = time.monotonic() - beyond if reached else 0.0
            if min(silent if self._ends.last else since - NO_RESULT_S, since) > self._silent_s:
                return reached
            time.sleep(0.05)
        raise AssertionError(
            f"not through after {PATIENCE_S:g} s ({self._left()} records behind):\n{reasons(self._program)}"
        )

    def _left(self) -> int:
        """How many records are not covered by the committed positions: of the inputs or, if there are none, of the shuffles."""
        return self._behind(self._places) or self._behind(self._shuffles())

    def _shuffles(self) -> list[TopicPartition]:
        """The topics in which a program of Kafka Streams shuffles. Other programs have none that are committed in their group."""
        found = self._client.list_topics(timeout=20).topics
        names = [name for name in found if name.startswith(f"{self._group}-") and name.endswith("-repartition")]
        return [TopicPartition(name, p) for name in names for p in found[name].partitions]

    def _behind(self, places: list[TopicPartition]) -> int:
        """How many records there are not covered; markers of transactions do not count."""
        if not places:
            return 0
        try:
            at = self._client.committed(places, timeout=20)
            ends = [self._client.get_watermark_offsets(place, timeout=20)[1] for place in places]
        except KafkaException:
            return 1
        return sum(
            max(0, end - 1 - place.offset) if place.offset >= 0 else end for place, end in zip(at, ends, strict=True)
        )


def reasons(program: Program) -> str:
    """What a program has said of its end: of a JVM the causes, without the stacks."""
    lines = program.log.read_text(errors="replace").splitlines()
    causes = [line[:400] for line in lines if line.startswith(("Caused by", "Exception in"))]
    return "\n".join(causes[-6:]) or program.told()
