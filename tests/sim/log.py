"""A model of Kafka in plain lists, with exactly the guarantees of a broker.

Partitions, producers with transactional ids and epochs, fencing, the last stable offset, compaction with tombstones, and idempotent single
records. The caller decides *when* things happen; this file only decides what they do:

- A read-committed reader sees nothing at or above the first offset of an open transaction, and never a record of an aborted one. Offsets
  count everything, including commit and abort markers, so positions jump.
- Initialising a transactional id aborts the predecessor's open transaction and rejects everything that the predecessor still sends.
- Compaction keeps the last committed record of each key, and a tombstone until its retention has passed since it was first seen.
- A single record that is delivered twice with the same sequence number is in the log once.
- The end of a transaction is decided at once, and shown in each partition when its marker is there, which may be later. Until all are there
  its transactional id takes nothing else (CONCURRENT_TRANSACTIONS, which clients send again).
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Callable
from typing import Any, NamedTuple

from headgate.core.names import StreamPartition

OPEN, COMMITTED, ABORTED, MARKER = range(4)
MARK_AGAIN_S = 0.3
DEAD_HEAD = 2
"""Records at the end of a partition that compaction does not touch, like Kafka's active segment."""


class Fenced(Exception):
    """The producer's epoch is not the newest of its transactional id, or its transaction timed out."""


class NotOngoing(Exception):
    """There is nothing to commit: the transaction was aborted, or never began (INVALID_TXN_STATE)."""


class Unavailable(Exception):
    """The broker is down."""


class Refused(Exception):
    """A partition rejects writes: its topic is gone, or a permission is missing."""

    def __init__(self, target: StreamPartition) -> None:
        self.target = target
        super().__init__(f"{target} takes nothing")


class OffsetOutOfRange(Exception):
    """The position is below the log's start, or above its end."""


class Record:
    """One record of a partition."""

    __slots__ = ("append_ms", "by", "horizon_ms", "key", "offset", "pid", "status", "ts", "value")

    def __init__(
        self, offset: int, key: Any, value: Any, ts: int, append_ms: int, pid: int, status: int, by: Any = None
    ) -> None:
        self.by = by
        """Who wrote it, for the checks."""
        self.offset = offset
        self.key = key
        self.value = value
        self.ts = ts
        self.append_ms = append_ms
        self.pid = pid
        self.status = status
        self.horizon_ms = 0
        """For a tombstone: when compaction may remove it; 0 before compaction has seen it."""

    def __repr__(self) -> str:
        return f"Record({self.offset}, {self.key!r}, {self.value!r}, {'OCAM'[self.status]})"


class Partition:
    """One partition: records by offset (with gaps after compaction), and its open transactions."""

    __slots__ = (
        "append_time",
        "compact",
        "damaged",
        "delete_retention_ms",
        "deleted",
        "end",
        "offsets",
        "open",
        "records",
        "start",
        "watchers",
    )

    def __init__(self, compact: bool, delete_retention_ms: int) -> None:
        self.compact = compact
        self.delete_retention_ms = delete_retention_ms
        self.append_time = False
        """Whether readers get the append time instead of the writer's timestamp."""
        self.damaged: set[int] = set()
        """Offsets of records that cannot be decoded."""
        self.deleted: list[Record] = []
        """What retention has deleted, for the account of a reader that had read it before."""
        self.records: list[Record] = []
        self.offsets: list[int] = []
        self.start = 0
        self.end = 0
        self.open: dict[int, int] = {}
        """The first offset of each open transaction by producer, in the order of the offsets."""
        self.watchers: dict[Any, None] = {}
        """Consumers to `wake` when there is more to read."""

    @property
    def stable(self) -> int:
        """The last stable offset: nothing below it belongs to an open transaction."""
        for first in self.open.values():
            return first
        return self.end

    def append(self, record: Record) -> int:
        self.records.append(record)
        self.offsets.append(record.offset)
        self.end += 1
        return record.offset

    def read(self, position: int, limit: int, committed: bool = True) -> tuple[list[Record], int]:
        """Records from `position`, at most `limit`, and the position after everything looked at (including gaps and markers)."""
        if position < self.start or position > self.end:
            raise OffsetOutOfRange(f"{position} is not in {self.start}..{self.end}")
        stop = self.stable if committed else self.end
        if position >= stop:
            return [], position
        found: list[Record] = []
        records = self.records
        at = bisect_left(self.offsets, position)
        while at < len(records):
            record = records[at]
            if record.offset >= stop:
                return found, stop
            if record.status == COMMITTED or (not committed and record.status != MARKER):
                if len(found) == limit:
                    return found, record.offset
                found.append(record)
            at += 1
        return found, stop

    def trim(self, before: int) -> None:
        """Delete records below an offset."""
        if before > self.start:
            self.start = min(before, self.end)
            at = bisect_left(self.offsets, self.start)
            self.deleted += self.records[:at]
            del self.records[:at]
            del self.offsets[:at]

    def clean(self, now_ms: int) -> int:
        """Run the log cleaner once. Returns how many records it removed."""
        stable = self.stable
        dirty = bisect_left(self.offsets, stable)
        dirty = min(dirty, max(0, len(self.records) - DEAD_HEAD))
        last: dict[Any, int] = {}
        for record in self.records[:dirty]:
            if record.status == COMMITTED:
                last[record.key] = record.offset
        kept: list[Record] = []
        for record in self.records[:dirty]:
            if record.status != COMMITTED or last[record.key] != record.offset:
                continue
            if record.value is None:
                if not record.horizon_ms:
                    record.horizon_ms = now_ms + self.delete_retention_ms
                elif now_ms >= record.horizon_ms:
                    continue
            kept.append(record)
        gone = dirty - len(kept)
        if gone:
            self.records[:dirty] = kept
            self.offsets[:dirty] = [record.offset for record in kept]
        return gone


class Producer:
    """One initialisation of a transactional id, held by a process. The broker knows whether it is still valid."""

    __slots__ = ("began_ms", "epoch", "last", "owner", "pid", "timeout_ms", "touched", "txid", "unmarked")

    def __init__(self, txid: str, pid: int, epoch: int, timeout_ms: int) -> None:
        self.txid = txid
        self.pid = pid
        self.epoch = epoch
        self.timeout_ms = timeout_ms
        self.began_ms: int | None = None
        self.touched: dict[tuple[str, int], list[Record]] = {}
        self.last: int | None = None
        """How its last transaction ended."""
        self.unmarked: dict[tuple[str, int], list[Record]] = {}
        """Of a transaction that is decided: what has no marker yet."""
        self.owner: Any = None
        """Who may write with it, for the checks; None if it was only made to fence."""


class Written(NamedTuple):
    """The offset of a single record, and whether this delivery has added it."""

    offset: int
    fresh: bool


class Kafka:
    """The broker. `down` makes every call raise `Unavailable`. `now_ms` is its clock, which the world sets.

    `seen` is called for a partition whenever readers of committed records may see more of it. The end of a transaction also shows what
    others have committed behind its beginning, whoever ends it: a fence and a timeout do so, too.
    """

    def __init__(self, seen: Callable[[StreamPartition], None] = lambda _: None) -> None:
        self.seen = seen
        self.now_ms = 0
        self.down = False
        self.broken: dict[tuple[str, int], int] = {}
        """Partitions that cannot be written, each with a number that changes whenever one breaks."""
        self.away: set[tuple[str, int]] = set()
        """Partitions without a leader: they can be neither written nor read."""
        self.marks_after: Callable[[], float] = lambda: 0.0
        """In how many seconds the next marker is there."""
        self.at: Callable[..., None] = lambda *_: None
        """Call something later."""
        self.topics: dict[str, list[Partition]] = {}
        self.producers: dict[str, Producer] = {}
        """The valid producer, by transactional id."""
        self._pids = 0
        self._singles: dict[tuple[str, str, int], tuple[int, int]] = {}
        self.fenced_writes = 0
        self.suppressed = 0

    # ------------------------------------------------------------------------------------------------------ topics

    def create(self, topic: str, partitions: int, compact: bool = False, delete_retention_ms: int = 60_000) -> None:
        """Create a topic; it must not exist."""
        assert topic not in self.topics, topic
        self.topics[topic] = [Partition(compact, delete_retention_ms) for _ in range(partitions)]

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic, as `kafka-topics --alter` does."""
        log = self.topics[topic]
        while len(log) < partitions:
            log.append(Partition(log[0].compact, log[0].delete_retention_ms))

    def up(self, topic: str = "", partition: int = 0) -> None:
        """Raise `Unavailable` during an outage of the broker, or of this partition."""
        if self.down or (topic, partition) in self.away:
            raise Unavailable

    # ------------------------------------------------------------------------------------------------- transactions

    def init(self, txid: str, timeout_ms: int = 60_000) -> Producer:
        """InitProducerId: the returned producer is valid from now on; the open transaction of its predecessor is aborted."""
        self.up()
        old = self.producers.get(txid)
        if old is not None and old.unmarked:
            raise Unavailable
        if old is None:
            self._pids += 1
            fresh = Producer(txid, self._pids, 0, timeout_ms)
        else:
            self._finish(old, ABORTED)
            fresh = Producer(txid, old.pid, old.epoch + 1, timeout_ms)
            fresh.unmarked = old.unmarked
        self.producers[txid] = fresh
        if fresh.unmarked:  # the old one is fenced; the new one is given when the abort is complete
            raise Unavailable
        return fresh

    def _current(self, producer: Producer) -> None:
        self.up()
        if self.producers.get(producer.txid) is not producer:
            self.fenced_writes += 1
            raise Fenced(f"{producer.txid} epoch {producer.epoch}")
        if producer.unmarked:
            raise Unavailable

    def send(
        self, producer: Producer, topic: str, partition: int, key: Any, value: Any, ts: int = 0, by: Any = None
    ) -> int:
        """Write one record in a transaction, which begins with its first record. Returns the offset."""
        self._current(producer)
        self.up(topic, partition)
        if (topic, partition) in self.broken:
            raise Refused(StreamPartition(topic, partition))
        log = self.topics[topic][partition]
        place = (topic, partition)
        if producer.began_ms is None:
            producer.began_ms = self.now_ms
        mine = producer.touched.get(place)
        if mine is None:
            mine = producer.touched[place] = []
            log.open[producer.pid] = log.end
        record = Record(log.end, key, value, ts, self.now_ms, producer.pid, OPEN, by)
        mine.append(record)
        return log.append(record)

    def commit(self, producer: Producer) -> None:
        """Commit the open transaction: its records become visible at once in each partition. A repeated commit has no effect."""
        self._current(producer)
        if not producer.touched and producer.last != COMMITTED:
            raise NotOngoing(producer.txid)
        self._finish(producer, COMMITTED)

    def abort(self, producer: Producer) -> None:
        """Abort the open transaction: its records are never read."""
        self._current(producer)
        self._finish(producer, ABORTED)

    def _finish(self, producer: Producer, status: int) -> None:
        if producer.touched:
            producer.last = status
        touched, producer.touched = producer.touched, {}
        producer.began_ms = None
        shown: list[tuple[str, int]] = []
        for place, records in touched.items():
            if seconds := self.marks_after():
                producer.unmarked[place] = records
                self.at(seconds, self._mark_late, producer, place, status)
            else:
                self._mark(producer, place, records, status)
                shown.append(place)
        for place in shown:
            self.seen(StreamPartition(*place))

    def _mark(self, producer: Producer, place: tuple[str, int], records: list[Record], status: int) -> None:
        """The marker is there: what the transaction has written here is committed or aborted."""
        for record in records:
            record.status = status
        log = self.topics[place[0]][place[1]]
        del log.open[producer.pid]
        for watcher in log.watchers:
            watcher.wake()
        log.append(Record(log.end, None, None, 0, self.now_ms, producer.pid, MARKER))

    def _mark_late(self, producer: Producer, place: tuple[str, int], status: int) -> None:
        if self.down or place in self.away:
            self.at(MARK_AGAIN_S, self._mark_late, producer, place, status)
        elif place in producer.unmarked:
            self._mark(producer, place, producer.unmarked.pop(place), status)
            self.seen(StreamPartition(*place))

    def mark_all(self) -> None:
        """All markers that are under way are there."""
        for producer in self.producers.values():
            for place in list(producer.unmarked):
                assert producer.last is not None
                self._mark_late(producer, place, producer.last)

    def expire(self) -> list[str]:
        """Abort transactions that have been open for longer than their timeout, and fence their producers. Returns the
        transactional ids.
        """
        late: list[str] = []
        for txid, producer in self.producers.items():
            if producer.began_ms is not None and self.now_ms - producer.began_ms > producer.timeout_ms:
                late.append(txid)
        for txid in late:
            with contextlib.suppress(Unavailable):
                self.init(txid)
        return late

    # --------------------------------------------------------------------------------------------- single records

    def single(self, pid: str, seq: int, topic: str, partition: int, key: Any, value: Any, ts: int = 0) -> Written:
        """Write one record of an idempotent producer with one request in flight: a second delivery of the same `seq` changes nothing."""
        self.up(topic, partition)
        place = (pid, topic, partition)
        last = self._singles.get(place)
        if last is not None and seq <= last[0]:
            self.suppressed += 1
            return Written(last[1], False)
        offset = self.plain(topic, partition, key, value, ts)
        self._singles[place] = (seq, offset)
        return Written(offset, True)

    def plain(self, topic: str, partition: int, key: Any, value: Any, ts: int = 0) -> int:
        """Write one record of a producer without guarantees: each delivery is in the log."""
        self.up(topic, partition)
        log = self.topics[topic][partition]
        for watcher in log.watchers:
            watcher.wake()
        offset = log.append(Record(log.end, key, value, ts, self.now_ms, 0, COMMITTED))
        self.seen(StreamPartition(topic, partition))
        return offset

    # ----------------------------------------------------------------------------------------------------- reading

    def read(
        self, topic: str, partition: int, position: int, limit: int, committed: bool = True
    ) -> tuple[list[Record], int]:
        """A fetch: records from `position`, and the position after them."""
        self.up(topic, partition)
        return self.topics[topic][partition].read(position, limit, committed)

    def end(self, topic: str, partition: int, committed: bool = False) -> int:
        """ListOffsets, latest: the high watermark, or the last stable offset."""
        self.up(topic, partition)
        log = self.topics[topic][partition]
        return log.stable if committed else log.end

    def start(self, topic: str, partition: int) -> int:
        """ListOffsets, earliest."""
        self.up(topic, partition)
        return self.topics[topic][partition].start
