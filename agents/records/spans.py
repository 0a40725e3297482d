"""Records as spans: where the values, keys and headers of fetched records lie in their bytes, and record batches made from such places.

What it decides: nothing. Promises:

- `read_spans` finds what `columns.read_batch` finds, and copies nothing of a batch that is not compressed. Damaged bytes always raise
  `DamagedBatch`.
- `SpannedRecords.columns` makes the same records as lists of bytes; `spanned` is the way back. Both forms have equal batches.
- Headers are kept as their bytes in Kafka's format, with their number: they are decoded only where somebody asks for them.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import columns as compiled_part
from .columns import HEAD, LOG_APPEND_TIME, Bytes, Columns, DamagedBatch, Header, columns_of
from .decoder import RecordSpans
from .vectors import Buffer, longs


@dataclass(slots=True)
class SpannedRecords:
    """Records in the order of their offsets. A length of -1 is null. `keys`, `headers`: None if no record has any; `offsets`: None if they
    are consecutive from `base` on."""

    values: RecordSpans
    timestamps: Buffer
    base: int
    keys: RecordSpans | None = None
    offsets: Buffer | None = None
    headers: RecordSpans | None = None

    def __len__(self) -> int:
        return len(longs(self.timestamps))

    def columns(self) -> Columns:
        """The same records as lists."""
        headers = None if self.headers is None else list(map(headers_of, pieces(self.headers)))
        return Columns(
            pieces(self.values),
            longs(self.timestamps).tolist(),
            self.base,
            None if self.keys is None else pieces(self.keys),
            None if self.offsets is None else longs(self.offsets).tolist(),
            headers,
        )


def pieces(spans: RecordSpans) -> list[Bytes]:
    """The bytes of each span, None for null. Raises `ValueError` for one that lies outside of the buffer."""
    data, starts, sizes = memoryview(spans.buffer).cast("B"), longs(spans.offsets), longs(spans.lengths)
    found: list[Bytes] = []
    for start, size in zip(starts, sizes, strict=True):
        if size != -1 and (start < 0 or size < 0 or start + size > len(data)):
            raise ValueError("a record lies outside of its buffer")
        found.append(None if size == -1 else bytes(data[start : start + size]))
    return found


def packed(parts: Sequence[Bytes]) -> RecordSpans:
    """Spans of these parts in one buffer.

    >>> pieces(packed([b"a", None, b""]))
    [b'a', None, b'']
    """
    starts, end = array("q"), 0
    for part in parts:
        starts.append(end)
        end += len(part or b"")
    sizes = array("q", [-1 if part is None else len(part) for part in parts])
    return RecordSpans(b"".join(filter(None, parts)), starts, sizes)


def spanned(records: Columns) -> SpannedRecords:
    """These records as spans."""
    return SpannedRecords(
        packed(records.values),
        array("q", records.timestamps),
        records.base,
        None if records.keys is None else packed(records.keys),
        None if records.offsets is None else array("q", records.offsets),
        None if records.headers is None else packed_headers(records.headers),
    )


def read_spans(raw: bytes, start: int, end: int) -> SpannedRecords:
    """The records of the version 2 batch at `start` of these bytes."""
    if compiled_part.compiled is None:
        return _read_slowly(raw, start, end)
    base, _, _, _, _, attributes, _, first_ms, max_ms, _, _, _, count = HEAD.unpack_from(raw, start)
    data, at, stop = raw, start + HEAD.size, end
    try:
        if attributes & 7:
            from .codecs import DECODERS

            data = DECODERS[attributes & 7](raw[at:end])
            at, stop = 0, len(data)
        append_ms = max_ms if attributes & LOG_APPEND_TIME else None
        found = compiled_part.compiled.read_spans(data, at, stop, count, base, first_ms, append_ms)
    except Exception as error:
        raise DamagedBatch(f"the batch at offset {base} cannot be read: {error}") from error
    values, times, first, keys, offsets, headers = found
    named = [None if one is None else RecordSpans(data, *one) for one in (keys, headers)]
    return SpannedRecords(RecordSpans(data, *values), times, first, named[0], offsets, named[1])


def _read_slowly(raw: bytes, start: int, end: int) -> SpannedRecords:
    from aiokafka.record.memory_records import MemoryRecords

    try:
        batch: Any = MemoryRecords(raw[start:end]).next_batch()
        return spanned(columns_of(batch))
    except Exception as error:
        raise DamagedBatch(f"the batch cannot be read: {error}") from error


# ----------------------------------------------------------------------------------------------------------------- headers


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _as_varint(value: int) -> bytes:
    left, made = (value << 1) ^ (value >> 63), bytearray()
    while left >= 0x80:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)


def headers_of(data: Bytes) -> list[Header]:
    """The headers of a record from their bytes, which have been checked; None has none."""
    if data is None:
        return []
    count, at = _varint(data, 0)
    found: list[Header] = []
    for _ in range(count):
        size, at = _varint(data, at)
        name, at = data[at : at + size].decode(), at + size
        size, at = _varint(data, at)
        found.append((name, None if size < 0 else data[at : at + size]))
        at += max(size, 0)
    return found


def packed_headers(headers: Sequence[Sequence[Header]]) -> RecordSpans:
    """Headers of records in one buffer."""
    return packed([_as_kafka(one) for one in headers])


def _as_kafka(headers: Sequence[Header]) -> bytes:
    made = [_as_varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        made += [_as_varint(len(encoded)), encoded, _as_varint(-1 if value is None else len(value)), value or b""]
    return b"".join(made)
