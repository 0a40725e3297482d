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
- The fields of a nested object are columns of it alone; of the last of two equal objects, if `nested` is asked for. They are null where an
  object is that may be null, and a record that lacks another object, or has something else there, is bad with that object's name.
- A column of a logical type is read from the JSON that stands there: see `logical_columns`. In `stored` records, which the job has written
  itself, it stands as it is stored. What is no such value is of a wrong type.
- Arguments that do not fit together (a span outside of the buffer, more than 2 GiB of text in one column) raise `ValueError`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

from ....core.columns.schema import TEXT, ColumnKind, ColumnSpec, PathPart
from ..layout import JSON, KINDS, OBJECT, Buffer, longs
from ..logical.logical_columns import LogicalReader
from ..memory.record_spans import RecordSpans, picked_spans
from ..memory.taking import take_batch, take_longs
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
        self,
        columns: Sequence[ColumnSpec],
        *,
        known: Sequence[str] = (),
        watched: Sequence[str] = (),
        nested: bool = False,
        stored: bool = False,
    ) -> None:
        """`known`: fields that a record may have as well. `watched`: fields whose presence is of interest. `nested`: columns of nested
        objects lie there; else all of them are fields of the record. `stored`: columns of logical types stand as they are stored."""
        self.columns = tuple(columns)
        names = [column.name for column in self.columns]
        everything = [*names, *known, *watched]
        if len(set(everything)) != len(everything):
            raise ValueError("a column is declared twice")
        self._names = tuple(names)
        wanted: list[tuple[Any, ...]]
        objects = _objects_of(self.columns) if nested else {}
        self.kinds = {one.name: str(one.logical) for one in self.columns if one.logical is not None and not stored}
        """The columns that are read as logical types, with these, for `why_bad`."""
        self._readers = {
            at: LogicalReader(one.logical)
            for at, one in enumerate(self.columns)
            if one.logical is not None and not stored
        }
        self._concerned = (*names, *(".".join(one.name for one in path) for path in objects))
        if objects:
            wanted = [_nested(one, self._number(at), objects) for at, one in enumerate(self.columns)]
            wanted += [
                (path[-1].name.encode(), OBJECT, path[-1].optional, objects.get(path[:-1], 0), number)
                for path, number in objects.items()
            ]
        else:
            wanted = [(one.name.encode(), self._number(at), one.optional) for at, one in enumerate(self.columns)]
        wanted += [(name.encode(), len(KINDS), True) for name in known]
        wanted += [(name.encode(), len(KINDS) + 1, True) for name in watched]
        self._decode: Any = partial(chosen.part.decode, chosen.part.decoder(wanted))

    def _number(self, at: int) -> int:
        """The number of the type in which a column is read."""
        return JSON if at in self._readers else KINDS.index(self.columns[at].type)

    def decode(self, buffer: Buffer, offsets: Buffer, lengths: Buffer) -> DecodedColumns:
        """The columns of these records."""
        found = self._decoded(buffer, offsets, lengths)
        return self._with_logical(found) if self._readers else found

    def _with_logical(self, found: DecodedColumns) -> DecodedColumns:
        """The same with the columns of logical types as they are stored, without the rows in which one is bad."""
        vectors, flaws = list(found.columns.vectors), dict[int, int]()
        for at, reader in self._readers.items():
            vectors[at], bad = reader.read(vectors[at])
            for row in bad:
                flaws.setdefault(row, at)
        batch = VectorBatch(self._names, tuple(vectors), found.columns.length)
        if not flaws:
            return replace(found, columns=batch)
        kept = array("q", [row for row in range(batch.length) if row not in flaws])
        rows = array("q", range(batch.length)) if found.rows is None else found.rows
        places = longs(rows)
        wrong = [BadSpan(places[row], RecordFlaw.WRONG_TYPE, self._names[at]) for row, at in flaws.items()]
        others = None if found.others is None else memoryview(found.others).cast("B")
        return DecodedColumns(
            take_batch(batch, kept),
            picked_spans(found.spans, kept),
            sorted([*found.bad, *wrong]),
            found.tombstones,
            take_longs(rows, kept),
            None if others is None else bytes(others[row] for row in kept),
        )

    def _decoded(self, buffer: Buffer, offsets: Buffer, lengths: Buffer) -> DecodedColumns:
        length, found, bad, tombstones, rows, own, sizes, others = self._decode(buffer, offsets, lengths)
        kinds: list[ColumnKind] = [TEXT if at in self._readers else one.type for at, one in enumerate(self.columns)]
        vectors = tuple(Vector(kind, length, *parts) for kind, parts in zip(kinds, found, strict=True))
        flaws = [BadSpan(i, RecordFlaw(flaw), None if at < 0 else self._concerned[at]) for i, flaw, at in bad]
        spans = RecordSpans(buffer, offsets, lengths) if rows is None else RecordSpans(buffer, own, sizes)
        return DecodedColumns(VectorBatch(self._names, vectors, length), spans, flaws, tombstones, rows, others)


def _objects_of(columns: Sequence[ColumnSpec]) -> dict[tuple[PathPart, ...], int]:
    """The objects that these columns lie in, by their paths, numbered from 1, the outer ones first."""
    found: dict[tuple[PathPart, ...], int] = {}
    for one in columns:
        for end in range(1, len(one.path) + one.is_object):
            found.setdefault(one.path[:end], len(found) + 1)
    return found


def _nested(column: ColumnSpec, kind: int, objects: dict[tuple[PathPart, ...], int]) -> tuple[Any, ...]:
    """What the compiled part needs to know of a column that is read as the type with this number."""
    if not column.path:
        return column.name.encode(), kind, column.optional, 0, 0
    if column.is_object:
        return b"", kind, True, objects[column.path], objects[column.path]
    own = column.path[-1]
    return own.name.encode(), kind, own.optional, objects[column.path[:-1]], 0
