"""Frames of columns for readers that work in rows: an Arrow frame as the batch frame that its rows would have been.

What it decides: what a row of columns is. It is the record of its fields, a dict of plain values, written by the stream's serde; partial
states are the list of their columns. So one chunk may hold rows of all types of frames, and typed values are checked as any others.
A frame is taken whole or not at all: where one row cannot be written, the frame is refused.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from ...core.progress.arrow import HEADERS, KEY, TIMESTAMP
from ...core.progress.frames import ArrowFrame, BatchFrame, FrameError
from .columns import Header
from .serdes import Serde


class PlainRows(NamedTuple):
    """The records of a frame of columns, as plain values. `headers` is None where no record has any."""

    keys: list[bytes | None]
    timestamps: list[int]
    values: list[Any]
    headers: list[list[Header]] | None


def plain_rows(frame: ArrowFrame) -> PlainRows:
    """Raises `FrameError` where a value has no counterpart in Python."""
    pa: Any = importlib.import_module("pyarrow")
    try:
        table: Any = pa.ipc.open_stream(frame.body).read_all()
        columns: dict[str, list[Any]] = {name: table.column(name).to_pylist() for name in table.column_names}
    except Exception as error:
        raise FrameError(f"its columns cannot be read as rows: {error}") from error
    keys, timestamps, headers = columns.pop(KEY), columns.pop(TIMESTAMP), columns.pop(HEADERS, None)
    rows = zip(*columns.values(), strict=True)
    values = [dict(zip(columns, row, strict=True)) for row in rows] if frame.plan is None else list(map(list, rows))
    pairs = None if headers is None else [[(one["name"], one["value"]) for one in row or ()] for row in headers]
    return PlainRows(keys, timestamps, values, pairs)


def as_batch(frame: ArrowFrame, serde: Serde[Any]) -> BatchFrame:
    """The same records, in rows. Raises `FrameError` where the serde cannot write one of them, too."""
    rows = plain_rows(frame)
    encoded = serde.dumps_many(rows.values)
    if encoded.bad:
        index, error = encoded.bad[0]
        raise FrameError(f"row {index} of its columns {error.what}", remedy=error.remedy) from error
    return BatchFrame(rows.keys, rows.timestamps, encoded.values, rows.headers, frame.plan)
