"""Decodes the bytes of a chunk into columns: this is where records enter a task if no row is made of them.

A record that cannot be read raises `BadRecord`, as in `decode`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...core.columns.schema import ColumnSchema
from ...core.errors import DataError
from ..job import steps as s
from ..job.timestamps import BadTimestamp, TimeField, times_of_column
from ..records.arrow_columns import ArrivedColumns
from ..records.chunks import Chunk
from ..records.column_chunk import ColumnChunk, decoded, why_bad
from ..records.columns import pick
from ..records.decoder import Decoder
from ..records.longs import extremes, gathered
from ..records.record import Rows
from ..records.spans import packed, packed_headers
from ..records.vectors import VectorBatch
from .arrived import arrived_chunk
from .bad_records import BadRecord, NoColumns, greatest_of
from .columnar import ColumnsOp
from .stateless import VALUES, Operator

if TYPE_CHECKING:
    from .decode import SourceOp


class ColumnSource:
    """The side of a source that decodes columns: no value is made of a record.

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
        self._key = step.key if isinstance(step, s.InputStep) and isinstance(step.key, str) else None
        time = step.timestamp if isinstance(step, s.InputStep) else None
        self._time = time.name if isinstance(time, TimeField) else time
        self._times = times_of_column(time.unit if isinstance(time, TimeField) else "ms")
        self._schema = schema
        self._decoder = Decoder(schema.columns, watched=watched)

    def push_chunk(self, chunk: Chunk, skip: frozenset[int]) -> int | None:
        """Decode a chunk without the records in `skip`, and push its columns on. Returns their greatest event time."""
        if isinstance(chunk.columns, ArrivedColumns):
            arrived = arrived_chunk(self._source, self._schema, chunk.columns, skip)
            if arrived is not None:
                return self._push_arrived(chunk, arrived, skip)
        source, values = self._source, chunk.values
        kept: list[int] | None = None
        if skip or None in values:
            kept = [i for i, value in enumerate(values) if value is not None and i not in skip]
            nulls = len(values) - len(skip) - len(kept)
            if nulls and self._source.instead is self:
                raise NoColumns("a null value is a row, but has no columns")
            if self._counts is not None:
                self._counts.tombstones += nulls

        def of(column: Sequence[Any]) -> list[Any]:
            return list(column) if kept is None else pick(column, kept)

        data = of(values)
        found = decoded(self._decoder, data)
        if found.bad:
            first = found.bad[0]
            raise BadRecord(first.record if kept is None else kept[first.record], why_bad(first, data[first.record]))
        bad: list[tuple[int, BaseException]] = []
        keys = self._keys(chunk, of, found.columns, bad)
        if isinstance(source.step, s.InputStep) and source.pipeline.keys is not None:
            source.pipeline.keys.see(source.step, chunk, _spread(keys, kept, len(chunk)))
        times = of(chunk.timestamps)
        if not bad and self._time is not None:
            times = self._event_times(found.columns[self._time].values(), times, bad)
        for index, cause in bad:
            raise BadRecord(index if kept is None else kept[index], cause)
        greatest = greatest_of(times, kept)
        headers: Any = of(chunk.headers) if source.wants_headers and chunk.has_headers else None
        key_serde = source.key_serde if self._key is None and source.wants_keys != VALUES else None
        offsets = None if kept is None else of(chunk.offsets)
        positions = chunk.columns.offset_column() if offsets is None else offsets
        made = ColumnChunk(
            dict(zip(found.columns.names, found.columns.vectors, strict=True)),
            array("q", times),
            key_spans=None if keys is None or key_serde is None else packed(keys),
            key_serde=key_serde,
            key_values=keys if key_serde is None else None,
            header_spans=None if headers is None else packed_headers(headers),
            positions=positions if source.wants_offsets else None,
            origin=found.spans,
            others=found.others,
        )
        source.pipeline.runs(chunk, Rows([], times), offsets, skip)
        if len(made):
            for child in self._children:
                child.push_columns(made)
        return greatest

    def _push_arrived(self, chunk: Chunk, made: ColumnChunk, skip: frozenset[int]) -> int | None:
        offsets = [chunk.columns.every_offset()[row] for row in made.indexes()] if skip else None
        self._source.pipeline.runs(chunk, Rows([], made.timestamps), offsets, skip)
        if not len(made):
            return None
        for child in self._children:
            child.push_columns(made)
        return extremes(made.times if made.picked is None else gathered(made.times, made.picked))[1]

    def _keys(
        self,
        chunk: Chunk,
        of: Callable[[Sequence[Any]], list[Any]],
        columns: VectorBatch,
        bad: list[tuple[int, BaseException]],
    ) -> list[Any] | None:
        if self._key is not None:
            return self._source.believed(columns[self._key].values(), bad)
        return self._source.keys_of_bytes(of(chunk.keys), bad) if chunk.has_keys else None

    def _event_times(self, column: list[Any], arrived: list[int], bad: list[tuple[int, BaseException]]) -> list[int]:
        if None in column:
            bad.append((column.index(None), DataError(f"no event time: the field '{self._time}' is null")))
            return arrived
        try:
            return self._times(column, arrived)
        except BadTimestamp as error:
            bad.append((error.index, error))
            return arrived


def _spread(keys: list[Any] | None, kept: list[int] | None, size: int) -> list[Any] | None:
    """The keys of all records of a chunk, from those of the records that are kept."""
    if keys is None or kept is None:
        return keys
    spread: list[Any] = [None] * size
    for index, key in zip(kept, keys, strict=True):
        spread[index] = key
    return spread
