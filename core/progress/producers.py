"""The control frames of one job's producers in one partition of a stream, and what follows from them.

A `ProducerGroup` takes control frames and answers two questions: have all producers ended or drained, and which time have all of them
reached? It promises:

- A duplicate frame changes nothing, and neither does the order of frames from different producers. Only confirmations of idleness count
  each, and in the order of the log.
- Within a run, a producer's watermark never goes back, and a producer that has ended stays ended.
- A named frame counts for its producer, whatever its epoch. An unnamed frame counts for all producers, but only for the set of its own
  epoch. So it is forgotten when the set changes; its sender sends it again in the new epoch.
- A frame from a task outside of the set changes nothing.
- No one is left out of the minimum. A producer that confirms that it is idle is *lifted*: its time becomes the least time that those that
  were not idle had reached when it confirmed the last time before. That is a fact, and stored; idleness is not. So a producer that
  stops confirming (dead, stopped, being moved) holds the watermark where it was lifted to, and no message must withdraw anything.
- A producer that has sent nothing holds the watermark, and `silent` names it.

A producer confirms again only if a fetch that was asked for after its last confirmation was committed has shown that there is nothing to
read. So whatever it reads later was written after the others had reached the time that it is lifted to.

There are two ways to know the set. For this job it is given (`members`). For another job it follows from its frames: the names that sent a
frame in the newest epoch of its newest run, complete when they are as many as the frames say. Another job's drain closes nothing here, for
its next run continues where this one stopped. From the first drain of a producer on, the time of its job stands still, because its other
producers may be further. A job of which all producers have drained is away: no one waits for it until its next run. So is a job whose
producers all say that they wait for such a job themselves. As soon as one of them goes on, it waits for the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

from .frames import MAX_TIME, NO_TIME, ControlFrame, Drain, EndOfStream, Watermark


class StreamPhase(IntEnum):
    """The phase of a producer, a partition or a stream. From `ENDED` on it has ended, which counts as drained, too."""

    OPEN = 0
    DRAINED = 1
    ENDED = 2
    """It has ended, and its last time goes on counting until the others have ended, too: its next run continues there."""
    LEFT = 3
    """It has ended, and its time does not count while another one is open: the run goes on without it."""


MAX_PAST_RUNS = 8

EVERYONE = ""
HEARD = ""
UNKNOWN_PRODUCER = "unknown-producer"
UNKNOWN_JOB = "unknown-job"
SURPLUS = "surplus-producer"
OLD_RUN = "old-run"
OLD_EPOCH = "old-epoch"
REGRESSED = "regressed"
AFTER_END = "after-end"
FOREIGN_MAXIMUM = "foreign-maximum"


BEHIND = "behind"
SILENT = "silent"
IDLE = "idle"
RELAYED = "relayed"
AWAY = "away"
HAS_ENDED = "ended"
"""Why a producer holds a watermark: its time is the least (`BEHIND`); it has sent nothing in this run (`SILENT`); it is idle, and has not
confirmed yet what lifts it (`IDLE`); the owner of the aggregating partition, which sends on behalf of all, has sent nothing newer
(`RELAYED`); all producers of the other job have drained or ended, or wait for jobs of which this is true (`AWAY`); it has ended, and its
last time counts until the others have ended, too (`HAS_ENDED`)."""


class Holder(NamedTuple):
    """A producer or source that holds a watermark back: its own time, its name, and why it holds the watermark."""

    ts: int
    who: str
    """A task of this job, `<job> <task>` of another job, or the partition of a source."""
    why: str


class Said(NamedTuple):
    """The last state that one producer, or the relay on behalf of all, has announced."""

    epoch: int
    ts: int = NO_TIME
    idle: bool = False
    status: StreamPhase = StreamPhase.OPEN
    id: str = ""
    away: bool = False
    lift: int = NO_TIME
    """How far its confirmations have lifted it."""
    mark: int = NO_TIME
    """Where the others stood at its last confirmation: the next one lifts it there."""

    @property
    def upto(self) -> int:
        """The time that it has reached, by itself or lifted."""
        return max(self.ts, self.lift)

    def row(self) -> tuple[object, ...]:
        """As it is stored: without idleness, which is only true of its moment."""
        stored = tuple(self._replace(idle=self.idle and self.away))
        return stored if self.mark > NO_TIME or self.lift > NO_TIME else stored[:6] if self.away else stored[:5]


class StreamStatus(NamedTuple):
    """The progress of a group, a partition or a stream. `ts` is `NO_TIME` while a producer has not announced anything."""

    status: StreamPhase = StreamPhase.OPEN
    ts: int = NO_TIME
    idle: bool = False
    """Nothing moves it at present. This leaves it out of nothing."""
    id: str = ""
    away: bool = False
    """Only the next run of another job can move it. Until then no one waits for it."""

    def row(self) -> tuple[object, ...]:
        """As it is stored: without idleness, which is only true of its moment."""
        return tuple(self) if self.away else tuple(self._replace(idle=False))[:-1]


NOTHING = StreamStatus()
ALL_AWAY = StreamStatus(StreamPhase.OPEN, NO_TIME, True, "", True)
"""All producers have ended or drained for now, and start again in a later run."""


@dataclass(frozen=True, slots=True)
class ForeignProducers:
    """The jobs that an input names as its producers; their frames say which tasks those are."""

    jobs: frozenset[str]
    ends: bool = True
    """Whether their end of stream is the end of the input. If not, a job that has ended is idle until its next run."""


@dataclass(frozen=True, slots=True)
class Sources:
    """A stream that no headgate job writes: its reader determines the progress of each partition."""


def advanced(before: Said | None, frame: ControlFrame) -> Said:
    """A producer's state after this frame: nothing goes back."""
    said = before or Said(frame.epoch)
    epoch, status, text = max(said.epoch, frame.epoch), said.status, said.id
    # one that brought no record has no last time, wherever it was lifted to
    ts = said.upto if said.ts > NO_TIME else NO_TIME
    if isinstance(frame, EndOfStream):
        phase = StreamPhase.LEFT if frame.left else StreamPhase.ENDED
        return Said(epoch, ts, False, status if status >= StreamPhase.ENDED else phase, "")
    if status != StreamPhase.OPEN:
        return Said(
            epoch,
            ts,
            False,
            status,
            max(text, frame.id) if isinstance(frame, Drain) and status == StreamPhase.DRAINED else text,
        )
    if isinstance(frame, Drain):
        return Said(epoch, ts, False, StreamPhase.DRAINED, frame.id)
    mark = said.mark if frame.idle and not frame.away else NO_TIME
    return Said(epoch, max(said.ts, frame.ts), frame.idle, StreamPhase.OPEN, "", frame.away, said.lift, mark)


class TimedPart(Protocol):
    """A part of something whose times are combined."""

    @property
    def status(self) -> StreamPhase: ...
    @property
    def ts(self) -> int: ...


def kept(parts: Iterable[TimedPart]) -> list[int]:
    """The last times of the parts that have ended, as far as they count: a part that brought no record in this run has none.

    >>> kept([StreamStatus(StreamPhase.ENDED, 7), StreamStatus(StreamPhase.ENDED), StreamStatus(StreamPhase.LEFT, 3)])
    [7]
    """
    return [part.ts for part in parts if part.status == StreamPhase.ENDED and part.ts > NO_TIME]


def together(parts: Sequence[TimedPart]) -> tuple[StreamPhase, int]:
    """How parts that have all ended have ended together, and their last time: the least that counts. If all have left, it is theirs.

    >>> together([StreamStatus(StreamPhase.ENDED, 7), StreamStatus(StreamPhase.ENDED), StreamStatus(StreamPhase.LEFT, 3)])
    (<StreamPhase.ENDED: 2>, 7)
    >>> together([StreamStatus(StreamPhase.LEFT, 5), StreamStatus(StreamPhase.LEFT, 3)])
    (<StreamPhase.LEFT: 3>, 3)
    """
    still = kept(parts)
    if still:
        return StreamPhase.ENDED, min(still)
    times = [part.ts for part in parts if part.status == StreamPhase.LEFT]
    if not times:
        return StreamPhase.ENDED, NO_TIME
    return StreamPhase.LEFT, min((ts for ts in times if ts > NO_TIME), default=NO_TIME)


def fold(parts: Sequence[StreamStatus]) -> StreamStatus:
    """Combine the progress of several parts: done when all are done, and the least time of those that count. These are the open ones, and
    those that have ended with a time and have not left; when all have ended, their least time is the last one. A part that is away counts
    only if all open ones are.

    From the moment a part drains, time stands still (`NO_TIME`) until all parts have reached the maximal time, which precedes a drain: the
    next run continues where this one stopped, so time must not pass the parts that drained first.
    """
    live = [part for part in parts if part.status == StreamPhase.OPEN]
    if not live:
        status = min((part.status for part in parts), default=StreamPhase.OPEN)
        if status == StreamPhase.DRAINED:
            return StreamStatus(status, NO_TIME, False, max(part.id for part in parts))
        return StreamStatus(*together(parts)) if parts else NOTHING
    if any(part.status == StreamPhase.DRAINED or part.ts == MAX_TIME for part in parts):
        return StreamStatus(StreamPhase.OPEN, MAX_TIME if all(part.ts == MAX_TIME for part in live) else NO_TIME)
    there, still = [part for part in live if not part.away], kept(parts)
    idle = all(part.idle for part in live) and not still
    if there or still:
        return StreamStatus(StreamPhase.OPEN, min([*(part.ts for part in there), *still]), idle)
    return StreamStatus(StreamPhase.OPEN, min(part.ts for part in live), idle, "", True)


def of_all(parts: Collection[Said]) -> StreamStatus:
    """The progress of all producers of one job."""
    return fold([StreamStatus(one.status, one.upto, one.idle, one.id) for one in parts])


class ProducerGroup:
    """The producers of one job, as seen in one partition. `members` is None for another job."""

    __slots__ = (
        "_away",
        "_fresh",
        "_reached",
        "confirmed",
        "declared",
        "ends",
        "epoch",
        "everyone",
        "members",
        "past",
        "run",
        "said",
    )

    def __init__(self, run: str, members: frozenset[str] | None, epoch: int) -> None:
        self.run: str = run
        self.past: tuple[str, ...] = ()
        """The finished runs of another job, newest last."""
        self.members = members
        self.epoch = epoch
        """The epoch of the current producer set."""
        self.ends = True
        """Whether the end of all producers counts as the end of the stream."""
        self.declared = 0
        """How many producers another job declares."""
        self.everyone: Said | None = None
        """What was announced on behalf of all producers in this epoch."""
        self.said: dict[str, Said] = {}
        self.confirmed: Counter[str] = Counter()
        """How often each producer has confirmed since this start of the task that it is idle; `EVERYONE`: the relay, for all."""
        self._away = False
        self._reached = NOTHING
        self._fresh = False

    # ---------------------------------------------------------------------------------------------------------- hearing

    def hear(self, frame: ControlFrame) -> str:
        """Take one frame. Returns `HEARD`, or the reason why the frame did not fully count (one of the constants above)."""
        if self.members is None:
            reason = self._hear_foreign(frame)
            if reason:
                return reason
        elif frame.run != self.run:
            return OLD_RUN
        elif frame.task is not None and frame.task not in self.members:
            return UNKNOWN_PRODUCER
        name = frame.task
        if name is None and frame.epoch != self.epoch:
            return OLD_EPOCH
        before = self.everyone if name is None else self.said.get(name)
        after = advanced(before, frame)
        reason = HEARD
        if before is not None and isinstance(frame, Watermark):
            if before.status != StreamPhase.OPEN:
                reason = HEARD if frame.ts == before.ts else AFTER_END
            else:
                reason = REGRESSED if frame.ts < before.ts else HEARD
        if after != before:
            self._fresh = False
            if name is None:
                self.everyone = after
            else:
                self.said[name] = after
        if isinstance(frame, Watermark) and after.status == StreamPhase.OPEN:
            who = EVERYONE if name is None else name
            if before is not None and before.idle and (not frame.idle or frame.away > before.away):
                # the first of a series stands on no fetch that was asked for after the last of another one
                self.confirmed[who] -= 1
            if frame.idle:
                self.confirmed[who] += 1
        if name is not None and self.everyone is not None and isinstance(frame, Watermark) and not frame.idle:
            self.everyone = self.everyone._replace(idle=False)
            self._fresh = False
        return reason

    def _hear_foreign(self, frame: ControlFrame) -> str:
        """Take another job's run, epoch and number of producers from its frame. Returns a reason if the frame does not count."""
        if frame.run in self.past:
            return OLD_RUN
        if isinstance(frame, Watermark) and frame.ts == MAX_TIME:
            return FOREIGN_MAXIMUM
        if frame.run != self.run:
            if self.run:
                self.past = (*self.past, self.run)[-MAX_PAST_RUNS:]
            self.run, self.epoch, self.declared, self.everyone = frame.run, frame.epoch, frame.tasks, None
            self.said.clear()
            self._fresh = False
        elif frame.epoch > self.epoch:
            self.epoch, self.declared, self.everyone = frame.epoch, frame.tasks, None
            self._fresh = False
        elif frame.epoch == self.epoch and frame.tasks > self.declared:
            self.declared = frame.tasks
            self._fresh = False
        if frame.task is not None and frame.epoch == self.epoch:
            heard = self.said.get(frame.task)
            if (heard is None or heard.epoch < self.epoch) and len(self.waited_for()) >= self.declared:
                return SURPLUS
        return HEARD

    def set_ends(self, ends: bool) -> None:
        """Set whether the end of all producers counts as the end of the stream."""
        self.ends = ends
        self._fresh = False

    def set_members(self, members: frozenset[str], epoch: int) -> None:
        """This job's producer set has changed: forget the producers that left, and what was announced on behalf of another set."""
        newer = epoch >= self.epoch
        self.members, self.epoch = members, epoch
        self._fresh = False
        if newer:  # otherwise the restored state is ahead of the job state: keep it until that has caught up
            if self.everyone is not None and self.everyone.epoch != epoch:
                self.everyone = None
            for name in [name for name in self.said if name not in members]:
                del self.said[name]

    def lift(self, name: str, others: int | None) -> None:
        """This producer has confirmed that it is idle: it has reached what the others had reached at its last confirmation. The next one
        lifts it to `others`, where they are now; None if none of them moves.
        """
        said = self.said[name]
        if said.status != StreamPhase.OPEN or not said.idle or said.away:
            return
        after = said._replace(lift=max(said.lift, said.mark), mark=NO_TIME if others is None else others)
        if after != said:
            self.said[name] = after
            self._fresh = False

    # --------------------------------------------------------------------------------------------------------- answering

    def moving(self, without: str | None = None) -> int | None:
        """The least time of the producers that are not idle, or have ended with a time that counts; None if there are none. `without`: not
        counting this one.
        """
        if self.is_away() or self.everyone is not None or self.reached().status != StreamPhase.OPEN:
            return None
        if not self._complete():
            return NO_TIME
        parts = [self.said[name] for name in self.waited_for() if name != without]
        if any(part.status == StreamPhase.DRAINED or part.upto == MAX_TIME for part in parts):
            return NO_TIME
        active = [part.upto for part in parts if part.status == StreamPhase.OPEN and not part.idle]
        return min([*active, *kept(parts)], default=None)

    def silence(self, since: Counter[str]) -> bool:
        """Whether all producers that are open have confirmed twice in a row since then that they are idle. What they read later was written
        after that moment: each asked for the second one after the first one was written. Of a job that is away no one has to confirm.
        """
        if self.is_away():
            return True
        if self.everyone is not None:
            return self.everyone.status == StreamPhase.OPEN and self.confirmed[EVERYONE] >= since[EVERYONE] + 2
        if not self._complete():
            return False
        live = [name for name in self.waited_for() if self.said[name].status == StreamPhase.OPEN]
        return all(self.confirmed[name] >= since[name] + 2 for name in live)

    def waited_for(self) -> frozenset[str]:
        """The names of the producers in the current set, as far as they are known."""
        if self.members is not None:
            return self.members
        return frozenset(name for name, said in self.said.items() if said.epoch == self.epoch)

    def silent(self) -> tuple[list[str], int]:
        """The producers of the set that have sent nothing in this run, and how many more there are whose names are not known."""
        known = self.waited_for()
        if self.everyone is not None:
            return [], 0
        unnamed = 0 if self.members is not None else max(self.declared - len(known), 0 if self.run else 1)
        return sorted(name for name in known if name not in self.said), unnamed

    def holders(self, job: str) -> list[Holder]:
        """The producers that hold the watermark back; empty if all have drained, or left. Follows the rule of `fold`."""
        front = "" if self.members is not None else f"{job} "
        names, unnamed = self.silent()
        if names or unnamed:
            found = [Holder(NO_TIME, front + name, SILENT) for name in names]
            return [*found, Holder(NO_TIME, f"{front}({unnamed} never seen)", SILENT)] if unnamed else found
        live = {name: said for name in self.waited_for() if (said := self.said.get(name)) and not said.status}
        reached = self.reached()
        everyone = self.everyone
        if everyone is not None and everyone.epoch == self.epoch and everyone.ts == reached.ts:
            if reached.status >= StreamPhase.ENDED:
                return [Holder(reached.ts, "", HAS_ENDED)]
            return [Holder(reached.ts, "", IDLE if reached.idle else RELAYED)] if not reached.status else []
        if self._away:
            return [Holder(NO_TIME, job, AWAY)]
        ended = {name: said for name in self.waited_for() if (said := self.said.get(name)) and kept([said])}
        low = min((one.upto for one in [*live.values(), *ended.values()]), default=NO_TIME)
        found = [
            (name, IDLE if said.idle and not said.away else BEHIND) for name, said in live.items() if said.upto == low
        ]
        found += [(name, HAS_ENDED) for name, said in ended.items() if said.upto == low]
        return [Holder(low, front + name, why) for name, why in sorted(found)]

    def is_before(self, other: ProducerGroup) -> bool:
        """Whether the same job, which is away here, has gone on in another partition, or may have: it has begun a run of which this group
        has heard nothing yet, or it is not away there."""
        if other.run == self.run:
            return self._says_away() and not other.is_away()
        return other.run != "" and other.run not in self.past

    def reached(self) -> StreamStatus:
        """The common progress of the group."""
        if not self._fresh:
            judged = self._judge()
            gone = self._only_away(judged.status)
            self._away = gone or self._says_away()
            self._reached = ALL_AWAY if gone else self._gone(judged)._replace(away=self._away)
            self._fresh = True
        return self._reached

    def _gone(self, judged: StreamStatus) -> StreamStatus:
        """Another job that has ended has left: its next run belongs to a later run of this job."""
        ended = self.members is None and judged.status == StreamPhase.ENDED
        return judged._replace(status=StreamPhase.LEFT) if ended else judged

    def is_away(self) -> bool:
        """Whether all producers of this other job have drained or ended for now, or wait for a job of which this is true: only the next
        run of that job can bring anything."""
        self.reached()
        return self._away

    def _says_away(self) -> bool:
        """Whether all producers of another job that have not ended say that they are away."""
        if self.members is not None or not self._complete():
            return False
        live = [said for said in self.said.values() if said.epoch == self.epoch and said.status < StreamPhase.ENDED]
        return bool(live) and all(said.away for said in live)

    def _complete(self) -> bool:
        """Whether each producer of the set has sent something in this run."""
        names = self.waited_for()
        if self.members is not None:
            return len(names) > 0 and self.said.keys() >= names
        return len(names) > 0 and len(names) == self.declared

    def _only_away(self, status: StreamPhase) -> bool:
        """Whether a group with this phase is only away: its next run continues the stream."""
        if status == StreamPhase.DRAINED:
            return self.members is None
        return status >= StreamPhase.ENDED and not self.ends

    def _judge(self) -> StreamStatus:
        names = self.waited_for()
        everyone = self.everyone if self.everyone is not None and self.everyone.epoch == self.epoch else None
        named = NOTHING
        if self._complete():
            named = of_all([self.said[name] for name in names])
        if everyone is None:
            return named
        status = max(named.status, everyone.status)
        if status == StreamPhase.DRAINED:
            return StreamStatus(status, NO_TIME, False, max(named.id, everyone.id))
        return StreamStatus(status, max(named.ts, everyone.ts), everyone.idle and status == StreamPhase.OPEN)
