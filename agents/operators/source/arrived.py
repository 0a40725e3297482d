"""Takes frames of columns over as columns: no record is made of them, and nothing is decoded.

What it decides: whether a chunk of such frames can be taken over. If anything in it is to be refused, or has to be converted, it cannot:
then its rows are read as records, and each gets the verdict that it gets there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....core.columns.schema import ColumnSchema
from ...records.columns.records import Records
from ...records.frames.arrow_columns import ArrivedColumns
from ...records.frames.chunks import Chunk
from ...records.memory.longs import all_but
from ..base.stateless import VALUES
from .decode import SourceOp


def arrived_chunk(
    source: SourceOp, schema: ColumnSchema, chunk: Chunk, columns: ArrivedColumns, skip: frozenset[int]
) -> Records | None:
    """The rows of these frames without those in `skip`, in the columns of the schema; None if they must be read as records."""
    found = columns.declared(schema)
    if found is None:
        return None
    spans, values = columns.key_spans if columns.has_keys else None, None
    if spans is not None and source.wants_keys == VALUES:
        bad: list[tuple[int, BaseException]] = []
        raw: list[Any] = list(columns.keys or ())
        spans, values = None, source.keys_of_bytes(raw, bad)
        if bad:
            return None
    positions: Sequence[int] | None = columns.every_offset() if source.wants_offsets else None
    if source.wants_origins:
        positions = source.origins(chunk, None)
    return Records.of_vectors(
        dict(zip(found.names, found.vectors, strict=True)),
        columns.times,
        picked=all_but(len(columns), skip) if skip else None,
        key_spans=spans,
        key_serde=None if spans is None else source.key_serde,
        key_values=values,
        header_spans=columns.header_spans if source.wants_headers else None,
        positions=positions,
        places=range(len(columns)),  # all rows of the chunk are base rows
    )
