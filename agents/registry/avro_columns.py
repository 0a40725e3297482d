"""Reads Avro records of a registry by programs: the half of `ProgramColumns` that knows Avro.

What it decides: which program reads a record. Promises:

- A record has the values that fastavro reads. Three things are seen more strictly: an index of a union or of an enum below zero, a number
  of more than 64 bits, and a decimal of more digits than its schema says. And one is not seen: what a field that is no column means, such
  as a time outside of all years; that it has the right form is seen.
- A chunk may have records of several schemas, each read with its own. Those that are not known are asked for together (`MustLearn`).
- If a schema of a chunk has no program (see `avro_program`), the chunk is read as rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from io import BytesIO
from typing import Any, NamedTuple, Protocol

from ...core.columns.schema import ColumnSchema
from ...core.errors import DataError
from ..cancellation import passes
from ..records.layout import KINDS, longs
from ..records.logical.logical_columns import stored_value
from ..records.memory.record_spans import RecordSpans
from ..records.native import chosen
from ..records.values.serdes import Decoded
from . import wire
from .asked import WholeSchema
from .avro_program import AvroReading, Unfinished, avro_reading
from .program_columns import FinishValue, NoProgram, ProgramRun, as_base64
from .serde import ReadValue


class ParsedSchemas(NamedTuple):
    """A writer's schema and the reader's, if there is one, as the library has them; with the named types of each."""

    wrote: Any
    named: dict[str, Any]
    wants: Any
    wanted: dict[str, Any]


class ReadsRecords(Protocol):
    """The serde whose records these are."""

    name: str

    def loads_many(self, data: Sequence[bytes | None]) -> Decoded[Any]: ...

    def schemas(self, heads: Sequence[bytes]) -> dict[bytes, tuple[WholeSchema, WholeSchema | None] | None]: ...


class AvroPrograms:
    """Reads records into the declared columns; see the top of this file."""

    def __init__(
        self,
        serde: ReadsRecords,
        library: Any,
        schema: ColumnSchema,
        parsed: Callable[[WholeSchema, WholeSchema | None], ParsedSchemas],
        reader: Callable[[WholeSchema, WholeSchema | None], ReadValue],
    ) -> None:
        """`parsed`: schemas as the library has them; `reader`: what reads their values as dicts."""
        self._parsed, self._reader = parsed, reader
        self._serde, self._library, self._schema = serde, library, schema
        self.name = serde.name
        self._types = bytes(KINDS.index(one.type) for one in schema.columns)
        self.read: dict[bytes, tuple[WholeSchema, AvroReading | None]] = {}
        """By prefix: what reads the records behind it; None if nothing does."""
        self._finish: dict[bytes, dict[int, FinishValue]] = {}

    def run(self, spans: RecordSpans) -> ProgramRun | None:
        """Read these records, each with the program of its schema."""
        found = chosen.part.record_heads(None, *spans)
        if found is None:
            return None
        heads, which = found
        known = self._serde.schemas(heads)
        programs: list[tuple[Any, int]] = []
        raw: list[Mapping[int, FinishValue]] = []
        for head in heads:
            schemas = known[head]
            reading = None if schemas is None else self._reading(head, *schemas)
            if schemas is not None and reading is None:
                return None
            programs.append((None if reading is None else reading.program, len(head)))
            raw.append({} if reading is None else self._finish[head])
        return ProgramRun(chosen.part.avro_decode(self._types, programs, which, *spans), longs(which), raw)

    def values(self, data: Sequence[bytes | None]) -> tuple[list[Any], dict[int, DataError]]:
        """Records as dicts, and why some are none."""
        heads: list[bytes] = [b"" if one is None else one[: wire.SIZES.get(one[0], 0) if one else 0] for one in data]
        known = self._serde.schemas([one for one in dict.fromkeys(heads) if len(one) in wire.SIZES.values()])
        readers = {head: self._reader(*schemas) for head, schemas in known.items() if schemas is not None}
        values, errors = list[Any](), dict[int, DataError]()
        for index, (head, one) in enumerate(zip(heads, data, strict=True)):
            value: Any = None
            try:
                if one is not None:
                    value = readers[head](one, len(head))
            except BaseException as error:  # whatever it is, only this record is bad
                if passes(error):
                    raise
                said = self._serde.loads_many([one]).bad
                errors[index] = said[0][1] if said else DataError(f"not {self.name}: {error}")
            values.append(value)
        return values, errors

    def _reading(self, head: bytes, wrote: WholeSchema, own: WholeSchema | None) -> AvroReading | None:
        made = self.read.get(head)
        if made is None or made[0] is not wrote:
            try:
                reading = avro_reading(*self._parsed(wrote, own), self._schema.columns)
                self._finish[head] = {number: self._finisher(number, of) for number, of in reading.raw.items()}
            except NoProgram:
                reading = None
            made = self.read[head] = wrote, reading
        return made[1]

    def _finisher(self, number: int, of: Unfinished) -> FinishValue:
        """What makes of the bytes of a column what it stores."""
        kind, library = self._schema.columns[number].logical, self._library
        if of.schema is None:
            return as_base64
        assert kind is not None, "a plain column needs no more than a program"

        @cache
        def parsed() -> tuple[Any, Any]:
            return library.parse_schema(of.schema), of.wants and library.parse_schema(of.wants)

        return lambda part: stored_value(library.schemaless_reader(BytesIO(part), *parsed()), kind)
