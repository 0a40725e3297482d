"""Columns of bytes: stored in base64, and as they are.

What it decides: nothing. Promises: a column is converted by one call, without an object for each value; what is stored and is no base64
raises `ValueError`.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence

from ..native import chosen
from .record_spans import RecordSpans, packed, pieces
from .taking import spans_of
from .vectors import Octets, Vector


def stored_octets(spans: RecordSpans) -> Vector:
    """Bytes as a column stores them; a length of -1 is null.

    >>> stored_octets(RecordSpans(b"abc", array("q", [0, 0]), array("q", [3, -1]))).values()
    ['YWJj', None]
    """
    made = chosen.part.to_base64(*spans)
    return Vector("text", len(memoryview(spans.lengths).cast("B")) // 8, *made)


def octets_of_texts(values: Sequence[str | None]) -> list[bytes | None]:
    """The bytes that these texts stand for.

    >>> octets_of_texts(["YWJj", None])
    [b'abc', None]
    """
    try:
        made = chosen.part.of_base64(*packed([None if one is None else one.encode() for one in values]))
    except ValueError:  # what another program has stored is decoded value by value, as far as it can be
        return [None if one is None else b64decode(one) for one in values]
    return pieces(spans_of(Vector("text", len(values), *made)))


def octets_of(column: Vector) -> Vector:
    """The bytes that a column stores: a vector in the layout of text, of which no one asks for the `values()`."""
    if isinstance(column, Octets):
        return column.plain
    return Vector("text", column.length, *chosen.part.of_base64(*spans_of(column)))
