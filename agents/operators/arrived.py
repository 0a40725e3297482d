"""Takes frames of columns over as columns: no record is made of them, and nothing is decoded.

What it decides: whether a chunk of such frames can be taken over. If anything in it is to be refused, or has to be converted, it cannot:
then its rows are read as records, and each gets the verdict that it gets there.
"""

from __future__ import annotations

from array import array
from math import isfinite
from typing import TYPE_CHECKING, Any

from ...core.columns.schema import ColumnSchema
from ..records.arrow_columns import ArrivedColumns
from ..records.column_chunk import ColumnChunk
from ..records.longs import extremes
from ..records.vectors import Vector
from ..records.writable import TIME_LIMIT
from .stateless import VALUES

if TYPE_CHECKING:
    from .decode import SourceOp


def _is_finite(vector: Vector) -> bool:
    """Whether no float is NaN or infinite. JSON has no such number, so read as a record it is null."""
    if vector.kind != "float64":
        return True
    floats = memoryview(vector.data).cast("B").cast("d")[: vector.length]
    return isfinite(sum(floats)) or all(one is None or isfinite(one) for one in vector.values())


def arrived_chunk(
    source: SourceOp, schema: ColumnSchema, columns: ArrivedColumns, skip: frozenset[int]
) -> ColumnChunk | None:
    """The rows of these frames without those in `skip`, in the columns of the schema; None if they must be read as records."""
    times = columns.times
    least, greatest = extremes(times)
    if columns.lacks(schema) or greatest >= TIME_LIMIT or least <= -TIME_LIMIT:
        return None
    spans, values = columns.key_spans if columns.has_keys else None, None
    if spans is not None and source.wants_keys == VALUES:
        bad: list[tuple[int, BaseException]] = []
        raw: list[Any] = list(columns.keys or ())
        spans, values = None, source.keys_of_bytes(raw, bad)
        if bad:
            return None
    vectors = {name: columns.vector(name) for name in schema.names}
    if not all(map(_is_finite, vectors.values())):
        return None
    return ColumnChunk(
        vectors,
        times,
        picked=array("q", [row for row in range(len(columns)) if row not in skip]) if skip else None,
        key_spans=spans,
        key_serde=None if spans is None else source.key_serde,
        key_values=values,
        header_spans=columns.header_spans if source.wants_headers else None,
        positions=columns.every_offset() if source.wants_offsets else None,
    )
