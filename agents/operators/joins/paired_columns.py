"""The pairs of a join of columns: the columns of the left record, and some of the right one. No object stands for a record.

The values that wait are JSON of their columns as these are stored, in the same blocks as those of rows. JSON gives back each value that a
column may have, so what has just come is taken as it is.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

from ....core.errors import DataError
from ....core.windows.joins import SIDES, Unpaired
from ...job.steps.keyed import JoinColumnsStep
from ...records.columns.decoder import Decoder
from ...records.columns.encoder import Encoder
from ...records.columns.records import Records
from ...records.kafka.columns import pick
from ...records.kafka.spans import packed_headers
from ...records.memory.longs import gathered
from ...records.memory.record_spans import packed, pieces
from ...records.memory.taking import take
from ...records.memory.vectors import Vector
from ...records.values.record import Headers
from ..base.stateless import blaming
from .kept_rows import Arrival, JoinedRow, Partners, both_headers, pairs_of


class PairedColumns:
    """Makes pairs by putting columns side by side."""

    def __init__(self, step: JoinColumnsStep) -> None:
        self.step = step
        self._encoders = [Encoder(one.names) for one in step.kept]
        self._decoders = [Decoder(one.columns, stored=True) for one in step.kept]
        self._named: list[Mapping[str, str]] = [{name: name for name in step.kept[0].names}, step.taken]

    def reads(self, side: int, behind: frozenset[str]) -> frozenset[str]:
        """The columns that are needed of the records of a side: what is kept does not depend on later steps."""
        schemas = self.step.kept if self.step.late is None else self.step.schemas
        return frozenset(schemas[side].names)

    def encoded(self, side: int, rows: Records) -> list[Any]:
        """The values of arriving records as they are kept."""
        return pieces(self._encoders[side].encode(*rows.batch(self.step.kept[side])))

    def late(self, side: int, rows: Records) -> Records:
        """Late records as they are written."""
        return rows.of_columns(self.step.schemas[side].names)

    def pairs(self, rows: Records, arrival: Arrival, partners: Partners) -> Records:
        """The pairs of arriving records."""
        side = arrival.side
        arrived = array("q", partners.arrived)
        base = arrived if rows.picked is None else gathered(rows.picked, arrived)
        own = {name: take(rows.vector(of), base) for name, of in self._named[side].items()}
        times = array("q", map(max, pick(arrival.times, partners.arrived), partners.times))
        columns = {**own, **self._decoded(1 - side, partners.values)}
        return self._made(columns, times, pick(arrival.keys, partners.arrived), both_headers(arrival, partners))

    def alone(self, found: list[Unpaired], kept: list[JoinedRow]) -> Records:
        """Records of one side without partners: the columns of the other are null."""
        side = found[0].side
        keys, data, headers = map(list, zip(*kept, strict=True))
        schema, nulls = self.step.schemas[1 - side], [None] * len(found)
        lacking = {name: Vector.of(schema[of].type, nulls) for name, of in self._named[1 - side].items()}
        own = [pairs_of(one) for one in headers] if any(headers) else None
        return self._made({**self._decoded(side, data), **lacking}, array("q", [row.time for row in found]), keys, own)

    def _made(
        self, columns: Mapping[str, Vector], times: array[int], keys: list[bytes], headers: list[Headers] | None
    ) -> Records:
        return Records.of_vectors(
            {name: columns[name] for side in SIDES for name in self._named[side]},
            times,
            key_spans=packed(keys),
            key_serde=self.step.key_serde,
            header_spans=None if headers is None else packed_headers(headers),
        )

    def _decoded(self, side: int, values: list[bytes]) -> dict[str, Vector]:
        """Columns of pairs from the kept values of one side."""
        found = self._decoders[side].decode(*packed(values))
        if found.bad or found.tombstones:
            with blaming(self.step):
                raise DataError("a stored record of a join cannot be read", remedy="see headgate tables")
        vectors = dict(zip(found.columns.names, found.columns.vectors, strict=True))
        return {name: vectors[of] for name, of in self._named[side].items()}
