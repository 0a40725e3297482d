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
from itertools import compress
from typing import NamedTuple

import orjson

from ....core.columns.schema import ColumnSpec
from ....core.errors import DataError
from ..layout import Buffer, bits, longs, number_of
from ..logical.logical_columns import written
from ..memory.record_spans import RecordSpans
from ..memory.vectors import Vector, VectorBatch
from ..native import chosen
from ..values.nesting import Nesting, nesting
from .decoder import HAS_OTHER, HAS_WATCHED

_SIGNS = orjson.dumps(1e16) == b"1e+16"
"""Whether this orjson writes the sign of a positive exponent; its versions differ."""
_BLANKS = b" \t\n\r"


class WrittenRecords(NamedTuple):
    """What has been encoded."""

    spans: RecordSpans
    """With a place for each base row, which is empty for those that are not written."""
    bad: list[tuple[int, DataError]]
    """Of the rows that were asked for: the place of each that fails, and why."""


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
        vectors = [(number_of(one.kind), one.data, one.offsets, one.validity) for one in batch.vectors]
        places = {name: at for at, name in enumerate(batch.names)}
        full = [(places[name], prefix) for name, prefix in zip(self.names, self._full, strict=True)]
        more = [(places[name], prefix) for name, prefix in zip(self.added, self._more, strict=True)]
        source = (None, None, None) if spans is None else tuple(spans)
        return RecordSpans(
            *chosen.part.encode(vectors, batch.length, full, more, _SIGNS, rows, *source, others, mask, False, aligned)
        )


class NestedEncoder:
    """Encodes rows as an `Encoder` does, with the columns of nested objects in their objects."""

    def __init__(self, columns: Sequence[ColumnSpec], *, added: Sequence[str] = ()) -> None:
        """`added`: the fields of the record that are added to original bytes."""
        self._record = _ObjectEncoder(nesting(columns), added)

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
        """As `Encoder.encode`; `batch` has the columns in their order."""
        full = rows
        """The rows that are written in full."""
        if spans is not None:
            marks = bytes(batch.length) if others is None else memoryview(others).cast("B")
            listed = range(batch.length) if rows is None else longs(rows).tolist()
            full = array("q", [row for row in listed if marks[row] & mask])
        whole = self._record.with_objects(batch, full)
        return self._record.encoder.encode(whole, rows, spans, others, mask=mask, aligned=aligned)


class LogicalEncoder:
    """Encodes rows as another encoder does, with columns of logical types as msgspec writes them."""

    def __init__(
        self, columns: Sequence[ColumnSpec], encoder: Encoder | NestedEncoder, added: Sequence[str] = ()
    ) -> None:
        """`columns`: those of the batch, in their order. `added`: the fields that the encoder adds to original bytes."""
        self._columns = tuple(columns)
        self._encoder = encoder
        self._adds = any(one.logical is not None and one.name in added for one in self._columns)

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
        """As `Encoder.encode`."""
        # otherwise original bytes are all that is written of these columns
        if spans is None or others is not None or self._adds:
            vectors = tuple(
                one if of.logical is None else written(one, of.logical, rows)
                for of, one in zip(self._columns, batch.vectors, strict=True)
            )
            batch = VectorBatch(batch.names, vectors, batch.length)
        return self._encoder.encode(batch, rows, spans, others, mask=mask, aligned=aligned)


class _ObjectEncoder:
    """Encodes objects whose own objects have been encoded."""

    def __init__(self, of: Nesting, added: Sequence[str] = ()) -> None:
        self._of = of
        self._inner = {name: _ObjectEncoder(one) for name, one in of.members.items() if isinstance(one, Nesting)}
        self.encoder = Encoder(tuple(of.members), added=added)

    def with_objects(self, batch: VectorBatch, rows: Buffer | None) -> VectorBatch:
        """The fields of the objects of these rows, of which those that are objects are JSON."""
        vectors = [
            batch.vectors[one] if isinstance(one, int) else self._inner[name].written(batch, rows)
            for name, one in self._of.members.items()
        ]
        return VectorBatch(tuple(self._of.members), tuple(vectors), batch.length)

    def written(self, batch: VectorBatch, rows: Buffer | None) -> Vector:
        """The objects of these rows as JSON; null where they are."""
        there = self._there(batch, rows)
        made = self.encoder.encode(self.with_objects(batch, there), there, aligned=True)
        return Vector("json", batch.length, made.buffer, made.offsets, made.lengths)

    def _there(self, batch: VectorBatch, rows: Buffer | None) -> Buffer | None:
        """Those of these rows in which the object is not null."""
        if not self._of.optional:
            return rows
        numbers = self._of.numbers() if self._of.there is None else [self._of.there]
        valid = [batch.vectors[number].validity for number in numbers]
        if any(one is None for one in valid):
            return rows
        found = [any(row) for row in zip(*(bits(one or b"", batch.length) for one in valid), strict=True)]
        if rows is None:
            return array("q", compress(range(batch.length), found))
        return array("q", [row for row in longs(rows) if found[row]])
