"""The position of a task in each partition that it reads, which partitions may be taken, and what is known of their ends.

Promises:

- Positions move only over completed records; the checkpoint is a copy of them.
- A partition that has ended, drained, waits for a newer job state or is paused is closed, with the reason.
- A source's watermark is exactly the greatest timestamp seen minus the declared lag. A source is idle if answered fetches, the last one a
  moment ago, have shown for long enough that nothing is behind the position; silence proves nothing (`is_idle`). An answer is valid for
  `JUST_NOW_S`, and expires without an event (`lapse`), and at once when its input is paused. So it makes no difference whether a worker was
  stopped for a while, a broker is silent, or a record waits because its input is paused or its chunk fails. A source that was idle at the
  position of the checkpoint is idle at the first answer that finds nothing behind it.
- Idleness leaves nothing out: an idle part is lifted to the others (`lifts`), as far as they had come at a moment after which it was
  certain to be silent (`silent_since`): for a source, when the last fetch was asked for that found nothing; for a stream of this or
  another job, when such a fetch was asked for after which every producer has confirmed twice that it is idle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from ..machine import Now
from ..names import StreamPartition
from ..orders import RunView
from ..progress.frames import MAX_TIME, NO_TIME, ControlFrame
from ..progress.producers import ForeignProducers, Sources, StreamPhase, kept
from ..progress.tracker import AnyProducers, Progress
from .lifts import NOT_YET_S, Lift
from .plan import FOREIGN, INTERMEDIATE, SOURCE, InputPlan, TaskPlan

JUST_NOW_S = 2.5
"""How long a broker's answer is valid. A partition that is read gets several answers in this time."""
NEVER = float("inf")
PAUSED = "paused"
MAX_ADOPTED = 256
"""So many adoptions of topics are remembered."""


class SourceClock:
    """What is known of the time and the end of one external partition."""

    __slots__ = ("answered_s", "asked_s", "end_since_s", "idle", "lift", "max_ts", "seen_s")

    def __init__(self) -> None:
        self.lift = Lift()
        self.asked_s: float = NOT_YET_S
        """No later than this the last answer was asked for that showed that nothing is behind the position."""
        self.max_ts: int | None = None
        self.end_since_s: float | None = None
        """Since when every answered fetch has shown that nothing is behind the position."""
        self.answered_s: float = NOT_YET_S
        self.seen_s: float = NOT_YET_S
        """When the last record came (not used for idleness)."""
        self.idle = False


class Silence:
    """Since when a partition of an intermediate or shared stream is certain to be silent.

    Once a fetch has shown that nothing is behind the position, everything that is read later was written after that fetch was asked for.
    When each producer has then confirmed twice that it is idle, it was so after that moment.
    """

    __slots__ = ("_asked_s", "_before", "_last_s", "since_s")

    def __init__(self) -> None:
        self.since_s = NOT_YET_S
        self._last_s = NOT_YET_S
        """When the last answer came that showed the end; the next one was asked for later."""
        self._asked_s = NOT_YET_S
        self._before: dict[str, Counter[str]] | None = None

    def at_end(self, answered_s: float, confirmed: Callable[[], dict[str, Counter[str]]]) -> None:
        """An answer has shown that nothing is behind the position."""
        if self._before is None and self._last_s > NOT_YET_S:
            self._asked_s, self._before = self._last_s, confirmed()
        self._last_s = max(self._last_s, answered_s)

    def not_at_end(self) -> None:
        """Something is behind the position."""
        self._last_s = NOT_YET_S

    def moved(self) -> None:
        """The position was changed, or records are taken from it. What was confirmed before may be read again, so it is counted again."""
        self._last_s, self._before = NOT_YET_S, None

    def heard(self, silent: Callable[[dict[str, Counter[str]]], bool]) -> None:
        """A control message was read."""
        if self._before is not None and silent(self._before):
            self.since_s, self._before = self._asked_s, None


class Inputs:
    """The positions, bounds, gates and clocks of one task in one run."""

    def __init__(self, plan: TaskPlan) -> None:
        self.plan = plan
        self.by_stream: dict[str, InputPlan] = {one.stream: one for one in plan.inputs if one.partitions}
        owned = tuple(self.by_stream.values())
        self.counted: tuple[InputPlan, ...] = tuple(one for one in owned if not one.bootstrap) or owned
        """The inputs that watermark, end and drain wait for."""
        self.partitions: tuple[StreamPartition, ...] = tuple(at for one in owned for at in one.owned)
        self.external: tuple[StreamPartition, ...] = tuple(at for one in owned if one.external for at in one.owned)
        self.positions: dict[StreamPartition, int] = {}
        self.elsewhere: dict[StreamPartition, int] = {}
        """The positions in streams that this code does not read. An earlier version that comes back goes on there, as its tables do."""
        self.topics: dict[StreamPartition, str] = {}
        """The id of the topic that each position belongs to; without one it is unknown."""
        self.adopted: dict[str, str] = {}
        """By the id of a topic, that of the one which is taken for the same (empty: not known yet), newest last."""
        self._adopts: dict[StreamPartition, str] = {}
        """By partition, the id of the topic whose position was kept, until the reader tells the id of the one that is there."""
        self.first: dict[StreamPartition, int] = {}
        """The start positions of partitions that no checkpoint contained when this task started; it has read nothing there yet."""
        self.until: dict[StreamPartition, int] = {}
        self.bootstrap: dict[StreamPartition, int] = {}
        """The offsets up to which bootstrap partitions must be read before anything else is; reached ones are removed."""
        self.finished: dict[StreamPartition, str] = {}
        """Partitions that this task itself has closed for the run: `ended` or `draining`."""
        self.given_up: set[StreamPartition] = set()
        """Partitions that ended because user code has stopped reading them."""
        self.drain_upto: dict[StreamPartition, int] | None = None
        self.drain_id = ""
        self.waiting: dict[StreamPartition, tuple[int, ControlFrame]] = {}
        """Control messages of an epoch that is newer than the job state."""
        self.held: dict[StreamPartition, str] = {}
        """Partitions that are closed temporarily: `lost`, `seek`."""
        self.lag = 0
        """Records of the task's own streams that wait for it."""
        self.lagging = False
        self.closed: dict[StreamPartition, str] = {}
        self.clocks: dict[StreamPartition, SourceClock] = {
            at: SourceClock() for one in owned if one.kind == SOURCE for at in one.owned
        }
        self.unobserved: set[StreamPartition] = set()
        self.idle_until_s = NEVER
        """Until then, idle sources are idle without a further answer."""
        self.silences: dict[StreamPartition, Silence] = {
            at: Silence() for one in owned if one.kind != SOURCE for at in one.owned
        }
        self.was_idle: dict[StreamPartition, int] = {}
        """The sources that were idle when the checkpoint was made, each with its position."""
        self.read_up: dict[StreamPartition, int] = {}
        """For intermediate streams: the position at which an answered fetch last showed that nothing is behind it."""
        self.newest: dict[str, int] = {}
        """By stream, the greatest event time of its records since this start of the task."""
        self.progress = Progress(plan.job, "", {}, {})

    # --------------------------------------------------------------------------------------------------------- starting

    def load(self, run: RunView, rows: Iterable[tuple[tuple[object, ...], tuple[object, ...]]]) -> None:
        """Start with the restored reconciliation state. The positions are known by then."""
        self.progress = Progress(
            self.plan.job,
            run.run_id,
            {stream: one.partitions for stream, one in self.by_stream.items()},
            self.producers(run),
            rows=rows,
            goes_on=run.goes_on,
        )
        # that nothing comes is only valid for the moment: a source that was idle at the stop is not idle until it was checked again
        self.was_idle = {
            at: self.positions[at] for at in self.clocks if at in self.positions and self.progress.partition(*at).idle
        }
        self.unobserved |= self.was_idle.keys()

    def producers(self, run: RunView) -> dict[str, AnyProducers]:
        """The producers of each input."""
        known: dict[str, AnyProducers] = {}
        for stream, one in self.by_stream.items():
            if one.kind == INTERMEDIATE:
                if stream in run.producers:
                    known[stream] = run.producers[stream]
            else:
                known[stream] = ForeignProducers(frozenset(one.jobs), one.ends) if one.kind == FOREIGN else Sources()
        return known

    # ------------------------------------------------------------------------------------------------------- positions

    def advance(self, at: StreamPartition, upto: int) -> bool:
        """Move the position. Returns whether the partition has thereby reached its end, its drain or its bootstrap end."""
        self.positions[at] = upto
        reached = False
        if at in self.bootstrap and upto >= self.bootstrap[at]:
            del self.bootstrap[at]
            reached = True
        if at in self.finished:
            return reached
        until = self.until.get(at)
        if until is not None and upto >= until:
            self.finished[at] = "ended"
            left = not self.plan.bounded or at in self.given_up
            self.progress.end(at.stream, at.partition, self._time_of(at), left=left)
            return True
        if self.drain_upto is not None and at in self.drain_upto and upto >= self.drain_upto[at]:
            self.finished[at] = "draining"
            self.progress.drain(at.stream, at.partition, self.drain_id)
            return True
        return reached

    def cut(self, at: StreamPartition, end: int | None) -> bool:
        """The log of this partition is another one. If it ends before the end that must be read before anything else, or that was resolved
        for the run, that is never reached: the end that it has now counts instead. An offset that was declared stays. Returns whether the
        run ends elsewhere now."""
        if end is None:
            return False
        if at in self.bootstrap:
            self.bootstrap[at] = min(self.bootstrap[at], end)
        if self.by_stream[at.stream].until is None or end >= self.until.get(at, end):
            return False
        self.until[at] = end
        return True

    def identify(self, at: StreamPartition, topic: str) -> bool:
        """Note to which topic the position belongs, if that was unknown. Returns whether it was."""
        if not topic or self.topics.get(at) or at not in self.positions:
            return False
        self.topics[at] = topic
        if before := self._adopts.pop(at, ""):
            self.adopted[before] = topic
        self.adopted.pop(topic, None)
        return True

    def leave_topic(self, at: StreamPartition, *, adopt: bool = False) -> None:
        """The next position belongs to the topic that is there now, whose id is not known yet. `adopt`: it holds the records of the
        one before."""
        before = self.topics.pop(at, "")
        self._adopts.pop(at, None)
        if not (adopt and before):
            return
        self._adopts[at] = before
        known = self.adopted.pop(before, "")
        self.adopted = dict([*self.adopted.items(), (before, known)][-MAX_ADOPTED:])

    def is_other(self, at: StreamPartition, topic: str) -> bool:
        """Whether the position belongs to another topic than this one: the name is the same, and the topic was re-created."""
        return bool(topic) and self.topics.get(at, topic) != topic

    def drain(self, drain_id: str, upto: Mapping[StreamPartition, int]) -> None:
        """Read no further than these offsets. Partitions that are there already have drained."""
        self.drain_id = drain_id
        ends = {at: max(position, self.positions[at]) for at, position in upto.items()}
        self.drain_upto = {**(self.drain_upto or {}), **ends}
        for at in ends:
            self.advance(at, self.positions[at])

    def through(self, run: RunView) -> dict[StreamPartition, int]:
        """The partitions of other jobs' streams that a drain still reads, each with its end."""
        ends = run.drain_upto
        return {
            at: ends[at.stream][at.partition] for at in self.external if at.partition < len(ends.get(at.stream, ()))
        }

    def drain_in_frames(self) -> str:
        """The id of a drain that came in frames, before the job state contained it."""
        named = (self.progress.partition(at.stream, at.partition).id for one in self.counted for at in one.owned)
        return next(filter(None, named), "")

    def end_here(self, streams: frozenset[str]) -> None:
        """End these inputs at their positions, for the rest of the run: user code has stopped reading them."""
        for at in self.external:
            if at.stream in streams and at not in self.finished:
                self.given_up.add(at)
                self.until[at] = self.positions[at]
                self.advance(at, self.positions[at])

    def hear(self, at: StreamPartition, offset: int, frame: ControlFrame) -> bool:
        """Take a control message. Returns False if it must wait at the head of its partition for a newer job state."""
        if not self.progress.take(at.stream, at.partition, frame):
            self.waiting[at] = (offset, frame)
            return False
        self.waiting.pop(at, None)
        self.advance(at, offset + 1)
        if at in self.silences:
            self.silences[at].heard(lambda since: self.progress.silence(at.stream, at.partition, since))
        return True

    def waits_for_others(self) -> bool:
        """Whether only other tasks can bring anything more: external inputs have ended, and intermediate streams are read to their ends."""
        inside = [at for one in self.counted for at in one.owned if at not in self.finished]
        return (
            bool(inside)
            and not (self.waiting or self.held or self.bootstrap)
            and PAUSED not in self.closed.values()
            and all(self.read_up.get(at) == self.positions.get(at) for at in inside)
        )

    def go_by(self, plan: TaskPlan, now: Now) -> None:
        """Apply new settings, and judge again what depends on them."""
        self.plan = plan
        for at, clock in self.clocks.items():
            self._look(at, clock, now)

    def weigh_lag(self) -> bool:
        """Decide whether sources wait for the task's own streams. Returns whether that changed."""
        limit, before = self.plan.settings.intermediate_max_lag, self.lagging
        self.lagging = limit is not None and self.lag > limit
        return self.lagging != before

    # ------------------------------------------------------------------------------------------------------------ gates

    def gate(self, run: RunView, *, draining: bool) -> bool:
        """Recalculate which partitions are closed. Returns whether that changed.

        A partition that is paused or resumed needs a new answer to be idle: what comes meanwhile must not find that time has gone on.
        """
        closed: dict[StreamPartition, str] = {}
        for one in self.by_stream.values():
            for at in one.owned:
                why = self._why_closed(at, one, run, draining=draining)
                if why:
                    closed[at] = why
        changed = closed != self.closed
        before, self.closed = self.closed, closed
        for at, clock in self.clocks.items():
            if (before.get(at) == PAUSED) != (closed.get(at) == PAUSED):
                clock.answered_s = NOT_YET_S
                if clock.idle:
                    self.unobserved.add(at)
        return changed

    def is_paused(self, at: StreamPartition, run: RunView) -> bool:
        """Whether an operator has paused this partition: its stream, or the job, which pauses what comes from outside."""
        return at.stream in run.paused_streams or (run.paused_job and self.by_stream[at.stream].external)

    def _why_closed(self, at: StreamPartition, one: InputPlan, run: RunView, *, draining: bool) -> str:
        if at in self.finished:
            return self.finished[at]
        if at in self.held:
            return self.held[at]
        if at in self.waiting:
            return "epoch"
        if draining:
            return "draining" if one.external and self.drain_upto is None else ""
        if self.bootstrap and at not in self.bootstrap:
            return "bootstrap"
        if self.is_paused(at, run):
            return PAUSED
        return "lag" if self.lagging and one.external and not one.bootstrap else ""

    # ------------------------------------------------------------------------------------------------------------ clocks

    def time_of(self, at: StreamPartition) -> int | None:
        """The greatest event time of a source partition so far; None if it has none yet, or its records come in frames."""
        clock = self.clocks.get(at)
        if clock is None:
            return None
        if clock.max_ts is None:  # since this start: before it, the watermark says
            ts = self.progress.partition(at.stream, at.partition).ts
            return None if ts in (NO_TIME, MAX_TIME) else ts + self.by_stream[at.stream].lag_ms
        return clock.max_ts

    def saw(self, at: StreamPartition, max_ts: int | None, now: Now) -> bool:
        """Note that records of a source were processed. Returns whether its watermark may have moved."""
        if max_ts is not None and max_ts > self.newest.get(at.stream, NO_TIME):
            self.newest[at.stream] = max_ts
        clock = self.clocks.get(at)
        if clock is None:
            return False
        clock.end_since_s = None
        clock.seen_s = now.mono
        self.was_idle.pop(at, None)
        if max_ts is not None and (clock.max_ts is None or max_ts > clock.max_ts):
            clock.max_ts = max_ts
        elif not clock.idle:
            return False
        self.unobserved.add(at)
        if at in self.finished:  # executors have read what had ended: this may be the letter of the stream's end
            self.progress.observe(at.stream, at.partition, self._time_of(at))
        return True

    def at_end(self, at: StreamPartition, now: Now, age_s: float = 0.0) -> bool:
        """Note that an answer, this long ago, showed that nothing is behind the position. Returns whether the partition has become idle."""
        clock = self.clocks.get(at)
        answered_s = now.mono - age_s
        if clock is None:
            self.read_up[at] = self.positions[at]
            self.silences[at].at_end(answered_s, lambda: self.progress.confirmed(at.stream, at.partition))
            return False
        if clock.end_since_s is None:
            was_idle = self.was_idle.pop(at, None) == self.positions[at]
            clock.end_since_s = NOT_YET_S if was_idle else answered_s
        else:  # each answer is delivered once, and is asked for when the one before has come
            clock.asked_s = clock.answered_s
        clock.answered_s = answered_s
        news = self._look(at, clock, now)
        if clock.idle and self._waits_for_lift(at, clock):
            self.unobserved.add(at)
        return news or at in self.unobserved

    def not_at_end(self, at: StreamPartition, now: Now) -> bool:
        """Note that something is behind the position, or that it is not known. Returns whether the partition was idle."""
        self.read_up.pop(at, None)
        clock = self.clocks.get(at)
        if clock is None:
            self.silences[at].not_at_end()
            return False
        clock.end_since_s = None
        return self._look(at, clock, now)

    def moved(self, at: StreamPartition) -> None:
        """Note that the position was changed, or records are taken from it. What was known of the end is not valid any more."""
        clock = self.clocks.get(at)
        if clock is None:
            self.silences[at].moved()
            return
        clock.end_since_s = None
        if clock.idle:
            self.unobserved.add(at)

    def _look(self, at: StreamPartition, clock: SourceClock, now: Now) -> bool:
        if self.is_idle(at, clock, now) == clock.idle:
            return False
        self.unobserved.add(at)
        return True

    def is_idle(self, at: StreamPartition, clock: SourceClock, now: Now) -> bool:
        """Answered fetches have shown it for the whole timeout, the last one a moment ago; it is never inferred from silence, and what is
        paused is not idle.
        """
        return (
            clock.end_since_s is not None
            and self.closed.get(at) != PAUSED
            and clock.answered_s - clock.end_since_s >= self.plan.settings.idle_timeout_s
            and now.mono < clock.answered_s + JUST_NOW_S
        )

    def lapse(self, now: Now) -> bool:
        """Check idle sources again when an answer has expired. Returns whether one is not idle any more."""
        if now.mono < self.idle_until_s:
            return False
        news = [self._look(at, clock, now) for at, clock in self.clocks.items() if clock.idle]
        self._hold()
        return any(news)

    def _hold(self) -> None:
        idle = (
            clock.answered_s + JUST_NOW_S
            for at, clock in self.clocks.items()
            if clock.idle and at not in self.unobserved and at not in self.finished
        )
        self.idle_until_s = min(idle, default=NEVER)

    def _time_of(self, at: StreamPartition) -> int:
        """How far a source is, as far as this start of the task has seen it."""
        clock = self.clocks.get(at)
        if clock is None or clock.max_ts is None:
            return NO_TIME
        return max(NO_TIME, clock.max_ts - self.by_stream[at.stream].lag_ms)

    def observe(self, now: Now) -> None:
        """Tell the reconciliation how far the sources are, and whether they are idle now."""
        self.lapse(now)
        if not self.unobserved:
            return
        for at in self.unobserved:
            clock = self.clocks[at]
            clock.idle = at not in self.finished and self.is_idle(at, clock, now)
            self.progress.observe(at.stream, at.partition, self._time_of(at), idle=clock.idle)
        for at in self.unobserved:
            self._lift(at, self.clocks[at], now)
        self.unobserved.clear()
        self._hold()

    def silent_since(self, stream: str) -> float:
        """Since when all partitions of this stream that are read in this run are certain to be silent. While it is away no one waits for
        it, and what does not count for time needs no silence.
        """
        one = self.by_stream.get(stream)
        if one is None or one not in self.counted or self.progress.away(stream):
            return NEVER
        return min((self.silent_at(at) for at in one.owned if at not in self.finished), default=NEVER)

    def silent_at(self, at: StreamPartition) -> float:
        """Since when a partition is certain to be silent."""
        return self.silences[at].since_s if at in self.silences else self.clocks[at].asked_s

    def _lift(self, at: StreamPartition, clock: SourceClock, now: Now) -> None:
        """Lift an idle source to the other partitions of its stream."""
        if not clock.idle:
            clock.lift.drop()
        elif len(self.by_stream[at.stream].owned) > 1:
            clock.lift.confirm(clock.asked_s, now.mono, self._others(at))
            self.progress.lift(at.stream, at.partition, clock.lift.upto)

    def _waits_for_lift(self, at: StreamPartition, clock: SourceClock) -> bool:
        """Whether an answer may lift this idle source."""
        if len(self.by_stream[at.stream].owned) == 1:
            return False
        return clock.lift.waits(clock.asked_s, self._others(at))

    def _others(self, at: StreamPartition) -> int | None:
        """The least time of the other partitions of this source's stream that are not idle."""
        parts = [
            self.progress.partition(one.stream, one.partition) for one in self.by_stream[at.stream].owned if one != at
        ]
        if any(part.status == StreamPhase.DRAINED for part in parts):
            return None
        active = [part.ts for part in parts if part.status == StreamPhase.OPEN and not part.idle]
        return min([*active, *kept(parts)], default=None)
