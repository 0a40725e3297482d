"""Builds record batches for writing, a column at a time, without a chain of calls for each record.

The compiled part (`columns.c`) packs a batch, which is given to aiokafka's sender as if aiokafka had built it. Without the compiled part,
or if aiokafka is not as `contract` expects, aiokafka's own builder appends the records one by one, with the same bytes as the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiokafka.producer.message_accumulator import BatchBuilder

from ..records.kafka import columns
from ..records.kafka.codecs import ENCODERS
from ..records.kafka.columns import CHECKED_FROM, HEAD, pick
from ..records.kafka.spans import SpannedRecords
from ..records.layout import Buffer, longs
from ..records.memory.memory import fresh
from ..records.native import chosen
from ..records.values.record import Headers
from . import contract as rawcontract

CODECS = {None: 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


class Builder:
    """One record batch under construction for one partition. `add` takes columns and returns the index of the first record that did not
    fit.

    >>> builder = Builder(1 << 16, None, transactional=False)
    >>> builder.add([None, b"k"], [b"a", b"b"], [1, 2], None, 0)
    2
    """

    __slots__ = ("_first_ms", "batch", "count", "limit", "parts")

    def __init__(self, limit: int, compression: str | None, *, transactional: bool) -> None:
        self.limit = limit
        self.count = 0
        self._first_ms = 0
        self.parts: list[tuple[int, str]] = []
        """Which task wrote which part: for each part, the index behind its last record, and the task."""
        plain = rawcontract.SHORTCOMINGS
        kind, most = (
            (BatchBuilder, limit + 1) if plain else (_Packed, limit)
        )  # `add` decides what fits: aiokafka's two builders differ
        self.batch: Any = kind(most, CODECS[compression], is_transactional=int(transactional))

    def add(
        self,
        keys: Sequence[bytes | None] | None,
        values: Sequence[bytes | None],
        stamps: Sequence[int] | int,
        headers: Sequence[Headers] | None,
        start: int,
    ) -> int:
        """Append records from index `start`. Returns the index of the first that did not fit, or the number of values if all did."""
        batch = self.batch
        if isinstance(batch, _Packed):
            at = batch.add(keys, values, stamps, headers, start)
            self.count = batch.record_count()
            return at
        for at in range(start, len(values)):
            stamp = stamps if isinstance(stamps, int) else stamps[at]
            key, head = keys[at] if keys is not None else None, headers[at] if headers is not None else []
            if self.count == 0:
                self._first_ms = stamp
            elif batch.size() + _size_of(key, values[at], head, stamp - self._first_ms, self.count) > self.limit:
                return at
            if batch.append(timestamp=stamp, key=key, value=values[at], headers=head) is None:
                return at
            self.count += 1
        return len(values)

    def add_spans(self, records: SpannedRecords, rows: Buffer | None, start: int) -> int:
        """Append records that lie in buffers: these rows of them in this order, or all; from the row at index `start` on. Returns the index
        of the first that did not fit, or their number if all did. As `add`, without an object for each record."""
        batch = self.batch
        if isinstance(batch, _Packed):
            at = batch.add_spans(records, rows, start)
            self.count = batch.record_count()
            return at
        listed = records.columns()
        chosen = list(range(len(records))) if rows is None else longs(rows).tolist()
        keys = None if listed.keys is None else pick(listed.keys, chosen)
        headers = None if listed.headers is None else pick(listed.headers, chosen)
        return self.add(keys, pick(listed.values, chosen), pick(listed.timestamps, chosen), headers, start)

    def written_by(self, task: str) -> None:
        """Mark what was added since the last call as written by this task."""
        parts = self.parts
        if parts and parts[-1][1] == task:
            parts[-1] = (self.count, task)
        elif self.count > (parts[-1][0] if parts else 0):
            parts.append((self.count, task))

    @property
    def size(self) -> int:
        """Bytes so far, before compression."""
        return self.batch.size()


class _Packed(BatchBuilder):
    """A batch whose records the compiled part packs a column at a time. aiokafka's sender handles it like any other."""

    def __init__(self, batch_size: int, compression_type: int, *, is_transactional: int) -> None:
        self._limit = batch_size
        self._codec = compression_type
        self._attributes = 0x10 if is_transactional else 0
        self._parts: list[bytes] = []
        self._size = HEAD.size
        self._relative_offset = 0
        self._first_ms = self._max_ms = 0
        self._producer = (-1, -1, 0)
        self._buffer: memoryview | None = None
        self._closed = False

    def add(self, keys: Any, values: Any, stamps: Any, headers: Any, start: int) -> int:
        """As `Builder.add`."""
        if self._closed:
            return start
        count = self._relative_offset
        if count == 0:
            self._first_ms = self._max_ms = stamps if isinstance(stamps, int) else stamps[start]
        more = count, self._first_ms, self._limit - self._size
        try:
            part, at, max_ms = chosen.part.write(keys, values, stamps, headers, start, *more)
        except TypeError:
            listed = _listed(keys), _listed(values), stamps if isinstance(stamps, int) else list(stamps)
            named = None if headers is None else [[(n, _plain(v)) for n, v in one] for one in headers]
            part, at, max_ms = chosen.part.write(*listed, named, start, *more)
        self._take(part, at - start, max_ms)
        return at

    def add_spans(self, records: SpannedRecords, rows: Buffer | None, start: int) -> int:
        """As `Builder.add_spans`."""
        if self._closed:
            return start
        count, stamps = self._relative_offset, longs(records.timestamps)
        if count == 0 and start < (len(stamps) if rows is None else len(longs(rows))):
            self._first_ms = self._max_ms = stamps[start if rows is None else longs(rows)[start]]
        more = count, self._first_ms, self._limit - self._size
        part, at, max_ms = chosen.part.write_spans(
            records.keys, records.values, records.timestamps, records.headers, rows, start, *more
        )
        self._take(part, at - start, max_ms)
        return at

    def _take(self, part: bytes, count: int, max_ms: int) -> None:
        """Add the bytes of so many records."""
        if count > 0:
            self._parts.append(part)
            self._size += len(part)
            self._relative_offset += count
            self._max_ms = max(self._max_ms, max_ms)

    def append(self, **record: Any) -> None:
        """Reject the record: aiokafka calls this when someone sends a single record to the same partition."""
        return

    def _set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self._producer = (producer_id, producer_epoch, base_sequence)

    def _build(self) -> Any:
        self.close()
        if self._buffer is None:
            parts, attributes = self._parts, self._attributes
            self._parts = []
            if self._codec:
                body = b"".join(parts)
                packed = ENCODERS[self._codec](body)
                if len(packed) < len(body):
                    parts, attributes = [packed], attributes | self._codec
            count = self._relative_offset
            times = self._first_ms, self._max_ms
            size = HEAD.size + sum(map(len, parts))
            whole, at = fresh(size), HEAD.size
            for part in parts:
                whole[at : at + len(part)] = part
                at += len(part)
            HEAD.pack_into(whole, 0, 0, size - 12, -1, 2, 0, attributes, count - 1, *times, *self._producer, count)
            whole[17:21] = columns.crc32c(whole, CHECKED_FROM, len(whole)).to_bytes(4, "big")
            self._buffer = whole
        return self._buffer

    def size(self) -> int:
        return self._size if self._buffer is None else len(self._buffer)


def _varint(value: int) -> int:
    """The size in bytes of a zigzag varint."""
    return max(1, -(-((value << 1) ^ (value >> 63)).bit_length() // 7))


def _room(size: int) -> int:
    return _varint(size) + size


def _size_of(key: bytes | None, value: bytes | None, headers: Headers, delta_ms: int, delta: int) -> int:
    """The exact size in bytes of a record in a batch, as `columns.c` counts it."""
    body = 1 + _varint(delta_ms) + _varint(delta) + _varint(len(headers))
    for content in (key, value):
        body += 1 if content is None else _room(len(content))
    for name, content in headers:
        body += _room(len(name.encode())) + (1 if content is None else _room(len(content)))
    return _room(body)


def _plain(value: Any) -> bytes | None:
    """Any kind of bytes that aiokafka accepts, as `bytes`."""
    if value is None or type(value) is bytes:
        return value
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"bytes are required, not {type(value).__name__}")
    return bytes(value)


def _listed(column: Any) -> list[bytes | None] | None:
    return None if column is None else [_plain(value) for value in column]
