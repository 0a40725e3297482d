"""`stream.join(other, within=…)` as an operator of a task: pairs rows of two streams, and emits rows that found no partner.

`kept_rows` keeps the rows that may still find partners, by the rules of `core.windows.joins`. Promises:

- A letter that fails leaves no trace.
- Each pair is emitted once, in the letter of the row that came second; each row of a preserved side that found no partner once, when it
  can find none any more: by the watermark, and, unless rows are to wait beyond them, at the end of both streams or at a drain.
- What was late stays late: the bound is stored in the transaction of the letter that raised it, and outlives runs.
- Rows and columns are kept and found alike; `paired_rows` and `paired_columns` say what a pair is.
"""

from __future__ import annotations

from itertools import compress
from types import NoneType
from typing import NamedTuple, cast

from ....core.progress.frames import MAX_TIME, NO_TIME
from ....core.windows.joins import SIDES, Unpaired, bound_of, preserves
from ....core.windows.results import DRAIN
from ...job.steps.keyed import JoinColumnsStep, JoinStep, JoinStreamsStep
from ...records.columns.records import Records
from ..base.addends import keyed
from ..base.stateless import BYTES, Env, Operator, blaming
from ..windows.late_rows import write_late
from ..windows.windowed import STEP_RESULTS
from .kept_rows import Arrival, SideCounts, WaitingRows
from .paired_columns import PairedColumns
from .paired_rows import PairedRows

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

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        return self.join.paired.reads(self.side, behind)

    def push(self, rows: Records) -> None:
        self.join.push_side(self.side, rows)


class JoinOp(Operator):
    """Pairs the rows of two streams."""

    letters = True
    wants_keys = BYTES
    gives_keys = True
    flags = ("watermark", "flushed", "bound")
    of_letter = ("kept", "_late_now", "_alone_now")

    def __init__(self, step: JoinStreamsStep, env: Env) -> None:
        super().__init__(step, env)
        self.join = step
        self.paired = (
            PairedColumns(step) if isinstance(step, JoinColumnsStep) else PairedRows(cast("JoinStep", step), self)
        )
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
        if rows.vectors is None and NoneType in map(type, rows.values):  # by type: a value's own == may do anything
            keep = [value is not None for value in rows.values]
            self.env.count("join_null_rows", keep.count(False))
            rows = rows.filtered(keep)
        if not len(rows):
            return
        keys = keyed(self, rows, self.join.key_serde)
        if min(rows.timestamps) < self.bound:
            keep = [time >= self.bound for time in rows.timestamps]
            self._leave_late(side, rows.filtered([not one for one in keep]))
            rows, keys = rows.filtered(keep), list(compress(keys, keep))
            if not len(rows):
                return
        headers = None if rows.headers is None else [[list(pair) for pair in one] or None for one in rows.headers]
        arrival = Arrival(
            side, keys, list(rows.timestamps), self.paired.encoded(side, rows), headers, bytearray(len(keys))
        )
        with blaming(self.step):
            partners = self.kept.take(arrival)
        for start in range(0, len(partners.arrived), STEP_RESULTS):
            self.forward(self.paired.pairs(rows, arrival, partners.part(slice(start, start + STEP_RESULTS))))

    def _leave_late(self, side: int, late: Records) -> None:
        """Rows that are late are counted and, if the user has named a topic for them, written to it unchanged."""
        self._late_now[side] += len(late)
        if self.join.late is not None:
            write_late(self, self.paired.late(side, late), self.join.late, self.join.late_serde)

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
        self._alone_now[found[0].side] += len(found)
        self.forward(self.paired.alone(found, self.kept.rows_of(found)))

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
