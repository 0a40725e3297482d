"""The time of a step, and the time that it passes on: derived here, and nowhere else; and how often it is told.

    a stream passes on   what the operators have heard of it; nothing holds once it has ended or drained
    the time of a step   the least of what its parents (streams, or steps of the same task) pass on; the idle are left out, and where
                         all are idle it stands still
    a step passes on     the time that it was told, less `StepPlan.holds_ms`, and at most the least timestamp that it owes

The same rule gives the time towards an output stream (`OutputPlan.parents`). Holding blocks no chunk, only the time that goes on.

**What an operator must do.** A step that hears of time declares `hears_time`, and in `holds_ms` by how much the timestamps of what it
emits may lie behind the time that it was told (a window: its grace; a join: distance and grace). Where it owes results beyond that
(a closed window whose rows are at Spark, an event-time timer), `Operator.owed_ms()` gives the least timestamp of them. It is asked
after each letter and, from the restored tables, before the first one (`ChunkDone.owed`, `StepDone.owed`, `Restored.owed`). So what is
owed must follow from the operator's tables. A step hears a newer time in a letter of its own behind the letter in which its parents
heard theirs: by then it has all the rows that they emitted, and what they owe is known.

What is promised:

- No step is told a time, and no output gets one, that goes back. The times told are rows of the control table, so a restart goes on.
- A step that owes results is not idle, whatever its parents are.
- A step whose parents have all ended has flushed, and holds nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..machine import Now
from ..progress.frames import MAX_TIME, NO_TIME
from ..progress.producers import BEHIND, IDLE, Holder, StreamPhase
from .inputs import Inputs
from .ledger import Ledger
from .plan import StepPlan

OWES = "owes"
"""Why a step holds the time of the steps behind it: beside `BEHIND` and `IDLE`, it owes results."""


class Heard(NamedTuple):
    """What the operators have been told of an input stream: up to which time, and whether it has drained or ended."""

    ts: int = NO_TIME
    status: StreamPhase = StreamPhase.OPEN


DEAF = Heard()


class Through(NamedTuple):
    """How far time has come somewhere; `idle`: nothing moves it at present."""

    ts: int
    idle: bool = False


def least(parents: Iterable[str], passing: Mapping[str, Through]) -> Through | None:
    """The time behind these parents, by what each passes on; None when all of them have ended: those are not in `passing`.

    >>> least({"a", "b"}, {"a": Through(5, idle=True), "b": Through(9)})
    Through(ts=9, idle=False)
    """
    live = [passing[one] for one in parents if one in passing]
    if not live:
        return None
    active = [one.ts for one in live if not one.idle]
    return Through(min(active or [one.ts for one in live]), not active)


def passed_on(told: int, holds_ms: int, owed: int | None) -> int:
    """What a step that was told this time passes on.

    >>> passed_on(100, 30, None), passed_on(100, 30, 65), passed_on(NO_TIME, 30, None) == NO_TIME
    (70, 65, True)
    """
    ts = told if told == MAX_TIME else max(NO_TIME, told - holds_ms)
    return ts if owed is None else min(ts, owed)


def passing(
    steps: Iterable[StepPlan], streams: Mapping[str, Through], told: Mapping[str, int], owed: Mapping[str, int]
) -> dict[str, Through]:
    """What each stream and each step passes on, where these streams are what is left, and the steps stand parents first."""
    found = dict(streams)
    for step in steps:
        behind = least(step.parents, found)
        if behind is not None:
            ts = passed_on(told.get(step.name, NO_TIME), step.holds_ms, owed.get(step.name))
            found[step.name] = Through(ts, behind.idle and step.name not in owed)
    return found


class TaskTime:
    """The times of one task: what was heard of its streams, what its steps were told, and what they owe."""

    def __init__(self, inputs: Inputs, ledger: Ledger) -> None:
        self.inputs = inputs
        self.ledger = ledger
        self.heard: dict[str, Heard] = {}
        self.told: dict[str, int] = {}
        """By step, the time that it was told."""
        self.owed: dict[str, int] = {}
        """By step, the least timestamp of the results that it owes; a step that owes none is absent."""

    def load(self) -> None:
        """Take what was heard and told out of the restored rows."""
        for one in self.inputs.counted:
            row = self.ledger.rows.get((":heard", one.stream))
            if row:
                self.heard[one.stream] = Heard(*row)
        for step in self.inputs.plan.steps:
            row = self.ledger.rows.get((":time", step.name))
            if row:
                self.told[step.name] = row[0]

    def owes(self, owed: Iterable[tuple[str, int]]) -> bool:
        """What the steps owe now; true if that changed."""
        now = dict(owed)
        changed = now != self.owed
        self.owed = now
        return changed

    def hear(self, stream: str, heard: Heard) -> None:
        """This is what the operators have heard of a stream."""
        self.heard[stream] = heard
        self.ledger.put((":heard", stream), tuple(heard))

    def tell(self, times: Iterable[tuple[str, int]]) -> None:
        """These steps have been told these times."""
        for name, ts in times:
            self.told[name] = ts
            self.ledger.put((":time", name), (ts,))

    def newer(self, stream: str | None = None, ts: int = NO_TIME) -> tuple[tuple[str, int], ...]:
        """The steps whose time is newer than they were told; with this heard of a stream, where one is named."""
        passed = self.passing(stream, ts)
        found = ((step.name, least(step.parents, passed)) for step in self.inputs.plan.steps)
        return tuple((name, now.ts) for name, now in found if now is not None and now.ts > self.told.get(name, NO_TIME))

    def holders(self, step: StepPlan) -> list[Holder]:
        """Which of its parents keep the time of a step where it is: streams, or steps that owe results or have not gone on themselves."""
        passed = self.passing()
        live = {one: passed[one] for one in sorted(step.parents) if one in passed}
        pool = [one for one, through in live.items() if not through.idle] or list(live)
        low = min((live[one].ts for one in pool), default=NO_TIME)

        def why(one: str) -> str:
            return OWES if self.owed.get(one) == low else IDLE if live[one].idle else BEHIND

        return [Holder(low, one, why(one)) for one in pool if live[one].ts == low]

    def passing(self, stream: str | None = None, ts: int = NO_TIME) -> dict[str, Through]:
        """What the streams and steps of the task pass on; with this heard of a stream, where one is named."""
        heard = self.heard
        if stream is not None:
            heard = {**heard, stream: Heard(ts, heard.get(stream, DEAF).status)}
        streams: dict[str, Through] = {}
        for one in self.inputs.counted:
            upto, status = heard.get(one.stream, DEAF)
            if status == StreamPhase.OPEN:
                streams[one.stream] = Through(upto, self.inputs.progress.idle(one.stream))
        return passing(self.inputs.plan.steps, streams, self.told, self.owed)


class Pace:
    """At most once an interval a newer time is told to the operators, and said to the streams."""

    def __init__(self) -> None:
        self.news = False
        """A newer time may be there to tell."""
        self.owed = False
        """The interval is over, and the newer time has not been said to the streams yet."""
        self._next_s = float("-inf")

    def due(self, now: Now, interval_s: float) -> bool:
        """Whether newer times are to be told now; true once an interval, and only where there is news."""
        if not self.news or now.mono < self._next_s:
            return False
        self.news, self.owed = False, True
        self._next_s = now.mono + interval_s
        return True

    def hurry(self, now: Now, interval_s: float) -> None:
        """The interval is another one: the present one ends no later than it would under that."""
        self._next_s = min(self._next_s, now.mono + interval_s)

    @property
    def deadline(self) -> float | None:
        """When newer times are due; None while there are none."""
        return self._next_s if self.news else None
