"""Columns: rows of them picked, joined, and as values or capsules. As `take.c`, `lists.c` and `arrow_give.c`."""

from __future__ import annotations

import importlib
from array import array
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any

from ...layout import Buffer, Made, Parts, bits, column_made, kind_of, longs
from ...limits import MOST_TEXT
from .spans import pieces

_ARROW = {"int64": "int64", "float64": "float64", "bool": "bool_", "text": "string"}


def values(column: Parts, length: int) -> list[Any]:
    """A column as a list."""
    number, data, offsets, validity = column
    kind = kind_of(number)
    found: list[Any]
    if kind == "text":
        assert offsets is not None
        text, ends = bytes(data), memoryview(offsets).cast("B").cast("i").tolist()
        found = [text[ends[i] : ends[i + 1]].decode() for i in range(length)]
    elif kind == "bool":
        found = bits(data, length)
    else:
        found = memoryview(data).cast("B").cast("q" if kind == "int64" else "d").tolist()[:length]
    if validity is None:
        return found
    return [value if is_valid else None for value, is_valid in zip(found, bits(validity, length), strict=True)]


def dicts(names: Sequence[str], columns: list[list[Any]], length: int) -> list[dict[str, Any]]:
    """Lists as a list of dicts."""
    records = zip(*columns, strict=True) if columns else [()] * length
    return [dict(zip(names, record, strict=True)) for record in records]


def take(column: Parts, length: int, rows: Buffer) -> Made:
    """Rows of a column, as a column."""
    wanted, kind = _checked(rows, length), kind_of(column[0])
    if kind == "text":
        found = pieces(column[1], *text_spans(column, length))
        return _texts([found[row] for row in wanted])
    listed = values(column, length)
    return column_made(kind, [listed[row] for row in wanted])


def take_spans(buffer: Buffer, offsets: Buffer, lengths: Buffer, rows: Buffer | None) -> Made:
    """Spans as a column of text."""
    found = pieces(buffer, offsets, lengths)
    return _texts(found if rows is None else [found[row] for row in _checked(rows, len(found))])


def text_spans(column: Parts, length: int) -> tuple[Buffer, Buffer]:
    """Where the texts of a column lie."""
    _, data, offsets, validity = column
    assert offsets is not None
    ends = memoryview(offsets).cast("B").cast("i").tolist()[: length + 1]
    sizes = array("q", [end - start for start, end in pairwise(ends)])
    if min(sizes, default=0) < 0 or (ends and (ends[0] < 0 or ends[-1] > memoryview(data).nbytes)):
        raise ValueError("a text lies outside of its column")
    if validity is not None:
        valid = bits(validity, length)
        sizes = array("q", [size if is_valid else -1 for size, is_valid in zip(sizes, valid, strict=True)])
    return array("q", ends[:-1]), sizes


def join(columns: Sequence[tuple[Parts, int]]) -> Made:
    """Columns of one kind as one."""
    if len({column[0] for column, _ in columns}) != 1:
        raise ValueError("these are no vectors of one kind")
    kind = kind_of(columns[0][0][0])
    if kind == "text":
        return _texts(list(chain.from_iterable(pieces(one[1], *text_spans(one, length)) for one, length in columns)))
    return column_made(kind, list(chain.from_iterable(values(one, length) for one, length in columns)))


def arrow_give(alone: bool, columns: Sequence[tuple[str, Parts, int]], length: int) -> tuple[Any, Any]:
    """Columns as capsules, by pyarrow: a single one, or a struct of all."""
    pa: Any = importlib.import_module("pyarrow")
    arrays: list[Any] = []
    for _, (number, data, offsets, validity), nulls in columns:
        own = [data] if offsets is None else [offsets, data]
        buffers = [None if one is None else pa.py_buffer(one) for one in (validity, *own)]
        arrays.append(pa.Array.from_buffers(getattr(pa, _ARROW[kind_of(number)])(), length, buffers, nulls))
    if alone:
        return arrays[0].__arrow_c_array__()
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _, _ in columns]).__arrow_c_array__()


def _texts(parts: Sequence[bytes | None]) -> Made:
    if sum(len(one or b"") for one in parts) > MOST_TEXT:
        raise ValueError("more text than a column can hold")
    return column_made("text", parts)


def _checked(rows: Buffer, length: int) -> list[int]:
    found = longs(rows).tolist()
    if any(not 0 <= row < length for row in found):
        raise ValueError("a row lies outside of its column")
    return found
