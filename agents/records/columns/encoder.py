"""Encodes vectors as JSON records, a chunk at a time, without an object per record.

    encoder = Encoder(("user", "total"), added=("total",))
    spans = encoder.encode(batch)                                  # {"user":…,"total":…} for every row
    spans = encoder.encode(batch, rows)                            # for these rows, in this order
    spans = encoder.encode(batch, rows, found.spans, found.others) # the original bytes of each row, and the added fields behind its own

What it decides: the bytes of a record. Promises:

- A record in full is what `orjson.dumps` makes of the dict of its columns: the same escapes, the same digits, null for null and for a
  float that is no number.
- An extended record is its original bytes up to the last brace, as its producer wrote them, and the added fields; without added fields it
  is its original bytes. A row that is marked in `others` (see `decoder.py`) with a bit of `mask` is written in full: it has fields that
  shall not pass, or one that is added.
- Arguments that do not fit together raise `ValueError`; nothing outside of a buffer is read.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import partial
from typing import Any

import orjson

from ..memory.record_spans import RecordSpans
from ..memory.vectors import Buffer, VectorBatch, longs, number_of
from ..native import compiled_part
from .decoder import HAS_OTHER, HAS_WATCHED

_SIGNS = orjson.dumps(1e16) == b"1e+16"
"""Whether this orjson writes the sign of a positive exponent; its versions differ."""
_BLANKS = b" \t\n\r"


class Encoder:
    """Encodes rows as JSON objects; see the top of this file. It may be used by several threads.

    >>> from .vectors import Vector
    >>> Encoder(["n"]).encode(VectorBatch(("n",), (Vector.of("int64", [7, None]),), 2)).buffer
    b'{"n":7}{"n":null}'
    """

    def __init__(self, names: Sequence[str], *, added: Sequence[str] = ()) -> None:
        """`names`: the fields of a full record, in order. `added`: the fields that are added to original bytes."""
        self.names, self.added = tuple(names), tuple(added)
        self._full = [(b"," if at else b"{") + orjson.dumps(name) + b":" for at, name in enumerate(self.names)]
        self._more = [b"," + orjson.dumps(name) + b":" for name in self.added]

    def encode(
        self,
        batch: VectorBatch,
        rows: Buffer | None = None,
        spans: RecordSpans | None = None,
        others: Buffer | None = None,
        *,
        mask: int = HAS_OTHER | HAS_WATCHED,
        aligned: bool = False,
    ) -> RecordSpans:
        """The records of these rows of the batch, one behind the other; of all rows without `rows`. `aligned`: with a place for each row of
        the batch, which is empty for those that are not written; then rows ascend."""
        if compiled_part.compiled is None:
            found = self._slowly(batch, rows, spans, others, mask)
            return found if rows is None or not aligned else _aligned(found, rows, batch.length)
        vectors = [(number_of(one.kind), one.data, one.offsets, one.validity) for one in batch.vectors]
        places = {name: at for at, name in enumerate(batch.names)}
        full = [(places[name], prefix) for name, prefix in zip(self.names, self._full, strict=True)]
        more = [(places[name], prefix) for name, prefix in zip(self.added, self._more, strict=True)]
        source = (None, None, None) if spans is None else tuple(spans)
        return RecordSpans(
            *compiled_part.compiled.encode(
                vectors, batch.length, full, more, _SIGNS, rows, *source, others, mask, False, aligned
            )
        )

    def _slowly(
        self, batch: VectorBatch, rows: Buffer | None, spans: RecordSpans | None, others: Buffer | None, mask: int
    ) -> RecordSpans:
        """As `encode`, by orjson."""
        wanted = range(batch.length) if rows is None else longs(rows).tolist()
        if any(not 0 <= row < batch.length for row in wanted):
            raise ValueError("a row lies outside of its column, or its original bytes are no object")
        full, more = (_dicts(batch, names) for names in (self.names, self.added))
        original = None if spans is None else partial(_original, spans)
        parts: list[bytes] = []
        for row in wanted:
            if original is None or (others is not None and others[row] & mask):
                parts.append(orjson.dumps(full[row]))
            elif not self.added:
                parts.append(original(row))
            else:
                parts.append(_extended(original(row), orjson.dumps(more[row])))
        starts, sizes = array("q"), array("q", map(len, parts))
        end = 0
        for size in sizes:
            starts.append(end)
            end += size
        return RecordSpans(b"".join(parts), starts, sizes)


def _aligned(found: RecordSpans, rows: Buffer, length: int) -> RecordSpans:
    starts, sizes = array("q", bytes(8 * length)), array("q", bytes(8 * length))
    for row, start, size in zip(longs(rows), longs(found.offsets), longs(found.lengths), strict=True):
        starts[row], sizes[row] = start, size
    return RecordSpans(found.buffer, starts, sizes)


def _dicts(batch: VectorBatch, names: Sequence[str]) -> list[dict[str, Any]]:
    columns = [batch[name].values() for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)] if names else [{}] * batch.length


def _original(spans: RecordSpans, row: int) -> bytes:
    start, size, view = longs(spans.offsets)[row], longs(spans.lengths)[row], memoryview(spans.buffer).cast("B")
    if start < 0 or size < 0 or start + size > len(view):
        raise ValueError("a row lies outside of its column, or its original bytes are no object")
    return bytes(view[start : start + size])


def _extended(original: bytes, more: bytes) -> bytes:
    """Two objects as one: the fields of the second behind those of the first."""
    whole = original.rstrip(_BLANKS)
    begin = whole[:-1].rstrip(_BLANKS)
    if whole[-1:] != b"}" or not begin:
        raise ValueError("a row lies outside of its column, or its original bytes are no object")
    return begin + (b"" if begin[-1:] == b"{" else b",") + more[1:]
