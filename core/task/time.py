"""The time of a step and the time that it passes on, derived here and nowhere else; and how often time is delivered.

    a stream passes on   what the operators have heard of it; it holds nothing back once it has drained. From the moment a stream of the
                         task drains, the steps receive no newer time except the maximal one. If records of it are put aside and time waits
                     for them (parked ones), it passes on at most their least time, but for the maximal one
    the time of a step   the least that its parents (streams, or steps of the same task) pass on. One that is idle is lifted to the others
                         (`lifts`); if all are idle, it does not advance; one that is away counts only if all are. A parent that has ended
                         counts with its last time until all have ended, unless it has left or brought no record in this run
    a step passes on     the time that it received, less `StepPlan.holds_ms`, and at most the least timestamp that it owes

The same rule gives the time of an output stream (`OutputPlan.parents`). Holding time back blocks no chunk.

**What an operator must do.** A step that hears of time declares `hears_time`, and in `holds_ms` how much older than the time that it
received its results may be (a window: its grace; a join: distance and grace). If it owes results beyond that (a closed window whose rows
are at Spark, an event-time timer), `Operator.owed_ms()` returns their least timestamp. The edge calls it after each letter and, from the
restored tables, before the first one (`ChunkDone.owed`, `StepDone.owed`, `Restored.owed`). So what is owed must follow from the operator's
tables. A step hears a newer time in a letter of its own after the letter in which its parents heard theirs: by then it has all the rows
that they emitted, and what they owe is known.

A stream that no step hears of needs no letter: its time goes on with the commit that contains its records. So a window behind a shuffle
hears of a record with the first commit after it.

Promises:

- The time of a step, and of an output, never goes back. The times delivered are rows of the control table, so they survive a restart.
- A step that owes results is not idle, whatever its parents are.
- A step whose parents have all ended received their last time before, and passes on its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from ..machine import Now
from ..progress.frames import MAX_TIME, NO_TIME
from ..progress.producers import BEHIND, HAS_ENDED, IDLE, Holder, StreamPhase, kept, together
from .inputs import Inputs
from .ledger import Ledger
from .lifts import NOT_YET_S, Lift
from .plan import StepPlan

OWES = "owes"
"""Why a step holds the time of the steps behind it: besides `BEHIND` and `IDLE`, it owes results."""


class Heard(NamedTuple):
    """What the operators have received of an input stream: up to which time, and whether it has drained or ended."""

    ts: int = NO_TIME
    status: StreamPhase = StreamPhase.OPEN


NOTHING_HEARD = Heard()
NONE: Mapping[str, int] = {}


class Through(NamedTuple):
    """How far time has come at some point. `idle`: nothing advances it at present. `status`: open, or how it has ended."""

    ts: int
    idle: bool = False
    status: StreamPhase = StreamPhase.OPEN
    away: bool = False
    """Only the next run of other jobs advances it."""


def least(parents: Iterable[str], passing: Mapping[str, Through], lifted: Mapping[str, int] = NONE) -> Through | None:
    """The time that these parents pass on together; None if all of them have drained, because such ones are not in `passing`. `lifted`: how
    far the idle ones among them have been lifted.

    >>> least({"a", "b"}, {"a": Through(5, idle=True), "b": Through(9)}, {"a": 8})
    Through(ts=8, idle=False, status=<StreamPhase.OPEN: 0>, away=False)
    >>> least({"a", "b"}, {"a": Through(5, status=StreamPhase.ENDED), "b": Through(9)}).ts
    5
    """
    known = {one: passing[one] for one in parents if one in passing}
    if len(known) == 1:  # as for most: there is nothing to compare it with
        [(name, one)] = known.items()
        upto = lifted.get(name, NO_TIME) if one.status == StreamPhase.OPEN and one.ts < MAX_TIME else NO_TIME
        return one if upto <= one.ts else one._replace(ts=upto)
    live = {one: through for one, through in known.items() if through.status == StreamPhase.OPEN}
    if not live:
        status, ts = together(list(known.values()))
        return Through(ts, False, status) if known else None
    still, away = kept(known.values()), all(one.away for one in live.values())
    times = [max(one.ts, lifted.get(name, NO_TIME)) for name, one in live.items() if away or not one.away]
    if any(one.ts == MAX_TIME for one in live.values()):  # before a drain it waits for all, those that are away too
        times = [one.ts for one in live.values()]
        still = [] if min(times) == MAX_TIME else still
    idle = all(one.idle for one in live.values()) and not still
    return Through(min(times + still), idle, away=away)


def passed_on(delivered: int, holds_ms: int, owed: int | None) -> int:
    """The time that a step passes on after it received this time.

    >>> passed_on(100, 30, None), passed_on(100, 30, 65), passed_on(NO_TIME, 30, None) == NO_TIME
    (70, 65, True)
    """
    ts = delivered if delivered == MAX_TIME else max(NO_TIME, delivered - holds_ms)
    return ts if owed is None else min(ts, owed)


def passing(
    steps: Iterable[StepPlan], streams: Mapping[str, Through], delivered: Mapping[str, int], owed: Mapping[str, int]
) -> dict[str, Through]:
    """The times that all streams and steps pass on. `streams` contains those that have not drained; the steps come parents first."""
    found = dict(streams)
    for step in steps:
        behind = least(step.parents, found)
        if behind is not None:
            ts = passed_on(delivered.get(step.name, NO_TIME), step.holds_ms, owed.get(step.name))
            found[step.name] = Through(ts, behind.idle and step.name not in owed, behind.status, behind.away)
    return found


class TaskTime:
    """The times of one task: what was heard of its streams, what its steps received, and what they owe."""

    def __init__(self, inputs: Inputs, ledger: Ledger) -> None:
        self.inputs = inputs
        self.ledger = ledger
        self.heard: dict[str, Heard] = {}
        self.delivered: dict[str, int] = {}
        """By step, the time delivered to it."""
        self.owed: dict[str, int] = {}
        """By step, the least timestamp of the results that it owes; by stream, that of the records that are put aside and that time waits
        for. One that owes none is absent."""
        self._meets = [(one.name, one.parents) for one in inputs.plan.steps if len(one.parents) > 1]
        self._meets += [(f">{one.stream}", one.parents) for one in inputs.plan.outputs if len(one.parents) > 1]
        self._lifts = {name: {one: Lift() for one in parents} for name, parents in self._meets}
        """By step and (with a `>`) output in which several times meet: how far each parent was lifted for it. What a step received with it
        is stored."""
        with_steps = inputs.plan.streams_behind(one.name for one in inputs.plan.steps)
        self.without_steps = tuple(one.stream for one in inputs.counted if one.stream not in with_steps)
        """The streams that no step hears of."""

    def load(self) -> None:
        """Restore what was heard and delivered from the restored rows."""
        for one in self.inputs.counted:
            row = self.ledger.rows.get((":heard", one.stream))
            if row:
                self.heard[one.stream] = Heard(*row)
        for step in self.inputs.plan.steps:
            row = self.ledger.rows.get((":time", step.name))
            if row:
                self.delivered[step.name] = row[0]

    def owes(self, owed: Iterable[tuple[str, int]]) -> bool:
        """Set what the steps owe now. Returns whether that changed."""
        now = dict(owed)
        changed = now != self.owed
        self.owed = now
        return changed

    def hear(self, stream: str, heard: Heard) -> None:
        """Note what the operators have heard of a stream."""
        self.heard[stream] = heard
        self.ledger.put((":heard", stream), tuple(heard))

    def overhear(self) -> bool:
        """Note the newer times of the streams that no step hears of; returns whether there are any. They need no letter: what their
        operators hold back is given out before a time is announced. The maximal time is left to the letter that precedes a drain.
        """
        before = self.ledger.made
        for stream in self.without_steps:
            heard, ts = self.heard.get(stream, NOTHING_HEARD), self.inputs.progress.watermark(stream)
            if heard.status == StreamPhase.OPEN and heard.ts < ts < MAX_TIME:
                self.hear(stream, Heard(ts))
        return self.ledger.made > before

    def tell(self, times: Iterable[tuple[str, int]]) -> None:
        """Note that these times were delivered to these steps."""
        for name, ts in times:
            self.delivered[name] = ts
            self.ledger.put((":time", name), (ts,))

    def lifted(self, name: str) -> Mapping[str, int]:
        """How far the parents of this step, or (with a `>`) of this output, were lifted for it."""
        lifts = self._lifts.get(name)
        return NONE if lifts is None else {one: lift.upto for one, lift in lifts.items()}

    def reached(self, parents: Iterable[str], output: str, passing: Mapping[str, Through]) -> Through | None:
        """The time that has come through to an output."""
        return least(parents, passing, self.lifted(f">{output}"))

    def lift(self, now: Now) -> bool:
        """Lift the idle streams and steps to those that they meet. Returns whether one was lifted."""
        moved = False
        for lift, quiet in self._met():
            if quiet is None:
                lift.drop()
                continue
            before, (silent_since, others) = lift.upto, quiet
            lift.confirm(silent_since, now.mono, others)
            moved = moved or lift.upto > before
        return moved

    def may_lift(self) -> bool:
        """Whether an idle stream or step can be lifted now, or is to be compared with those that it meets."""
        return any(quiet is not None and lift.waits(*quiet) for lift, quiet in self._met())

    def _met(self) -> Iterator[tuple[Lift, tuple[float, int | None] | None]]:
        """Each stream and step that meets others. If it is idle: since when it is surely silent, and the least time of the others."""
        passed = self.passing() if self._meets else {}
        for name, parents in self._meets:
            live = {one: passed[one] for one in parents if one in passed}
            for one, lift in self._lifts[name].items():
                through = live.get(one)
                idle = through is not None and through.idle and not through.away
                yield lift, (self.silent_since(one), self._moving(live, one)) if idle else None

    def _moving(self, live: Mapping[str, Through], without: str) -> int | None:
        """The least time of those that are not idle; None if there are none."""
        others = [through for one, through in live.items() if one != without]
        active = [one.ts for one in others if one.status == StreamPhase.OPEN and not (one.idle or one.away)]
        return min([*active, *kept(others)], default=None)

    def silent_since(self, one: str) -> float:
        """Since when a stream, or what stands behind a step, is certain to be silent."""
        return min(map(self.inputs.silent_since, self.inputs.plan.streams_behind([one])), default=NOT_YET_S)

    def newer(self, stream: str | None = None, heard: Heard = NOTHING_HEARD) -> tuple[tuple[str, int], ...]:
        """The steps whose time is newer than the one delivered to them; if `stream` is given, as if this were heard of it."""
        passed = self.passing(stream, heard)
        found = ((step.name, least(step.parents, passed, self.lifted(step.name))) for step in self.inputs.plan.steps)
        newer = (
            (name, now.ts) for name, now in found if now is not None and now.ts > self.delivered.get(name, NO_TIME)
        )
        drains = heard.ts == MAX_TIME or self._drains()
        return tuple((name, at) for name, at in newer if at == MAX_TIME or not drains)

    def _drains(self) -> bool:
        """Whether a stream of the task has drained or is about to: time stands still then, until the maximal one. The next run continues
        where this one stopped, and its records must not be late because another stream drained later."""
        return any(one.status == StreamPhase.DRAINED or one.ts == MAX_TIME for one in self.heard.values())

    def holders(self, step: StepPlan, passed: Mapping[str, Through] | None = None) -> list[Holder]:
        """Which of its parents keep the time of a step where it is: streams, or steps that owe results or have not gone on themselves.
        `passed`: what `passing` has said just now."""
        passed = self.passing() if passed is None else passed
        live = {one: passed[one] for one in sorted(step.parents) if one in passed}
        open_ = [one for one, through in live.items() if through.status == StreamPhase.OPEN]
        pool = [one for one in open_ if not live[one].away] or open_
        pool += [one for one, through in live.items() if pool and kept([through])]
        lifted = self.lifted(step.name)
        upto = {one: max(live[one].ts, lifted.get(one, NO_TIME)) for one in pool}
        low = min(upto.values(), default=NO_TIME)

        def why(one: str) -> str:
            ended = live[one].status >= StreamPhase.ENDED
            return OWES if self.owed.get(one) == low else HAS_ENDED if ended else IDLE if live[one].idle else BEHIND

        return [Holder(low, one, why(one)) for one in pool if upto[one] == low]

    def passing(self, stream: str | None = None, heard_of_it: Heard = NOTHING_HEARD) -> dict[str, Through]:
        """The times that the streams and steps of the task pass on; if `stream` is given, as if this were heard of it."""
        heard = self.heard
        if stream is not None:
            heard = {**heard, stream: heard_of_it}
        streams: dict[str, Through] = {}
        for one in self.inputs.counted:
            upto, status = heard.get(one.stream, NOTHING_HEARD)
            if status != StreamPhase.DRAINED:
                open_, progress = status == StreamPhase.OPEN, self.inputs.progress
                away = open_ and progress.away(one.stream)
                aside = self.owed.get(one.stream)
                idle = open_ and progress.idle(one.stream) and aside is None
                ts = upto if upto == MAX_TIME else passed_on(upto, 0, aside)
                streams[one.stream] = Through(ts, idle, status, away)
        return passing(self.inputs.plan.steps, streams, self.delivered, self.owed)


OFTEN = 4
"""How often a newer time may be delivered to the operators in a commit interval. Watermarks of several producers arrive one after the
other, and a time that is delivered too late for a commit waits a whole interval for the next one.
"""


class Pace:
    """Limits how often newer times are delivered to the operators, and announced by commits: of those that are requested in a hurry, one
    after the other, not each does.
    """

    def __init__(self) -> None:
        self.news = False
        """There may be a newer time to tell or to announce."""
        self.owed = False
        """The newer time has not been announced yet."""
        self._next_s = float("-inf")
        self._announced_s = float("-inf")

    def announces(self, now: Now, interval_s: float) -> bool:
        """Whether the commit that begins now announces newer times. Regular commits do, though they may come a little early."""
        if now.mono >= self._announced_s + interval_s / 2:
            return True
        self.news = True  # a later commit announces them
        return False

    def announced(self, now: Now) -> None:
        """A commit announces newer times now."""
        self._announced_s = now.mono

    def due(self, now: Now) -> bool:
        """Whether newer times are due now, if there are any."""
        if not self.news or now.mono < self._next_s:
            return False
        self.news, self.owed = False, True
        return True

    def soon(self, now: Now, unobserved: Collection[object]) -> None:
        """The time of these may be another one, and the next turn is to look."""
        if unobserved:
            self.news, self._next_s = True, max(self._next_s, now.mono)

    def delivered_newer(self, now: Now, interval_s: float) -> None:
        """There was a newer time. News that bring none, like the watermark of a producer that is ahead, do not delay the next one."""
        self._next_s = now.mono + interval_s / OFTEN

    def hurry(self, now: Now, interval_s: float) -> None:
        """The interval has changed: end the current one no later than the new one would."""
        self._next_s = min(self._next_s, now.mono + interval_s / OFTEN)

    @property
    def deadline(self) -> float | None:
        """When newer times are due; None while there are none."""
        return self._next_s if self.news else None
