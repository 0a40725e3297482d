"""What the producers of one job have said in one partition of a stream, and what follows from it.

A `ProducerGroup` hears control frames and answers two questions: have they all ended or drained, and up to which time have they all
spoken? It promises:

- Hearing a frame twice is hearing it once, and the order between producers makes no difference.
- A producer's watermark never goes back, and a producer that has ended stays ended, within a run.
- A named frame counts for its producer whatever its epoch. An unnamed frame counts for all, but only for the set of its own
  epoch, so it is forgotten when the set changes: whoever said it says it again under the new epoch.
- Who is not in the set changes nothing.
- Idleness is said, not guessed: only a producer that said `idle` is left out of the minimum, and only while enough others are
  active. One that merely says nothing holds the watermark and is named by `silent`.

There are two ways to know the set. Of the own job it is told (`members`). Of another job it is what its frames declare: the
names that spoke in the newest epoch of its newest run, complete when they are as many as the frames say. Another job's drain, and
the maximal watermark that goes before it, say nothing about this job's time: its next run goes on where this one stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from .frames import MAX_TIME, NO_TIME, ControlFrame, Drain, EndOfStream, Watermark


class StreamPhase(IntEnum):
    """How far a producer, a partition or a stream is. Who has ended counts as drained, too."""

    OPEN = 0
    DRAINED = 1
    ENDED = 2


MAX_PAST_RUNS = 8

HEARD = ""
UNKNOWN_PRODUCER = "unknown-producer"
UNKNOWN_JOB = "unknown-job"
SURPLUS = "surplus-producer"
OLD_RUN = "old-run"
OLD_EPOCH = "old-epoch"
REGRESSED = "regressed"
AFTER_END = "after-end"
FOREIGN_DRAIN = "foreign-drain"


BEHIND = "behind"
SILENT = "silent"
IDLE = "idle"
NO_QUORUM = "no-quorum"
RELAYED = "relayed"
"""Why somebody holds a watermark: its time is the least; it has said nothing in this run; nobody goes on, and it is the last; too few go
on to leave it out, though it is idle; the owner of the aggregating partition, which speaks for all, has said no more."""


class Holder(NamedTuple):
    """Who keeps a watermark where it is: at which time it stands itself, and why."""

    ts: int
    who: str
    """A task of the own job, `<job> <task>` of another one, or the partition of a source."""
    why: str


class Said(NamedTuple):
    """What one producer, or somebody on behalf of all, said last."""

    epoch: int
    ts: int = NO_TIME
    idle: bool = False
    status: StreamPhase = StreamPhase.OPEN
    id: str = ""


class StreamStatus(NamedTuple):
    """How far a group, a partition or a stream is. `ts` is `NO_TIME` while somebody has not spoken."""

    status: StreamPhase = StreamPhase.OPEN
    ts: int = NO_TIME
    idle: bool = False
    id: str = ""


NOTHING = StreamStatus()
ALL_AWAY = StreamStatus(StreamPhase.OPEN, NO_TIME, True)
"""Nobody goes on for now, and somebody may again."""


@dataclass(frozen=True, slots=True)
class ForeignProducers:
    """The jobs that an input names as its producers; who they are they say themselves."""

    jobs: frozenset[str]
    ends: bool = True
    """Whether their end of stream is the end of the input. If not, who has ended is idle until its job's next run."""


@dataclass(frozen=True, slots=True)
class Sources:
    """A stream that no headgate job writes: its reader itself says how far each partition is."""


def advanced(before: Said | None, frame: ControlFrame) -> Said:
    """What a producer has said after this frame: nothing goes back."""
    epoch, ts, _, status, text = before or Said(frame.epoch)
    epoch = max(epoch, frame.epoch)
    if isinstance(frame, EndOfStream):
        return Said(epoch, ts, False, StreamPhase.ENDED, "")
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
    return Said(epoch, max(ts, frame.ts), frame.idle, StreamPhase.OPEN, "")


def fold(parts: Sequence[StreamStatus | Said], *, quorum: float = 0.0) -> StreamStatus:
    """Several that must all get there, as one: all done, and the least time of those that still go on.

    The idle are left out of the least while the active are at least `quorum` of those that go on, and at least one. The maximal time,
    which stands before a drain, is reached by all or not at all: what an idle producer still sends must not come behind it.
    """
    live = [part for part in parts if part.status == StreamPhase.OPEN]
    if not live:
        status = min((part.status for part in parts), default=StreamPhase.OPEN)
        return StreamStatus(
            status,
            NO_TIME,
            False,
            max((part.id for part in parts), default="") if status == StreamPhase.DRAINED else "",
        )
    active = [part.ts for part in live if not part.idle]
    if active and len(active) >= quorum * len(live) and min(active) < MAX_TIME:
        return StreamStatus(StreamPhase.OPEN, min(active))
    return StreamStatus(StreamPhase.OPEN, min(part.ts for part in live), not active)


class ProducerGroup:
    """The producers of one job, as heard in one partition. `members` is None for another job."""

    __slots__ = ("_fresh", "_reached", "declared", "ends", "epoch", "everyone", "members", "past", "run", "said")

    def __init__(self, run: str, members: frozenset[str] | None, epoch: int) -> None:
        self.run: str = run
        self.past: tuple[str, ...] = ()
        """The runs of another job that are over; newest last."""
        self.members = members
        self.epoch = epoch
        """Of the set that is waited for."""
        self.ends = True
        """Whether the end of all is told as an end."""
        self.declared = 0
        """How many producers another job says that it has."""
        self.everyone: Said | None = None
        """What was said on behalf of all, in this epoch."""
        self.said: dict[str, Said] = {}
        self._reached = NOTHING
        self._fresh = False

    # ---------------------------------------------------------------------------------------------------------- hearing

    def hear(self, frame: ControlFrame) -> str:
        """Take one frame; say why it counted for less than it says (one of the constants above; each is counted), or `HEARD`."""
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
            reason = AFTER_END if before.status != StreamPhase.OPEN else REGRESSED if frame.ts < before.ts else HEARD
        if after != before:
            self._fresh = False
            if name is None:
                self.everyone = after
            else:
                self.said[name] = after
        if name is not None and self.everyone is not None and isinstance(frame, Watermark) and not frame.idle:
            self.everyone = self.everyone._replace(idle=False)
            self._fresh = False
        return reason

    def _hear_foreign(self, frame: ControlFrame) -> str:
        """Another job's run, epoch and number of producers, as its frames declare them."""
        if frame.run in self.past:
            return OLD_RUN
        if isinstance(frame, Drain) or (isinstance(frame, Watermark) and frame.ts == MAX_TIME):
            return FOREIGN_DRAIN
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
        """Whether the end of all of them is an end."""
        self.ends = ends
        self._fresh = False

    def set_members(self, members: frozenset[str], epoch: int) -> None:
        """The own job's set has changed: who left is forgotten, and so is what was said for all of another set."""
        newer = epoch >= self.epoch
        self.members, self.epoch = members, epoch
        self._fresh = False
        if newer:  # else a restored state is ahead of the job state: it is kept until that has caught up
            if self.everyone is not None and self.everyone.epoch != epoch:
                self.everyone = None
            for name in [name for name in self.said if name not in members]:
                del self.said[name]

    # --------------------------------------------------------------------------------------------------------- answering

    def waited_for(self) -> frozenset[str]:
        """The names that are waited for, as far as they are known."""
        if self.members is not None:
            return self.members
        return frozenset(name for name, said in self.said.items() if said.epoch == self.epoch)

    def silent(self) -> tuple[list[str], int]:
        """Who of the set has not spoken in this run, and how many more there are whose names are not known."""
        known = self.waited_for()
        if self.everyone is not None:
            return [], 0
        unnamed = 0 if self.members is not None else max(self.declared - len(known), 0 if self.run else 1)
        return sorted(name for name in known if name not in self.said), unnamed

    def holders(self, job: str, quorum: float) -> list[Holder]:
        """Who keeps the watermark where it is; nobody, where all have ended or drained. The rule is that of `fold`."""
        front = "" if self.members is not None else f"{job} "
        names, unnamed = self.silent()
        if names or unnamed:
            found = [Holder(NO_TIME, front + name, SILENT) for name in names]
            return [*found, Holder(NO_TIME, f"{front}({unnamed} not heard of)", SILENT)] if unnamed else found
        live = {name: said for name in self.waited_for() if (said := self.said.get(name)) and not said.status}
        reached = self.reached(quorum)
        everyone = self.everyone
        if everyone is not None and everyone.epoch == self.epoch and everyone.ts == reached.ts:
            return [Holder(reached.ts, "", IDLE if reached.idle else RELAYED)] if not reached.status else []
        if not live:
            return []
        active = [name for name, said in live.items() if not said.idle]
        enough = active and len(active) >= quorum * len(live)
        pool, why = (active, BEHIND) if enough else (live, NO_QUORUM if active else IDLE)
        low = min(live[name].ts for name in pool)
        return [Holder(low, front + name, why) for name in sorted(pool) if live[name].ts == low]

    def judge_again(self) -> None:
        """The quorum is another one."""
        self._fresh = False

    def reached(self, quorum: float) -> StreamStatus:
        """How far they are, all together."""
        if not self._fresh:
            judged = self._judge(quorum)
            self._reached = judged if self.ends or judged.status != StreamPhase.ENDED else ALL_AWAY
            self._fresh = True
        return self._reached

    def _judge(self, quorum: float) -> StreamStatus:
        names = self.waited_for()
        everyone = self.everyone if self.everyone is not None and self.everyone.epoch == self.epoch else None
        complete = len(names) > 0 and (
            self.said.keys() >= names if self.members is not None else len(names) == self.declared
        )
        named = NOTHING
        if complete:
            said = self.said
            named = fold([said[name] for name in names], quorum=quorum)
        if everyone is None:
            return named
        status = max(named.status, everyone.status)
        if status != StreamPhase.OPEN:
            return StreamStatus(
                status, NO_TIME, False, max(named.id, everyone.id) if status == StreamPhase.DRAINED else ""
            )
        return StreamStatus(StreamPhase.OPEN, max(named.ts, everyone.ts), everyone.idle)
