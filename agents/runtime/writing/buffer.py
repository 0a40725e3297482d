"""Joins what tasks emit into record batches. Decides which transaction a chunk belongs to, and refuses records that no topic would accept.

This is the part of the outbox that never waits. Promises:

- What a task emits stays in its own buffer until `complete()`; then all of it joins the open transaction at once.
- A record that cannot be written is refused when it is emitted, with its index: a wrong type, a partition that the topic does not have, a
  size above the topic's limit. So `complete()` has nothing left to refuse.
- Every record gets the timestamp that `records.timestamps` makes of its event time, whoever emits it.

Under `guarantee = at_least_once`, a task's buffer has a second outbox: final outputs join that one, whose producer has no transactions and
sends them at once. A checkpoint is committed only after the brokers have acknowledged all of them. So after a crash outputs may be
duplicated, but none is missing. The second producer is not fenced: the last outputs of a stalled worker may arrive after those of its
successor.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ....core.names import StreamPartition
from ...logger import Logger
from ...port.port import BatchInWork
from ...records.kafka.columns import pick
from ...records.kafka.partitioner import Partitioner
from ...records.kafka.spans import SpannedRecords
from ...records.kafka.target_rules import Rules, TooLarge, UnknownTarget
from ...records.kafka.timestamps import ANY, Accepted, accepted, names_times, stamped
from ...records.kafka.writable import Writable, check_partition, extent_of, record_size, writable
from ...records.layout import Buffer, longs
from ...records.limits import NO_TIMESTAMP
from ...records.values.record import Headers

log = Logger("headgate.outbox")
DEFAULT_LIMIT = 1_048_588
"""The broker's default of max.message.bytes."""

Bytes = bytes | None
Stamps = Sequence[int] | int


@dataclass(frozen=True, slots=True)
class Listed:
    """Records for one partition, in lists."""

    keys: Sequence[Bytes] | None
    values: Sequence[Bytes]
    timestamps: Stamps
    headers: Sequence[Headers] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def add_to(self, batch: BatchInWork, start: int) -> int:
        """Add those from index `start` on. Returns the index of the first that did not fit."""
        return batch.add(self.keys, self.values, self.timestamps, self.headers, start)


@dataclass(frozen=True, slots=True)
class Spanned:
    """Records for one partition that lie in buffers: these rows of them, or all."""

    records: SpannedRecords
    rows: Buffer | None

    def __len__(self) -> int:
        return len(self.records) if self.rows is None else len(longs(self.rows))

    def add_to(self, batch: BatchInWork, start: int) -> int:
        """As `Listed.add_to`."""
        return batch.add_spans(self.records, self.rows, start)

    def listed(self) -> Listed:
        """The same records in lists."""
        all_, rows = self.records.columns(), range(len(self.records)) if self.rows is None else longs(self.rows)
        chosen = list(rows)
        keys, headers = (None if one is None else pick(one, chosen) for one in (all_.keys, all_.headers))
        return Listed(keys, pick(all_.values, chosen), pick(all_.timestamps, chosen), headers)


@dataclass(frozen=True, slots=True)
class LogWrite:
    """Records that a task adds when its transaction is divided off: the records of its task log."""

    task: str
    at: StreamPartition
    keys: Sequence[Bytes]
    values: Sequence[Bytes]
    timestamps: Stamps
    spanned: Sequence[SpannedRecords] = ()
    """Records that lie in buffers; they come before the others."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A batch that was handed to the producer."""

    target: StreamPartition
    count: int
    future: asyncio.Future[int]
    parts: Sequence[tuple[int, str]]
    """Which task wrote which records: each task with the index behind its last record."""


@dataclass(slots=True)
class Transaction:
    """Everything that has joined since the last division."""

    builders: dict[StreamPartition, BatchInWork] = field(default_factory=dict)
    ready: dict[StreamPartition, deque[BatchInWork]] = field(default_factory=dict)
    """Per partition, in order: the batches that are full, or that a flush has closed."""
    sent: list[Sent] = field(default_factory=list)
    writers: dict[StreamPartition, set[str]] = field(default_factory=dict)
    begun: bool = False

    def fill(self, target: StreamPartition, batch: BatchInWork) -> None:
        """Close this batch: it is ready to be sent."""
        self.ready.setdefault(target, deque()).append(batch)

    def fill_all(self) -> None:
        """Close every batch."""
        for target, batch in self.builders.items():
            self.fill(target, batch)
        self.builders = {}

    def wave(self) -> list[tuple[StreamPartition, BatchInWork]]:
        """Remove and return the next ready batch of each partition."""
        wave = [(target, batches.popleft()) for target, batches in self.ready.items()]
        self.ready = {target: batches for target, batches in self.ready.items() if batches}
        return wave


class Emitted(NamedTuple):
    """What the timestamps of records mean in Kafka. `restamped`: so many have another timestamp there than their event time. `expiring`: so
    many are older than their topic keeps records."""

    restamped: int = 0
    expiring: int = 0


AS_THEY_ARE = Emitted()


class TaskBuffer:
    """What one task has emitted while it processes its current chunk."""

    __slots__ = ("_direct", "_emitted", "_fenced", "_outbox", "size", "task")

    def __init__(self, outbox: Joining, task: str, direct: Joining | None, fenced: Container[str]) -> None:
        self._outbox = outbox
        self._direct = direct
        self._fenced = fenced
        self._emitted: list[tuple[StreamPartition, Listed | Spanned]] = []
        self.task = task
        self.size = 0

    def _joins(self, topic: str) -> Joining:
        """The outbox of this topic."""
        return self._outbox if self._direct is None or topic in self._fenced else self._direct

    def emit(
        self,
        topic: str,
        partition: int | None,
        keys: Sequence[Bytes] | None,
        values: Sequence[Bytes],
        timestamps: Stamps,
        headers: Sequence[Headers] | None = None,
    ) -> Emitted:
        """Emit columns to one topic. Without `partition`, each record goes where Java's default partitioner would send its key. Returns
        what their timestamps mean in Kafka."""
        if not values:
            return AS_THEY_ARE
        outbox = self._joins(topic)
        timestamps, headers, changed = stamped(topic, len(values), timestamps, headers, outbox._accepted(topic))
        found = writable(topic, keys, values, timestamps, headers)
        outbox._must_fit(topic, found)
        keys, values, timestamps, headers, size, _ = found
        self.size += size
        expiring = 0
        if (rules := outbox._rules.get(topic)) is not None:
            rules.refuse(topic, keys)
            expiring = outbox._expiring(topic, rules, timestamps, len(values))
        chooser = outbox._partitioner(topic)
        if partition is not None:
            target = StreamPartition(topic, check_partition(topic, partition, chooser.partitions))
            self._emitted.append((target, Listed(keys, values, timestamps, headers)))
            return Emitted(changed, expiring)
        if keys is None:
            self._emitted.append((StreamPartition(topic, chooser.next()), Listed(None, values, timestamps, headers)))
            return Emitted(changed, expiring)
        for number, indexes in enumerate(chooser.split(keys)):
            if indexes:
                part = Listed(
                    pick(keys, indexes),
                    pick(values, indexes),
                    timestamps if isinstance(timestamps, int) else pick(timestamps, indexes),
                    None if headers is None else pick(headers, indexes),
                )
                self._emitted.append((StreamPartition(topic, number), part))
        return Emitted(changed, expiring)

    def emit_spans(
        self, topic: str, partition: int | None, records: SpannedRecords, rows: Buffer | None = None
    ) -> Emitted:
        """Emit records that lie in buffers: these rows of them, or all. No object is made of a record unless one is refused, or gets
        another timestamp or other headers; refusals and what is returned are those of `emit`, and an index counts the rows."""
        given = Spanned(records, rows)
        if not len(given):
            return AS_THEY_ARE
        outbox = self._joins(topic)
        found, rules = extent_of(records, rows), outbox._rules.get(topic)
        taken = outbox._accepted(topic).all_of(found.earliest, found.oldest, found.newest)
        keyless = found.keyless and rules is not None and rules.compacted
        if not taken or keyless or found.largest > outbox._limit(topic) or names_times(records.headers):
            listed = given.listed()  # one of them may be refused: this says which, and why
            return self.emit(topic, partition, listed.keys, listed.values, listed.timestamps, listed.headers)
        expiring = 0
        if rules is not None and found.oldest is not None and rules.expires(found.oldest, outbox._now_ms()):
            times = longs(records.timestamps)
            stamps = times if rows is None else [times[row] for row in longs(rows)]
            expiring = outbox._expiring(topic, rules, stamps, len(stamps))
        self.size += found.size
        chooser = outbox._partitioner(topic)
        if partition is not None:
            check_partition(topic, partition, chooser.partitions)
            self._emitted.append((StreamPartition(topic, partition), given))
        elif records.keys is None:
            self._emitted.append((StreamPartition(topic, chooser.next()), given))
        else:
            for number, own in enumerate(chooser.split_spans(records.keys, rows)):
                if len(longs(own)):
                    self._emitted.append((StreamPartition(topic, number), Spanned(records, own)))
        return Emitted(0, expiring)

    def complete(self) -> None:
        """The chunk is complete: everything emitted joins the open transaction."""
        emitted, self._emitted, self.size = self._emitted, [], 0
        for target, part in emitted:
            self._joins(target.stream)._join(self.task, target, part)

    def drop(self) -> None:
        """The chunk failed: discard everything emitted."""
        self._emitted, self.size = [], 0


class Joining:
    """The open transaction, and how task buffers join it."""

    def __init__(
        self,
        *,
        transactional: bool,
        batch: Callable[[int], BatchInWork],
        batch_bytes: int,
        max_pending_bytes: int,
        wake: Callable[[], None],
        now_ms: Callable[[], int],
    ) -> None:
        """`now_ms`: the time of the brokers, as far as it is known."""
        self._now_ms = now_ms
        self._old: set[str] = set()
        """The topics of which it was said that they do not keep what is written to them."""
        self._transactional = transactional
        self._batch = batch
        self._batch_bytes = batch_bytes
        self._max_pending = max_pending_bytes
        self._wake_owner = wake
        self._limits: dict[str, int] = {}
        self._rules: dict[str, Rules] = {}
        """By topic; only topics that refuse some records have rules."""
        self._partitioners: dict[str, Partitioner] = {}
        self.ask: Callable[[str], object] | None = None
        """Asks about an unknown topic where that can be answered at once, by a call of `know`; None with a broker."""
        self._open = Transaction()
        self._roomy = asyncio.Event()
        self._roomy.set()
        self.pending_bytes = 0

    def know(self, topic: str, partitions: int, limit: int = DEFAULT_LIMIT, rules: Rules | None = None) -> None:
        """Register a target topic: its number of partitions in the job model, its max.message.bytes, and its other rules."""
        self._limits[topic] = limit
        if rules is None:
            self._rules.pop(topic, None)
        else:
            self._rules[topic] = rules
        self._partitioners[topic] = Partitioner(partitions)

    def buffer(self, task: str, direct: Joining | None = None, fenced: Container[str] = ()) -> TaskBuffer:
        """The buffer of one task. With `direct`, only what goes to the topics in `fenced` joins here, and everything else joins there."""
        return TaskBuffer(self, task, direct, fenced)

    def _limit(self, topic: str) -> int:
        return self._limits.get(topic, DEFAULT_LIMIT)

    def _accepted(self, topic: str) -> Accepted:
        """The timestamps that this topic accepts now."""
        rules = self._rules.get(topic)
        return ANY if rules is None or rules.accepts_all else accepted(rules, self._now_ms())

    def _expiring(self, topic: str, rules: Rules, stamps: Stamps, count: int) -> int:
        """How many of `count` records with these timestamps are older than their topic keeps records, so that Kafka deletes them soon. Says
        so once of a topic."""
        if rules.kept_ms is None:
            return 0
        now_ms = self._now_ms()
        if not rules.expires(stamps if isinstance(stamps, int) else min(stamps), now_ms):
            return 0
        stamps = [stamps] * count if isinstance(stamps, int) else stamps
        old = [stamp for stamp in stamps if rules.expires(stamp, now_ms) and stamp != NO_TIMESTAMP]
        if old and topic not in self._old:
            self._old.add(topic)
            log.warning(
                "records are older than their topic keeps them, so that Kafka deletes them soon",
                topic=topic,
                oldest_ms=min(old),
                retention_ms=rules.retention_ms,
                remedy=f"raise retention.ms of {topic}, or set its message.timestamp.type to LogAppendTime",
            )
        return len(old)

    def _must_fit(self, topic: str, found: Writable) -> None:
        """Refuse records that are larger than the topic accepts."""
        limit = self._limit(topic)
        if found.largest <= limit:
            return
        for index, value in enumerate(found.values):
            key = found.keys[index] if found.keys is not None else None
            size = record_size(key, value, found.headers[index] if found.headers is not None else ())
            if size > limit:
                raise TooLarge(topic, index, size, limit)

    def _partitioner(self, topic: str) -> Partitioner:
        chooser = self._partitioners.get(topic)
        if chooser is None and self.ask is not None:
            self.ask(topic)
            chooser = self._partitioners.get(topic)
        if chooser is None:
            raise UnknownTarget(topic)
        return chooser

    def _join(self, task: str, target: StreamPartition, part: Listed | Spanned) -> None:
        open_ = self._open
        writers = open_.writers.get(target)
        if writers is None:
            writers = open_.writers[target] = set()
        writers.add(task)
        builder = open_.builders.get(target)
        at, end = 0, len(part)
        while at < end:
            if builder is None:
                limit = min(self._batch_bytes, self._limit(target.stream) - 64)
                builder = open_.builders[target] = self._batch(limit)
            before = builder.size if builder.count else 0
            at = part.add_to(builder, at)
            builder.written_by(task)
            self.pending_bytes += builder.size - before
            if at < end:
                open_.fill(target, open_.builders.pop(target))
                builder = None
                self._wake_owner()
        if not self._transactional:
            self._wake_owner()
        if self.pending_bytes > self._max_pending:
            self._roomy.clear()
