"""Decodes the bytes of a chunk into columns: this is where records enter a task if no row is made of them.

What it decides: nothing is made of a record but its row in the vectors. Times, keys and headers stay buffers, unless a later step wants
values of the keys. All bad records of a chunk are found in one pass.

A record that cannot be read raises `BadRecord`, as in `decode`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ....core.columns.schema import TEXT, ColumnSchema
from ....core.errors import DataError
from ...records.columns.decoder import BadSpan, DecodedColumns, Decoder
from ...records.columns.fitting import why_bad
from ...records.columns.records import Records
from ...records.columns.whole_values import reader_of
from ...records.frames.arrow_columns import ArrivedColumns
from ...records.frames.chunks import Chunk
from ...records.kafka.spans import SpannedColumns, SpannedRecords, as_spans, headers_of, packed_headers
from ...records.layout import Buffer, longs
from ...records.memory.longs import all_but, extremes
from ...records.memory.record_spans import RecordSpans, packed, piece, pieces
from ..base.bad_records import NoColumns, refuse
from ..base.stateless import VALUES, Operator
from ..plain.columnar import ColumnsOp
from .arrived import arrived_chunk
from .column_times import ColumnTimes
from .decode import SourceOp
from .event_times import BadRows

LOOKED_AT = 500
"""How many keys of a chunk the test of partitioners looks at."""


class ColumnSource:
    """The side of a source that decodes columns.

    Null values are no rows: they are dropped, and counted.
    """

    def __init__(
        self,
        source: SourceOp,
        schema: ColumnSchema,
        children: list[Operator],
        counts: Sequence[ColumnsOp] = (),
        watched: Sequence[str] = (),
    ) -> None:
        """`counts`: what counts null values. `watched`: fields that the decoder watches for."""
        self._source = source
        self._children = children
        self._counts = counts
        step = source.step
        self._key = step.key if isinstance(step.key, str) else None
        self._times = ColumnTimes(step.timestamp, framed=step.framed, schema=schema)
        self._schema = schema
        # what the job has written itself has all columns as fields of the record
        self._other: Any = reader_of(step.serde, schema) if step.foreign else None
        """Decodes records that are no JSON."""
        self._decoder = self._other or Decoder(
            schema.columns, watched=watched, nested=step.foreign, stored=not step.foreign
        )

    def read(self, chunk: Chunk, skip: frozenset[int]) -> int | None:
        """Decode a chunk without the records in `skip`, and push its columns on. Returns their greatest event time."""
        source = self._source
        # in frames of other jobs, columns of logical types stand as in JSON
        if isinstance(chunk.columns, ArrivedColumns) and not (self._schema.logical and source.step.foreign):
            arrived = arrived_chunk(source, self._schema, chunk, chunk.columns, skip)
            if arrived is not None and not source.limits(chunk).outside(longs(arrived.times)):
                return self._push_arrived(chunk, arrived, skip)
        records = as_spans(chunk.columns)
        tried: Buffer | None = None
        """The indexes of the records that are decoded; None for all."""
        if skip:
            tried = all_but(len(chunk), skip)
            records = records.picked(tried)
        if self._other is not None and records.headers is not None:
            records = self._with_schemas(records, records.headers)
        found = self._decoder.decode(*records.values)
        if found.tombstones and source.instead is self:
            raise NoColumns("a null value is a row, but has no columns")
        for one in self._counts:
            one.tombstones += len(found.tombstones)
        base = records if found.rows is None else records.picked(found.rows)
        where = _Where(tried, found.rows)
        offsets = longs(base.offsets).tolist() if where.some and base.offsets is not None else None
        made, bad = self._rows(chunk, base, found, where, offsets)
        broken = [
            (where.record(one.record), self._why(one, piece(records.values, one.record) or b"")) for one in found.bad
        ]
        refuse(self._source.not_frames(chunk, [*broken, *((where.row(index), cause) for index, cause in bad)]))
        self._test_keys(chunk, made, where)
        return self._push(chunk, made, offsets, skip)

    def _why(self, bad: BadSpan, data: bytes) -> DataError:
        return why_bad(bad, data, self._decoder.kinds) if self._other is None else self._other.why(bad, data)

    def _with_schemas(self, records: SpannedRecords, spans: RecordSpans) -> SpannedRecords:
        """The records with the schemas that their headers name in front of values and keys, and without these headers."""
        source, headers = self._source, [headers_of(one) for one in pieces(spans)]
        serde, keys = source.step.serde, records.keys
        own = serde.own_headers | source.key_serde.own_headers
        if not any(name in own for of in headers for name, _ in of):
            return records
        if keys is not None:
            keys = packed(source.key_serde.with_headers(pieces(keys), headers, "key"))
        return replace(
            records,
            values=packed(serde.with_headers(pieces(records.values), headers, "value")),
            keys=keys,
            headers=packed_headers([[one for one in of if one[0] not in own] for of in headers]),
        )

    def _push_arrived(self, chunk: Chunk, made: Records, skip: frozenset[int]) -> int | None:
        offsets = [chunk.columns.every_offset()[row] for row in made.indexes()] if skip else None
        return self._push(chunk, made, offsets, skip)

    def _push(self, chunk: Chunk, made: Records, offsets: list[int] | None, skip: frozenset[int]) -> int | None:
        self._source.pipeline.runs(chunk, lambda: made, lambda: offsets, skip)
        if not len(made):
            return None
        for child in self._children:
            child.push(made)
        return extremes(made.selected_times())[1]

    def _rows(
        self, chunk: Chunk, base: SpannedRecords, found: DecodedColumns, where: _Where, offsets: list[int] | None
    ) -> tuple[Records, BadRows]:
        """The rows with all that they need of their records, and which of them have an unreadable key or time."""
        source, bad = self._source, BadRows()
        vectors = dict(zip(found.columns.names, found.columns.vectors, strict=True))
        spans, values = None, None
        if self._key is not None:
            values = vectors[self._key]
            if values.kind != TEXT:
                source.believed(values.values(), bad)
        elif source.wants_keys == VALUES:
            values = None if base.keys is None else source.keys_of_bytes(pieces(base.keys), bad)
        elif base.keys is not None:
            spans = base.keys
            source.check_keys(spans, bad)
        times, wrong = self._times.of(vectors, base, source.limits(chunk))
        made = Records.of_vectors(
            vectors,
            times,
            key_spans=spans,
            key_serde=source.key_serde if values is None else None,
            key_values=values,
            header_spans=base.headers if source.wants_headers else None,
            positions=self._positions(chunk, base, where, offsets),
            origin=found.spans if self._other is None else None,
            others=found.others,
            places=where if where.some else range(len(base)),
        )
        return made, [*bad, *wrong]

    def _positions(
        self, chunk: Chunk, base: SpannedRecords, where: _Where, offsets: list[int] | None
    ) -> Sequence[int] | None:
        """The offsets of the rows, or the numbers of their records, if a later step wants them."""
        source = self._source
        if source.wants_origins:
            return source.origins(chunk, list(where) if where.some else None)
        if not source.wants_offsets:
            return None
        ascend = isinstance(chunk.columns, SpannedColumns)  # the rows of a frame have its offset
        return _ascending(base) if ascend else _listed(chunk, offsets)

    def _test_keys(self, chunk: Chunk, made: Records, where: _Where) -> None:
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


class _Where(Sequence[int]):
    """Which records of a chunk the decoded ones are. As a sequence: those that the rows were made of."""

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

    def __len__(self) -> int:
        known = self._tried if self._rows is None else self._rows
        return 0 if known is None else len(known)

    def __getitem__(self, at: Any) -> Any:
        return self.row(at)


def _listed(chunk: Chunk, offsets: list[int] | None) -> list[int]:
    return chunk.columns.every_offset() if offsets is None else offsets


def _ascending(records: SpannedRecords) -> Sequence[int]:
    """The offsets of records of a topic."""
    return range(records.base, records.base + len(records)) if records.offsets is None else longs(records.offsets)
