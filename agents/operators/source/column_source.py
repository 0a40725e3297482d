"""Decodes the bytes of a chunk into columns: this is where records enter a task if no row is made of them.

What it decides: nothing is made of a record but its row in the vectors. Times, keys and headers stay buffers, unless a later step wants
values of the keys. All bad records of a chunk are found in one pass.

A record that cannot be read raises `BadRecord`, as in `decode`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ....core.columns.schema import TEXT, ColumnSchema
from ...records.columns.column_chunk import ColumnChunk, why_bad
from ...records.columns.decoder import DecodedColumns, Decoder
from ...records.frames.arrow_columns import ArrivedColumns
from ...records.frames.chunks import Chunk
from ...records.kafka.spans import SpannedColumns, SpannedRecords, as_spans
from ...records.layout import Buffer, longs
from ...records.memory.longs import extremes, gathered
from ...records.memory.record_spans import piece, pieces
from ...records.values.record import Rows
from ..base.bad_records import NoColumns, refuse
from ..base.stateless import VALUES, Operator
from ..plain.columnar import ColumnsOp
from .arrived import arrived_chunk
from .column_times import ColumnTimes
from .decode import SourceOp
from .event_times import BadRows, EventLimits

LOOKED_AT = 500
"""How many keys of a chunk the test of partitioners looks at."""


class ColumnSource:
    """The side of a source that decodes columns.

    Null values are no rows: they are dropped, and `counts` counts them.
    """

    def __init__(
        self,
        source: SourceOp,
        schema: ColumnSchema,
        children: list[Operator],
        counts: ColumnsOp | None = None,
        watched: Sequence[str] = (),
    ) -> None:
        """`watched`: fields that the decoder watches for."""
        self._source = source
        self._children = children
        self._counts = counts
        step = source.step
        self._key = step.key if isinstance(step.key, str) else None
        self._times = ColumnTimes(step.timestamp, framed=step.framed)
        self._schema = schema
        self._decoder = Decoder(schema.columns, watched=watched)

    def push_chunk(self, chunk: Chunk, skip: frozenset[int]) -> int | None:
        """Decode a chunk without the records in `skip`, and push its columns on. Returns their greatest event time."""
        source = self._source
        if isinstance(chunk.columns, ArrivedColumns):
            arrived = arrived_chunk(source, self._schema, chunk, chunk.columns, skip)
            if arrived is not None and not source.limits(chunk).outside(longs(arrived.times)):
                return self._push_arrived(chunk, arrived, skip)
        records = as_spans(chunk.columns)
        tried: Buffer | None = None
        """The indexes of the records that are decoded; None for all."""
        if skip:
            tried = array("q", [index for index in range(len(chunk)) if index not in skip])
            records = records.picked(tried)
        found = self._decoder.decode(*records.values)
        if found.tombstones and source.instead is self:
            raise NoColumns("a null value is a row, but has no columns")
        if self._counts is not None:
            self._counts.tombstones += len(found.tombstones)
        base = records if found.rows is None else records.picked(found.rows)
        made, bad = self._chunk(base, found, source.limits(chunk))
        where = _Where(tried, found.rows)
        made.records = where.row if where.some else int
        broken = [
            (where.record(one.record), why_bad(one, piece(records.values, one.record) or b"")) for one in found.bad
        ]
        refuse(self._source.not_frames(chunk, [*broken, *((where.row(index), cause) for index, cause in bad)]))
        self._test_keys(chunk, made, where)
        offsets = longs(base.offsets).tolist() if where.some and base.offsets is not None else None
        if source.wants_origins:
            some = [where.row(row) for row in range(len(base))] if where.some else None
            made.positions = source.origins(chunk, some)
        elif source.wants_offsets:
            ascend = isinstance(chunk.columns, SpannedColumns)  # the rows of a frame have its offset
            made.positions = _ascending(base) if ascend else _listed(chunk, offsets)
        source.pipeline.runs(chunk, lambda: Rows([], longs(made.times).tolist()), lambda: offsets, skip)
        if not len(made):
            return None
        for child in self._children:
            child.push_columns(made)
        return extremes(made.times)[1]

    def _push_arrived(self, chunk: Chunk, made: ColumnChunk, skip: frozenset[int]) -> int | None:
        offsets = [chunk.columns.every_offset()[row] for row in made.indexes()] if skip else None
        self._source.pipeline.runs(chunk, lambda: Rows([], made.timestamps), lambda: offsets, skip)
        if not len(made):
            return None
        for child in self._children:
            child.push_columns(made)
        return extremes(made.times if made.picked is None else gathered(made.times, made.picked))[1]

    def _chunk(self, base: SpannedRecords, found: DecodedColumns, limits: EventLimits) -> tuple[ColumnChunk, BadRows]:
        """The rows with all that they need of their records, and which of them have an unreadable key or time."""
        source, bad = self._source, BadRows()
        vectors = dict(zip(found.columns.names, found.columns.vectors, strict=True))
        made = ColumnChunk(vectors, base.timestamps, origin=found.spans, others=found.others)
        if self._key is not None:
            made.key_values = key = vectors[self._key]
            if key.kind != TEXT:
                source.believed(key.values(), bad)
        elif source.wants_keys == VALUES:
            made.key_values = None if base.keys is None else source.keys_of_bytes(pieces(base.keys), bad)
        else:
            made.key_spans, made.key_serde = base.keys, source.key_serde
            if base.keys is not None:
                source.check_keys(base.keys, bad)
        if source.wants_headers:
            made.header_spans = base.headers
        made.times, wrong = self._times.of(vectors, base, limits)
        return made, [*bad, *wrong]

    def _test_keys(self, chunk: Chunk, made: ColumnChunk, where: _Where) -> None:
        """Show the first keys of the chunk to the test of partitioners."""
        source = self._source
        if source.pipeline.keys is None or not source.step.foreign:
            return
        some = min(LOOKED_AT, len(chunk))

        def keys() -> list[Any] | None:
            if self._key is None:
                return None
            spread: list[Any] = [None] * some
            vector = made.vector(self._key)
            for row, key in enumerate(replace(vector, length=min(some, len(vector))).values()):
                if (index := where.row(row)) < some:
                    spread[index] = key
            return spread

        source.pipeline.keys.see(source.step, chunk.pick(0, some), keys)


class _Where:
    """Which records of a chunk the decoded ones are, and the rows made of them."""

    def __init__(self, tried: Buffer | None, rows: Buffer | None) -> None:
        self._tried = None if tried is None else longs(tried)
        self._rows = None if rows is None else longs(rows)
        self.some = tried is not None or rows is not None
        """Whether only some records of the chunk are rows."""

    def record(self, index: int) -> int:
        """The index in the chunk of a record that was decoded."""
        return index if self._tried is None else self._tried[index]

    def row(self, index: int) -> int:
        """The index in the chunk of the record of a row."""
        return self.record(index if self._rows is None else self._rows[index])


def _listed(chunk: Chunk, offsets: list[int] | None) -> list[int]:
    return chunk.columns.every_offset() if offsets is None else offsets


def _ascending(records: SpannedRecords) -> Sequence[int]:
    """The offsets of records of a topic."""
    return range(records.base, records.base + len(records)) if records.offsets is None else longs(records.offsets)
