"""Topics in memory, and the ready buffers that write to them: what a test driver has instead of Kafka.

What tasks emit becomes visible when the transaction commits, and in the order in which it was completed, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..core.names import StreamPartition
from .partitioner import Partitioner
from .writable import check_partition, writable


class Stored(NamedTuple):
    """One record of a topic."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int


class Emitted(NamedTuple):
    """One call of `emit`."""

    task: str
    at: StreamPartition
    keys: Sequence[bytes | None] | None
    values: Sequence[bytes | None]
    timestamps: Sequence[int]
    headers: Sequence[Any] | None


class MemoryTopics:
    """All topics of a driver."""

    def __init__(self, widths: dict[str, int]) -> None:
        self.widths = widths
        self._partitions: dict[StreamPartition, list[Stored]] = {}
        self._order: dict[str, list[Stored]] = {}
        self._read: dict[str, int] = {}
        self._partitioners: dict[str, Partitioner] = {}
        self.open: list[Emitted] = []
        """What has joined the open transaction."""

    def width(self, topic: str) -> int:
        """How many partitions; a topic that nobody spoke of has one."""
        return self.widths.get(topic, 1)

    def partitioner(self, topic: str) -> Partitioner:
        """Where keys go."""
        found = self._partitioners.get(topic)
        if found is None:
            found = self._partitioners[topic] = Partitioner(self.width(topic))
        return found

    def records(self, at: StreamPartition) -> list[Stored]:
        """All of one partition."""
        return self._partitions.setdefault(at, [])

    def append(
        self, at: StreamPartition, key: bytes | None, value: bytes | None, timestamp: int, headers: Sequence[Any] = ()
    ) -> None:
        """One more record."""
        records = self.records(at)
        one = Stored(len(records), timestamp, key, value, list(headers), at.partition)
        records.append(one)
        self._order.setdefault(at.stream, []).append(one)

    def commit(self, emitted: Sequence[Emitted]) -> None:
        """A transaction becomes visible."""
        for one in emitted:
            for i, value in enumerate(one.values):
                key = one.keys[i] if one.keys is not None else None
                self.append(one.at, key, value, one.timestamps[i], one.headers[i] if one.headers is not None else ())

    def drain(self, topic: str) -> list[Stored]:
        """What came since the last call, in the order in which it came."""
        order = self._order.get(topic, [])
        start, self._read[topic] = self._read.get(topic, 0), len(order)
        return order[start:]


class MemoryBuffer:
    """A task's ready buffer: all or nothing, a letter at a time."""

    def __init__(self, topics: MemoryTopics, task: str) -> None:
        self._topics = topics
        self._task = task
        self._emitted: list[Emitted] = []

    def emit(
        self,
        topic: str,
        partition: int | None,
        keys: list[bytes | None] | None,
        values: list[bytes | None],
        timestamps: list[int] | int,
        headers: list[Any] | None = None,
    ) -> None:
        """Columns for one topic; without a partition each key goes where Kafka's Java client would send it."""
        if not values:
            return
        keys, values, times, headers, _, _ = writable(topic, keys, values, timestamps, headers)
        stamps = [times] * len(values) if isinstance(times, int) else times
        if partition is None and keys is None:
            partition = 0
        if partition is not None:
            check_partition(topic, partition, self._topics.width(topic))
            self._emitted.append(Emitted(self._task, StreamPartition(topic, partition), keys, values, stamps, headers))
            return
        assert keys is not None
        for number, at in enumerate(self._topics.partitioner(topic).split(keys)):
            if at:
                self._emitted.append(
                    Emitted(
                        self._task,
                        StreamPartition(topic, number),
                        [keys[i] for i in at],
                        [values[i] for i in at],
                        [stamps[i] for i in at],
                        [headers[i] for i in at] if headers is not None else None,
                    )
                )

    def complete(self) -> None:
        """It joins the open transaction."""
        self._topics.open += self._emitted
        self._emitted = []

    def drop(self) -> None:
        """It never was."""
        self._emitted = []
