"""Frames of columns: vectors are written as Arrow frames (type 5), and Arrow frames are read as vectors. No library is needed.

    writer = FrameWriter([("user", "text"), ("avg", [("count", "int64"), ("sum", "float64")])], encode)
    for record in writer.records(keys, times, batch, rows=rows): ...      # FrameRecord(value, type, first_ms)
    arrived = arrived_columns(frames)                                     # of frames that are alike
    arrived.vector("avg.sum"), arrived.keys, arrived.times, arrived.headers

What it decides: how many rows a frame has, and which frames are written in columns at all. Promises:

- Rows stay in their order. A frame has at most `COLUMN_FRAME_RECORDS` rows and `FRAME_BYTES` bytes, unless a single row is larger.
- Fewer than `FEWEST` rows are written as a batch frame of `encode(batch)`, which is smaller and cheaper to read there.
- A frame that was written here reads as the vectors that were given, bit for bit. Vectors of one frame lie in its bytes; those of several
  are copied once.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from ...core.columns.schema import ColumnKind
from ...core.progress.arrow import HEADERS, KEY, KIND_OF, SCHEMA_OF, TIMESTAMP, VERSION_OF, ArrowField, ArrowPart
from ...core.progress.arrow_writer import (
    HEADERS_FIELD,
    KEY_FIELD,
    TIMESTAMP_FIELD,
    StreamWriter,
    WrittenField,
    WrittenPart,
    WrittenType,
)
from ...core.progress.frames import (
    ARROW,
    PARTIAL_STATES,
    ROWS,
    TYPE_NAMES,
    VERSION,
    ArrowFrame,
    BatchFrame,
    header_value,
)
from ...core.progress.frames import encode as encode_frame
from .columns import Header
from .decoder import RecordSpans
from .framing import FRAME_BYTES, frame_cuts
from .spans import headers_of, packed_headers, pieces
from .taking import join, spans_of, take_batch, take_longs, take_spans
from .vectors import Buffer, Vector, VectorBatch, longs

FEWEST = 64
COLUMN_FRAME_RECORDS = 16_384

FrameColumn = tuple[str, ColumnKind | Sequence[tuple[str, ColumnKind]]]
"""A column of a frame, or a struct of several: each of these is a vector of the batch, in this order."""
_WRITTEN: Mapping[ColumnKind, WrittenType] = {"int64": "int64", "float64": "float64", "bool": "bool", "text": "utf8"}
_READ: Mapping[str, ColumnKind] = {
    "int64": "int64",
    "float64": "float64",
    "bool": "bool",
    "utf8": "text",
    "binary": "text",
}


class FrameRecord(NamedTuple):
    """The value of a Kafka record that holds a frame, the value of its header `hg-type`, and the time of its first row."""

    value: bytes
    type: bytes
    first_ms: int


class FrameWriter:
    """Writes rows of one schema, or partial states of one plan, as frames."""

    def __init__(
        self,
        columns: Sequence[FrameColumn],
        encode: Callable[[VectorBatch], RecordSpans],
        *,
        plan: int | None = None,
        schema: str = "",
    ) -> None:
        """`encode`: the values of rows for a batch frame. `plan`: the digest of the plan whose partial states the rows are."""
        self.encode = encode
        self.plan = plan
        self._fields = [_written(name, kind) for name, kind in columns]
        kind = str(ROWS) if plan is None else f"{PARTIAL_STATES} {plan}"
        self._metadata = {VERSION_OF: str(VERSION), KIND_OF: kind, **({SCHEMA_OF: schema} if schema else {})}
        self._plain = StreamWriter([KEY_FIELD, TIMESTAMP_FIELD, *self._fields], self._metadata)
        self._with_headers: StreamWriter | None = None

    def records(
        self,
        keys: RecordSpans | None,
        times: Buffer,
        batch: VectorBatch,
        *,
        rows: Buffer | None = None,
        headers: RecordSpans | None = None,
    ) -> Iterator[FrameRecord]:
        """The frames of these rows of the batch; of all for None."""
        count = batch.length if rows is None else memoryview(rows).nbytes // 8
        parts = -(-count // COLUMN_FRAME_RECORDS)
        if parts == 1 and count >= FEWEST:
            value = self._frame(
                _keys(keys, rows, count), take_longs(times, rows), take_batch(batch, rows), headers, rows
            )
            parts = -(-len(value) // FRAME_BYTES)
            if parts == 1:
                yield FrameRecord(
                    value, TYPE_NAMES[ARROW].encode(), longs(times)[0 if rows is None else longs(rows)[0]]
                )
                return
        if count < FEWEST:
            yield from self._as_batches(keys, times, batch, rows, headers)
            return
        cut = -(-count // parts)
        every = memoryview(array("q", range(count))) if rows is None else longs(rows)
        for first in range(0, count, cut):
            yield from self.records(keys, times, batch, rows=every[first : first + cut], headers=headers)

    def _as_batches(
        self,
        keys: RecordSpans | None,
        times: Buffer,
        batch: VectorBatch,
        rows: Buffer | None,
        headers: RecordSpans | None,
    ) -> Iterator[FrameRecord]:
        count = batch.length if rows is None else memoryview(rows).nbytes // 8
        texts = _keys(keys, rows, count)
        own, stamps = pieces(spans_of(texts)), longs(take_longs(times, rows)).tolist()
        values, pairs = pieces(self.encode(take_batch(batch, rows))), _pairs(headers, rows)
        for start, stop in frame_cuts(own, values, pairs):
            some = None if pairs is None or not any(pairs[start:stop]) else pairs[start:stop]
            frame = BatchFrame(own[start:stop], stamps[start:stop], values[start:stop], some, self.plan)
            yield FrameRecord(encode_frame(frame), header_value(frame), stamps[start])

    def _frame(
        self, keys: Vector, times: Buffer, batch: VectorBatch, headers: RecordSpans | None, rows: Buffer | None
    ) -> bytes:
        pairs = _pairs(headers, rows)
        parts = [_part(keys), WrittenPart(batch.length, 0, (b"", times))]
        vectors = iter(batch.vectors)
        for field in self._fields:
            if field.children:
                parts.append(WrittenPart(batch.length, 0, (b"",)))
            parts += [_part(next(vectors)) for _ in field.children or (field,)]
        writer = self._plain
        if pairs is not None and any(pairs):
            parts += _header_parts(pairs)
            if self._with_headers is None:
                fields = [KEY_FIELD, TIMESTAMP_FIELD, *self._fields, HEADERS_FIELD]
                self._with_headers = StreamWriter(fields, self._metadata)
            writer = self._with_headers
        return b"".join((bytes((ARROW,)), *writer.stream(batch.length, parts)))


def _written(name: str, kind: ColumnKind | Sequence[tuple[str, ColumnKind]]) -> WrittenField:
    if isinstance(kind, str):
        return WrittenField(name, _WRITTEN[kind])
    return WrittenField(name, "struct", nullable=False, children=tuple(_written(*one) for one in kind))


def _keys(keys: RecordSpans | None, rows: Buffer | None, count: int) -> Vector:
    """The keys of these rows; all are null for None."""
    if keys is None:
        return Vector("text", count, b"", bytes(4 * (count + 1)), bytes((count + 7) // 8), count)
    return take_spans(keys, rows)


def _part(vector: Vector) -> WrittenPart:
    """The buffers of a vector, cut to its length."""
    count = vector.length
    validity, nulls = b"", 0
    if vector.validity is not None:
        validity = memoryview(vector.validity).cast("B")[: (count + 7) // 8]
        nulls = count - (int.from_bytes(validity, "little") & ((1 << count) - 1)).bit_count()
    if vector.kind == "text":
        offsets = memoryview(vector.offsets or bytes(4)).cast("B")[: 4 * (count + 1)]
        return WrittenPart(count, nulls, (validity, offsets, vector.data))
    size = (count + 7) // 8 if vector.kind == "bool" else 8 * count
    return WrittenPart(count, nulls, (validity, memoryview(vector.data).cast("B")[:size]))


def _pairs(headers: RecordSpans | None, rows: Buffer | None) -> list[list[Header]] | None:
    if headers is None:
        return None
    found = pieces(headers)
    return [headers_of(found[row]) for row in (range(len(found)) if rows is None else longs(rows))]


def _header_parts(pairs: list[list[Header]]) -> list[WrittenPart]:
    """The list of structs of a name and a value, each a vector of its own."""
    flat = [one for row in pairs for one in row]
    ends = array("i", accumulate(map(len, pairs), initial=0))
    names, values = [name for name, _ in flat], [value for _, value in flat]
    data = [one or b"" for one in values]
    valid = Vector.of("bool", [one is not None for one in values]).data if None in values else None
    bodies = Vector("text", len(flat), b"".join(data), array("i", accumulate(map(len, data), initial=0)), valid)
    return [
        WrittenPart(len(pairs), 0, (b"", ends)),
        WrittenPart(len(flat), 0, (b"",)),
        _part(Vector.of("text", names)),
        _part(bodies),
    ]


# ---------------------------------------------------------------------------------------------------------------- reading


@dataclass(slots=True)
class ArrivedColumns:
    """Arrow frames of one schema and one kind as columns: the rows of the first frame, then those of the next."""

    frames: list[ArrowFrame]
    kinds: dict[str, ColumnKind]
    """The columns in their order; those of a struct as `struct.column`."""

    def __len__(self) -> int:
        return sum(frame.records for frame in self.frames)

    @property
    def plan(self) -> int | None:
        """The digest of the plan whose partial states the rows are; None for rows."""
        return self.frames[0].plan

    def vector(self, name: str) -> Vector:
        """A column."""
        return self._column(name, self.kinds[name])

    @property
    def keys(self) -> RecordSpans:
        """The keys; a length of -1 is null."""
        return spans_of(self._column(KEY, "text"))

    @property
    def times(self) -> Buffer:
        """The timestamps, 64-bit integers."""
        return self._column(TIMESTAMP, "int64").data

    @property
    def headers(self) -> RecordSpans | None:
        """The headers in Kafka's format; None if no row has any."""
        if all(field.name != HEADERS for field in self.frames[0].fields):
            return None
        rows = [row for frame in self.frames for parts in frame.batches for row in _headers_in(frame, parts)]
        return packed_headers(rows) if any(rows) else None

    def _column(self, name: str, kind: ColumnKind) -> Vector:
        at = _places(self.frames[0].fields)[name]
        return _joined([_vector(frame.body, kind, parts[at]) for frame in self.frames for parts in frame.batches], kind)


def _joined(vectors: Sequence[Vector], kind: ColumnKind) -> Vector:
    """Several vectors as one; a single one stays what it is."""
    if len(vectors) == 1:
        return vectors[0]
    return join(vectors) if vectors else Vector.of(kind, [])


def arrived_columns(frame: ArrowFrame) -> ArrivedColumns | None:
    """The columns of a frame; None if one of them has a type that no vector has."""
    kinds: dict[str, ColumnKind] = {}
    for field in frame.fields:
        if field.name in (KEY, TIMESTAMP, HEADERS):
            continue
        inner = field.kind == "struct" and frame.plan is not None
        if inner and any(parts[_places(frame.fields)[field.name]].nulls for parts in frame.batches):
            return None
        for one in field.children if inner else (field,):
            kind = _READ.get(one.kind) if one.kind != "binary" else None
            if kind is None:
                return None
            kinds[f"{field.name}.{one.name}" if inner else one.name] = kind
    return ArrivedColumns([frame], kinds)


def _places(fields: Sequence[ArrowField]) -> dict[str, int]:
    """Which part of a batch has a field, or the child of a struct (`struct.child`); children stand behind their parents."""
    found: dict[str, int] = {}
    at = 0

    def walk(field: ArrowField, name: str) -> None:
        nonlocal at
        found[name] = at
        at += 1
        for child in field.children:
            walk(child, f"{name}.{child.name}")

    for field in fields:
        walk(field, field.name)
    return found


def _vector(body: bytes, kind: ColumnKind, part: ArrowPart) -> Vector:
    """A column of a batch, in the bytes of its frame."""
    view = memoryview(body)
    buffers = [view[first:behind] for first, behind in part.buffers]
    validity = buffers[0] if part.nulls else None
    if kind != "text":
        size = part.length * 8
        return Vector(
            kind, part.length, buffers[1] if kind == "bool" else buffers[1][:size], None, validity, part.nulls
        )
    return Vector(kind, part.length, buffers[2], buffers[1] if len(buffers[1]) else bytes(4), validity, part.nulls)


def _headers_in(frame: ArrowFrame, parts: Sequence[ArrowPart]) -> list[list[Header]]:
    """The headers of a batch. Reading them makes objects: few records have any."""
    at = _places(frame.fields)[HEADERS]
    rows, _, names, values = parts[at : at + 4]
    first, behind = rows.buffers[1]
    ends = struct.unpack_from(f"<{rows.length + 1}i", frame.body, first) if behind > first else (0,)
    there = [True] * rows.length
    if rows.nulls:
        there = Vector("bool", rows.length, memoryview(frame.body)[slice(*rows.buffers[0])]).values()
    texts = _vector(frame.body, "text", names).values()
    bodies = pieces(spans_of(_vector(frame.body, "text", values)))
    pairs: list[Header] = list(zip(texts, bodies, strict=False))
    return [pairs[ends[i] : ends[i + 1]] if there[i] else [] for i in range(rows.length)]
