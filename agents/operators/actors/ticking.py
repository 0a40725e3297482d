"""Calls a periodic function of the job (`@app.timer`), in the one task that has it.

The newest tick is a row of an internal table. It is written in the letter that calls the function, so it is durable together with what the
function has emitted and changed: a tick that was not committed has not happened, and the next owner of the task calls it.
"""

from __future__ import annotations

from ....core.ticks import DueTick, LastTick, next_tick
from ...job.steps.ends import TimerStep, timers_table
from ..base.stateless import Env, Operator
from .asynchronous import call
from .emitting import InTask

LAST = "last"
"""The key of the newest tick in its table."""


class TimerOp(Operator):
    """Calls one function of the user's. No rows reach it, and no end: it ticks while its task runs."""

    awaits = True

    def __init__(self, step: TimerStep, env: Env) -> None:
        super().__init__(step, env)
        self.timer = step
        self._table = env.table(timers_table(step))
        self._since = env.now_ms()

    def _next(self) -> DueTick:
        row = self._table.get(LAST)
        return next_tick(self.timer.period_ms, None if row is None else LastTick(*row), self._since, self.env.now_ms())

    def due(self) -> tuple[int, str] | None:
        """The time of the next tick. What is read before anything else comes before the first one."""
        return None if self.env.bootstraps() else (self._next().at, "")

    def owes(self) -> bool:
        """It always has a next tick, for which no run waits."""
        return False

    async def work(self, key: str) -> bool:
        """A tick is due. Returns that there is no more to do: the next one has its own time."""
        found = self._next()
        if found.at <= self.env.now_ms():
            self._table.update({LAST: (found.number, found.at)})
            self.env.count("ticks")
            if found.missed:
                self.env.count("ticks_missed", found.missed)
            await call(self.step, self.env.patience, self.timer.fn, RunningTick(self, found))
        return False


class RunningTick(InTask):
    """What the function gets; see `actors.ClockTick`."""

    KIND = "a tick"
    _CALLED = "tick"

    def __init__(self, op: TimerOp, due: DueTick) -> None:
        super().__init__(op)
        self.number, self.at, self.missed = due

    def __repr__(self) -> str:
        return f"<tick {self.number} of {self._of.step.name} at {self.at}, {self.missed} missed>"

    def _time(self, timestamp: int | None) -> int:
        """See `InTask`: without one, the time of the tick."""
        return super()._time(self.at if timestamp is None else timestamp)
