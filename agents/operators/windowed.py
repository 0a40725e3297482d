"""`.window(…).agg(…)` as an operator of a task: rows by key and window, a result for each when its window closes.

What is open is kept by `open_windows` or, for sessions, `open_sessions`. Here is what they have in common: the *floor*, which is the
greatest watermark that was heard, stored in the transaction of its letter; rows that come too late; and the results.

Promises:

- A letter that fails leaves no trace.
- A window that a watermark has closed stays closed, also over restarts and runs: its rows are late then, and are counted.
- Closing goes in steps of bounded size, in the order of ends and then of the keys' bytes. A step is remembered in its own transaction.
- Rows that came with a letter are in their windows before that letter closes them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...core.progress.frames import MAX_TIME, NO_TIME
from ...core.windows import sessions, spans
from ...core.windows.results import CLOSED_FIELD, DRAIN, END_FIELD, START_FIELD, WATERMARK, result_time
from ..job import steps as s
from ..records.columns import pick
from ..records.record import Rows
from .keyed import keyed
from .open_sessions import OpenSessions
from .open_windows import ClosedWindows, OpenCounts, OpenWindows
from .stateless import BYTES, Env, Operator, blaming, encode, encode_keys

STEP_RESULTS = 10_000
"""Results that one step of a letter gives: its outputs must stay within what one transaction should hold."""
FLOOR = "floor"
"""The row of the table that holds it."""


class Missed(NamedTuple):
    """Rows that were late: for all of their windows, and for some."""

    rows: int = 0
    partly: int = 0

    def and_(self, rows: int, partly: int) -> Missed:
        """These, too."""
        return Missed(self.rows + rows, self.partly + partly)


class WindowOp(Operator):
    """Aggregates for each key and window of event time."""

    letters = True
    wants_keys = BYTES
    gives_keys = True
    flags = ("watermark", "floor")

    def __init__(self, step: s.WindowStep, env: Env) -> None:
        super().__init__(step, env)
        self.window_step = step
        window = step.window
        self.grace = window.grace_ms
        self.plan = step.plan
        self.table = env.table(step.name)
        self.of_sessions = window.spans is None
        self.kept = (
            OpenSessions(window.gap_ms, step.plan, self.table)
            if window.spans is None
            else OpenWindows(window.spans, step.plan, self.table)
        )
        (stored,) = self.table.get_many([FLOOR])
        self.floor: int = NO_TIME if stored is None else stored
        self.missed = Missed()
        """Since the task began here."""
        self._missed = Missed()
        """By the running letter."""

    @property
    def _closed(self) -> int:
        """Windows that end then or before are closed."""
        return (sessions if self.of_sessions else spans).closed_up_to(self.floor, self.grace)

    def be_careful(self) -> None:
        """A commit has failed on what was held back: the table is written with each letter."""
        self.kept.careful = True

    # ------------------------------------------------------------------------------------------------------------ rows come in

    def push(self, rows: Rows) -> None:
        keys = keyed(self, rows, self.window_step.key_serde)
        with blaming(self.step, self.plan.lacking(rows.values)):
            late, partly = self.kept.take(keys, rows.timestamps, rows.values, self._closed)
        self._missed = self._missed.and_(len(late), partly)
        if late:
            self._late(rows, late)

    def _late(self, rows: Rows, late: list[int]) -> None:
        """Rows whose windows are closed: written as they are to the topic that the user has named."""
        topic = self.window_step.late
        if topic is None:
            return
        values = encode(self.step, self.window_step.late_serde, pick(rows.values, late))
        headers = None if rows.headers is None else pick(list(rows.headers), late)
        keys = encode_keys(self.step, self.env.app.output_key_serde, pick(rows.keys or [], late), rows.key_serde)
        with blaming(self.step):  # what the topic does not take
            self.env.emit(topic, None, keys, values, pick(rows.timestamps, late), headers)

    # ------------------------------------------------------------------------------------------------------- with the letter

    def prepare(self) -> None:
        with blaming(self.step):
            self.kept.prepare()

    def complete(self) -> None:
        self.kept.complete()
        if self._missed != Missed():
            self.env.count("late_rows", self._missed.rows)
            self.env.count("late_for_some_windows", self._missed.partly)
            self.missed, self._missed = self.missed.and_(*self._missed), Missed()

    def drop(self) -> None:
        self.kept.drop()
        self._missed = Missed()

    def suspend(self) -> Any:
        missed, self._missed = self._missed, Missed()
        return self.kept.suspend(), missed

    def resume(self, aside: Any) -> None:
        kept, self._missed = aside
        self.kept.resume(kept)

    def opened(self) -> tuple[OpenCounts, Missed]:
        """What is open, and what was late."""
        return self.kept.counts(), self.missed

    def seal(self) -> None:
        self.kept.seal()

    # ------------------------------------------------------------------------------------------------------------ closing

    async def on_watermark(self, watermark: int) -> bool:
        """Close what time has passed. The maximal time stands before a drain, and is no time that has passed."""
        if watermark == MAX_TIME:
            more = await self.on_close(DRAIN)
        else:
            if watermark > self.floor:
                self.floor = watermark
                self.table.update({FLOOR: watermark})
            more = self._close(self._closed, WATERMARK)
        if not more:
            self.watermark = watermark
        return more

    async def on_close(self, cause: str) -> bool:
        """Close all that is open, if it is not to stay so. The floor stays: the next run may open these windows again."""
        return not self.window_step.keeps_open and self._close(None, cause)

    def _close(self, closed: int | None, by: str) -> bool:
        """Give results of windows that end no later than `closed` (None: of all), so many as a step may; whether there are more."""
        if self.kept.awaits(closed):
            return True
        found = self.kept.close(closed, STEP_RESULTS)
        if found.keys:
            self._give(found, by)
        return found.more

    def _give(self, found: ClosedWindows, by: str) -> None:
        with blaming(self.step):
            results = self.plan.results(found.states)
        for result, start, end in zip(results, found.starts, found.ends, strict=True):
            result[START_FIELD], result[END_FIELD], result[CLOSED_FIELD] = start, end, by
        times = list(map(result_time, found.ends))
        self.forward(Rows(results, times, found.keys, key_serde=self.window_step.key_serde))
