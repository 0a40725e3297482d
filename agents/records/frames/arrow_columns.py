"""Arrow frames as columns: vectors that lie in the bytes of the frames, for readers that work in columns. No library is needed.

What it decides: which frames are read so. Promises:

- Frames of one schema and one kind are columns together: the rows of the first frame, then those of the next. Vectors of one frame lie in
  its bytes; those of several are copied once.
- `ArrivedColumns` has the interface of `Columns`: whoever works with rows finds the records that the stream's serde makes of them.
- A column with a type that no vector has is left to readers of rows: see `arrow_rows`. So are all columns on a big-endian machine, since
  frames are little-endian.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from functools import cached_property
from itertools import chain, repeat
from math import isfinite
from typing import Any

from ....core.columns.schema import ColumnKind, ColumnSchema
from ....core.progress.arrow import HEADERS, KEY, TIMESTAMP, ArrowField, ArrowPart
from ....core.progress.frames import ArrowFrame, FrameError
from ..kafka.columns import Bytes, Columns, Header
from ..kafka.spans import headers_of, packed_headers
from ..layout import Buffer, longs
from ..memory.event_time import are_times
from ..memory.record_spans import RecordSpans, pieces
from ..memory.taking import join, spans_of
from ..memory.vectors import Vector, VectorBatch
from ..values.serdes import Serde

LITTLE = sys.byteorder == "little"
_KINDS: dict[str, ColumnKind] = {"int64": "int64", "float64": "float64", "bool": "bool", "utf8": "text"}


class ArrivedColumns:
    """Arrow frames of one schema and one kind; see the top of this file."""

    def __init__(self, frames: Sequence[tuple[ArrowFrame, int]], serde: Serde[Any]) -> None:
        """`frames`: with the offset of the Kafka record of each. `serde`: that of the values in the stream."""
        self._frames = [frame for frame, _ in frames]
        self._offsets = [offset for _, offset in frames]
        self._serde = serde
        self.fields = self._frames[0].fields
        self.plan = self._frames[0].plan
        self.base = self._offsets[0]
        self._length = sum(frame.records for frame in self._frames)
        self._batches = [(frame, parts) for frame in self._frames for parts in frame.batches]
        self._places = places(self.fields)

    def __len__(self) -> int:
        return self._length

    @property
    def size(self) -> int:
        """How many bytes the frames have."""
        return sum(len(frame.body) for frame in self._frames)

    # ---------------------------------------------------------------------------------------------------------- columns

    @cached_property
    def kinds(self) -> dict[str, ColumnKind]:
        """The columns in their order; in partial states those of a struct as `struct.column`."""
        found = _kinds(self._frames[0])
        assert found is not None, "whoever reads columns has asked `in_vectors`"
        return found

    def lacks(self, schema: ColumnSchema) -> bool:
        """Whether these rows have to be read one by one: a column is not there, has another type, or has a null that it must not have."""
        for one in schema.columns:
            if self.kinds.get(one.name) != one.type:
                return True
            at = self._places[one.name]
            if not one.optional and any(parts[at].nulls for _, parts in self._batches):
                return True
        return False

    def declared(self, schema: ColumnSchema) -> VectorBatch | None:
        """The columns of this schema; None if the rows have to be read one by one."""
        if self.lacks(schema) or not are_times(self.times):
            return None
        vectors = tuple(self.vector(name) for name in schema.names)
        return VectorBatch(schema.names, vectors, len(self)) if all(map(_is_finite, vectors)) else None

    def vector(self, name: str) -> Vector:
        """A column."""
        return self._column(name, self.kinds[name])

    @property
    def key_spans(self) -> RecordSpans:
        """The keys; a length of -1 is null."""
        return spans_of(self._column(KEY, "text"))

    @property
    def times(self) -> Buffer:
        """The timestamps, 64-bit integers."""
        return self._column(TIMESTAMP, "int64").data

    @cached_property
    def header_spans(self) -> RecordSpans | None:
        """The headers in Kafka's format; None if no row has any."""
        if HEADERS not in self._places:
            return None
        rows = [row for frame, parts in self._batches for row in _headers_in(frame, parts, self._places[HEADERS])]
        return packed_headers(rows) if any(rows) else None

    def _column(self, name: str, kind: ColumnKind) -> Vector:
        at = self._places[name]
        vectors = [_vector(frame.body, kind, parts[at]) for frame, parts in self._batches]
        if len(vectors) == 1:
            return vectors[0]
        return join(vectors) if vectors else Vector.of(kind, [])

    # -------------------------------------------------------------------------------------------------------------- rows

    def plain_values(self) -> list[Any]:
        """The rows as dicts; partial states as lists, in which a struct is a list, too."""
        columns = {name: self.vector(name).values() for name in self.kinds}
        if self.plan is None:
            return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        states: list[list[Any]] = []
        for field in self.fields:
            if field.name in columns:
                states.append(columns[field.name])
            elif field.kind == "struct":
                parts = [columns[f"{field.name}.{one.name}"] for one in field.children]
                states.append(list(map(list, zip(*parts, strict=True))))
        return list(map(list, zip(*states, strict=True)))

    @cached_property
    def values(self) -> list[Bytes]:
        encoded = self._serde.dumps_many(self.plain_values())
        if encoded.bad:
            index, error = encoded.bad[0]
            raise FrameError(f"row {index} of its columns {error.what}", remedy=error.remedy) from error
        return encoded.values

    @cached_property
    def timestamps(self) -> list[int]:
        return longs(self.times).tolist()

    @cached_property
    def keys(self) -> list[Bytes] | None:
        return pieces(self.key_spans) if self.has_keys else None

    @cached_property
    def headers(self) -> list[list[Header]] | None:
        return None if self.header_spans is None else list(map(headers_of, pieces(self.header_spans)))

    @property
    def has_keys(self) -> bool:
        at = self._places[KEY]
        return any(parts[at].nulls < parts[at].length for _, parts in self._batches)

    @property
    def has_every_key(self) -> bool:
        """Whether each row has a key."""
        at = self._places[KEY]
        return not any(parts[at].nulls for _, parts in self._batches)

    @property
    def has_headers(self) -> bool:
        return self.header_spans is not None

    @property
    def offsets(self) -> list[int]:
        return self.every_offset()

    def value(self, index: int) -> Bytes:
        return self.values[index]

    def offset(self, index: int) -> int:
        return self.every_offset()[index]

    def offset_column(self) -> Sequence[int]:
        return self.every_offset()

    def every_offset(self) -> list[int]:
        """The offset of each row: that of its frame."""
        sizes = (frame.records for frame in self._frames)
        return list(chain.from_iterable(repeat(at, size) for at, size in zip(self._offsets, sizes, strict=True)))

    def cut(self, first: int, behind: int) -> Columns:
        """The rows from index `first` up to, but not including, `behind`, as records."""
        part = slice(first, behind)
        return Columns(
            self.values[part],
            self.timestamps[part],
            self.offset(first) if first < len(self) else self.base,
            None if self.keys is None else self.keys[part],
            self.every_offset()[part],
            None if self.headers is None else self.headers[part],
        )


def _is_finite(vector: Vector) -> bool:
    """Whether no float is NaN or infinite. JSON has no such number, so read as a record it is null."""
    if vector.kind != "float64":
        return True
    floats = memoryview(vector.data).cast("B").cast("d")[: vector.length]
    return isfinite(sum(floats)) or all(one is None or isfinite(one) for one in vector.values())


def in_vectors(frame: ArrowFrame) -> bool:
    """Whether each column of a frame can be a vector."""
    return LITTLE and _kinds(frame) is not None


def _kinds(frame: ArrowFrame) -> dict[str, ColumnKind] | None:
    found: dict[str, ColumnKind] = {}
    for at, field in _top(frame.fields):
        if field.name in (KEY, TIMESTAMP, HEADERS):
            continue
        inner = field.kind == "struct" and frame.plan is not None
        if inner and any(parts[at].nulls for parts in frame.batches):
            return None
        for one in field.children if inner else (field,):
            kind = _KINDS.get(one.kind)
            if kind is None:
                return None
            found[f"{field.name}.{one.name}" if inner else one.name] = kind
    return found


def _top(fields: Sequence[ArrowField]) -> list[tuple[int, ArrowField]]:
    """The fields at the top, each with the number of its part of a batch."""
    found: list[tuple[int, ArrowField]] = []
    at = 0
    for field in fields:
        found.append((at, field))
        at += _size(field)
    return found


def _size(field: ArrowField) -> int:
    return 1 + sum(map(_size, field.children))


def places(fields: Sequence[ArrowField]) -> dict[str, int]:
    """Which part of a batch has a field, or a child of it (`field.child`). A child is never taken for a field of such a name."""
    tops = _top(fields)
    found = {
        f"{field.name}.{child.name}": at + 1 + inner for at, field in tops for inner, child in _top(field.children)
    }
    return {**found, **{field.name: at for at, field in tops}}


def _vector(body: bytes, kind: ColumnKind, part: ArrowPart) -> Vector:
    """A column of a batch, in the bytes of its frame."""
    view = memoryview(body)
    buffers = [view[first:behind] for first, behind in part.buffers]
    validity = buffers[0] if part.nulls else None
    if kind == "text":
        offsets = buffers[1][: 4 * (part.length + 1)] if len(buffers[1]) else bytes(4)
        return Vector(kind, part.length, buffers[2], offsets, validity, part.nulls)
    data = buffers[1] if kind == "bool" else buffers[1][: part.length * 8]
    return Vector(kind, part.length, data, None, validity, part.nulls)


def _headers_in(frame: ArrowFrame, parts: Sequence[ArrowPart], at: int) -> list[list[Header]]:
    """The headers of a batch. Reading them makes objects: few records have any."""
    rows, _, names, values = parts[at : at + 4]
    first, behind = rows.buffers[1]
    ends: tuple[int, ...] = struct.unpack_from(f"<{rows.length + 1}i", frame.body, first) if behind > first else (0,)
    there = [True] * rows.length
    if rows.nulls:
        there = Vector("bool", rows.length, memoryview(frame.body)[slice(*rows.buffers[0])]).values()
    texts = _vector(frame.body, "text", names).values()
    bodies = pieces(spans_of(_vector(frame.body, "text", values)))
    pairs: list[Header] = list(zip(texts, bodies, strict=False))
    return [pairs[ends[i] : ends[i + 1]] if there[i] else [] for i in range(rows.length)]
