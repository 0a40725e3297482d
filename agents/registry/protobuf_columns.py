"""Reads Protobuf records of a registry by programs: the half of `ProgramColumns` that knows Protobuf.

What it decides: which records are messages of the class. Promises:

- That is judged as for rows: a record that says it is another message of its file is looked up in the writer's file, others are not.
- A record is bad if upb refuses it, also for what stands in fields that are no columns; and it alone.
- Whether there is a program follows from the class and the columns, never from data. Without one, all records are read as rows.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Protocol

from ...core.columns.schema import ColumnSchema
from ...core.errors import DataError
from ..records.layout import longs
from ..records.memory.record_spans import RecordSpans
from ..records.native import chosen
from ..records.values.serdes import Decoded
from . import wire
from .program_columns import NoProgram, ProgramRun
from .protobuf_program import ProtobufReading, protobuf_reading


class ReadsMessages(Protocol):
    """The serde whose records these are."""

    name: str

    def loads_many(self, data: Sequence[bytes | None]) -> Decoded[Any]: ...


class ProtobufPrograms:
    """Reads records into the declared columns; see the top of this file."""

    def __init__(self, serde: ReadsMessages, kind: Any, place: Sequence[int], schema: ColumnSchema) -> None:
        """`kind`: the class of the messages, which stands at this place of its file."""
        self._serde, self.name = serde, serde.name
        self._mark = wire.path(place)
        self.reading: ProtobufReading | None = None
        try:
            self.reading = protobuf_reading(kind, schema.columns)
        except NoProgram:
            self.reading = None

    def run(self, spans: RecordSpans) -> ProgramRun | None:
        """Read these records."""
        found = None if self.reading is None else chosen.part.record_heads(self._mark, *spans)
        if found is None or self.reading is None:
            return None
        heads, which = found
        # what stands behind a prefix with another place is asked of a record that has no more than that
        refused = {index for index, _ in self._serde.loads_many(heads).bad} if heads else ()
        skipped = [wire.SIZES[wire.BY_ID] + len(self._mark), wire.SIZES[wire.BY_GUID] + len(self._mark)]
        skipped += [-1 if index in refused else len(head) for index, head in enumerate(heads)]
        made = chosen.part.proto_decode(self.reading.program, array("q", skipped), which, *spans)
        return ProgramRun(made, longs(which), [self.reading.raw] * len(skipped))

    def values(self, data: Sequence[bytes | None]) -> tuple[Sequence[Any], dict[int, DataError]]:
        """Records as messages, and why some are none."""
        found = self._serde.loads_many(data)
        return found.values, dict(found.bad)
