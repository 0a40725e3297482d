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

from collections.abc import Sequence

import orjson

from ..layout import Buffer, number_of
from ..memory.record_spans import RecordSpans
from ..memory.vectors import VectorBatch
from ..native import chosen
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
        vectors = [(number_of(one.kind), one.data, one.offsets, one.validity) for one in batch.vectors]
        places = {name: at for at, name in enumerate(batch.names)}
        full = [(places[name], prefix) for name, prefix in zip(self.names, self._full, strict=True)]
        more = [(places[name], prefix) for name, prefix in zip(self.added, self._more, strict=True)]
        source = (None, None, None) if spans is None else tuple(spans)
        return RecordSpans(
            *chosen.part.encode(vectors, batch.length, full, more, _SIGNS, rows, *source, others, mask, False, aligned)
        )
