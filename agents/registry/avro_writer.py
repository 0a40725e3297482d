"""Encodes columns as Avro records of a registry: what stands behind `.to(…, serde=hg.avro(…))` of columns.

What it decides: which rows are written by a program, and which as objects. Promises:

- A record has the bytes that the serde makes of the dict of its row.
- A row that the program refuses is written as that dict, so that the library says why it cannot be; it alone fails.
- If the schema has no program for these columns (see `avro_write_program`), or nothing is compiled here, `encode` gives None: the caller
  writes rows, which is slower, and the same.
"""

from __future__ import annotations

from array import array
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any, Protocol

from ...core.columns import logical as of
from ...core.columns.logical import Logical
from ...core.columns.schema import ColumnSchema
from ..cancellation import passes
from ..records.columns.encoder import WrittenRecords
from ..records.layout import Buffer, Kind, longs, number_of
from ..records.logical.logical_columns import shown_maker, shown_values
from ..records.memory.record_spans import RecordSpans, packed
from ..records.memory.vectors import Vector, VectorBatch, dicts_of
from ..records.native import chosen
from ..records.values.nesting import Nesting, nesting
from ..records.values.serdes import Encoded
from .asked import WholeSchema
from .avro_write_program import AvroWriting, WrittenColumn, avro_writing
from .program_columns import NoProgram

_IN_UNION = b"\x02"
"""What stands in front of a value that is the second of a union."""
_MOST_KNOWN = 100
"""Of so many shapes of columns the programs are kept."""


class WritesRecords(Protocol):
    """The serde whose records these are."""

    def writing(self) -> tuple[bytes, WholeSchema]: ...

    def dumps_many(self, values: Sequence[Any]) -> Encoded: ...


class AvroWriter:
    """Encodes columns; see the top of this file."""

    def __init__(
        self, serde: WritesRecords, library: Any, parsed: Callable[[WholeSchema], tuple[Any, Mapping[str, Any]]]
    ) -> None:
        """`parsed`: a schema as the library has it, and the types in it that have names."""
        self._serde, self._library, self._parsed = serde, library, parsed
        self.by_programs: bool = chosen.part.FAST
        """Whether programs write the records: without the compiled part, rows are written faster."""
        self._made: dict[Any, tuple[WholeSchema, AvroWriting | None]] = {}
        """By columns: what writes them; None if nothing does."""

    def encode(self, batch: VectorBatch, schema: ColumnSchema | None, rows: Buffer | None) -> WrittenRecords | None:
        """These rows, in ascending order, as records; None if they must be written as objects. `schema`: that of the columns, if one is
        declared; else their names are the fields. Raises `MustLearn` as long as the schema to write with is not known."""
        head, wrote = self._serde.writing()
        if not self.by_programs:
            return None
        kinds: tuple[Kind, ...] = tuple(one.kind for one in batch.vectors)
        key = batch.names, kinds, schema
        made = self._made.get(key)
        if made is None or made[0] is not wrote:
            if len(self._made) >= _MOST_KNOWN:
                self._made.clear()
            made = self._made[key] = wrote, self._writing(wrote, batch.names, kinds, schema)
        writing = made[1]
        if writing is None:
            return None
        unfit = set[int]()
        vectors = list(batch.vectors)
        for number, one in enumerate(() if schema is None else schema.columns):
            if one.logical is not None and _is_bytes(one.logical):
                vectors[number] = self._prepared(number, vectors[number], one.logical, writing, rows, unfit)
        *found, refused = chosen.part.avro_encode(
            writing.program,
            [(number_of(one.kind), one.data, one.offsets, one.validity) for one in vectors],
            batch.length,
            head,
            rows,
        )
        spans = RecordSpans(*found)
        return self._with_refused(spans, sorted({*longs(refused), *unfit}), batch, schema, rows)

    # ------------------------------------------------------------------------------------------------------------- programs

    def _writing(
        self, wrote: WholeSchema, names: tuple[str, ...], kinds: tuple[Kind, ...], schema: ColumnSchema | None
    ) -> AvroWriting | None:
        if schema is None:
            columns = [WrittenColumn(kind) for kind in kinds]
            into = Nesting(dict(zip(names, range(len(names)), strict=True)))
        else:
            columns = [
                WrittenColumn("json" if _is_bytes(one.logical) else kind, one.logical)
                for one, kind in zip(schema.columns, kinds, strict=True)
            ]
            into = nesting(schema.columns)
        try:
            return avro_writing(*self._parsed(wrote), columns, into, self._constant)
        except NoProgram:
            return None

    def _constant(self, schema: Any, value: Any) -> bytes:
        """A default as the library writes it."""
        try:
            parsed = self._library.parse_schema(schema)
            if not self._library.validation.validate(value, parsed, raise_errors=False):
                raise NoProgram("a default that is no value of its type")
            out = BytesIO()
            self._library.schemaless_writer(out, parsed, value)
        except (ValueError, TypeError, LookupError) as error:
            raise NoProgram(f"a default that is not written: {error}") from error
        return out.getvalue()

    # -------------------------------------------------------------------------------------------------------------- columns

    def _prepared(
        self,
        number: int,
        column: Vector,
        kind: Logical,
        writing: AvroWriting,
        rows: Buffer | None,
        unfit: set[int],
    ) -> Vector:
        """A column of bytes, lists or maps as what stands in the records. `unfit` gets the rows whose value the schema cannot hold."""
        stored = column.values()
        wanted = range(len(stored)) if rows is None else longs(rows).tolist()
        there = [row for row in wanted if stored[row] is not None]
        parts: list[bytes | None] = [None] * len(stored)
        if kind.name == of.BYTES:
            for row in there:
                parts[row] = b64decode(stored[row])
        elif number in writing.raw:
            encode = self._encoder(writing.raw[number])
            for row, value in zip(there, shown_values([stored[row] for row in there], kind), strict=True):
                if (part := encode(value)) is None:
                    unfit.add(row)
                parts[row] = part
        spans = packed(parts)
        return Vector("json", column.length, spans.buffer, spans.offsets, spans.lengths)

    def _encoder(self, schema: Any) -> Callable[[Any], bytes | None]:
        """Writes values of a schema; None for what it cannot hold. Each is written as one of a union, where the library checks all of it,
        as it does if the record stands in one."""
        parsed, write = self._library.parse_schema(["null", schema]), self._library.schemaless_writer

        def encode(value: Any) -> bytes | None:
            out = BytesIO()
            try:
                write(out, parsed, value)
            except BaseException as error:  # whatever it is: the row is written as an object, and says why
                if passes(error):
                    raise
                return None
            found = out.getvalue()
            return found[1:] if found[:1] == _IN_UNION else None

        return encode

    # ---------------------------------------------------------------------------------------------------------------- rows

    def _with_refused(
        self,
        spans: RecordSpans,
        refused: list[int],
        batch: VectorBatch,
        schema: ColumnSchema | None,
        rows: Buffer | None,
    ) -> WrittenRecords:
        """The same with the rows that the program does not write."""
        if not refused:
            return WrittenRecords(spans, [])
        lists = [[found[row] for row in refused] for found in (one.values() for one in batch.vectors)]
        make = None if schema is None else shown_maker(None, schema)
        encoded = self._serde.dumps_many(
            make(lists) if make is not None else dicts_of(batch.names, len(refused), lists)
        )
        buffer, starts, sizes = (
            bytearray(spans.buffer),
            array("q", longs(spans.offsets)),
            array("q", longs(spans.lengths)),
        )
        for row, data in zip(refused, encoded.values, strict=True):
            starts[row], sizes[row] = len(buffer), len(data or b"")
            buffer += data or b""
        places = {row: place for place, row in enumerate(range(batch.length) if rows is None else longs(rows))}
        bad = [(places[refused[index]], error) for index, error in encoded.bad]
        return WrittenRecords(RecordSpans(bytes(buffer), starts, sizes), bad)


def _is_bytes(kind: Logical | None) -> bool:
    """Whether a column is stored as text that is not what stands in a record."""
    return kind is not None and (kind.name == of.BYTES or kind.name in of.JSON)
