"""Converts Arrow frames for readers that work in rows: into the batch frame that holds the same rows.

What it decides: what a row of an Arrow frame is. It is a dict of its fields, with plain values, encoded by the stream's serde; a partial
state is the list of its columns. So one chunk may hold rows from all types of frames, and typed values are checked like any others.
A frame is taken whole or not at all: if one row cannot be encoded, the frame is refused.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from ....core.progress.arrow import HEADERS, KEY, TIMESTAMP
from ....core.progress.frames import ArrowFrame, BatchFrame, FrameError
from ..kafka.columns import Bytes, Header
from ..values.serdes import Serde, msgpack
from .arrow_columns import ArrivedColumns, in_vectors


class PlainRows(NamedTuple):
    """The records of an Arrow frame as plain values. `headers` is None if no record has any."""

    keys: list[bytes | None]
    timestamps: list[int]
    values: list[Any]
    headers: list[list[Header]] | None


def plain_rows(frame: ArrowFrame) -> PlainRows:
    """The rows of an Arrow frame. Raises `FrameError` if a value has no counterpart in Python."""
    if in_vectors(frame):
        found = ArrivedColumns([(frame, 0)], msgpack())
        keys: list[Bytes] = [None] * len(found) if found.keys is None else found.keys
        return PlainRows(keys, found.timestamps, found.plain_values(), found.headers)
    pa: Any = importlib.import_module("pyarrow")
    try:
        table: Any = pa.ipc.open_stream(frame.body).read_all()
        columns = {name: table.column(name).to_pylist() for name in table.column_names}
    except Exception as error:
        raise FrameError(f"its columns cannot be read as rows: {error}") from error
    keys, timestamps, headers = columns.pop(KEY), columns.pop(TIMESTAMP), columns.pop(HEADERS, None)
    pairs = None if headers is None else [[(one["name"], one["value"]) for one in row or ()] for row in headers]
    rows = zip(*columns.values(), strict=True)
    values = [dict(zip(columns, row, strict=True)) for row in rows] if frame.plan is None else list(map(list, rows))
    return PlainRows(keys, timestamps, values, pairs)


def as_batch(frame: ArrowFrame, serde: Serde[Any]) -> BatchFrame:
    """The same records as a batch frame. Raises `FrameError` also if the serde cannot encode one of them."""
    rows = plain_rows(frame)
    encoded = serde.dumps_many(rows.values)
    if encoded.bad:
        index, error = encoded.bad[0]
        raise FrameError(f"row {index} of its columns {error.what}", remedy=error.remedy) from error
    return BatchFrame(rows.keys, rows.timestamps, encoded.values, rows.headers, frame.plan)
