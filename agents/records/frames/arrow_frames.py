"""Frames of columns: rows of vectors are written as Arrow frames (type 5), without a library. `arrow_columns` reads them.

    writer = FrameWriter(["user", ("avg", ("count", "sum"))], encode)       # a column, and a struct of two
    for record in writer.records(rows): ...        # FrameRecord(value, type, first_ms)

What it decides: how many rows a frame has, and which rows are written in columns at all. Promises:

- Rows stay in their order. A frame has at most `COLUMN_FRAME_RECORDS` rows and `FRAME_BYTES` bytes, unless a single row is larger.
- Fewer than `FEWEST` rows, and columns that no Arrow frame can hold (a name that begins with `__`, no column at all, a `number`, numbers
  of a big-endian machine), are written as batch frames of `encode(batch)`.
- A frame that was written here reads as the vectors that were given, bit for bit.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from ....core.progress.arrow import KIND_OF, SCHEMA_OF, VERSION_OF
from ....core.progress.arrow_writer import (
    HEADERS_FIELD,
    KEY_FIELD,
    TIMESTAMP_FIELD,
    StreamWriter,
    WrittenField,
    WrittenPart,
    WrittenType,
)
from ....core.progress.frames import (
    ARROW,
    PARTIAL_STATES,
    ROWS,
    TYPE_NAMES,
    VERSION,
    BatchFrame,
    header_value,
)
from ....core.progress.frames import encode as encode_frame
from ..columns.records import Records
from ..kafka.columns import Header
from ..kafka.spans import headers_of
from ..layout import Buffer, longs
from ..memory.record_spans import RecordSpans, pieces
from ..memory.taking import spans_of, take_batch, take_spans
from ..memory.vectors import Vector, VectorBatch
from .arrow_columns import LITTLE
from .framing import FRAME_BYTES, FRAME_RECORDS, frame_cuts

FEWEST = 64
COLUMN_FRAME_RECORDS = 4_096

FrameColumn = str | tuple[str, Sequence[str]]
"""A column of a frame, or a struct of several: each of these is a vector of the batch, in this order."""
_WRITTEN: Mapping[Any, WrittenType] = {"int64": "int64", "float64": "float64", "bool": "bool", "text": "utf8"}


class FrameRecord(NamedTuple):
    """The value of a Kafka record that holds a frame, the value of its header `hg-type`, and the time of its first row."""

    value: bytes
    type: bytes
    first_ms: int
    offsets: Buffer | None = None
    """The offsets of the records that its rows were made of, 64-bit integers; None if they are not known."""


class FrameWriter:
    """Writes rows of one stream, or partial states of one plan, as frames."""

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
        self._columns = columns
        names = self._names = tuple(one if isinstance(one, str) else one[0] for one in columns)
        self._named = LITTLE and bool(names) and not any(name.startswith("__") for name in names)
        kind = str(ROWS) if plan is None else f"{PARTIAL_STATES} {plan}"
        self._metadata = {VERSION_OF: str(VERSION), KIND_OF: kind, **({SCHEMA_OF: schema} if schema else {})}
        self._streams: dict[tuple[Any, ...], StreamWriter] = {}
        """By the types of the columns, and whether there are headers."""

    def _stream(self, batch: VectorBatch, headers: bool) -> StreamWriter:
        kinds = (headers, *(one.kind for one in batch.vectors))
        found = self._streams.get(kinds)
        if found is None:
            written: list[WrittenType] = [_WRITTEN[one.kind] for one in batch.vectors]
            types = iter(written)
            fields = [_field(one, types) for one in self._columns]
            found = StreamWriter(
                [KEY_FIELD, TIMESTAMP_FIELD, *fields, *([HEADERS_FIELD] if headers else [])], self._metadata
            )
            self._streams[kinds] = found
        return found

    def records(self, of: Records, most: int = COLUMN_FRAME_RECORDS) -> Iterator[FrameRecord]:
        """The frames of these rows, each of at most `most` rows. They are in columns, and their keys are spans."""
        count, batch, rows = len(of), self._batch(of), of.picked
        parts = -(-count // most)
        if count < FEWEST or not self._named or not all(one.kind in _WRITTEN for one in batch.vectors):
            yield from self._as_batches(of, batch, most)
            return
        if parts == 1:
            taken = take_batch(batch, rows)
            value = self._frame(_keys(of.key_spans, rows, count), of.selected_times(), taken, of.header_spans, rows)
            parts = -(-len(value) // FRAME_BYTES)
            if parts == 1:
                first_ms = longs(of.times)[0 if rows is None else longs(rows)[0]]
                yield FrameRecord(value, TYPE_NAMES[ARROW].encode(), first_ms, _as_longs(of.offsets))
                return
        cut = -(-count // parts)
        every = memoryview(array("q", range(count))) if rows is None else longs(rows)
        for first in range(0, count, cut):
            yield from self.records(of.kept(every[first : first + cut]), most)

    def _batch(self, of: Records) -> VectorBatch:
        """The columns of the frames. Partial states have a vector for each of their cells, in order."""
        assert of.vectors is not None, "frames of columns are made of columns"
        names = tuple(of.vectors) if self.plan is not None else self._names
        return VectorBatch(names, tuple(map(of.vector, names)), of.base_length)

    def _as_batches(self, of: Records, batch: VectorBatch, most: int) -> Iterator[FrameRecord]:
        rows, stamps, came = of.picked, of.timestamps, _as_longs(of.offsets)
        own = pieces(spans_of(_keys(of.key_spans, rows, len(of))))
        values, pairs = pieces(self.encode(take_batch(batch, rows))), _pairs(of.header_spans, rows)
        for start, stop in frame_cuts(own, values, pairs, min(most, FRAME_RECORDS)):
            some = None if pairs is None or not any(pairs[start:stop]) else pairs[start:stop]
            frame = BatchFrame(own[start:stop], stamps[start:stop], values[start:stop], some, self.plan)
            offsets = None if came is None else longs(came)[start:stop]
            yield FrameRecord(encode_frame(frame), header_value(frame), stamps[start], offsets)

    def _frame(
        self, keys: Vector, times: Buffer, batch: VectorBatch, headers: RecordSpans | None, rows: Buffer | None
    ) -> bytes:
        pairs = _pairs(headers, rows)
        parts = [_part(keys), WrittenPart(batch.length, 0, (b"", times))]
        vectors = iter(batch.vectors)
        for column in self._columns:
            if isinstance(column, str):
                parts.append(_part(next(vectors)))
            else:
                parts.append(WrittenPart(batch.length, 0, (b"",)))
                parts += [_part(next(vectors)) for _ in column[1]]
        some = pairs is not None and any(pairs)
        if pairs is not None and some:
            parts += _header_parts(pairs)
        return b"".join((bytes((ARROW,)), *self._stream(batch, some).stream(batch.length, parts)))


def _field(column: FrameColumn, types: Iterator[WrittenType]) -> WrittenField:
    if isinstance(column, str):
        return WrittenField(column, next(types))
    name, parts = column
    children = tuple(WrittenField(part, next(types)) for part in parts)
    return WrittenField(name, "struct", nullable=False, children=children)


def _keys(keys: RecordSpans | None, rows: Buffer | None, count: int) -> Vector:
    """The keys of these rows; all are null for None."""
    if keys is None:
        return Vector("text", count, b"", bytes(4 * (count + 1)), bytes((count + 7) // 8), count)
    return take_spans(keys, rows)


def _as_longs(offsets: Sequence[int] | None) -> Buffer | None:
    """Offsets as 64-bit integers."""
    return offsets if offsets is None or isinstance(offsets, memoryview) else array("q", offsets)


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
