"""Event times of decoded columns: from the column that the input names, or those of the records.

A time that is missing, unreadable or outside of the input's limits makes its row bad.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

from ....core.columns.schema import INT, ColumnSchema
from ....core.errors import DataError
from ...job.types.timestamps import BadTimestamp, TimeField, times_of_column
from ...records.kafka.spans import SpannedRecords
from ...records.kafka.timestamps import times_of_spans
from ...records.layout import Buffer, longs
from ...records.memory.event_time import UNITS, column_in_ms
from ...records.memory.vectors import Vector
from .event_times import BadRows, EventLimits


class ColumnTimes:
    """Finds the event times of rows in columns. `when`: `timestamp=` of the input, a column; None for those of the records."""

    def __init__(self, when: Any, *, framed: bool, schema: ColumnSchema) -> None:
        """`framed`: the records come in frames, which have their event times. `schema`: that of the columns."""
        self._framed = framed
        self._name = when.name if isinstance(when, TimeField) else when
        self._unit = when.unit if isinstance(when, TimeField) else "ms"
        if self._name is not None and any(one.name == self._name and one.logical for one in schema.columns):
            self._unit = "us"  # as a timestamp is stored
        self._times = times_of_column(self._unit)

    def of(self, vectors: Mapping[str, Vector], records: SpannedRecords, limits: EventLimits) -> tuple[Buffer, BadRows]:
        """The event times of these rows, and the rows without one. `records`: those that the rows are made of."""
        arrived = records.timestamps
        if self._name is None:
            stamps = longs(arrived if self._framed else times_of_spans(records))
            return stamps, limits.outside(stamps)
        vector = vectors[self._name]
        if vector.kind == INT and not vector.nulls and self._unit in UNITS:
            made = column_in_ms(self._unit, longs(vector.data)[: len(vector)])
            if made is not None:
                found = longs(made)
                return found, limits.outside(found)
        return self._listed(vector.values(), longs(arrived).tolist(), limits)

    def _listed(self, column: list[Any], arrived: list[int], limits: EventLimits) -> tuple[Buffer, BadRows]:
        """Times of other types; and the slow way, which says what is wrong with each."""
        if None not in column:
            try:
                times = self._times(column, arrived)
            except BadTimestamp:
                pass
            else:
                return array("q", times), limits.outside(times)
        bad = BadRows()
        for index, value in enumerate(column):
            try:
                if value is None:
                    bad.append((index, DataError(f"no event time: the field '{self._name}' is null")))
                else:
                    why = limits.outside(self._times([value], [arrived[index]]))
                    bad += [(index, cause) for _, cause in why]
            except BadTimestamp as error:
                bad.append((index, error))
        return array("q", arrived), bad
