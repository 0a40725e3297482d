"""The input: topics that hold the events of all phases, and show them phase by phase.

What it decides: a phase is written in one transaction, which is committed when the phase is to begin. So a program that
waits sees all of its records at once, and nothing writes while it is measured. The events of a kind lie in four
partitions in turn, without keys. The last phase, the *tail*, is an event of each kind for each partition, an hour later: it lets event time
pass all windows. No other event matches one of the tail.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from confluent_kafka import Producer

from ..rig import PARTITIONS, make_topic
from .generator import KINDS, Auction, Bid, Event, Generator, Person, encoded

TAIL_MS = 3_600_000
TAIL_ID = 1_000_000_000
"""The ids in the tail; no other event has them."""
SIDE_ROWS = 10_000
PATIENCE_S = 120.0


def tail(generator: Generator, count: int) -> list[Event]:
    """The events behind the first `count`."""
    at = generator.time_of(count) + TAIL_MS
    made: list[Event] = []
    for number in range(TAIL_ID, TAIL_ID + PARTITIONS):
        made.append(Person(number, "Nobody Else", "a@b.com", "0000", "Leuven", "AZ", at, ""))
        made.append(Auction(number, "nothing", "nothing", 1, 2, at, at + 1, number, 14, ""))
        made.append(Bid(number + PARTITIONS, number, 1, "none", "https://nowhere/", at, ""))
    return made


class Encoded(NamedTuple):
    """A record of the input."""

    kind: str
    partition: int
    value: bytes
    at: int
    """Its event time."""


@dataclass(frozen=True)
class Load:
    """What a program reads: so many events, in phases, of these kinds."""

    phases: Sequence[int]
    """How many events each phase has, without the tail."""
    kinds: Collection[type[Event]] = KINDS
    generator: Generator = field(default_factory=Generator)

    @property
    def count(self) -> int:
        """How many events there are, of all kinds and without the tail."""
        return sum(self.phases)

    def made(self) -> tuple[list[Event], list[list[Encoded]]]:
        """All of these kinds in their order, with the tail; and the same as bytes, phase by phase."""
        ends = [*accumulate(self.phases)]
        phases: list[list[Encoded]] = [[] for _ in (*ends, "tail")]
        events: list[Event] = []
        so_far = dict.fromkeys(self.kinds, 0)
        for number, event in self.generator.events(self.count, self.kinds):
            kind = type(event)
            events.append(event)
            phases[bisect_right(ends, number)].append(encoding(event, so_far[kind]))
            so_far[kind] += 1
        last = [event for event in tail(self.generator, self.count) if isinstance(event, tuple(self.kinds))]
        phases[-1] = [encoding(event, place // len(self.kinds)) for place, event in enumerate(last)]
        return [*events, *last], phases


def encoding(event: Event, number: int) -> Encoded:
    """An event as bytes, in the partition that its number has among its kind."""
    return Encoded(topic_of(type(event)), number % PARTITIONS, encoded(event), event.dateTime)


def topic_of(kind: type[Event]) -> str:
    """The name of a kind, which is the end of its topic's name."""
    return kind.__name__.lower()


class Feed:
    """The topics of a load in a broker. `names`: topic by kind."""

    def __init__(self, bootstrap: str, prefix: str, load: Load) -> None:
        self.names = {topic_of(kind): f"{prefix}-{topic_of(kind)}" for kind in KINDS}
        self.read = tuple(self.names[topic_of(kind)] for kind in load.kinds)
        """The topics that have records."""
        for name in self.names.values():
            make_topic(bootstrap, name)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 0,
                "transactional.id": prefix,
                "transaction.timeout.ms": 900_000,
                "linger.ms": 50,
                "batch.size": 1 << 18,
                "queue.buffering.max.messages": 2_000_000,
                "queue.buffering.max.kbytes": 1 << 20,
            }
        )
        self._producer.init_transactions(PATIENCE_S)

    def prepare(self, phase: Sequence[Encoded]) -> None:
        """Write a phase, which no one sees yet."""
        self._producer.begin_transaction()
        for number, (kind, partition, value, _) in enumerate(phase):
            while True:
                try:
                    self._producer.produce(self.names[kind], value, partition=partition)
                    break
                except BufferError:
                    self._producer.poll(0.05)
            if number % 5_000 == 0:
                self._producer.poll(0)
        if left := self._producer.flush(PATIENCE_S):
            raise AssertionError(f"{left} records of the input were not written")

    def show(self) -> None:
        """Let the prepared phase be seen."""
        self._producer.commit_transaction(PATIENCE_S)


def side_input() -> list[tuple[int, str]]:
    """The rows of q13, as published: each number names itself."""
    return [(number, str(number)) for number in range(SIDE_ROWS)]
