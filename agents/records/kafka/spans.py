"""Records as spans: where the values, keys and headers of fetched records lie in their bytes, and record batches made from such places.

What it decides: nothing. Promises:

- `read_spans` finds what `columns.read_batch` finds, and copies nothing of a batch that is not compressed. Damaged bytes always raise
  `DamagedBatch`.
- `read_run` finds in many small batches at once what `read_spans` finds in each of them.
- `SpannedRecords.columns` makes the same records as lists of bytes; `spanned` is the way back. Both forms have equal batches.
- `SpannedColumns` has the interface of `Columns`: whoever works with lists finds them, made when they are first asked for.
- Headers are kept as their bytes in Kafka's format, with their number: they are decoded only where somebody asks for them. Until then, a
  name that is not UTF-8 keeps its bytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from ..layout import Buffer, longs
from ..limits import MOST_BYTES
from ..memory.longs import gathered, scaled
from ..memory.record_spans import RecordSpans, cut_spans, packed, picked_spans, piece, pieces
from ..native import chosen
from ..native.plain.records import name_of
from .columns import Bytes, Columns, Header, Raw, RecordLists, read_by


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

    def cut(self, first: int, behind: int) -> SpannedRecords:
        """The records from index `first` up to, but not including, `behind`; nothing is copied."""

        def of(column: Buffer) -> Buffer:
            return longs(column)[first:behind]

        def part(spans: RecordSpans | None) -> RecordSpans | None:
            return None if spans is None else cut_spans(spans, first, behind)

        offsets = None if self.offsets is None else of(self.offsets)
        return SpannedRecords(
            cut_spans(self.values, first, behind),
            of(self.timestamps),
            self.base + first if offsets is None else offsets[0] if len(offsets) else self.base,
            part(self.keys),
            offsets,
            part(self.headers),
        )

    def picked(self, rows: Buffer) -> SpannedRecords:
        """The records at these indexes, which ascend."""

        def part(spans: RecordSpans | None) -> RecordSpans | None:
            return None if spans is None else picked_spans(spans, rows)

        offsets = gathered(self.every_offset(), rows)
        first = longs(offsets)[0] if len(longs(offsets)) else self.base
        stamps = gathered(self.timestamps, rows)
        return SpannedRecords(
            picked_spans(self.values, rows), stamps, first, part(self.keys), offsets, part(self.headers)
        )

    def every_offset(self) -> Buffer:
        """All offsets."""
        return array("q", range(self.base, self.base + len(self))) if self.offsets is None else self.offsets


class SpannedColumns:
    """Records as spans, with the interface of `Columns`. The lists must not be changed."""

    def __init__(self, spans: SpannedRecords) -> None:
        self.spans = spans
        self.base = spans.base

    def __len__(self) -> int:
        return len(self.spans)

    @cached_property
    def values(self) -> list[Bytes]:
        return pieces(self.spans.values)

    @cached_property
    def timestamps(self) -> list[int]:
        return longs(self.spans.timestamps).tolist()

    @cached_property
    def keys(self) -> list[Bytes] | None:
        return None if self.spans.keys is None else pieces(self.spans.keys)

    @cached_property
    def headers(self) -> list[list[Header]] | None:
        return None if self.spans.headers is None else list(map(headers_of, pieces(self.spans.headers)))

    @property
    def has_keys(self) -> bool:
        return self.spans.keys is not None

    @property
    def has_headers(self) -> bool:
        return self.spans.headers is not None

    def value(self, index: int) -> Bytes:
        return piece(self.spans.values, index)

    def offset(self, index: int) -> int:
        offsets = self.spans.offsets
        return self.base + index if offsets is None else longs(offsets)[index]

    def offset_column(self) -> Sequence[int]:
        offsets = self.spans.offsets
        return range(self.base, self.base + len(self)) if offsets is None else longs(offsets).tolist()

    def every_offset(self) -> list[int]:
        return list(self.offset_column())

    def index_from(self, offset: int) -> int:
        offsets = self.spans.offsets
        if offsets is None:
            return max(0, min(offset - self.base, len(self)))
        return bisect_left(longs(offsets), offset)

    def cut(self, first: int, behind: int) -> SpannedColumns:
        return SpannedColumns(self.spans.cut(first, behind))

    def bytes_of(self, first: int, behind: int) -> int:
        """How many bytes the values of these records extend over, together with what lies between them."""
        starts, sizes = longs(self.spans.values.offsets), longs(self.spans.values.lengths)
        return max(0, starts[behind - 1] + sizes[behind - 1] - starts[first]) if first < behind else 0

    def within(self, first: int, behind: int, room: int) -> int:
        """The index behind those records from `first` on, before `behind`, that extend over at most `room` bytes."""
        fits = bisect_right(
            longs(self.spans.values.offsets), longs(self.spans.values.offsets)[first] + room, first, behind
        )
        while fits > first and self.bytes_of(first, fits) > room:
            fits -= 1
        return fits


def joined_spans(parts: Sequence[SpannedRecords]) -> SpannedRecords:
    """Several runs of records of one partition as one. Bytes are copied only if they do not lie in one buffer.

    >>> records = [spanned(Columns([b"a"], [1], 5)), spanned(Columns([b"b"], [2], 6, [b"k"]))]
    >>> joined_spans(records).columns()
    Columns(values=[b'a', b'b'], timestamps=[1, 2], base=5, keys=[None, b'k'], offsets=None, headers=None)
    """
    if len(parts) == 1:
        return parts[0]
    parts = [part for part in parts if len(part)] or parts[:1]
    follow = all(part.offsets is None for part in parts) and all(
        before.base + len(before) == after.base for before, after in pairwise(parts)
    )
    places = _Places(parts)

    def of(columns: list[RecordSpans | None]) -> RecordSpans | None:
        if columns.count(None) == len(columns):
            return None
        return places.joined([_nulls(len(part)) if c is None else c for c, part in zip(columns, parts, strict=True)])

    return SpannedRecords(
        places.joined([part.values for part in parts]),
        b"".join(part.timestamps for part in parts),
        parts[0].base,
        of([part.keys for part in parts]),
        None if follow else b"".join(part.every_offset() for part in parts),
        of([part.headers for part in parts]),
    )


def _nulls(count: int) -> RecordSpans:
    return RecordSpans(b"", bytes(8 * count), b"\xff" * (8 * count))


class _Places:
    """Where the bytes of several runs lie when they lie in one buffer. Of each buffer, only the part is copied in which spans lie; spans of
    a run lie in the order of its records."""

    def __init__(self, runs: Iterable[SpannedRecords]) -> None:
        extents: dict[int, tuple[Buffer, int, int]] = {}
        for run in runs:
            for spans in (run.values, run.keys, run.headers):
                if spans is None:
                    continue
                starts, sizes = longs(spans.offsets), longs(spans.lengths)
                first, end = starts[0], starts[-1] + max(0, sizes[-1])
                _, low, high = extents.get(id(spans.buffer), (None, first, end))
                extents[id(spans.buffer)] = spans.buffer, min(low, first), max(high, end)
        self._moved: dict[int, int] = {}
        if len(extents) == 1:
            self._buffer: Buffer = next(iter(extents.values()))[0]
            return
        size = 0
        for name, (_, low, high) in extents.items():
            self._moved[name] = size - low
            size += high - low
        self._buffer = b"".join([memoryview(buffer).cast("B")[low:high] for buffer, low, high in extents.values()])

    def joined(self, columns: Sequence[RecordSpans]) -> RecordSpans:
        starts: list[Buffer] = []
        for spans in columns:
            moved = self._moved.get(id(spans.buffer), 0)
            starts.append(scaled(spans.offsets, add=moved) if moved else spans.offsets)
        return RecordSpans(self._buffer, b"".join(starts), b"".join([spans.lengths for spans in columns]))


def as_spans(records: SpannedColumns | RecordLists) -> SpannedRecords:
    """The records as spans, whichever form they have."""
    return records.spans if isinstance(records, SpannedColumns) else spanned(records)


def spanned(records: RecordLists) -> SpannedRecords:
    """These records as spans."""
    return SpannedRecords(
        packed(records.values),
        array("q", records.timestamps),
        records.base,
        None if records.keys is None else packed(records.keys),
        None if records.offsets is None else array("q", records.offsets),
        None if records.headers is None else packed_headers(records.headers),
    )


def read_spans(raw: Raw, start: int, end: int, most: int = MOST_BYTES) -> SpannedRecords:
    """The records of the version 2 batch at `start` of these bytes. Raises `OversizedBatch` for more than `most` bytes."""
    data, found = read_by(chosen.part.read_spans, raw, start, end, most)
    return _placed(data, *found)


def _placed(data: Raw, values: Any, times: bytes, first: int, keys: Any, offsets: Any, headers: Any) -> SpannedRecords:
    named = [None if one is None else RecordSpans(data, *one) for one in (keys, headers)]
    return SpannedRecords(RecordSpans(data, *values), times, first, named[0], offsets, named[1])


def read_run(raw: Raw, start: int) -> tuple[int, int, SpannedRecords] | None:
    """The records of two or more small batches that lie one behind the other from `start` on, with the end of the last batch in these bytes
    and the offset behind it. A producer that waits for nothing sends many batches of one or a few records, and each has a cost of its own.

    None if there is no such run, or nothing that reads one. A run consists of sound batches of version 2 that are not compressed and
    belong to no transaction; whoever reads what follows it finds out what that is.
    """
    found = chosen.part.read_run(raw, start)
    return None if found is None else (found[0], found[1], _placed(raw, *found[3:]))


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
        name, at = name_of(data[at : at + size]), at + size
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
