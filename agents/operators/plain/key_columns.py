"""`.key_as(name)`: the keys of records as a column.

Text that stands as it is in the bytes of the keys costs no object for a record; other keys are decoded. A key of another type than that of
the column is an error of its record.
"""

from __future__ import annotations

from typing import Any

from ....core.columns.schema import LEAST, MOST, PYTHON, TEXT, is_text
from ....core.errors import DataError
from ...job.steps.columns import KeyAsStep
from ...records.columns.records import Records
from ...records.memory.record_spans import is_text as are_text
from ...records.memory.record_spans import marked
from ...records.memory.taking import take_spans
from ...records.memory.vectors import Vector
from ...records.values.keys import MARK
from ...records.values.serdes import writes_utf8
from ..base.stateless import BYTES, Env, Operator, failing


class KeyAsOp(Operator):
    """Adds the column of keys."""

    wants_keys = BYTES

    def __init__(self, step: KeyAsStep, env: Env) -> None:
        super().__init__(step, env)
        self.made = step.made

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        return behind - {self.made.name}

    def push(self, rows: Records) -> None:
        column = self._as_it_is(rows) or self._decoded(rows)
        self.forward(rows.extended({self.made.name: column}))

    def _as_it_is(self, rows: Records) -> Vector | None:
        """The column, if the bytes of the keys are its text."""
        spans, given = rows.key_spans, rows.key_values
        if isinstance(given, Vector) and spans is None:
            return given if given.kind == self.made.type else None
        if spans is None or self.made.type != TEXT or rows.key_serde is None or not writes_utf8(rows.key_serde):
            return None
        return None if marked(spans, None, MARK) or not are_text(spans) else take_spans(spans)

    def _decoded(self, rows: Records) -> Vector:
        keys = rows.shown_keys()
        found: list[Any] = [None] * rows.base_length
        if keys is None:
            return Vector.of(self.made.type, found)
        bad = [(place, error) for place, key in enumerate(keys) if (error := self._refused(key)) is not None]
        if bad:
            raise failing(self.step, bad, rows)
        for row, key in zip(rows.indexes(), keys, strict=True):
            found[row] = key
        return Vector.of(self.made.type, found)

    def _refused(self, key: Any) -> DataError | None:
        """Why a column cannot hold this key; None if it can."""
        wanted = PYTHON[self.made.type]
        if key is None or (type(key) is wanted and (is_text(key) if wanted is str else LEAST <= key <= MOST)):
            return None
        remedy = f'key_as("{self.made.name}", int) is for whole numbers; others need .rows().map(fn, with_record=True)'
        return DataError(
            f"the key is {key!r:.60}, and the column '{self.made.name}' is {self.made.type}", remedy=remedy
        )
