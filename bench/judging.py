"""What a program has done, judged by what it wrote: its progress over time, how many outputs, and whether each is correct.

librdkafka reads the outputs, read committed. Those of A are compared record by record, those of B with the count and the sum of each user,
those of W with the result of each user and window, those of J pair by pair, and C by the sum that it reports.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from . import pairing, tumbling
from .inputs import Input, recount
from .rig import Marks, loads, partitions_of, read_all


class Judged(NamedTuple):
    """What came out."""

    curve: Sequence[tuple[float, float]]
    """(wall, records done)."""
    outputs: int
    wrong: str
    """Empty if all is correct."""


Reads = Callable[[bytes], Any]
"""Reads an output."""


def judged(bootstrap: str, work: str, target: str, marks: Marks, given: Input, read: Reads = loads) -> Judged:
    """Judge a program that is through. `read`: for A and B."""
    match work:
        case "A":
            return of_a(bootstrap, target, given, read)
        case "C":
            return of_marks(marks, given)
        case "W":
            results = [tumbling.result(message) for message in read_all(bootstrap, target)]
            return Judged(
                tumbling.curve(results), len(results), tumbling.wrong(results, tumbling.recount(given.records))
            )
        case "J":
            stamps, outputs, wrong = pairing.judged(read_all(bootstrap, target), given.records)
            return Judged([(at, done * 2 / pairing.PAIRED) for at, done in summed(stamps)], outputs, wrong)
        case _:
            return of_b(bootstrap, target, given, read)


def of_marks(marks: Marks, given: Input) -> Judged:
    """C: what the program reported."""
    _wall, seen, total = marks[-1]
    wanted = given.total()
    wrong = (
        "" if (seen, total) == (given.records, wanted) else f"{seen} records of {given.records}, {total} of {wanted}"
    )
    return Judged([(wall, done) for wall, done, _ in marks], seen, wrong)


def of_a(bootstrap: str, target: str, given: Input, read: Reads = loads) -> Judged:
    """A: when each output was appended, and whether each is there exactly once and correct."""
    each, partitions = given.records // given.partitions, range(given.partitions)
    seen = [bytearray(each) for _ in partitions]
    outputs = bad = 0
    stamps: dict[int, int] = {}
    for message in read_all(bootstrap, target):
        value = read(message.value())
        p, i = value["p"], value["i"]
        seen[p][i] += 1
        bad += value != given.doubled(p, i)
        outputs += 1
        stamp = message.timestamp()[1]
        stamps[stamp] = stamps.get(stamp, 0) + 1
    wanted = [bytes(given.amount(p, i) >= 10 for i in range(each)) for p in partitions]
    lost = sum(1 for p in partitions if bytes(seen[p]) != wanted[p] for i in range(each) if seen[p][i] < wanted[p][i])
    twice = outputs + lost - sum(map(sum, wanted))
    wrong = f"{lost} lost, {twice} doubled, {bad} wrong" if lost or twice or bad else ""
    return Judged([(at, done / 0.9) for at, done in summed(stamps)], outputs, wrong)


class Counts:
    """The last count and sum of each user in the outputs of B."""

    def __init__(self, given: Input, read: Reads = loads) -> None:
        self.read = read
        self.counts = array("q", bytes(8 * given.keys))
        self.totals = array("q", bytes(8 * given.keys))
        self.unknown = 0

    def take(self, message: Any) -> int:
        """Take one output. Returns how many more records it counts than the one before."""
        try:
            user = int(message.key().strip(b'"').removeprefix(b"user"))
            value = self.read(message.value())
            more = value["n"] - self.counts[user]
        except (ValueError, IndexError):
            self.unknown += 1
            return 0
        self.counts[user], self.totals[user] = value["n"], value["total"]
        return more


def of_b(bootstrap: str, target: str, given: Input, read: Reads = loads) -> Judged:
    """B: how many records the counts included at each time, and whether the last ones equal the recount."""
    found, outputs = Counts(given, read), 0
    updates: dict[int, int] = {}
    for message in read_all(bootstrap, target):
        stamp = message.timestamp()[1]
        updates[stamp] = updates.get(stamp, 0) + found.take(message)
        outputs += 1
    counts, totals = recount(given)
    wrong = sum(
        pair != wanted for pair, wanted in zip(zip(found.counts, found.totals, strict=True), zip(counts, totals, strict=True), strict=True)
    )  # fmt: skip
    told = f"{wrong} users are wrong, {found.unknown} outputs have no known user" if wrong or found.unknown else ""
    return Judged(summed(updates), outputs, told)


def counted(bootstrap: str, target: str, given: Input, read: Reads = loads) -> int:
    """How many records the counts of B include by now."""
    found = Counts(given, read)
    return sum(found.take(message) for message in read_all(bootstrap, target))


def summed(stamps: dict[int, int]) -> list[tuple[float, float]]:
    """A growing curve of what came at each time, in ms."""
    curve: list[tuple[float, float]] = []
    done = 0
    for stamp in sorted(stamps):
        done += stamps[stamp]
        curve.append((stamp / 1000, float(done)))
    return curve


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
                for p in range(partitions_of(self.reader, self.topic))
            )
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
                raise
            return 0.0  # a new topic has no leader yet
        if now != self.last:
            self.last, self.since = now, time.monotonic()
        return time.monotonic() - self.since if self.last else 0.0
