"""Spans: the places of records, or of parts of them, in a buffer.

What it decides: nothing. Promises: nothing is copied that need not be; a place outside of its buffer raises `ValueError`; the compiled part
and the plain way give the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from ..layout import Buffer, longs
from ..native import chosen
from .longs import gathered

Bytes = bytes | None


class RecordSpans(NamedTuple):
    """Where records lie in a buffer: `buffer[offsets[i] : offsets[i] + lengths[i]]`."""

    buffer: Buffer
    offsets: Buffer
    lengths: Buffer


def picked_spans(spans: RecordSpans, rows: Buffer) -> RecordSpans:
    """The spans at these indexes."""
    return RecordSpans(spans.buffer, gathered(spans.offsets, rows), gathered(spans.lengths, rows))


def cut_spans(spans: RecordSpans, first: int, behind: int) -> RecordSpans:
    """The spans from index `first` up to, but not including, `behind`; nothing is copied."""
    return RecordSpans(spans.buffer, longs(spans.offsets)[first:behind], longs(spans.lengths)[first:behind])


def piece(spans: RecordSpans, index: int) -> Bytes:
    """The bytes of one span."""
    return pieces(cut_spans(spans, index, index + 1))[0]


def is_text(spans: RecordSpans) -> bool:
    """Whether each span is UTF-8, or null.

    >>> is_text(packed(["ü".encode(), None])), is_text(packed([b"\xc3", b"\xbc"]))
    (True, False)
    """
    return chosen.part.is_text(*spans)


def pieces(spans: RecordSpans) -> list[Bytes]:
    """The bytes of each span, None for null. Raises `ValueError` for one that lies outside of the buffer."""
    return chosen.part.pieces(*spans)


def marked(spans: RecordSpans, rows: Buffer | None, mark: bytes) -> bool:
    """Whether one of these spans, or of these rows of them, begins with this byte."""
    return chosen.part.marked(spans, rows, mark)


def among(spans: RecordSpans, keys: AbstractSet[bytes]) -> list[int]:
    """The numbers of the spans that are one of these keys.

    >>> among(packed([b"a", None, b"b", b"a"]), {b"a"})
    [0, 3]
    """
    return chosen.part.among(spans, keys)


def packed(parts: Sequence[Bytes]) -> RecordSpans:
    """Spans of these parts in one buffer.

    >>> pieces(packed([b"a", None, b""]))
    [b'a', None, b'']
    """
    return RecordSpans(*chosen.part.spans_of_parts(parts))
