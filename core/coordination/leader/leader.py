"""The leader: who may write assignments, and everything that a leader decides.

Every worker has one of these machines. Its states, and why there are so many before it leads:

    new          nothing is known; it requests the end of the stream
    catching_up  reads to that end, so as not to judge a half-read state
    following    another process leads, or none yet; heartbeats show whether the leader is alive
    standing     initialises the leader's transactional id; from then on the previous leader can write nothing
    measuring    requests the end of the stream; the previous leader's writes are all before it
    reading_up   reads to that end
    claiming     writes `set-leader` with the next term
    confirming   reads its claim back; only then does it know everything that former leaders wrote
    leading      decides
    writing      a transaction is in progress, and nothing is decided meanwhile
    settling     reads the transaction back, so that every decision is based on what all can read
    resigning    its last transaction, which hands back the leadership, is in progress
    resigned     the end

A leader decides in rounds. A round looks at the folded state and at who is silent, and remembers nothing that the next leader would need:
if an old leader left something undone (a fence, a grant, an answer), the new one finds it missing and does it. The rules are in `members`,
`runs`, `requests`, `handover`, `joining`, `growing`, `assignment`, `grants`, `looks` and `cleanup`. A round is one transaction.

Two processes may believe that they lead, but only one can write, because the other's transactional id was initialised again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from ...machine import IGNORED, Machine, Now, TableRow, Tick, rules
from ..events import Beat, FenceFailed, FenceReturned, JobNote
from ..liveness import REPORTED_DEAD, Liveness
from ..messages import CLOSED, MAX_COUNT, AskEnd, End, ProcessorState, Read, SetLeader, SetProcessor
from ..missing import missing
from ..state import JobState
from .assignment import model
from .cleanup import cleanup
from .damage import repair
from .draft import Draft, Memory
from .grants import changelogs, grants
from .handover import hand_over, standby
from .joining import join
from .looks import answer_grow
from .members import members, spoken_of, write_fences
from .plan import LeaderConfig, Timing, overridden
from .protocol import (
    BoundsResolved,
    Counts,
    InitLeaderId,
    LeaderEvent,
    LeaderIdLost,
    LeaderIdReady,
    LeaderInstruction,
    Resign,
    Resigned,
    TransactionWritten,
    WriteTransaction,
)
from .requests import before_a_start, requests, withdrawals
from .runs import begin, close, starter


class LeaderState(StrEnum):
    """The state of a candidate or leader, as described at the top of this file."""

    NEW = "new"
    CATCHING_UP = "catching_up"
    FOLLOWING = "following"
    STANDING = "standing"
    MEASURING = "measuring"
    READING_UP = "reading_up"
    CLAIMING = "claiming"
    CONFIRMING = "confirming"
    LEADING = "leading"
    WRITING = "writing"
    SETTLING = "settling"
    RESIGNING = "resigning"
    RESIGNED = "resigned"


_CLAIMS = (
    LeaderState.STANDING, LeaderState.MEASURING, LeaderState.READING_UP, LeaderState.CLAIMING, LeaderState.CONFIRMING,
    LeaderState.LEADING, LeaderState.WRITING, LeaderState.SETTLING,
)  # fmt: skip
"""It stands for the leadership, or has it."""
_FACTS = (Beat, Counts, FenceReturned, FenceFailed, BoundsResolved, Tick)


def _table() -> tuple[TableRow, ...]:
    s = LeaderState
    on = (s.LEADING, s.WRITING, s.FOLLOWING)
    waits = (s.STANDING, s.MEASURING, s.CLAIMING, s.WRITING, s.RESIGNING)
    return rules(
        [
            (s.NEW, Tick, s.CATCHING_UP, "first find out how far to read", "begin"),
            (s.CATCHING_UP, End, ("", s.FOLLOWING, s.STANDING), "read this far before deciding anything", "read_to"),
            (s.CATCHING_UP, Read, ("", s.FOLLOWING, s.STANDING), "the end of the stream is reached"),
            (s.FOLLOWING, Read, ("", s.STANDING), "the leader left, resigned, or was fenced"),
            (s.FOLLOWING, Beat, ("", s.STANDING), "the leader is silent"),
            # any event may come first when the time is up, because every event carries the time
            (
                s.FOLLOWING,
                (*_FACTS[1:], End, TransactionWritten),
                ("", s.STANDING),
                "the rival that fenced us never claimed",
            ),
            (s.STANDING, LeaderIdReady, s.MEASURING, "the transactional id is ours"),
            (
                s.MEASURING,
                End,
                (s.READING_UP, s.CLAIMING),
                "everything from former leaders is before this offset",
                "read_former",
            ),
            (s.READING_UP, Read, ("", s.CLAIMING), "the end of the stream is reached"),
            (s.CLAIMING, TransactionWritten, (s.CONFIRMING, *on), "the claim is committed", "confirm"),
            (s.CONFIRMING, Read, ("", s.CLAIMING, *on), "the claim is read back"),
            (s.LEADING, (Read, *_FACTS), on, "a round of decisions"),
            (s.WRITING, TransactionWritten, (s.SETTLING, *on), "the round is committed", "settle"),
            (s.SETTLING, Read, ("", *on), "the round is read back"),
            (_CLAIMS, LeaderIdLost, s.FOLLOWING, "another candidate took over, or the producer failed"),
            ((s.CONFIRMING, s.LEADING, s.SETTLING), Resign, s.RESIGNING, "the process ends", "give_back"),
            ((s.CLAIMING, s.WRITING), Resign, s.RESIGNING, "what is being written ends first", "resign_later"),
            (
                (s.NEW, s.CATCHING_UP, s.FOLLOWING, s.STANDING, s.MEASURING, s.READING_UP),
                Resign,
                s.RESIGNED,
                "the process ends, and leads nothing",
            ),
            (s.RESIGNING, TransactionWritten, s.RESIGNED, "the leadership is handed back", "resign"),
            (
                s.RESIGNING,
                LeaderIdLost,
                s.RESIGNED,
                "another candidate has it, or will see that this one left",
                "resign",
            ),
            ((s.NEW, *waits), Read, "", "recorded"),
            (s.NEW, _FACTS[:-1], "", "recorded"),
            ((s.CATCHING_UP, s.READING_UP, s.CONFIRMING, s.SETTLING, *waits), _FACTS, "", "recorded"),
            (
                (s.STANDING, s.READING_UP, s.CLAIMING, s.CONFIRMING, s.LEADING, s.WRITING, s.SETTLING, s.RESIGNING),
                End,
                IGNORED,
                "the answer to an older question",
            ),
            (s.FOLLOWING, (LeaderIdReady, LeaderIdLost), IGNORED, "of a producer that is lost already"),
            (s.RESIGNING, Resign, IGNORED, "repeated"),
            (
                s.RESIGNED,
                (Read, *_FACTS, End, LeaderIdReady, TransactionWritten, LeaderIdLost, Resign),
                IGNORED,
                "too late",
            ),
        ]
    )


@dataclass(frozen=True, slots=True)
class LeaderView:
    """What a leader, or a candidate, shows."""

    term: int
    """The term that it leads, or stands for."""
    job: JobState
    """The job, as far as this process has read its coordinator stream."""


class Leader(Machine[LeaderEvent, LeaderInstruction]):
    """A candidate, until it leads."""

    TABLE: ClassVar[tuple[TableRow, ...]] = _table()
    INITIAL: ClassVar[str] = LeaderState.NEW
    GROUPS: ClassVar[Mapping[str, tuple[str, ...]]] = {"claims": _CLAIMS}

    def __init__(self, config: LeaderConfig) -> None:
        super().__init__()
        self.config = config
        self.job = JobState()
        self.liveness = Liveness(config.process, config.timing.beat_s)
        self.memory = Memory()
        self.term = 0
        """The term that it leads, or stands for."""
        self._position = 0
        self._end: int | None = None
        self._written = -1
        self._bar: float | None = None
        self._bar_term = -1
        self._watched = ""
        self._resign_asked = False
        self._dirty = False

    @property
    def view(self) -> LeaderView:
        """What it shows now."""
        return LeaderView(self.term, self.job)

    # ------------------------------------------------------------------------------------------------- always allowed

    def on_Read(self, event: Read, now: Now) -> list[LeaderInstruction]:
        for entry in event.entries:
            self.job.apply(entry)
        self._position = max(self._position, event.position)
        self._dirty = True
        return self._move_on(now)

    def on_Beat(self, event: Beat, now: Now) -> list[LeaderInstruction]:
        return self._move_on(now) if self.liveness.heard(event.heartbeat) else []

    def on_Counts(self, event: Counts, now: Now) -> list[LeaderInstruction]:
        self.memory.counts, self.memory.more = dict(event.streams), dict(event.more)
        self.memory.looked = max(self.memory.looked, event.asked)
        return self._move_on(now)

    def on_BoundsResolved(self, event: BoundsResolved, now: Now) -> list[LeaderInstruction]:
        self.memory.resolved = event
        return self._move_on(now)

    def on_FenceReturned(self, event: FenceReturned, now: Now) -> list[LeaderInstruction]:
        each = (event.processor, event.incarnation)
        self.memory.fencing.pop(each, None)
        self.memory.fenced.add(each)
        return self._move_on(now)

    def on_FenceFailed(self, event: FenceFailed, now: Now) -> list[LeaderInstruction]:
        each = (event.processor, event.incarnation)
        if each in self.memory.fencing:
            self.memory.fencing[each] = now.mono + self.config.timing.fence_retry_s
        return self._move_on(now)

    def on_Tick(self, event: Tick, now: Now) -> list[LeaderInstruction]:
        return self._move_on(now)

    def begin(self, event: Tick, now: Now) -> list[LeaderInstruction]:
        """The first turn."""
        self.state = LeaderState.CATCHING_UP
        return [AskEnd()]

    def deadline(self) -> float | None:
        if self.state == LeaderState.NEW:
            return 0.0
        if self.state == LeaderState.LEADING:
            return self.memory.waits.wake
        return self._bar if self.state == LeaderState.FOLLOWING else None

    # ---------------------------------------------------------------------------------------------------- the election

    def on_End(self, event: End, now: Now) -> list[LeaderInstruction]:
        return self._move_on(now)

    def read_to(self, event: End, now: Now) -> list[LeaderInstruction]:
        """Now it knows how far to read."""
        self._end = event.offset
        return self._move_on(now)

    def read_former(self, event: End, now: Now) -> list[LeaderInstruction]:
        """No former leader writes anything behind this offset."""
        self.state = LeaderState.READING_UP
        return self.read_to(event, now)

    def on_LeaderIdReady(self, event: LeaderIdReady, now: Now) -> list[LeaderInstruction]:
        self.state, self._end = LeaderState.MEASURING, None
        return [AskEnd()]

    def on_TransactionWritten(self, event: TransactionWritten, now: Now) -> list[LeaderInstruction]:
        return self._move_on(now)

    def confirm(self, event: TransactionWritten, now: Now) -> list[LeaderInstruction]:
        """The claim counts once it is read back as the last one."""
        self.state, self._written = LeaderState.CONFIRMING, event.last_offset
        return self._move_on(now)

    def settle(self, event: TransactionWritten, now: Now) -> list[LeaderInstruction]:
        """The next round begins when this one is read back."""
        self.state, self._written = LeaderState.SETTLING, event.last_offset
        return self._move_on(now)

    def on_LeaderIdLost(self, event: LeaderIdLost, now: Now) -> list[LeaderInstruction]:
        timing = self.config.timing
        pause = timing.session_s + timing.jitter_s if event.fenced else timing.stand_again_s
        self.state, self._bar, self._bar_term = (
            LeaderState.FOLLOWING,
            now.mono + pause,
            self.job.leader.term if self.job.leader else 0,
        )
        self._watched = ""
        return [
            JobNote(
                "no longer leads", {"term": self.term, "why": event.why or ("fenced" if event.fenced else "producer")}
            )
        ]

    def on_Resign(self, event: Resign, now: Now) -> list[LeaderInstruction]:
        return self.resign(event, now)

    def resign(self, event: Resign | TransactionWritten | LeaderIdLost, now: Now) -> list[LeaderInstruction]:
        """Nothing of the leadership is left."""
        self._resign_asked, self.state = True, LeaderState.RESIGNED
        return [Resigned()]

    def resign_later(self, event: Resign, now: Now) -> list[LeaderInstruction]:
        """What it writes is not answered yet; whoever follows does not need more."""
        self._resign_asked, self.state = True, LeaderState.RESIGNING
        return []

    def give_back(self, event: Resign, now: Now) -> list[LeaderInstruction]:
        """Hand back the leadership."""
        self._resign_asked = True
        return self._give_back()

    def _give_back(self) -> list[LeaderInstruction]:
        self.state = LeaderState.RESIGNING
        return [WriteTransaction((SetLeader(self.term, "", "", self.config.job),))]

    def _move_on(self, now: Now) -> list[LeaderInstruction]:
        """Take the next step, if one is possible."""
        state = self.state
        if state == LeaderState.LEADING:
            return self._round(now)
        if state == LeaderState.CATCHING_UP:
            if self._end is None or self._position < self._end:
                return []
            self.state = LeaderState.FOLLOWING
        if self.state == LeaderState.FOLLOWING:
            return self._stand(now) if self._may_stand(now) else []
        if state == LeaderState.READING_UP:
            if self._end is not None and self._position >= self._end:
                return self._claim()
        elif state in (LeaderState.CONFIRMING, LeaderState.SETTLING) and self._position > self._written:
            return self._read_back(now)
        return []

    def _stand(self, now: Now) -> list[LeaderInstruction]:
        self.state, self._bar = LeaderState.STANDING, None
        self.term = self._next_term()
        stand: list[LeaderInstruction] = [InitLeaderId(self.term)]
        if ("set-leader", ()) in missing(self.job):
            stand.append(
                JobNote("the leader's key is missing in the coordinator stream: writing it again", {}, "error")
            )
        return stand

    def _claim(self) -> list[LeaderInstruction]:
        self.state = LeaderState.CLAIMING
        self.term = self._next_term()
        return [WriteTransaction((SetLeader(self.term, self.config.processor, self.config.process, self.config.job),))]

    def _next_term(self) -> int:
        """The term after the last one, which the model knows as well."""
        model = self.job.model
        last = max(self.job.leader.term if self.job.leader else 0, model.term if model is not None else 0)
        return min(last + 1, MAX_COUNT - 1)

    def _read_back(self, now: Now) -> list[LeaderInstruction]:
        leader = self.job.leader
        if leader is None or leader.process != self.config.process or leader.term != self.term:
            # Another process has claimed after us: our id is fenced already, or will be at our next write.
            self.state, self._watched = LeaderState.FOLLOWING, ""
            self._bar, self._bar_term = None, -1
            return [JobNote("no longer leads", {"term": self.term, "why": "another leader"})]
        begins = self.state == LeaderState.CONFIRMING
        self.state = LeaderState.LEADING
        if not begins:
            return self._round(now)
        before, self.memory = self.memory, Memory()
        self.memory.counts, self.memory.more = before.counts, before.more
        self.memory.look, self.memory.looked = before.look, before.looked
        return [JobNote("leads", {"term": self.term}), *self._round(now)]

    def _own(self) -> SetProcessor | None:
        """The record that makes this process a candidate: the newest of its processor, joined, and of this process."""
        worker = self.job.newest(self.config.processor)
        return (
            worker
            if worker is not None and worker.process == self.config.process and worker.state == ProcessorState.JOINED
            else None
        )

    def _may_stand(self, now: Now) -> bool:
        leader = self.job.leader
        if self._bar is not None:
            if now.mono < self._bar and (leader is None or leader.term <= self._bar_term):
                return False
            self._bar = None
        own = self._own()
        if own is None or self._resign_asked or self.job.other_job(self.config.job):
            return False
        run = self.job.run
        if run is not None and run.state not in CLOSED:
            if dict(run.fingerprint) != dict(self.config.plan.fingerprint):
                return False
        elif (found := starter(self.job, self._silent, now.wall, self.config.timing.session_s)) is not None:
            plan = self.config.plan
            if found.worker.deployment != plan.deployment or dict(found.worker.fingerprint) != dict(plan.fingerprint):
                return False
        return self._vacant(leader)

    def _vacant(self, leader: SetLeader | None) -> bool:
        """Whether no one leads: there never was a leader, or it resigned, left, was fenced, is our own predecessor, or is silent."""
        if leader is None or not leader.processor or leader.processor == self.config.processor:
            return True
        workers = [worker for worker in self.job.incarnations(leader.processor) if worker.process == leader.process]
        if not workers or workers[-1].state == ProcessorState.LEFT or self.liveness.gone(leader.process):
            return True
        if self._watched != leader.process:
            self._watched = leader.process
            self.liveness.restart(leader.process)
        timing = self._timing
        if self.liveness.turn_age(leader.process) > timing.stall_s:
            return True
        return self.liveness.silence(leader.process) > timing.session_s + timing.jitter_s

    @property
    def _timing(self) -> Timing:
        """The current waiting times, with the operators' overrides."""
        return overridden(self.config.timing, self.job.configs, self.config.masked)

    def _silent(self, worker: SetProcessor) -> str:
        """Why this worker counts as dead; empty if it does not."""
        timing = self._timing
        if worker.process == self.config.process:
            return ""
        if self.liveness.gone(worker.process):
            return REPORTED_DEAD
        if self.liveness.silence(worker.process) > timing.session_s:
            return "silent"
        return "stalled" if self.liveness.turn_age(worker.process) > timing.stall_s else ""

    # --------------------------------------------------------------------------------------------------------- deciding

    def _round(self, now: Now) -> list[LeaderInstruction]:
        """One round: all rules, one transaction."""
        draft = Draft(self.job, self.config, self.memory, now, self._silent, self.term)
        own = self.job.newest(self.config.processor)
        if own is not None and own.process != self.config.process:
            return self._step_down("superseded by a newer process of its own processor")
        self.memory.waits.begin(now.mono)
        for rule in (
            repair,
            write_fences,
            withdrawals,
            before_a_start,
            begin,
            requests,
            members,
            close,
            requests,
            hand_over,
            join,
            model,
            standby,
            changelogs,
            grants,
            answer_grow,
            cleanup,
        ):
            rule(draft)
            if draft.resign:
                return self._step_down(draft.resign)
        self.memory.waits.end()
        self._forget()
        if not draft.writes:
            return draft.instructions
        self.state = LeaderState.WRITING
        return [*draft.instructions, WriteTransaction(tuple(draft.writes.values()))]

    def _step_down(self, why: str) -> list[LeaderInstruction]:
        """Hand back the leadership, and continue as a candidate."""
        self.state, self._written = LeaderState.WRITING, -1
        return [
            JobNote("resigns", {"term": self.term, "why": why}),
            WriteTransaction((SetLeader(self.term, "", "", self.config.job),)),
        ]

    def _forget(self) -> None:
        workers = [worker for p in self.job.processors() for worker in self.job.recorded(p).values()]
        self.liveness.forget({worker.process for worker in workers})
        self.memory.fenced = {each for each in self.memory.fenced if not self.job.fenced(*each)}
        known = spoken_of(self.job)
        model = self.job.model
        there = {*self.job.processors(), *(() if model is None else model.processors)}
        self.memory.condemned = {p: incarnation for p, incarnation in self.memory.condemned.items() if p in there}
        self.memory.fencing = {each: at for each, at in self.memory.fencing.items() if each in known}
