"""`stream.join(other, within=…)` as an operator of a task: pairs rows of two streams, and emits rows that found no partner.

`kept_rows` keeps the rows that may still find partners, by the rules of `core.windows.joins`. Promises:

- A letter that fails leaves no trace.
- Each pair is emitted once, in the letter of the row that came second; each row of a preserved side that found no partner once, when it
  can find none any more: by the watermark, and, unless rows are to wait beyond them, at the end of both streams or at a drain.
- What was late stays late: the bound is stored in the transaction of the letter that raised it, and outlives runs.
- `into` gets values of its own for each pair: it may change them.
"""

from __future__ import annotations

from types import NoneType
from typing import Any, NamedTuple

from ....core.progress.frames import MAX_TIME, NO_TIME
from ....core.windows.joins import SIDES, Unpaired, bound_of, preserves
from ....core.windows.results import DRAIN
from ...job.steps.keyed import JoinStep
from ...records.columns.records import Records
from ...records.kafka.columns import pick
from ...records.values.record import Headers
from ..base.addends import keyed
from ..base.stateless import BYTES, Env, Operator, UserCodeError, blaming, encode
from ..failures.result_rows import leave_out, policy_of_results
from ..windows.late_rows import write_late
from ..windows.windowed import STEP_RESULTS
from .kept_rows import Arrival, Partners, SideCounts, WaitingRows

BOUND = "bound"
"""The row of the table that holds the bound."""


class SideRows(NamedTuple):
    """One side of a join in this task: what is kept, the late rows, and the rows that came out without a partner."""

    kept: SideCounts
    late: int
    alone: int


class JoinSide(Operator):
    """What the steps before a join push to: one of its sides."""

    wants_keys = BYTES

    def __init__(self, join: JoinOp, side: int) -> None:
        super().__init__(join.step, join.env)
        self.children = [join]
        self.join = join
        self.side = side

    def push(self, rows: Records) -> None:
        self.join.push_side(self.side, rows)


class JoinOp(Operator):
    """Pairs the rows of two streams."""

    letters = True
    wants_keys = BYTES
    gives_keys = True
    flags = ("watermark", "flushed", "bound")
    of_letter = ("kept", "_late_now", "_alone_now")

    def __init__(self, step: JoinStep, env: Env) -> None:
        super().__init__(step, env)
        self.join = step
        self.table = env.table(step.name)
        self.preserved = frozenset(side for side in SIDES if preserves(step.how, side))
        self.kept = WaitingRows(step.distance, self.preserved, self.table)
        stored = self.table.get(BOUND)
        self.bound: int = NO_TIME if stored is None else stored
        """Rows with a time below it are late."""
        self.late_rows = [0, 0]
        """Late rows of each side since the task started on this worker."""
        self.alone_rows = [0, 0]
        """Rows of each side that came out without a partner, since then."""
        self._late_now, self._alone_now = [0, 0], [0, 0]

    def sides(self) -> list[JoinSide]:
        """What the parents push to."""
        return [JoinSide(self, side) for side in SIDES]

    # ------------------------------------------------------------------------------------------------------------ rows come in

    def push_side(self, side: int, rows: Records) -> None:
        """Rows of one side."""
        if NoneType in map(type, rows.values):  # by type: a value's own == may do anything
            keep = [value is not None for value in rows.values]
            self.env.count("join_null_rows", keep.count(False))
            rows = rows.filtered(keep)
        if not len(rows):
            return
        rows = rows.with_keys(keyed(self, rows, self.join.key_serde), self.join.key_serde)
        if min(rows.timestamps) < self.bound:
            rows = self._in_time(side, rows)
            if not len(rows):
                return
        keys: list[bytes] = rows.keys or []
        headers = None if rows.headers is None else [[list(pair) for pair in one] or None for one in rows.headers]
        values = encode(self.step, self.join.serdes[side], rows.values, rows)
        arrival = Arrival(side, keys, list(rows.timestamps), values, headers, bytearray(len(keys)))
        with blaming(self.step):
            partners = self.kept.take(arrival)
        for start in range(0, len(partners.arrived), STEP_RESULTS):
            self._give(arrival, partners.part(slice(start, start + STEP_RESULTS)))

    def _in_time(self, side: int, rows: Records) -> Records:
        """The rows that are not late. The others are counted and, if the user has named a topic for them, written to it unchanged."""
        keep = [time >= self.bound for time in rows.timestamps]
        late = rows.filtered([not one for one in keep])
        self._late_now[side] += len(late)
        if self.join.late is not None:
            write_late(self, late, self.join.late, self.join.late_serde)
        return rows.filtered(keep)

    def _give(self, rows: Arrival, partners: Partners) -> None:
        """Emit pairs. Both values are decoded from what is stored, so a value is the same whether its row came first or second."""
        arrived, side = partners.arrived, rows.side
        own = self._decoded(side, pick(rows.values, arrived))
        others = self._decoded(1 - side, partners.values)
        times = list(map(max, pick(rows.times, arrived), partners.times))
        own_headers = [None] * len(arrived) if rows.headers is None else pick(rows.headers, arrived)
        lefts, rights, first, second = (own, others, own_headers, partners.headers)
        if side:
            lefts, rights, first, second = rights, lefts, second, first
        headers: list[Headers] | None = None
        if any(first) or any(second):
            headers = [_pairs_of(one) + _pairs_of(other) for one, other in zip(first, second, strict=True)]
        with blaming(self.step):
            results = list(map(self.join.into, lefts, rights))
        self.forward(Records(results, times, pick(rows.keys, arrived), headers, key_serde=self.join.key_serde))

    def _decoded(self, side: int, values: list[bytes]) -> list[Any]:
        found = self.join.serdes[side].loads_many(values)
        if found.bad:
            with blaming(self.step):
                raise found.bad[0][1]
        return found.values

    # ---------------------------------------------------------------------------------------------------------------- expiry

    async def on_watermark(self, watermark: int) -> bool:
        """Emit the rows that can find no partner any more. The maximal time announces a drain; it does not count as event time."""
        if watermark == MAX_TIME:
            more = await self.on_close(DRAIN)
        else:
            bound = bound_of(watermark, self.join.grace_ms)
            if bound > self.bound:
                self.bound = bound
                self.table.update({BOUND: bound})
            more = self._expire(self.bound)
        if not more:
            self.watermark = watermark
        return more

    async def on_close(self, cause: str) -> bool:
        """Emit all rows that found no partner, and forget the others, unless the step keeps them: then only those that event time has
        passed, which a crash has left in the middle of it. The bound stays."""
        return self._expire(self.bound if self.join.keeps_open else None)

    def _expire(self, bound: int | None) -> bool:
        found, more = self.kept.expire(bound, STEP_RESULTS)
        start = 0
        while start < len(found):  # `into` gets the value on the place of its side
            stop = start
            while stop < len(found) and found[stop].side == found[start].side:
                stop += 1
            self._give_alone(found[start:stop])
            start = stop
        return more

    def _give_alone(self, found: list[Unpaired]) -> None:
        """Emit rows of one side without partners, with their own time."""
        side = found[0].side
        self._alone_now[side] += len(found)
        keys, data, headers = map(list, zip(*self.kept.rows_of(found), strict=True))
        values = self._decoded(side, data)
        times = [row.time for row in found]
        own: list[Headers] | None = [_pairs_of(one) for one in headers] if any(headers) else None
        rows = Records(values, times, keys, own, key_serde=self.join.key_serde)
        try:
            given = rows.with_values(self._into_alone(side, values))
        except UserCodeError:
            if policy_of_results(self) == "fail":
                raise
            given = self._without_bad(side, rows, data)
        self.forward(given)

    def _into_alone(self, side: int, values: list[Any]) -> list[Any]:
        into = self.join.into
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
                leave_out(self, rows.at([place]).with_values([untouched[place]]), error)
            keep.append(len(results) > sum(keep))
        return rows.filtered(keep).with_values(results)

    def owed_ms(self) -> int | None:
        """Rows that have no partner yet may be emitted with their own time, even if no further record arrives: the step is not idle when
        its streams are."""
        return self.kept.first_alone()

    # ------------------------------------------------------------------------------------------------------- with the letter

    def prepare(self) -> None:
        self.kept.prepare()

    def complete(self) -> None:
        self.kept.complete()
        if late := sum(self._late_now):
            self.env.count("late_rows", late)
        for side in SIDES:
            self.late_rows[side] += self._late_now[side]
            self.alone_rows[side] += self._alone_now[side]
        self._late_now, self._alone_now = [0, 0], [0, 0]

    def drop(self) -> None:
        self.kept.drop()
        self._late_now, self._alone_now = [0, 0], [0, 0]

    def seal(self) -> None:
        self.kept.seal()

    def counts(self) -> tuple[SideRows, SideRows]:
        """What is known of each side."""
        left, right = map(SideRows, self.kept.counts(), self.late_rows, self.alone_rows)
        return left, right


def _pairs_of(headers: Any) -> list[tuple[str, bytes | None]]:
    """Headers as rows have them."""
    return [(name, data) for name, data in headers or ()]
