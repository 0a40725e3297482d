"""Picks rows of vectors and of spans, and joins vectors, without an object per row.

What it decides: nothing. Promises:

- The compiled part and the plain way give equal vectors; every test runs both.
- Keys and other bytes are vectors of kind `text` here, too: the layout is the same, and nobody asks for their `values()`.
- What does not fit together (a row or a span outside of its column, more than 2 GiB of text) raises `ValueError`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate, chain, pairwise
from typing import Any

from ..native import compiled_part
from .limits import MOST_TEXT
from .record_spans import RecordSpans, pieces
from .vectors import KINDS, Buffer, Vector, VectorBatch, longs


def take(vector: Vector, rows: Buffer | None) -> Vector:
    """These rows of a vector, in this order; all of them for None.

    >>> take(Vector.of("text", ["a", None, "c"]), array("q", [2, 1])).values()
    ['c', None]
    """
    if rows is None:
        return vector
    if vector.kind not in KINDS:  # a `number`: its offsets are tags
        tags, wanted = memoryview(vector.offsets or b"").cast("B"), _checked(rows, vector.length)
        data = take(Vector("int64", vector.length, vector.data), rows).data
        return Vector(vector.kind, len(wanted), data, bytes(tags[row] for row in wanted), None, vector.nulls)
    if compiled_part.compiled is not None:
        size = memoryview(rows).nbytes // 8
        return Vector(vector.kind, size, *compiled_part.compiled.take(_parts(vector), vector.length, rows))
    wanted = _checked(rows, vector.length)
    if vector.kind == "text":
        found = pieces(spans_of(vector))
        return _texts([found[row] for row in wanted])
    values = vector.values()
    return Vector.of(vector.kind, [values[row] for row in wanted])


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
    if compiled_part.compiled is not None:
        size = memoryview(spans.lengths if rows is None else rows).nbytes // 8
        return Vector("text", size, *compiled_part.compiled.take_spans(*spans, rows))
    found = pieces(spans)
    return _texts(found if rows is None else [found[row] for row in _checked(rows, len(found))])


def spans_of(vector: Vector) -> RecordSpans:
    """Where the texts of a vector lie in its data."""
    if compiled_part.compiled is not None:
        return RecordSpans(vector.data, *compiled_part.compiled.text_spans(_parts(vector), vector.length))
    assert vector.offsets is not None
    ends = memoryview(vector.offsets).cast("B").cast("i").tolist()[: vector.length + 1]
    sizes = array("q", [end - start for start, end in pairwise(ends)])
    if min(sizes, default=0) < 0 or (ends and (ends[0] < 0 or ends[-1] > memoryview(vector.data).nbytes)):
        raise ValueError("a text lies outside of its column")
    if vector.validity is not None:
        valid = Vector("bool", vector.length, vector.validity).values()
        sizes = array("q", [size if is_valid else -1 for size, is_valid in zip(sizes, valid, strict=True)])
    return RecordSpans(vector.data, array("q", ends[:-1]), sizes)


def join(vectors: Sequence[Vector]) -> Vector:
    """Vectors of one kind, one behind the other.

    >>> join([Vector.of("bool", [True, None]), Vector.of("bool", [False])]).values()
    [True, None, False]
    """
    if compiled_part.compiled is not None:
        size = sum(one.length for one in vectors)
        found = compiled_part.compiled.join([(_parts(one), one.length) for one in vectors])
        return Vector(vectors[0].kind, size, *found)
    if len({one.kind for one in vectors}) != 1:
        raise ValueError("these are no vectors of one kind")
    if vectors[0].kind == "text":
        return _texts(list(chain.from_iterable(pieces(spans_of(one)) for one in vectors)))
    return Vector.of(vectors[0].kind, list(chain.from_iterable(one.values() for one in vectors)))


def _texts(parts: Sequence[bytes | None]) -> Vector:
    ends = array("q", accumulate((len(one or b"") for one in parts), initial=0))
    if ends[-1] > MOST_TEXT:
        raise ValueError("more text than a column can hold")
    nulls = sum(one is None for one in parts)
    validity = Vector.of("bool", [one is not None for one in parts]).data if nulls else None
    return Vector("text", len(parts), b"".join(one or b"" for one in parts), array("i", ends), validity, nulls)


def _checked(rows: Buffer, length: int) -> list[int]:
    found = longs(rows).tolist()
    if any(not 0 <= row < length for row in found):
        raise ValueError("a row lies outside of its column")
    return found


def _parts(vector: Vector) -> tuple[Any, ...]:
    return KINDS.index(vector.kind), vector.data, vector.offsets, vector.validity
