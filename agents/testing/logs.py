"""Logs in memory, with transactions: a test driver's replacement for a broker.

Promises, as in Kafka: the records of a partition keep their order. Records of a transaction become readable when it is committed, and never
if it is aborted. Each transaction ends with a marker that takes an offset. Initialising a transactional id fences the previous producer
with this id and aborts its open transaction.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ...core.names import StreamPartition
from ..records.kafka.columns import Columns
from ..records.kafka.fetched import RecordBatch
from ..records.kafka.partitioner import Partitioner
from ..records.kafka.spans import SpannedRecords
from ..records.layout import Buffer
from ..runtime.writing.buffer import Spanned

Bytes = bytes | None


class Stored(NamedTuple):
    """One record of a topic."""

    offset: int
    timestamp: int
    key: Bytes
    value: Bytes
    headers: list[tuple[str, Bytes]]
    partition: int


class Piece:
    """A run of records that were written together."""

    __slots__ = ("aborted", "at", "base", "headers", "keys", "size", "stamps", "values")

    def __init__(
        self,
        at: StreamPartition,
        base: int,
        keys: list[Bytes] | None,
        values: list[Bytes],
        stamps: list[int],
        headers: list[Any] | None,
    ) -> None:
        self.at = at
        self.base = base
        self.keys = keys
        self.values = values
        self.stamps = stamps
        self.headers = headers
        self.size = 32 * len(values) + sum(map(len, filter(None, values))) + sum(map(len, filter(None, keys or ())))
        self.aborted = False

    @property
    def end(self) -> int:
        """The offset behind its last record."""
        return self.base + len(self.values)

    def columns(self) -> Columns:
        """Its records; the reader may change the lists."""
        keys = None if self.keys is None else list(self.keys)
        headers = None if self.headers is None else [list(one) for one in self.headers]
        return Columns(list(self.values), list(self.stamps), self.base, keys, None, headers)

    def batch(self) -> RecordBatch:
        """The piece as a fetched record batch."""
        first, most = self.stamps[0], max(self.stamps)
        return RecordBatch(lambda _: self.columns(), self.base, self.end, len(self.values), first, most, self.size)

    def records(self) -> list[Stored]:
        """Its records one by one."""
        keys = self.keys or [None] * len(self.values)
        headers = self.headers or [[] for _ in self.values]
        return [
            Stored(self.base + i, self.stamps[i], keys[i], value, list(headers[i]), self.at.partition)
            for i, value in enumerate(self.values)
        ]


class Log:
    """One partition."""

    def __init__(self) -> None:
        self.end = 0
        self.pieces: list[Piece] = []
        self._bases: list[int] = []
        self.open: dict[object, int] = {}
        """The producers with an open transaction here, each with its first offset."""

    @property
    def stable(self) -> int:
        """The last stable offset: readers stop here."""
        return min(self.open.values(), default=self.end)

    def add(self, piece: Piece) -> None:
        """Append a piece."""
        self.pieces.append(piece)
        self._bases.append(piece.base)
        self.end = piece.end

    def read(self, position: int, most_bytes: int) -> tuple[list[Piece], int]:
        """The readable pieces from this position, and the next position."""
        stable, size, found = self.stable, 0, list[Piece]()
        index = max(0, bisect_right(self._bases, position) - 1)
        for piece in self.pieces[index:]:
            if piece.end <= position:
                continue
            if piece.base >= stable:
                break
            if found and size >= most_bytes:
                return found, piece.base
            if not piece.aborted:
                found.append(piece)
                size += piece.size
        return found, stable


class Logs:
    """All topics of a driver."""

    def __init__(self, widths: dict[str, int]) -> None:
        self.widths = widths
        self._logs: dict[StreamPartition, Log] = {}
        self._order: dict[str, list[Piece]] = {}
        """The readable pieces of each topic, in the order in which they became readable."""
        self._read: dict[str, int] = {}
        self._partitioners: dict[str, Partitioner] = {}
        self._holders: dict[str, object] = {}
        """By transactional id, the producer that has initialised it last."""
        self._written: dict[object, list[Piece]] = {}
        self._follow: dict[StreamPartition, dict[Callable[[StreamPartition], None], None]] = {}
        self._made: dict[str, int] = {}
        """How often a topic was re-created."""

    def width(self, topic: str) -> int:
        """The number of partitions; one for a topic that was not declared."""
        return self.widths.get(topic, 1)

    def partitioner(self, topic: str) -> Partitioner:
        """The partitioner of a topic."""
        found = self._partitioners.get(topic)
        if found is None:
            found = self._partitioners[topic] = Partitioner(self.width(topic))
        return found

    def log(self, at: StreamPartition) -> Log:
        """One partition. It is created when first used."""
        found = self._logs.get(at)
        if found is None:
            found = self._logs[at] = Log()
        return found

    def topic_id(self, topic: str) -> str:
        """The id of the topic."""
        return f"{topic}.{self._made.get(topic, 0)}"

    def remake(self, topic: str) -> None:
        """Delete the topic with all its records, and make it again, empty."""
        self._made[topic] = self._made.get(topic, 0) + 1
        gone = [at for at in self._logs if at.stream == topic]
        for at in gone:
            del self._logs[at]
        self._order.pop(topic, None)
        self._read.pop(topic, None)
        for at in gone:
            self.tell(at)

    def follow(self, at: StreamPartition, follower: Callable[[StreamPartition], None]) -> Callable[[], None]:
        """Call `follower` when there is something new. Returns a function that stops this."""
        followers = self._follow.setdefault(at, {})
        followers[follower] = None
        return partial(followers.pop, follower, None)

    def tell(self, at: StreamPartition) -> None:
        """Tell the followers that there is something new."""
        for follower in list(self._follow.get(at, ())):
            follower(at)

    # ------------------------------------------------------------------------------------------------------------ writing

    def write(
        self,
        at: StreamPartition,
        keys: list[Bytes] | None,
        values: list[Bytes],
        stamps: list[int],
        headers: list[Any] | None,
        producer: object | None = None,
    ) -> int:
        """Write records, in the transaction of a producer or at once. Returns the offset of the first."""
        log = self.log(at)
        piece = Piece(at, log.end, keys, values, stamps, headers)
        if producer is not None:
            log.open.setdefault(producer, piece.base)
            self._written.setdefault(producer, []).append(piece)
        log.add(piece)
        if producer is None:
            self._order.setdefault(at.stream, []).append(piece)
            self.tell(at)
        return piece.base

    def end_at(self, at: StreamPartition, offset: int) -> None:
        """Move the end to this offset, without records in between."""
        self.log(at).end = offset
        self.tell(at)

    def initialise(self, transactional_id: str, producer: object) -> None:
        """Give the id to this producer, and fence the previous one."""
        before = self._holders.get(transactional_id)
        self._holders[transactional_id] = producer
        if before is not None:
            self.finish(before, committed=False)

    def fenced(self, transactional_id: str, producer: object) -> bool:
        """Whether another producer has the id."""
        return self._holders.get(transactional_id) is not producer

    def finish(self, producer: object, *, committed: bool) -> None:
        """End this producer's transaction, if it has one."""
        pieces = self._written.pop(producer, [])
        places = dict.fromkeys(piece.at for piece in pieces)
        for piece in pieces:
            piece.aborted = not committed
            if committed:
                self._order.setdefault(piece.at.stream, []).append(piece)
        for at in places:
            log = self.log(at)
            log.open.pop(producer, None)
            log.end += 1
        for at in places:
            self.tell(at)

    # ------------------------------------------------------------------------------------------------------------ reading

    def records(self, at: StreamPartition) -> list[Stored]:
        """All readable records of one partition."""
        pieces, _ = self.log(at).read(0, 1 << 62)
        return [record for piece in pieces for record in piece.records()]

    def drain(self, topic: str) -> list[Stored]:
        """The records since the last call, in the order in which they became readable."""
        order = self._order.get(topic, [])
        start, self._read[topic] = self._read.get(topic, 0), len(order)
        return [record for piece in order[start:] for record in piece.records()]


class Gathered:
    """A batch under construction, in columns (`port.BatchInWork`)."""

    __slots__ = ("count", "headers", "keys", "limit", "parts", "size", "stamps", "values")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = 0
        self.size = 0
        self.parts: list[tuple[int, str]] = []
        self.keys: list[Bytes] | None = None
        self.values: list[Bytes] = []
        self.stamps: list[int] = []
        self.headers: list[Any] | None = None

    def add(
        self,
        keys: Sequence[Bytes] | None,
        values: Sequence[Bytes],
        stamps: Sequence[int] | int,
        headers: Sequence[Any] | None,
        start: int,
    ) -> int:
        """Append all records, or none if the batch is full."""
        if self.size >= self.limit:
            return start
        here, more = len(self.values), len(values) - start
        if keys is not None and self.keys is None:
            self.keys = [None for _ in range(here)]
        if headers is not None and self.headers is None:
            self.headers = [[] for _ in range(here)]
        if self.keys is not None:
            self.keys.extend([None] * more if keys is None else keys[start:])
        if self.headers is not None:
            self.headers.extend([[] for _ in range(more)] if headers is None else headers[start:])
        self.values.extend(values[start:])
        self.stamps.extend([stamps] * more if isinstance(stamps, int) else stamps[start:])
        self.count = len(self.values)
        self.size += 32 * more + sum(map(len, filter(None, values[start:])))
        if keys is not None:
            self.size += sum(map(len, filter(None, keys[start:])))
        return len(values)

    def add_spans(self, records: SpannedRecords, rows: Buffer | None, start: int) -> int:
        """As `add`, of records that lie in buffers."""
        part = Spanned(records, rows).listed()
        return self.add(part.keys, part.values, part.timestamps, part.headers, start)

    def written_by(self, task: str) -> None:
        """Mark what was added since the last call as written by this task."""
        self.parts.append((self.count, task))


def in_columns(records: Iterable[tuple[Bytes, Bytes, int, Sequence[Any]]]) -> tuple[Any, Any, Any, Any]:
    """Keys, values, timestamps and headers as columns. Keys and headers are None if no record has one."""
    rows = list(records)
    keys: list[Bytes] = [row[0] for row in rows]
    headers = [list(row[3]) for row in rows]
    return (
        None if keys.count(None) == len(keys) else keys,
        [row[1] for row in rows],
        [row[2] for row in rows],
        headers if any(headers) else None,
    )
