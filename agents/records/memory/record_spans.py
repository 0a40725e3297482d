"""Spans: the places of records, or of parts of them, in a buffer.

What it decides: nothing. Promises: nothing is copied that need not be; a place outside of its buffer raises `ValueError`; the compiled part
and the plain way give the same.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from ..native import compiled_part
from .longs import gathered
from .vectors import Buffer, longs

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
    if compiled_part.compiled is not None:
        return compiled_part.compiled.is_text(*spans)
    try:
        for one in pieces(spans):
            (one or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def pieces(spans: RecordSpans) -> list[Bytes]:
    """The bytes of each span, None for null. Raises `ValueError` for one that lies outside of the buffer."""
    if compiled_part.compiled is not None:
        return compiled_part.compiled.pieces(*spans)
    data, starts, sizes = memoryview(spans.buffer).cast("B"), longs(spans.offsets), longs(spans.lengths)
    found: list[Bytes] = []
    for start, size in zip(starts, sizes, strict=True):
        if size != -1 and (start < 0 or size < 0 or start + size > len(data)):
            raise ValueError("a record lies outside of its buffer")
        found.append(None if size == -1 else bytes(data[start : start + size]))
    return found


def marked(spans: RecordSpans, rows: Buffer | None, mark: bytes) -> bool:
    """Whether one of these spans, or of these rows of them, begins with this byte."""
    if compiled_part.compiled is not None:
        return compiled_part.compiled.marked(spans, rows, mark)
    listed = pieces(spans)
    return any(
        (one or b"").startswith(mark) for one in (listed if rows is None else map(listed.__getitem__, longs(rows)))
    )


def packed(parts: Sequence[Bytes]) -> RecordSpans:
    """Spans of these parts in one buffer.

    >>> pieces(packed([b"a", None, b""]))
    [b'a', None, b'']
    """
    starts, end = array("q"), 0
    for part in parts:
        starts.append(end)
        end += len(part or b"")
    sizes = array("q", [-1 if part is None else len(part) for part in parts])
    return RecordSpans(b"".join(filter(None, parts)), starts, sizes)
