"""The pairs of a join of rows: what a function makes of both values.

Promise: `into` gets values of its own for each pair: it may change them. A value is decoded from what is stored, so it is the same whether
its row came first or second.
"""

from __future__ import annotations

from typing import Any

from ....core.windows.joins import Unpaired
from ...job.steps.keyed import JoinStep
from ...records.columns.records import Records
from ...records.kafka.columns import pick
from ..base.stateless import Operator, UserCodeError, blaming, encode
from ..failures.result_rows import leave_out, policy_of_results
from .kept_rows import Arrival, JoinedRow, Partners, both_headers, pairs_of


class PairedRows:
    """Makes pairs by the function of the step."""

    def __init__(self, step: JoinStep, operator: Operator) -> None:
        self.step = step
        self.operator = operator

    def reads(self, side: int, behind: frozenset[str]) -> frozenset[str]:
        """The columns that are needed of the rows of a side."""
        return behind

    def encoded(self, side: int, rows: Records) -> list[bytes]:
        """The values of arriving rows as they are kept."""
        return encode(self.step, self.step.serdes[side], rows.values, rows)

    def late(self, side: int, rows: Records) -> Records:
        """Late rows as they are written."""
        return rows

    def pairs(self, rows: Records, arrival: Arrival, partners: Partners) -> Records:
        """The pairs of arriving rows."""
        side = arrival.side
        both = [self._decoded(side, pick(arrival.values, partners.arrived)), self._decoded(1 - side, partners.values)]
        times = list(map(max, pick(arrival.times, partners.arrived), partners.times))
        lefts, rights = reversed(both) if side else both
        with blaming(self.step):
            results = list(map(self.step.into, lefts, rights))
        keys = pick(arrival.keys, partners.arrived)
        return Records(results, times, keys, both_headers(arrival, partners), key_serde=self.step.key_serde)

    def alone(self, found: list[Unpaired], kept: list[JoinedRow]) -> Records:
        """Rows of one side without partners."""
        side = found[0].side
        keys, data, headers = map(list, zip(*kept, strict=True))
        own = [pairs_of(one) for one in headers] if any(headers) else None
        rows = Records(self._decoded(side, data), [row.time for row in found], keys, own, key_serde=self.step.key_serde)
        try:
            return rows.with_values(self._into_alone(side, rows.values))
        except UserCodeError:
            if policy_of_results(self.operator) == "fail":
                raise
            return self._without_bad(side, rows, data)

    def _into_alone(self, side: int, values: list[Any]) -> list[Any]:
        into = self.step.into
        with blaming(self.step):
            return [into(None, value) if side else into(value, None) for value in values]

    def _without_bad(self, side: int, rows: Records, data: list[bytes]) -> Records:
        """The results of the rows on which `into` does not fail; the others are left out, as they were before a call changed them."""
        results: list[Any] = []
        keep: list[bool] = []
        untouched = self._decoded(side, data)
        for place, value in enumerate(self._decoded(side, data)):
            try:
                results += self._into_alone(side, [value])
            except UserCodeError as error:
                leave_out(self.operator, rows.at([place]).with_values([untouched[place]]), error)
            keep.append(len(results) > sum(keep))
        return rows.filtered(keep).with_values(results)

    def _decoded(self, side: int, values: list[bytes]) -> list[Any]:
        found = self.step.serdes[side].loads_many(values)
        if found.bad:
            with blaming(self.step):
                raise found.bad[0][1]
        return found.values
