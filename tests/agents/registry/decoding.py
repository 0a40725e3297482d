"""Columns that a registry's format decodes by programs, for tests to compare."""

from __future__ import annotations

from typing import Any

from headgate.agents.records.columns.decoder import DecodedColumns
from headgate.agents.records.layout import longs
from headgate.agents.records.memory.record_spans import packed
from headgate.agents.registry.memory import taught
from headgate.agents.registry.program_columns import ProgramColumns


def decoded(of: ProgramColumns, records: list[bytes | None]) -> DecodedColumns:
    """The columns of these records, when what is asked is known."""

    class Asking:
        def loads_many(self, data: Any) -> Any:
            return of.decode(*packed(data))

    return taught(Asking().loads_many, records)


def shown(found: DecodedColumns) -> tuple[Any, ...]:
    rows = None if found.rows is None else longs(found.rows).tolist()
    return repr(found.columns.rows()), rows, {one.record for one in found.bad}, found.tombstones
