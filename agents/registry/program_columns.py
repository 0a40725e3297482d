"""Decodes records of a registry into columns, by programs: what stands behind `.columns()` of an input in Avro or Protobuf.

What it decides: which records are bad, and why. Promises:

- A record has the values that it has as a row, if they fit the columns (see `fitting`), else it alone is bad: types are strict, and a
  missing field is null.
- What has no program, or where nothing is compiled, is read as rows: slower, and the same.
"""

from __future__ import annotations

from array import array
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ...core.columns.schema import TEXT, ColumnSchema
from ...core.errors import DataError
from ..cancellation import passes
from ..records.columns.decoder import BadSpan, DecodedColumns, RecordFlaw
from ..records.columns.fitting import columns_of_values
from ..records.layout import Buffer, longs
from ..records.memory.record_spans import RecordSpans, picked_spans, pieces
from ..records.memory.taking import spans_of, take_batch, take_longs
from ..records.memory.vectors import Vector, VectorBatch
from ..records.native import chosen

_SAID = {1: "it ends too early, or is no value of its schema", 7: "bytes follow the value"}
FinishValue = Callable[[bytes], Any]
"""Makes what a column stores of the bytes that a program has left in it."""


class NoProgram(Exception):
    """No program reads these records into these columns; why not."""


class ProgramRun(NamedTuple):
    """What programs have made of records."""

    made: tuple[Any, ...]
    """How many rows, the columns, bad records, those without a value, and the record of each row, as the compiled part gives them."""
    which: Sequence[int]
    """By record: the number of what has read it."""
    raw: Sequence[Mapping[int, FinishValue]]
    """By this number: what finishes the columns that are left as bytes, by their numbers."""


class Programs(Protocol):
    """The programs of a format."""

    name: str

    def run(self, spans: RecordSpans) -> ProgramRun | None:
        """Read these records; None if some of them have no program. Raises `MustLearn`."""
        ...

    def values(self, data: Sequence[bytes | None]) -> tuple[Sequence[Any], Mapping[int, DataError]]:
        """Records as rows, and why some are none. Raises `MustLearn`."""
        ...


def as_base64(part: bytes) -> bytes:
    """Bytes as a column stores them."""
    return b64encode(part)


class ProgramColumns:
    """Decodes records into the declared columns; see the top of this file."""

    def __init__(self, programs: Programs, schema: ColumnSchema) -> None:
        self.programs, self._schema = programs, schema
        self.by_programs: bool = chosen.part.FAST
        """Whether programs read the records: without the compiled part, rows are made faster."""

    def decode(self, buffer: Buffer, offsets: Buffer, lengths: Buffer) -> DecodedColumns:
        """The columns of these records."""
        spans = RecordSpans(buffer, offsets, lengths)
        run = self.programs.run(spans) if self.by_programs else None
        return self.as_rows(spans) if run is None else self._finished(spans, run)

    def why(self, bad: BadSpan, data: bytes) -> DataError:
        """Why a record is bad: what is said of it as a row, if that is bad, too."""
        values, errors = self.programs.values([data])
        if errors:
            return errors[0]
        refused = columns_of_values(values, self._schema)[1]
        if refused:
            return refused[0][1]
        what = _SAID.get(bad.flaw) or f"the field '{bad.column}' has a value that the column cannot hold"
        return DataError(f"not {self.programs.name}: {what}", remedy="see on_bad_data=")

    def _finished(self, spans: RecordSpans, run: ProgramRun) -> DecodedColumns:
        """What has been decoded, with the columns that need more than a program."""
        length, columns, bad, tombstones, rows = run.made
        specs = self._schema.columns
        vectors = [Vector(one.type, length, *parts) for one, parts in zip(specs, columns, strict=True)]
        flaws = dict[int, int]()
        for number in sorted({one for of in run.raw for one in of}):
            numbers = run.which if rows is None else [run.which[row] for row in longs(rows)]
            finish = [of.get(number, as_base64) for of in run.raw]
            vectors[number] = _stored(vectors[number], [finish[one] for one in numbers], number, flaws)
        batch = VectorBatch(self._schema.names, tuple(vectors), length)
        named = [BadSpan(i, _flaw(flaw), None if at < 0 else specs[at].name) for i, flaw, at in bad]
        if flaws:
            kept = array("q", [row for row in range(length) if row not in flaws])
            every = array("q", range(length)) if rows is None else rows
            places = longs(every)
            named += [BadSpan(places[row], RecordFlaw.WRONG_TYPE, specs[at].name) for row, at in flaws.items()]
            batch, rows = take_batch(batch, kept), take_longs(every, kept)
        own = spans if rows is None else picked_spans(spans, rows)
        return DecodedColumns(batch, own, sorted(named, key=lambda one: one.record), tombstones, rows)

    def as_rows(self, spans: RecordSpans) -> DecodedColumns:
        """The same by rows."""
        data = pieces(spans)
        values, errors = self.programs.values(data)
        bad = set(errors)
        tombstones = [index for index, one in enumerate(data) if one is None]
        rows = [index for index, one in enumerate(data) if one is not None and index not in bad]
        columns, refused = columns_of_values([values[row] for row in rows], self._schema)
        wrong = {place for place, _ in refused}
        kept = [place for place in range(len(rows)) if place not in wrong]
        bad |= {rows[place] for place in wrong}
        vectors = tuple(
            Vector.of(one.type, [columns[one.name][place] for place in kept]) for one in self._schema.columns
        )
        batch = VectorBatch(self._schema.names, vectors, len(kept))
        if len(kept) == len(data):
            return DecodedColumns(batch, spans, [], tombstones)
        own = array("q", [rows[place] for place in kept])
        flaws = [BadSpan(index, RecordFlaw.WRONG_TYPE, None) for index in sorted(bad)]
        return DecodedColumns(batch, picked_spans(spans, own), flaws, tombstones, own)


def _stored(column: Vector, finish: Sequence[FinishValue], number: int, flaws: dict[int, int]) -> Vector:
    """A column of bytes, lists or maps as it is stored; `flaws` gets the rows that are none."""
    made = list[Any]()
    for row, (part, one) in enumerate(zip(pieces(spans_of(column)), finish, strict=True)):
        try:
            made.append(None if part is None else one(part))
        except BaseException as error:  # whatever it is, `why` says it of this record
            if passes(error):
                raise
            flaws.setdefault(row, number)
            made.append(None)
    return Vector.of(TEXT, made)


def _flaw(number: int) -> Any:
    return RecordFlaw(number) if number in RecordFlaw._value2member_map_ else number
