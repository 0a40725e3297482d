"""How many records the tasks of a worker have still to process, measured from facts of now: the ends of the logs and the tasks' positions.

A fetch answer tells where a log ends. A partition that has none just now (its buffer is full, it is paused, or its task has failed) is
looked up. The position is that of what is complete, so records in a letter that does not end still count.

Promises: what was not measured for `KNOWN_S` is unknown, never zero. Every partition of a task that this worker is granted is named, also
while the task restores, has failed, or is between two incarnations. A busy or idle job asks nothing beyond its fetches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ....core.coordination.state import JobState
from ....core.names import StreamPartition
from ...cancellation import answered
from ...logger import Logger
from ...port.port import Clock, Offsets
from ...port.waiting import in_time, pause

if TYPE_CHECKING:
    from ...runtime.task.task import TaskActor

log = Logger("headgate.lags")
ASK_S = 2.0
"""How often the ends are looked up that no fetch tells."""
FRESH_S = 3.0
"""An older fetch answer does not tell where a log ends now."""
KNOWN_S = 15.0
"""An older end of a log says nothing about now."""
ANSWER_S = 5.0
"""How long one lookup may take."""
MOST_ASKED = 64
"""At most so many partitions are looked up in one round; the others follow in the next ones."""

Owned = Mapping[str, tuple[StreamPartition, ...]]
"""The tasks that a worker is granted, each with the partitions that it reads."""
TaskLags = dict[StreamPartition, int | None]


def owned_by(job: JobState, processor: str) -> Owned:
    """The tasks that this worker is granted in the current run."""
    model = job.model
    if model is None or not job.live:
        return {}
    held = (grant.task for grant in job.grants() if grant.processor == processor and grant.task in model.tasks)
    return {task: tuple(model.tasks[task]) for task in held if not job.released(task)}


class Lags:
    """The measurements of one worker."""

    def __init__(self) -> None:
        self._ends: dict[StreamPartition, tuple[int, float]] = {}
        """The ends of logs as last seen, with the time (monotonic clock)."""
        self._positions: dict[str, dict[StreamPartition, int]] = {}
        """By task: the last known positions. They outlive the task's actor."""

    def look(self, owned: Owned, actors: Mapping[str, TaskActor], mono: float) -> dict[str, TaskLags]:
        """The lag of each partition of these tasks; None where it is not known."""
        for name, actor in actors.items():
            self._note(name, actor, mono)
        reads = {name: (*owned.get(name, ()), *self._positions.get(name, ())) for name in {*owned, *actors}}
        self._positions = {name: found for name, found in self._positions.items() if name in reads}
        streams = {at for parts in reads.values() for at in parts}
        self._ends = {at: found for at, found in self._ends.items() if at in streams}
        return {name: {at: self._lag(name, at, mono) for at in dict.fromkeys(parts)} for name, parts in reads.items()}

    def due(self, mono: float) -> list[StreamPartition]:
        """The partitions whose ends must be looked up, those first that are unknown for longest. `look` comes first."""
        known = {at: seen for at, (_, seen) in self._ends.items()}
        wanted = {at for found in self._positions.values() for at in found}
        stale = [at for at in wanted if mono - known.get(at, 0.0) > FRESH_S]
        return sorted(stale, key=lambda at: (known.get(at, 0.0), at))[:MOST_ASKED]

    def found(self, at: StreamPartition, end: int, mono: float) -> None:
        """A lookup has found where this log ends."""
        self._ends[at] = end, mono

    def _note(self, name: str, actor: TaskActor, mono: float) -> None:
        positions = dict(actor.machine.view.positions)
        if positions:
            self._positions[name] = positions
        intake = actor.reading.intake
        for at, (high, age_s) in {} if intake is None else intake.intake.ends().items():
            if age_s <= FRESH_S:
                self._ends[at] = high, mono - age_s

    def _lag(self, task: str, at: StreamPartition, mono: float) -> int | None:
        position = self._positions.get(task, {}).get(at)
        end, seen = self._ends.get(at, (0, float("-inf")))
        return None if position is None or mono - seen > KNOWN_S else max(0, end - position)


def total(lags: Iterable[int | None]) -> int | None:
    """The sum; None if a part of it is unknown.

    >>> total([1, 2]), total([1, None]), total([])
    (3, None, 0)
    """
    found = list(lags)
    return None if None in found else sum(one or 0 for one in found)


async def look_up(lags: Lags, look: Callable[[], object], offsets: Offsets, clock: Clock) -> None:
    """Look up what no fetch tells, until cancelled. `look` calls `lags.look` with the tasks of now."""
    while True:
        await pause(clock, ASK_S)
        look()
        for at in lags.due(clock.now().mono):
            try:
                with answered("the end of a log"):
                    end = await in_time(clock, ANSWER_S, offsets.end_of(at, committed=False))
            except TimeoutError:
                break  # the broker does not answer: everything else is asked in a later round, too
            except Exception as error:  # noqa: BLE001 - a topic that is gone, a permission: the lag stays unknown, nothing depends on it
                log.debug("the end of a log is unknown", at=str(at), why=str(error))
            else:
                lags.found(at, end, clock.now().mono)
