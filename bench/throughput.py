"""Works A, B and C on headgate and its peers, side by side, in one run on one broker.

    python -m bench throughput [--quick] [--works AB] [--peers headgate,streams] [--rounds 5]

A: parse, keep nine of ten, add a field, write. B: re-key by another field, count and sum per key in a changelogged store, updates out. C:
parse and add up. Four partitions, about 100 bytes of JSON, one worker process, everything read from the beginning of the topic. librdkafka
reads back the outputs, read committed, and compares them with the expected ones: A record by record, B and C as sums.

Two more works are run by other scripts: W, counts and sums per key and window (`bench windows`), and S, which is B on an input whose
timestamps stand still (`bench watermarks`).

Prints a table; writes `bench/out/throughput.json` and `bench/out/throughput.png`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headgate.agents.broker.broker import Broker

from . import report, tumbling
from .programs import PEERS, Job, program, without
from .rig import (
    PARTITIONS,
    USERS,
    Figures,
    Program,
    amount_of,
    drop_topics,
    fill,
    loads,
    make_topic,
    read_all,
    record,
    rounds_of,
    scratch,
    topics,
    user_of,
)

PATIENCE_S = 900.0
SETTLE_S = 3.0
"""After the last input was read, the time for outstanding outputs."""

#            warm      round      and in a quick run
SIZES = {
    "headgate": ((4_000_000, 500_000), (200_000, 200_000)),
    "streams": ((4_000_000, 500_000), (200_000, 200_000)),
    "streams-tuned": ((4_000_000, 500_000), (200_000, 200_000)),
    "bare": ((4_000_000, 500_000), (200_000, 200_000)),
    "quix": ((200_000, 100_000), (40_000, 20_000)),
    "faust": ((20_000, 8_000), (4_000, 4_000)),
}
"""The slow ones have no JIT to warm up, and four million records would take Faust half an hour."""
QUICK_W = (500_000, 200_000)
"""The first results of W need 400,000 records."""


class Run:
    """One run: a broker, inputs, and the programs one after the other."""

    def __init__(self, broker: Broker, directory: Path, *, quick: bool, rounds: int, settings: Sequence[str]) -> None:
        self.broker = broker
        self.bootstrap = broker.bootstrap
        self.directory = directory
        self.quick = quick
        self.rounds = rounds
        self.settings = settings
        self.figures: list[Figures] = []
        self.left_out: dict[str, str] = {}
        self._filled: dict[tuple[int, str], str] = {}

    def source(self, records: int, work: str) -> str:
        """An input of a work with this many records. All works but W and S read the same."""
        kind = work if work in "WS" else ""
        if (records, kind) not in self._filled:
            name = f"bench-in{kind.lower()}-{records}-{uuid.uuid4().hex[:6]}"
            began = time.monotonic()
            if kind == "W":
                fill(self.bootstrap, name, records + tumbling.BEYOND, tumbling.row)
            else:
                fill(self.bootstrap, name, records, record, timestamp=tumbling.BASE_MS if kind else 0)
            print(f"# input of {records:,} records written in {time.monotonic() - began:.0f} s", flush=True)
            self._filled[records, kind] = name
        return self._filled[records, kind]

    def measure(self, peer: str, work: str, look: Callable[[Sequence[str]], None] | None = None) -> Figures | None:
        """Measure one program with one work. `look` gets its topics before they are deleted."""
        if why := without(peer, work):
            self.left_out[f"{peer} {work}"] = why
            return None
        warm, size = QUICK_W if self.quick and work == "W" else SIZES[peer][self.quick]
        records = warm + size * self.rounds
        source = self.source(records, work)
        name = f"bench-{peer}-{work.lower()}-{uuid.uuid4().hex[:6]}"
        target = f"{name}-out"
        make_topic(self.bootstrap, target, {"message.timestamp.type": "LogAppendTime"})
        program = self.program(peer, Job(work, name, source, target, grace_ms=tumbling.GRACE_MS))
        began = time.time()
        program.start()
        try:
            self.wait(program, work, target, records)
        finally:
            program.stop()
        judge = {"A": self.of_a, "C": self.of_marks, "W": self.of_w}.get(work, self.of_b)
        curve, outputs, wrong = judge(program, target, records)
        rates, per_cpu = rounds_of(curve, program, warm, size, self.rounds)
        figures = Figures(
            PEERS[peer].label, work, rates, per_cpu, program.rss / 1e6, curve[0][0] - began, outputs, warm,
            os.getloadavg()[0], wrong or "equal",
        )  # fmt: skip
        self.figures.append(figures)
        report.line(figures)
        mine = [topic for topic in topics(self.bootstrap) if name in topic]
        if look:
            look(mine)
        drop_topics(self.bootstrap, *mine)
        return figures

    def program(self, peer: str, job: Job) -> Program:
        """A program of this run, with the settings that were given."""
        return program(peer, job, self.bootstrap, self.directory, self.settings)

    def wait(self, program: Program, work: str, target: str, records: int) -> None:
        """Wait until everything is processed: C reports it, A has written nine tenths, the output of the others has been silent for a
        while. W has a number of results; a program that gives fewer is judged when nothing has come for long."""
        deadline = time.monotonic() + PATIENCE_S
        watch = Ends(self.bootstrap, target)
        while time.monotonic() < deadline:
            time.sleep(0.25)
            if program.popen.poll() is not None:
                raise AssertionError(f"the program ended by itself ({program.popen.returncode}):\n{program.told()}")
            if work == "C":
                if program.marks and program.marks[-1][1] >= records:
                    return
                continue
            if (silent_s := watch.silent_s()) < SETTLE_S:
                continue
            if work == "W":
                done = sum(1 for _ in read_all(self.bootstrap, target))
                if done >= tumbling.windows(records) * USERS or silent_s > 10 * SETTLE_S:
                    return
            elif (watch.last / 0.9 if work == "A" else self.counted(target)) >= records:
                return
        raise AssertionError(f"not through after {PATIENCE_S:g} s:\n{program.told()}")

    def counted(self, target: str) -> int:
        """How many records the counts include by now."""
        last = {message.key(): loads(message.value())["n"] for message in read_all(self.bootstrap, target)}
        return sum(last.values())

    def of_marks(self, program: Program, _: str, records: int) -> tuple[list[tuple[float, float]], int, str]:
        """C: what the program reported."""
        wanted = sum(amount_of(p, i) for p in range(PARTITIONS) for i in range(records // PARTITIONS))
        _wall, seen, total = program.marks[-1]
        wrong = "" if (seen, total) == (records, wanted) else f"{seen} records of {records}, {total} of {wanted}"
        return [(wall, done) for wall, done, _ in program.marks], seen, wrong

    def of_a(self, _program: Program, target: str, records: int) -> tuple[list[tuple[float, float]], int, str]:
        """A: when each output was appended, and whether each is there exactly once and correct."""
        each = records // PARTITIONS
        seen = [bytearray(each) for _ in range(PARTITIONS)]
        curve: list[tuple[float, float]] = []
        outputs = bad = 0
        stamps: dict[int, int] = {}
        for message in read_all(self.bootstrap, target):
            value = loads(message.value())
            p, i = value["p"], value["i"]
            seen[p][i] += 1
            bad += value["total"] != 2 * amount_of(p, i) or value["user"] != f"user{user_of(p, i)}"
            outputs += 1
            stamp = message.timestamp()[1]
            stamps[stamp] = stamps.get(stamp, 0) + 1
        done = 0
        for stamp in sorted(stamps):
            done += stamps[stamp]
            curve.append((stamp / 1000, done / 0.9))
        wanted = [bytes(amount_of(p, i) >= 10 for i in range(each)) for p in range(PARTITIONS)]
        lost = sum(1 for p in range(PARTITIONS) for i in range(each) if seen[p][i] < wanted[p][i]) if any(
            bytes(seen[p]) != wanted[p] for p in range(PARTITIONS)) else 0  # fmt: skip
        twice = outputs + lost - sum(map(sum, wanted))
        wrong = f"{lost} lost, {twice} doubled, {bad} wrong" if lost or twice or bad else ""
        return curve, outputs, wrong

    def of_b(self, _program: Program, target: str, records: int) -> tuple[list[tuple[float, float]], int, str]:
        """B: how many records the counts included at each time, and whether the last ones equal the recount."""
        updates: dict[int, int] = {}
        last: dict[bytes, dict[str, int]] = {}
        outputs = 0
        for message in read_all(self.bootstrap, target):
            key, value = message.key(), loads(message.value())
            before = last.get(key)
            stamp = message.timestamp()[1]
            updates[stamp] = updates.get(stamp, 0) + value["n"] - (before["n"] if before else 0)
            last[key] = value
            outputs += 1
        curve: list[tuple[float, float]] = []
        done = 0
        for stamp in sorted(updates):
            done += updates[stamp]
            curve.append((stamp / 1000, float(done)))
        truth: dict[str, list[int]] = {f"user{u}": [0, 0] for u in range(USERS)}
        for p in range(PARTITIONS):
            for i in range(records // PARTITIONS):
                pair = truth[f"user{user_of(p, i)}"]
                pair[0] += 1
                pair[1] += amount_of(p, i)
        found = {plain(key): [value["n"], value["total"]] for key, value in last.items()}
        wrong = sum(1 for user, pair in truth.items() if pair[0] and found.get(user) != pair)
        return curve, outputs, f"{wrong} users are wrong" if wrong else ""

    def of_w(self, _program: Program, target: str, records: int) -> tuple[list[tuple[float, float]], int, str]:
        """W: when each window was complete, and whether there is exactly one correct result for each key and window."""
        results = [tumbling.result(message) for message in read_all(self.bootstrap, target)]
        return tumbling.curve(results), len(results), tumbling.wrong(results, tumbling.recount(records))


def plain(key: bytes) -> str:
    """A key as text; some programs write it as JSON."""
    return key.decode().strip('"')


class Ends:
    """The size of a topic, polled."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench-ends", "log_level": 0})
        self.last = 0
        self.since = time.monotonic()

    def silent_s(self) -> float:
        """For how long nothing has come; 0 before the first record."""
        try:
            now = sum(
                self.reader.get_watermark_offsets(TopicPartition(self.topic, p), timeout=20)[1]
                for p in range(PARTITIONS)
            )
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
                raise
            return 0.0  # a new topic has no leader yet
        if now != self.last:
            self.last, self.since = now, time.monotonic()
        return time.monotonic() - self.since if self.last else 0.0


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench throughput", description=(__doc__ or "").partition("\n")[0])
    words.add_argument(
        "--quick", action="store_true", help="small rounds: minutes; nothing is warm, so the JVM looks bad"
    )
    words.add_argument("--works", default="ABC")
    words.add_argument("--peers", default=",".join(SIZES))
    words.add_argument("--rounds", type=int, default=0, help="5, or 3 in a quick run")
    words.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of headgate")
    given = words.parse_args()
    with scratch() as directory, Broker.start(directory / "kafka") as broker:
        run = Run(
            broker, directory, quick=given.quick, rounds=given.rounds or (3 if given.quick else 5), settings=given.set
        )
        for work in given.works:
            for peer in given.peers.split(","):
                try:
                    run.measure(peer, work)
                except AssertionError as error:
                    run.left_out[f"{peer} {work}"] = str(error)
                    print(f"! {peer} {work}: {error}", flush=True)
    report.throughput(run.figures, run.left_out, quick=given.quick)
    ok = all(figures.proven == "equal" for figures in run.figures if figures.peer.startswith("headgate"))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
