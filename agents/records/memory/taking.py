"""Picks rows of vectors and of spans, and joins vectors, without an object per row.

What it decides: nothing. Promises:

- The compiled part and the plain way give equal vectors; every test runs both.
- Keys and other bytes are vectors of kind `text` here, too: the layout is the same, and no one asks for their `values()`.
- What does not fit together (a row or a span outside of its column, more than 2 GiB of text) raises `ValueError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..layout import KINDS, Buffer, longs
from ..native import chosen
from .record_spans import RecordSpans
from .vectors import Octets, Vector, VectorBatch


def take(vector: Vector, rows: Buffer | None) -> Vector:
    """These rows of a vector, in this order; all of them for None.

    >>> take(Vector.of("text", ["a", None, "c"]), array("q", [2, 1])).values()
    ['c', None]
    """
    if rows is None:
        return vector
    if isinstance(vector, Octets):
        return Octets(take(vector.plain, rows))
    if vector.kind not in KINDS:  # a `number`: its offsets are tags
        tags, wanted = memoryview(vector.offsets or b"").cast("B"), _checked(rows, vector.length)
        data = take(Vector("int64", vector.length, vector.data), rows).data
        return Vector(vector.kind, len(wanted), data, bytes(tags[row] for row in wanted), None, vector.nulls)
    size = memoryview(rows).nbytes // 8
    return Vector(vector.kind, size, *chosen.part.take(_parts(vector), vector.length, rows))


def take_batch(batch: VectorBatch, rows: Buffer | None) -> VectorBatch:
    """These rows of every column."""
    if rows is None:
        return batch
    return VectorBatch(batch.names, tuple(take(one, rows) for one in batch.vectors), memoryview(rows).nbytes // 8)


def take_longs(column: Buffer, rows: Buffer | None) -> Buffer:
    """These items of a buffer of 64-bit integers."""
    return column if rows is None else take(Vector("int64", len(longs(column)), column), rows).data


def take_spans(spans: RecordSpans, rows: Buffer | None = None) -> Vector:
    """The bytes of these spans, one behind the other; a length of -1 is null.

    >>> take_spans(RecordSpans(b"abc", array("q", [1, 0]), array("q", [2, -1]))).values()
    ['bc', None]
    """
    size = memoryview(spans.lengths if rows is None else rows).nbytes // 8
    return Vector("text", size, *chosen.part.take_spans(*spans, rows))


def spans_of(vector: Vector) -> RecordSpans:
    """Where the texts of a vector lie in its data."""
    return RecordSpans(vector.data, *chosen.part.text_spans(_parts(vector), vector.length))


def join(vectors: Sequence[Vector]) -> Vector:
    """Vectors of one kind, one behind the other.

    >>> join([Vector.of("bool", [True, None]), Vector.of("bool", [False])]).values()
    [True, None, False]
    """
    size = sum(one.length for one in vectors)
    if vectors[0].kind not in KINDS:  # a `number`: its offsets are tags
        parts = [(memoryview(one.data).cast("B"), memoryview(one.offsets or b"").cast("B")) for one in vectors]
        data, tags = b"".join(data for data, _ in parts), b"".join(tags for _, tags in parts)
        return Vector(vectors[0].kind, size, data, tags, None, sum(one.nulls for one in vectors))
    return Vector(vectors[0].kind, size, *chosen.part.join([(_parts(one), one.length) for one in vectors]))


def _checked(rows: Buffer, length: int) -> list[int]:
    found = longs(rows).tolist()
    if any(not 0 <= row < length for row in found):
        raise ValueError("a row lies outside of its column")
    return found


def _parts(vector: Vector) -> tuple[Any, ...]:
    return KINDS.index(vector.kind), vector.data, vector.offsets, vector.validity
