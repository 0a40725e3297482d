"""The input: topics that hold the events of all phases, and show them phase by phase.

What it decides: a phase is written in one transaction, which is committed when the phase is to begin. So a program that
waits sees all of its records at once, and nothing writes while it is measured. The events of a kind lie in four
partitions in turn. The last phase, the *tail*, lets a program give its last results: of Nexmark it is events of each kind
for each partition, an hour later, so that event time passes all windows. Where event time is that of a task, as in Kafka
Streams, each task needs one of them, so they have enough keys to get into all partitions of a shuffle.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

from confluent_kafka import Producer

from ..rig import PARTITIONS, make_topic
from .generator import KINDS, Generator
from .source import Kind, Source, topic_of

PATIENCE_S = 120.0


class Encoded(NamedTuple):
    """A record of the input."""

    kind: str
    partition: int
    value: bytes
    at: int
    """Its event time."""
    key: bytes | None = None


@dataclass(frozen=True)
class Load:
    """What a program reads: so many events, in phases, of these kinds."""

    phases: Sequence[int]
    """How many events each phase has, without the tail."""
    kinds: Collection[Kind] = KINDS
    source: Source = field(default_factory=Generator)

    @property
    def count(self) -> int:
        """How many events there are, of all kinds and without the tail."""
        return sum(self.phases)

    def made(self) -> tuple[list[Any], list[list[Encoded]]]:
        """All of these kinds in their order, with the tail; and the same as bytes, phase by phase."""
        ends = [*accumulate(self.phases)]
        phases: list[list[Encoded]] = [[] for _ in (*ends, "tail")]
        events: list[Any] = []
        so_far = Counter[Kind]()
        for number, event in self.source.events(self.count, self.kinds):
            events.append(event)
            phases[bisect_right(ends, number)].append(self._encoded(event, so_far))
        last = [event for event in self.source.tail(self.count, PARTITIONS) if isinstance(event, tuple(self.kinds))]
        in_tail = Counter[Kind]()
        phases[-1] = [self._encoded(event, in_tail) for event in last]
        return [*events, *last], phases

    def _encoded(self, event: Any, so_far: Counter[Kind]) -> Encoded:
        """An event as bytes, in the partition that its number has among its kind."""
        kind = type(event)
        key, value = self.source.record(event)
        so_far[kind] += 1
        return Encoded(topic_of(kind), (so_far[kind] - 1) % PARTITIONS, value, event.dateTime, key)


class Feed:
    """The topics of a load in a broker. `names`: topic by kind."""

    def __init__(self, bootstrap: str, prefix: str, load: Load) -> None:
        self.load = load
        self.names = {topic_of(kind): f"{prefix}-{topic_of(kind)}" for kind in load.source.kinds}
        self.read = tuple(self.names[topic_of(kind)] for kind in load.kinds if kind not in load.source.tables)
        """The topics that have records, without tables."""
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
        for number, (kind, partition, value, _, key) in enumerate(phase):
            while True:
                try:
                    self._producer.produce(self.names[kind], value, key, partition=partition)
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
