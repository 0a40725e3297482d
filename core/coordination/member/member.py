"""The member: what one worker process must do, given the job state.

Its states:

    new           nothing is known; it requests the end of the stream
    reading       reads to that end
    waiting       a predecessor with this processor id may be alive: after one session of silence this process starts; if the predecessor
                  is heard, it does not
    fencing       initialises the predecessor's transactional id
    resting       a pause before the next attempt
    initialising  initialises its own transactional id, exactly once
    joined        recorded, or about to be; runs what it is granted
    leaving       releases everything, writes `left`, and exits
    exited        the end

Asked to leave, by a signal or because it was dismissed, a worker that is joined may retire first: it says so, and works on while the leader
has its tasks prepared elsewhere. It leaves when it has none left, when the time for that is over, when the run does not run any more, or
when no other worker could take them.

After every event it compares what the folded state wants with what it has ordered its tasks and what it has written to the stream, and acts
on the difference. It acts on the run, the grants and the model, never on a request. Ownership belongs to an incarnation: after a fatal
producer error the member abandons every task, reads to the end of the stream, and begins a new incarnation. When another process has become
this processor, it stops.

It writes single records to the stream, one batch at a time, after the commit that they report. It reads them back, and writes them again if
they are missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from ...machine import IGNORED, Level, Machine, Now, TableRow, Tick, rules
from ...names import incarnation_id, natural
from ...orders import SeekApplied, TaskReported
from ...settings import PRODUCERS_OWN
from ..events import Beat, Fence, FenceFailed, FenceReturned, JobNote
from ..liveness import Liveness
from ..messages import CLOSED, AskEnd, End, Message, ProcessorState, Read, RunState, SetProcessor, SetRun, key_of
from ..missing import needed
from ..run_choice import fits, in_charge, late, may_begin
from ..state import JobState, order
from .admission import closed_run, over, refusal
from .following import FollowedLogs
from .grants import Tasks
from .pauses import Pauses
from .plan import MemberConfig
from .protocol import (
    CloseProducer,
    ConfigChanged,
    Exit,
    Followed,
    InitProducer,
    Leave,
    MemberEvent,
    MemberInstruction,
    MessagesUnknown,
    MessagesWritten,
    Probed,
    ProducerLost,
    ProducerReady,
    Readiness,
    WriteMessages,
)

LATE = "the answer to whether its grants are still valid came too late to rely on (after half of session.timeout); asking again"


MOST_NAMED = 3
"""At most this many tasks are named that are not ready."""


class MemberState(StrEnum):
    """The state of a worker, as described at the top of this file."""

    NEW = "new"
    READING = "reading"
    WAITING = "waiting"
    FENCING = "fencing"
    RESTING = "resting"
    INITIALISING = "initialising"
    JOINED = "joined"
    LEAVING = "leaving"
    EXITED = "exited"


BEFORE = (MemberState.READING, MemberState.WAITING, MemberState.FENCING, MemberState.RESTING, MemberState.INITIALISING)
"""It has no incarnation yet."""
AT_WORK = (MemberState.JOINED, MemberState.LEAVING)
_ANSWERS = (Probed, MessagesWritten, MessagesUnknown, TaskReported, SeekApplied, Followed)


def _table() -> tuple[TableRow, ...]:
    s = MemberState
    entered = (s.WAITING, s.FENCING, s.INITIALISING, s.RESTING, s.EXITED)
    reset = (s.READING, s.LEAVING, s.EXITED)
    there = (*BEFORE, *AT_WORK, s.EXITED)

    def but(*states: MemberState) -> tuple[MemberState, ...]:
        return tuple(state for state in there if state not in states)

    return rules(
        [
            (s.NEW, Tick, s.READING, "first find out how far to read", "begin"),
            (s.READING, End, ("", *entered), "read this far before deciding anything", "read_to"),
            (s.READING, Read, ("", *entered), "the end of the stream is reached", "read_up"),
            (s.WAITING, Beat, entered, "the predecessor is silent or still alive", "hear_predecessor"),
            (s.WAITING, Read, entered, "the predecessor has left, or was fenced", "read_of_predecessor"),
            (s.FENCING, FenceReturned, ("", s.INITIALISING, s.EXITED), "the predecessor can no longer write"),
            (s.FENCING, FenceFailed, s.RESTING, "fencing is retried after a pause"),
            (s.RESTING, Tick, ("", s.FENCING, s.INITIALISING, s.EXITED, s.WAITING), "the pause is over", "end_pause"),
            (s.INITIALISING, ProducerReady, (s.JOINED, *reset), "the transactional id is ours"),
            (
                s.INITIALISING,
                ProducerLost,
                s.RESTING,
                "the next attempt uses another id: this one may be initialised",
                "rest_lost",
            ),
            (s.JOINED, (Read, End, Tick, *_ANSWERS), ("", *reset), "reconcile running tasks with the grants"),
            (s.JOINED, ProducerLost, ("", *reset), "the incarnation is over"),
            (
                s.JOINED,
                Leave,
                ("", s.LEAVING, s.EXITED),
                "others prepare its tasks, if there is time; it releases them",
            ),
            (s.LEAVING, (Read, End, Tick, *_ANSWERS), ("", s.EXITED), "until all tasks are released and reported"),
            (s.LEAVING, ProducerLost, ("", s.EXITED), "the leader fences what it held"),
            (but(s.INITIALISING, *AT_WORK, s.EXITED), Leave, s.EXITED, "no task has been granted", "leave_early"),
            (s.NEW, Leave, s.EXITED, "nothing has started", "leave_early"),
            (s.INITIALISING, Leave, s.EXITED, "no task has been granted", "leave_initialising"),
            ((s.NEW, s.READING, s.FENCING, s.RESTING, s.INITIALISING), Beat, "", "counts for who was here before"),
            (AT_WORK, Beat, "", "it no longer waits for anyone", "hear_at_work"),
            ((s.FENCING, s.RESTING, s.INITIALISING, s.EXITED), Read, "", "recorded", "note_read"),
            ((s.WAITING, s.FENCING, s.RESTING, s.INITIALISING), End, "", "recorded", "note_end"),
            (BEFORE, _ANSWERS, "", "recorded"),
            (but(s.FENCING), (FenceReturned, FenceFailed), IGNORED, "nothing is being fenced"),
            (but(s.INITIALISING), ProducerReady, IGNORED, "of an incarnation that is over"),
            (but(s.INITIALISING, *AT_WORK), ProducerLost, IGNORED, "of an incarnation that is over"),
            ((s.READING, s.WAITING, s.FENCING, s.INITIALISING, s.EXITED), Tick, IGNORED, "it waits for something else"),
            ((s.LEAVING, s.EXITED), Leave, IGNORED, "it leaves already"),
            (s.EXITED, (Beat, End, *_ANSWERS), IGNORED, "too late to matter"),
        ]
    )


def _listed(tasks: dict[str, str]) -> str:
    """Tasks with what each of them waits for, in few words.

    >>> _listed({"Partition 10": "restoring", "Partition 9": "not granted yet"})
    'its tasks: Partition 9 (not granted yet), Partition 10 (restoring)'
    """
    names = sorted(tasks, key=natural)
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"its tasks: {', '.join(f'{name} ({tasks[name]})' for name in names[:MOST_NAMED])}{more}"


@dataclass(frozen=True, slots=True)
class MemberView:
    """What a member shows."""

    processor: str
    process: str
    incarnation: str
    """The current one; empty before the first."""
    job: JobState
    """The job, as far as this process has read its coordinator stream."""


class Member(Machine[MemberEvent, MemberInstruction]):
    """One worker process."""

    TABLE: ClassVar[tuple[TableRow, ...]] = _table()
    INITIAL: ClassVar[str] = MemberState.NEW
    GROUPS: ClassVar[Mapping[str, tuple[str, ...]]] = {"before": BEFORE}

    def __init__(self, config: MemberConfig) -> None:
        super().__init__()
        self.config = config
        self.job = JobState()
        self.liveness = Liveness(config.process, config.beat_s)
        self.tasks = Tasks(config.processor, config.backoff_s)
        self.following = FollowedLogs(config.processor)
        self.pauses = Pauses(config.retry_s)
        self._lost = ""
        """Why the last incarnation ended."""
        self.incarnation = ""
        """The current incarnation; empty before the first."""
        self._counter = 0
        self._position = 0
        self._end: int | None = None
        self._predecessors: frozenset[str] | None = None
        """The incarnations that were there when this process came; None until that is read. That the lock was free, or what a supervisor
        says, concerns only these: another process may have come since."""
        self._fences: set[str] = set()
        self._wake: float | None = None
        self._recording = False
        self._read_to = 0
        """What it wrote can be judged once everything before this position is read."""
        self._ticket = 0
        self._sure_s: float | None = None
        """When it requested the end of the stream, to check that its grants are still valid."""
        self._sure_to: int | None = None
        self._late_s = 0.0
        """How long the last answer to that took, if it took too long to start a task on it; otherwise 0."""
        self._there = False
        """Whether its record was seen in the stream. A record is deleted only after the incarnation was fenced or has left."""
        self._in_run = ""
        self._going = ""
        self._code = 0
        self._retires: tuple[str, float] | None = None
        """Why it is to leave, and until when it works on meanwhile."""
        self._overrides: tuple[dict[str, Any], int] = {}, -1
        self._made_with: dict[str, Any] = {}
        """The overrides that its producer was made with."""
        self._standing: Readiness | None = None
        self._shown: MemberView | None = None

    @property
    def view(self) -> MemberView:
        """What it shows now."""
        shown = self._shown
        if shown is None or shown.incarnation != self.incarnation:
            shown = self._shown = MemberView(self.config.processor, self.config.process, self.incarnation, self.job)
        return shown

    # ------------------------------------------------------------------------------------------------------------ events

    def stale(self, event: MemberEvent) -> bool:
        """An answer of another incarnation's producer, or to an older question for the end of the stream."""
        if isinstance(event, ProducerReady | ProducerLost):
            return event.incarnation != self.incarnation
        return isinstance(event, End) and event.ticket != self._ticket

    def begin(self, event: Tick, now: Now) -> list[MemberInstruction]:
        """The first turn."""
        self.state = MemberState.READING
        return [self._ask()]

    def end_pause(self, event: Tick, now: Now) -> list[MemberInstruction]:
        """The pause may be over."""
        if self._wake is None or now.mono < self._wake:
            return []
        self._wake = None
        return self._enter(now)

    def on_Tick(self, event: Tick, now: Now) -> list[MemberInstruction]:
        return self._act(now)

    def deadline(self) -> float | None:
        if self.state == MemberState.NEW:
            return 0.0
        if self.state != MemberState.JOINED:
            return self._wake
        due = [at for at in (self.tasks.wake(), self._retires and self._retires[1]) if at is not None]
        return min(due, default=None)

    def on_Read(self, event: Read, now: Now) -> list[MemberInstruction]:
        self._fold(event)
        return self._act(now)

    def note_read(self, event: Read, now: Now) -> list[MemberInstruction]:
        """Messages that change nothing now."""
        self._fold(event)
        return []

    def _fold(self, event: Read) -> None:
        for entry in event.entries:
            self.job.apply(entry)
        self._position = max(self._position, event.position)

    def read_up(self, event: Read, now: Now) -> list[MemberInstruction]:
        """It may have read everything."""
        self._fold(event)
        return self._read_up(now)

    def read_of_predecessor(self, event: Read, now: Now) -> list[MemberInstruction]:
        """The predecessor may have left, or may be fenced."""
        self._fold(event)
        return self._enter(now)

    def _ask(self) -> AskEnd:
        """Request the end of the stream, for all who wait for it. Answers to earlier requests may be too old and are ignored."""
        self._ticket += 1
        return AskEnd(self._ticket)

    def on_End(self, event: End, now: Now) -> list[MemberInstruction]:
        self._note_end(event)
        if self._sure_s is not None:
            self._sure_to = event.offset
        return self._act(now)

    def note_end(self, event: End, now: Now) -> list[MemberInstruction]:
        """An answer that changes nothing now."""
        self._note_end(event)
        return []

    def _note_end(self, event: End) -> None:
        """What was written without an answer is in the stream before this offset, or not at all."""
        if self._recording and self._read_to < 0:
            self._recording, self._read_to = False, event.offset

    def read_to(self, event: End, now: Now) -> list[MemberInstruction]:
        """Now it knows how far to read."""
        self._note_end(event)
        self._end = event.offset
        return self._read_up(now)

    def _read_up(self, now: Now) -> list[MemberInstruction]:
        if self._end is None or self._position < self._end:
            return []
        if self._predecessors is None:
            self._predecessors = frozenset(worker.incarnation for worker in self._before())
        return self._enter(now)

    def on_Beat(self, event: Beat, now: Now) -> list[MemberInstruction]:
        self._hear(event)
        return []

    def _hear(self, event: Beat) -> None:
        if event.heartbeat.processor == self.config.processor:  # the number of other processors is unlimited
            self.liveness.heard(event.heartbeat)

    def hear_at_work(self, event: Beat, now: Now) -> list[MemberInstruction]:
        """It waits for no one, so it remembers no one."""
        self._hear(event)
        self.liveness.forget(set())
        return []

    def hear_predecessor(self, event: Beat, now: Now) -> list[MemberInstruction]:
        """A process that was here before lives, or is silent."""
        self._hear(event)
        beat = event.heartbeat
        alive = [worker for worker in self._before() if worker.process == beat.process and not beat.gone]
        if alive:
            return self._exit(1, f"another process is '{self.config.processor}': {alive[-1].url or alive[-1].process}")
        return self._enter(now)

    def on_FenceReturned(self, event: FenceReturned, now: Now) -> list[MemberInstruction]:
        self._fences.discard(event.incarnation)
        if self._fences:
            return []
        why = self._newer()
        return self._exit(1, why) if why else self._initialise()

    def on_FenceFailed(self, event: FenceFailed, now: Now) -> list[MemberInstruction]:
        return self._rest(now.mono + self.config.retry_s, f"the fence of the predecessor failed: {event.why}")

    def on_ProducerReady(self, event: ProducerReady, now: Now) -> list[MemberInstruction]:
        self.state = MemberState.JOINED
        self.pauses.began(now.mono)
        self.tasks.incarnation = self.incarnation
        return self._act(now)

    def on_ProducerLost(self, event: ProducerLost, now: Now) -> list[MemberInstruction]:
        return self._incarnation_over(now, event.why, event)

    def rest_lost(self, event: ProducerLost, now: Now) -> list[MemberInstruction]:
        """Its producer could not begin."""
        until = max(self.pauses.lost(now.mono), now.mono + self.config.retry_s)
        return self._rest(until, f"no producer: {event.why}")

    def on_Probed(self, event: Probed, now: Now) -> list[MemberInstruction]:
        self.tasks.targets.probed(event, now.mono)
        return self._act(now)

    def on_MessagesWritten(self, event: MessagesWritten, now: Now) -> list[MemberInstruction]:
        self._recording, self._read_to = False, event.last_offset + 1
        return self._act(now)

    def on_MessagesUnknown(self, event: MessagesUnknown, now: Now) -> list[MemberInstruction]:
        if not self._recording:
            return []
        self._read_to = -1
        return [self._ask()]

    def on_TaskReported(self, event: TaskReported, now: Now) -> list[MemberInstruction]:
        self.tasks.reported(event, now.mono)
        return self._act(now)

    def on_SeekApplied(self, event: SeekApplied, now: Now) -> list[MemberInstruction]:
        self.tasks.sought(event)
        return self._act(now)

    def on_Followed(self, event: Followed, now: Now) -> list[MemberInstruction]:
        self.following.followed(event)
        return self._act(now)

    def on_Leave(self, event: Leave, now: Now) -> list[MemberInstruction]:
        if self._retires is None and event.prepare_s > 0:
            self._retires = event.why, now.mono + event.prepare_s
        else:
            self._leave(event.why, 0)
        return self._act(now)

    def leave_early(self, event: Leave, now: Now) -> list[MemberInstruction]:
        """It has no incarnation."""
        return self._exit(0, event.why)

    def leave_initialising(self, event: Leave, now: Now) -> list[MemberInstruction]:
        """Its producer is being made."""
        return [CloseProducer(self.incarnation), *self._exit(0, event.why)]

    def _before(self) -> list[SetProcessor]:
        """The incarnations of this processor that are recorded, not fenced, and have not left."""
        return [
            worker for worker in self.job.incarnations(self.config.processor) if worker.state != ProcessorState.LEFT
        ]

    def _enter(self, now: Now) -> list[MemberInstruction]:
        """Decide, once everything is read, whether this process may begin an incarnation, and what must be fenced first."""
        if why := self._newer() or refusal(self.job.run, self.config):
            return self._exit(1, why)
        if now.mono < self.pauses.until:
            return self._rest(self.pauses.until, f"backing off, because incarnations keep ending: {self._lost}")
        config, doubtful = self.config, False
        for worker in self._before():
            held = config.forerunners is None or worker.process in config.forerunners
            here = config.supervised or (config.lock_free and held and worker.location == config.location)
            dead = worker.process == config.process or (here and worker.incarnation in (self._predecessors or ()))
            if not dead and not self.liveness.gone(worker.process):
                doubtful = doubtful or self.liveness.silence(worker.process) <= config.session_s
        if doubtful:
            self.state = MemberState.WAITING
            return self._stand(False, "waiting to see whether the process that had this id before is still running")
        self._fences = {worker.incarnation for worker in self._before()}
        if not self._fences:
            return self._initialise()
        self.state = MemberState.FENCING
        return [Fence(config.processor, incarnation) for incarnation in sorted(self._fences, key=order)]

    def _initialise(self) -> list[MemberInstruction]:
        self._counter = max(self._counter + 1, self.job.next_counter(self.config.processor))
        self.incarnation = incarnation_id(self._counter, self.config.token)
        self.state, self._there = MemberState.INITIALISING, False
        self._made_with = self._for_producers()
        return [*self._config(), InitProducer(self.incarnation)]

    def _for_producers(self) -> dict[str, Any]:
        return {name: value for name, value in self.job.overrides.items() if name in PRODUCERS_OWN}

    def _rest(self, until: float, why: str) -> list[MemberInstruction]:
        self.state, self._wake = MemberState.RESTING, until
        return self._stand(False, why)

    def _incarnation_over(
        self, now: Now, why: str, loss: ProducerLost | None = None, *, due: bool = False
    ) -> list[MemberInstruction]:
        """The incarnation can write no more: abandon its tasks, and begin another one, or exit if it was leaving. `due`: this is no
        error.
        """
        if self._retires is not None and not self._going:
            self._leave(self._retires[0], 0)  # its tasks go on elsewhere now
        failed = loss or ProducerLost(self.incarnation, why)
        abandoned = self.tasks.lost(failed.failed, now.mono, failed.target, refused=failed.refused)
        self._lost = why
        if failed.failed or due:
            self.pauses.blamed()
        else:
            self.pauses.lost(now.mono)
        said: list[MemberInstruction] = [*abandoned, CloseProducer(self.incarnation)]
        level: Level = "info" if self.state == MemberState.LEAVING or due else "error"
        said.append(JobNote("the incarnation is over", {"incarnation": self.incarnation, "why": why}, level))
        if self.state == MemberState.LEAVING:
            return said + self._act(now)
        # another process may have become this processor, and fenced us: read on before beginning again
        self.state, self._end, self._sure_s, self._sure_to = MemberState.READING, None, None, None
        return [*said, *self._stand(False, f"incarnation {self.incarnation} has ended: {why}"), self._ask()]

    # ------------------------------------------------------------------------------------------------------ leading a life

    def _act(self, now: Now) -> list[MemberInstruction]:
        """Act on the difference between what the state wants and what is."""
        if self.state not in AT_WORK:
            return []
        over = self._superseded(now)
        if over is not None:
            return over
        self._follow_run(now)
        self._retire(now)
        if self.state == MemberState.JOINED and self.job.live and self._for_producers() != self._made_with:
            return self._incarnation_over(now, "the run that began has other settings for producers", due=True)
        said: list[MemberInstruction] = [*self._config()]  # before any task starts with them
        late, sure = bool(self._late_s), self._sure(now)
        if self._late_s and not late:
            said.append(
                JobNote(LATE, {"took_s": round(self._late_s), "session_s": round(self.config.session_s)}, "warning")
            )
        said += self.tasks.orders(self.job, self._going, now.mono, sure=sure)
        here = self.tasks.here()
        # after the orders to start: these take over what was followed
        said += [*self.following.orders(self.job, self._going, here), *self.following.written_out(self.job, here)]
        said += self.tasks.probes(now.mono)
        if self.tasks.eager and self._sure_s is None:
            self._sure_s = now.mono
            said.append(self._ask())
        said += self._record()
        if self.state == MemberState.LEAVING and self._gone():
            return [*said, CloseProducer(self.incarnation), *self._exit(self._code, self._going)]
        ready, why = self._how()
        return said + self._stand(ready, why)

    def _sure(self, now: Now) -> bool:
        """Whether our grants are still valid: everything is read that was in the stream a moment ago, and the process has not slept since.

        A worker that slept wakes up to an old grant, to the answer of a probe, or to the end of a pause, and only then reads that its tasks
        belong to others.
        """
        if self._sure_s is None or self._sure_to is None or self._position < self._sure_to:
            return False
        took = now.mono - self._sure_s
        self._late_s = took if took > self.config.session_s / 2 else 0.0
        self._sure_s = self._sure_to = None
        return not self._late_s

    def _superseded(self, now: Now) -> list[MemberInstruction] | None:
        """What to do if this incarnation is not valid any more; None if it is."""
        job, config = self.job, self.config
        if why := self._newer():
            end: list[MemberInstruction] = [*self.tasks.lost(), CloseProducer(self.incarnation)]
            return end + self._exit(1, why)
        recorded = self.incarnation in job.recorded(config.processor)
        deleted, self._there = self._there and not recorded, recorded
        if not deleted and not job.fenced(config.processor, self.incarnation):
            return None
        if self.state == MemberState.LEAVING:
            return [
                *self.tasks.lost(),
                CloseProducer(self.incarnation),
                *self._exit(self._code, self._going),
            ]
        return self._incarnation_over(now, "forgotten" if deleted else "fenced")

    def _newer(self) -> str:
        """The other job of this stream, or the process that has become this processor after us; empty if there is neither."""
        if whose := self.job.other_job(self.config.job):
            return f"the topics of the job '{self.config.job}' are those of the job '{whose}'"
        own = self.incarnation
        for worker in self.job.recorded(self.config.processor).values() if own else ():
            if worker.process != self.config.process and order(worker.incarnation) > order(own):
                return f"another process has become '{self.config.processor}': {worker.url or worker.incarnation}"
        return ""

    def _follow_run(self, now: Now) -> None:
        """Leave when the run that it is part of closes, when it was dismissed, or when other code runs."""
        if self._going:
            return
        run, member = self.job.run, self.job.member(self.config.processor)
        counts = member is not None and member.incarnation == self.incarnation
        if counts and member is not None and member.dismissed and not member.out and self._retires is None:
            self._retires = member.dismissed, now.mono + member.prepare_ms / 1000
        if counts and member is not None and member.out:
            self._leave(member.dismissed, 0)
        elif self._in_run and (run is None or run.run_id != self._in_run or run.state in CLOSED):
            failed = "" if run is None or run.run_id != self._in_run else run.failed
            self._leave(
                f"run {self._in_run} can go no further: {failed}" if failed else f"run {self._in_run} is closed",
                int(bool(failed)),
            )
        elif run is not None and run.state not in CLOSED:
            if counts and fits(run, self._record_of(ProcessorState.JOINED)):
                self._in_run = run.run_id
            elif why := refusal(run, self.config):
                self._leave(why, 1)
        elif run is not None and (why := refusal(run, self.config)):
            self._leave(why, 1)
        elif run is not None and (why := self._over(run)):
            self._leave(why, 0)
        elif (
            run is not None
            and self.config.no_wait
            and not may_begin(run, self._record_of(ProcessorState.JOINED), late=True)
        ):
            self._leave(f"run {run.run_id} is {run.state}", 4)

    def _over(self, run: SetRun) -> str:
        """Why the closed run leaves nothing to do for this process."""
        worker = self.job.recorded(self.config.processor).get(self.incarnation)
        if worker is not None and in_charge(self.job, worker):
            return f"run {run.run_id} is {run.state}; it closed while this worker was restarted"
        return "" if worker is None else over(run, worker, late=late(self.job, worker, self.config.session_s))

    def _retire(self, now: Now) -> None:
        """Leave once it has no tasks left, or need not work on for any."""
        if self._retires is None or self._going:
            return
        (why, until), job, own = self._retires, self.job, self.config.processor
        left = self.tasks.here() or (job.model is not None and own in job.model.target.values())
        running = job.run is not None and job.run.state == RunState.RUNNING and not job.run.closing
        taken = any(
            not worker.retires
            for member in job.members()
            if member.processor != own
            for worker in (job.recorded(member.processor)[member.incarnation],)
        )
        if not (left and running and taken) or now.mono >= until:
            self._leave(why, 0)

    def _leave(self, why: str, code: int) -> None:
        self.state, self._going, self._code = MemberState.LEAVING, why, code

    def _gone(self) -> bool:
        """Whether everything is released and `left` is read back."""
        worker = self.job.recorded(self.config.processor).get(self.incarnation)
        return not self._recording and worker is not None and worker.state == ProcessorState.LEFT

    def _record_of(self, state: ProcessorState) -> SetProcessor:
        c = self.config
        return SetProcessor(
            c.processor, self.incarnation, c.process, c.location, state,
            c.deployment, c.run_id, c.url, c.pid, c.version, dict(c.fingerprint), c.bounded, c.since_ms,
            c.follows, self.following.prepared(self.job) if state == ProcessorState.JOINED else {},
            c.widens, state == ProcessorState.JOINED and self._retires is not None,
        )  # fmt: skip

    def _record(self) -> list[MemberInstruction]:
        """Write what is missing in the stream, unless the last messages are still in progress."""
        if self._recording or self._position < self._read_to:
            return []
        missing: list[Message] = list(self.tasks.wanted(self.job))
        state = ProcessorState.JOINED
        if self.state == MemberState.LEAVING:
            state = ProcessorState.LEFT if self.tasks.all_over() and not missing else ProcessorState.LEAVING
        worker = self._record_of(state)
        said = self.job.recorded(self.config.processor).get(self.incarnation)
        if said != worker or key_of(worker) in self.job.damaged:
            missing.insert(0, worker)
        if not missing:
            return []
        self._recording = True
        return [WriteMessages(tuple(missing))]

    def _config(self) -> list[MemberInstruction]:
        overrides, offset = self.job.overrides, self.job.config_offset
        if (overrides, offset) == self._overrides:
            return []
        self._overrides = overrides, offset
        return [ConfigChanged(dict(overrides), self.job.position - 1)]

    def _how(self) -> tuple[bool, str]:
        """Whether it is ready, or what it waits for."""
        run, member = self.job.run, self.job.member(self.config.processor)
        if self._going:
            return False, f"leaving: {self._going}"
        if self._retires is not None:
            return False, f"leaving: {self._retires[0]}; others prepare its tasks"
        if gone := needed(self.job):
            return False, gone
        if run is None:
            return False, "waiting for a run to begin"
        if run.state in CLOSED:
            return False, closed_run(run, self.config.fingerprint)
        if member is None or member.incarnation != self.incarnation:
            return False, "waiting for the leader"
        if run.state != RunState.RUNNING:
            return False, f"run {run.run_id} is {run.state}"
        if self.job.model is None:
            return False, "waiting for the leader's first assignment"
        missing = {**self._not_granted(), **self.tasks.not_ready()}
        if not missing:
            return True, ""
        late = f"; {LATE}" if self._late_s and self.tasks.eager else ""
        return False, f"waiting for {_listed(missing)}{late}"

    def _not_granted(self) -> dict[str, str]:
        """The tasks that it should run, but that were not granted to this incarnation."""
        model = self.job.model
        wanted = () if model is None else model.tasks_of(self.config.processor)
        grants = {task: self.job.grant(task) for task in wanted}
        return {
            task: "not granted yet"
            for task, grant in grants.items()
            if grant is None or grant.incarnation != self.incarnation
        }

    def _stand(self, ready: bool, why: str) -> list[MemberInstruction]:
        standing = Readiness(ready, why)
        if standing == self._standing:
            return []
        self._standing = standing
        return [standing]

    def _exit(self, code: int, why: str) -> list[MemberInstruction]:
        self.state, self._wake = MemberState.EXITED, None
        return [Exit(code, why)]
