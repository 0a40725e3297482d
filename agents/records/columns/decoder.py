"""Decodes JSON records into vectors of declared columns: a chunk at a time, without an object per record.

    decoder = Decoder([ColumnSpec("user", "text"), ColumnSpec("amount", "float64", optional=True)])
    found = decoder.decode(buffer, offsets, lengths)       # record i is buffer[offsets[i] : offsets[i] + lengths[i]]; length -1 is null
    found.columns       # VectorBatch: one row for each good record, in order, with the declared columns only
    found.bad           # [BadSpan(record, flaw, column)]: these records are left out, and no other
    found.tombstones    # [index]: records without a value, left out, too
    found.rows          # the index of the record of each row; None if every record is a row
    found.spans         # RecordSpans: where the original bytes of each row lie in `buffer`
    found.others        # a byte for each row: which fields it has besides the columns; None if no row has any

What it decides: which records are bad. Promises:

- A record is read exactly as `orjson.loads` reads it: it is bad if orjson refuses it (not UTF-8, a lone surrogate, NaN, a number beyond
  a double, nested more than 1,024 deep, two values, a cut-off value, nothing at all), and its values are orjson's.
- Types are strict. A whole number is accepted for a `float64`; a number with a fraction or an exponent is never an `int64`, text is never
  a number, and a number is never text. An `int64` outside of 64 bits with a sign is bad.
- A missing column and null are the same: null if the column is optional, else bad. The last of two equal keys counts.
- Other fields are checked to be JSON, and skipped. Fields may come in any order. A row with a field that is neither a column nor `known` is
  marked HAS_OTHER, a row with a `watched` field HAS_WATCHED: `encoder.py` must know that before it extends original bytes.
- Arguments that do not fit together (a span outside of the buffer, more than 2 GiB of text in one column) raise `ValueError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

from ....core.columns.schema import ColumnSpec
from ..layout import KINDS, Buffer
from ..memory.record_spans import RecordSpans
from ..memory.vectors import Vector, VectorBatch
from ..native import chosen

HAS_OTHER, HAS_WATCHED = 1, 2


class RecordFlaw(IntEnum):
    """Why a record is bad."""

    NOT_JSON = 1
    NOT_OBJECT = 2
    MISSING = 3
    NULL = 4
    WRONG_TYPE = 5
    OUT_OF_RANGE = 6


class BadSpan(NamedTuple):
    """A bad record: its index, why, and the first declared column that it concerns (None if it is the whole record)."""

    record: int
    flaw: RecordFlaw
    column: str | None


@dataclass(slots=True)
class DecodedColumns:
    """What `Decoder.decode` found; see the top of this file."""

    columns: VectorBatch
    spans: RecordSpans
    bad: list[BadSpan] = field(default_factory=list)
    tombstones: list[int] = field(default_factory=list)
    rows: Buffer | None = None
    others: Buffer | None = None


class Decoder:
    """Decodes JSON objects into the declared columns; see the top of this file. It may be used by several threads.

    >>> found = Decoder([ColumnSpec("n", "int64")]).decode(b'{"n":7}{"n":"7"}', array("q", [0, 7]), array("q", [7, 9]))
    >>> found.columns.rows(), found.bad
    ([{'n': 7}], [BadSpan(record=1, flaw=<RecordFlaw.WRONG_TYPE: 5>, column='n')])
    """

    def __init__(
        self, columns: Sequence[ColumnSpec], *, known: Sequence[str] = (), watched: Sequence[str] = ()
    ) -> None:
        """`known`: fields that a record may have as well. `watched`: fields whose presence is of interest."""
        self.columns = tuple(columns)
        names = [column.name for column in self.columns]
        everything = [*names, *known, *watched]
        if len(set(everything)) != len(everything):
            raise ValueError("a column is declared twice")
        self._names = tuple(names)
        wanted = [(one.name.encode(), KINDS.index(one.type), one.optional) for one in self.columns]
        wanted += [(name.encode(), len(KINDS), True) for name in known]
        wanted += [(name.encode(), len(KINDS) + 1, True) for name in watched]
        self._decode: Any = partial(chosen.part.decode, chosen.part.decoder(wanted))

    def decode(self, buffer: Buffer, offsets: Buffer, lengths: Buffer) -> DecodedColumns:
        """The columns of these records."""
        length, found, bad, tombstones, rows, own, sizes, others = self._decode(buffer, offsets, lengths)
        vectors = tuple(Vector(column.type, length, *parts) for column, parts in zip(self.columns, found, strict=True))
        flaws = [BadSpan(i, RecordFlaw(flaw), None if at < 0 else self._names[at]) for i, flaw, at in bad]
        spans = RecordSpans(buffer, offsets, lengths) if rows is None else RecordSpans(buffer, own, sizes)
        return DecodedColumns(VectorBatch(self._names, vectors, length), spans, flaws, tombstones, rows, others)
