"""The life of one task under one grant: what it may read, what its operators hear, what it announces, and when that is durable.

    waiting → restoring → bootstrapping → running ⇄ paused → draining → drained
                                                         → ending → ended
    from anywhere: → releasing → released | failed;  → abandoned

States: *waiting* for its order; *restoring* its tables and control state; *bootstrapping*: reads only the bootstrap inputs; *running*;
*paused*: reads nothing from outside; *draining*: what is buffered and between the stages flows out; *ending*: all inputs have ended, and
the operators flush; *drained*, *ended*: durable and reported, the grant is kept, and control messages are repeated when epochs change;
*releasing*: finishing, committing, closing (on its way to *released*, or to *failed* if user code gave up); *abandoned*: the incarnation is
over, and everything that was not durable is lost.

Promises:

- Half a chunk is never in a transaction: positions move over complete chunks, and a commit takes what is complete.
- The bookkeeping of control messages is in the same commit as the position after them and the announcements that follow from them.
- Letters (watermark, end, drain, timers) run one at a time, in bounded steps, with a commit between the steps, and never beside a chunk.
  What operators have heard is stored with the last step.
- Drained, ended, released and an applied seek are reported once, after the commit that contains them.
- Every seek is answered, or told again: to the task that restarts with it, or to the next holder of the grant.
- The first failure decides the outcome of the task; errors while it is stopped do not change it.
- A restart resumes where it was: a drain continues without new input, what has run is not repeated, and a half-aggregated control message
  completes.
- The machine sees no record.

After each event the task *settles*: it looks for the next thing that its operators must hear, announces what follows from what they have
heard, closes and opens partitions, and derives its state. It repeats this until nothing is left to do, so no event needs to know what
another one left behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from ..machine import IllegalEvent, Machine, Now, Tick, rules
from ..names import StreamPartition
from ..orders import RESTING, WORKING, Abandon, Release, RunChanged, RunView, Seek, Start, TaskReported, TaskState
from ..progress.producers import HEARD
from . import protocol as t
from .announcer import Announcer
from .checkpoint import Checkpoint
from .completion import Completion, resumes_draining
from .draining import Draining
from .inputs import NEVER, Inputs
from .ledger import Ledger
from .letters import Letters
from .plan import TaskPlan
from .protocol import TaskEvent, TaskInstruction
from .restoring import BEGINNING, Restoring
from .seeks import Seeks
from .stillness import Stillness
from .time import Pace, TaskTime
from .work import Work

Out = list[TaskInstruction]

GONE = (TaskState.RELEASED, TaskState.FAILED, TaskState.ABANDONED)
"""The task is gone, and gives no more instructions."""
BUSY = (*WORKING, TaskState.RELEASING)
"""The possible next states of a working task, after any event."""
RESTORED = (*BUSY, TaskState.RESTORING, *RESTING, TaskState.FAILED)
"""The possible next states of a restored task."""
ALIVE = (TaskState.RESTORING, *WORKING, *RESTING, TaskState.RELEASING)
"""It has started, and is not gone."""

STORE = (t.StoreOpened, t.StoreBroken, t.LogEnds, t.StoreWiped, t.RestoreProgress, t.Restored)
INTAKE = (
    t.PositionMoved, t.ControlAtHead, t.AtEnd, t.NotAtEnd, t.NotAnswered, t.Lost, t.Identified, t.Lag, t.FetchStopped, t.WorkDue,
    t.CommitWanted,
)  # fmt: skip
ACTOR = (t.ChunkDone, t.ChunkDropped, t.WorkFailed, t.StepDone)
COMMIT = (t.CommitBegins, t.CommitDone)
FACTS = (
    *STORE, *INTAKE, *ACTOR, *COMMIT, t.OffsetsResolved, t.StoreClosed, t.ChunkTaken, t.CommitLost, t.ApplyFailed, t.Broken,
)  # fmt: skip
"""The events of the edge. Such an event may come late: the edge was told to stop while an answer was on its way. Late events change
nothing. Unexpected orders and answers are mistakes, and raise.
"""

TableRows = list[tuple[str, type, str | tuple[str, ...], str]]


def _rows(states: Iterable[str], events: Iterable[type], to: str | tuple[str, ...], why: str) -> TableRows:
    """The same row for each of these states and events; `""` is the state itself."""
    return [(state, event, to, why) for state in states for event in events]


TABLE = rules(
    [
        (TaskState.WAITING, Start, TaskState.RESTORING, "the predecessor has released it, or is fenced"),
        (TaskState.WAITING, Release, TaskState.RELEASED, "the task never started"),
        (TaskState.WAITING, Abandon, TaskState.ABANDONED, "the task never started"),
        (TaskState.WAITING, Tick, "", "nothing to do"),
        (TaskState.WAITING, t.SettingsChanged, "", "used when the task starts"),
        (TaskState.RESTORING, RunChanged, "", "applied when the task opens"),
        (TaskState.RESTORING, Seek, "", "applied when the task opens"),
        (TaskState.RESTORING, t.SettingsChanged, "", "used when the task opens"),
        (TaskState.RESTORING, Tick, ("", TaskState.FAILED), "blocked by an open transaction for too long"),
        (TaskState.RESTORING, t.OffsetsResolved, RESTORED, "new positions are committed first"),
        (TaskState.RESTORING, t.CommitDone, RESTORED, "the resolved positions are durable"),
        *_rows((TaskState.RESTORING,), STORE[:-1], ("", TaskState.FAILED), "progress of store and log"),
        (TaskState.RESTORING, t.Restored, RESTORED, "the state is restored"),
        *_rows((TaskState.RESTORING,), (t.CommitBegins, *INTAKE, t.StoreClosed), "", "belongs to an earlier state"),
        *_rows(WORKING, (RunChanged,), BUSY, "a pause, a drain, a newer epoch"),
        *_rows(WORKING, (Seek,), BUSY, "applied between chunks"),
        *_rows(WORKING, (t.OffsetsResolved,), BUSY, "a seek's or a lost position's offset"),
        *_rows(WORKING, (Tick,), BUSY, "a retry is due, or an announcement"),
        *_rows(WORKING, (t.SettingsChanged,), BUSY, "applied immediately"),
        *_rows(WORKING, (t.ChunkTaken,), "", "the actor is working"),
        *_rows(WORKING, (t.CommitBegins,), "", "all complete chunks join the transaction"),
        *_rows(WORKING, (t.CommitDone,), (*BUSY, *RESTING), "durable"),
        *_rows(WORKING, (*INTAKE, *ACTOR), BUSY, "work"),
        *_rows(RESTING, (RunChanged,), "", "control messages are repeated when epochs change"),
        *_rows(RESTING, (Seek,), "", "refused: the task reads nothing more in this run"),
        *_rows(RESTING, (Tick,), "", "other jobs are told again"),
        *_rows(RESTING, (t.SettingsChanged,), "", "no effect any more"),
        *_rows(RESTING, (*INTAKE, *ACTOR, t.OffsetsResolved), "", "too late"),
        *_rows(RESTING, COMMIT, "", "commits of repeated control messages"),
        (TaskState.RELEASING, RunChanged, "", "no effect any more"),
        (TaskState.RELEASING, Release, "", "already releasing; a failing task is released instead"),
        (TaskState.RELEASING, Seek, "", "the next owner gets it again; a task that failed for good restarts with it"),
        (TaskState.RELEASING, Tick, "", "nothing to do"),
        (TaskState.RELEASING, t.SettingsChanged, "", "no effect any more"),
        (TaskState.RELEASING, t.CommitBegins, "", "the last commit"),
        (TaskState.RELEASING, t.CommitDone, "", "the store may close now"),
        (TaskState.RELEASING, t.StoreClosed, ("", *GONE), "the last step, after the order to close"),
        *_rows((TaskState.RELEASING,), (*STORE, t.OffsetsResolved, *INTAKE, *ACTOR), "", "late answers"),
        *_rows(ALIVE[:-1], (Release,), TaskState.RELEASING, "finish or drop the chunk, commit, close, report"),
        *_rows(ALIVE, (Abandon,), TaskState.ABANDONED, "fenced or superseded: drop everything, write nothing"),
        *_rows(ALIVE, (t.CommitLost,), (TaskState.ABANDONED, TaskState.FAILED), "the incarnation is over"),
        *_rows(
            ALIVE, (t.ApplyFailed,), (TaskState.RELEASING, TaskState.FAILED), "the log is right, the store is invalid"
        ),
        *_rows(ALIVE, (t.Broken,), (TaskState.RELEASING, TaskState.FAILED), "commits what is complete, then fails"),
        (TaskState.FAILED, Release, TaskState.RELEASED, "a failed task is released immediately"),
        (TaskState.FAILED, Abandon, TaskState.ABANDONED, "a failed task is discarded"),
        (TaskState.FAILED, Seek, ("", TaskState.ABANDONED), "it restarts after the record that it failed on"),
        *_rows((TaskState.RELEASED, TaskState.ABANDONED), (Release, Abandon, Seek), "", "already gone"),
        *_rows(GONE, (*FACTS, RunChanged, Tick, t.SettingsChanged), "", "too late"),
    ]
)


class Task(Machine[TaskEvent, TaskInstruction]):
    """The machine of one task.

    >>> from headgate.core.task.plan import InputPlan, TaskPlan
    >>> from headgate.core.orders import RunView
    >>> task = Task(TaskPlan("sales/1", "Partition 0", (InputPlan("orders", (0,), 1),)))
    >>> task.handle(Start("Partition 0", 1, RunView("r1", "u1"), 0), Now(0.0, 0))
    [OpenStore(), AskLogEnds()]
    """

    TABLE = TABLE
    INITIAL = TaskState.WAITING

    def __init__(self, plan: TaskPlan) -> None:
        super().__init__()
        self.plan = plan
        self.run = RunView("", "")
        self.grant = 0
        self.inputs = Inputs(plan)
        self.ledger = Ledger()
        self.work = Work()
        self.completion = Completion(self.ledger)
        self.time = TaskTime(self.inputs, self.ledger)
        self.letters = Letters(self.inputs, self.time)
        self.announcer = Announcer(self.inputs, self.ledger, self.time)
        self.draining = Draining(self.inputs, self.work)
        self.seeks = Seeks(self.inputs, self.ledger, self.work, self.completion)
        self.restoring = Restoring(self.inputs, self.ledger)
        self.pace = Pace()
        self.stillness = Stillness(plan.task, self.inputs, self.ledger, self.work, self.letters, self.pace)
        self.why = ""
        """Why it failed or was released, for people."""
        self._leaving = TaskState.RELEASED
        """The state after it has left."""
        self._passing = False
        """The reason of the first failure may pass: the task shall be restarted when it is gone."""
        self._dropped = False
        """The task failed at once and everything of it is dropped, so only its next start can answer."""
        self._closing = False
        """Its store was told to close."""
        self._restless = False
        """There may be something to hear or to announce."""
        self._regate = False
        """The set of closed partitions may have changed."""

    # ------------------------------------------------------------------------------------------------------------- queries

    def may_take(self, at: StreamPartition) -> bool:
        """Whether a chunk of this partition may be given to the actor now."""
        return (
            self.state in WORKING
            and self.work.idle
            and at not in self.inputs.closed
            and at in self.inputs.positions
            and not self.completion.hooks
        )

    def position(self, at: StreamPartition) -> int:
        """The next position to read, after everything complete."""
        return self.inputs.positions[at]

    @property
    def step_times(self) -> Mapping[str, int]:
        """The time of each step, as far as known; available before the first letter after a start."""
        return self.time.told

    def deadline(self) -> float | None:
        due = self.due_s()
        lapses_s = self.inputs.idle_until_s if self.state in WORKING else NEVER
        return due if lapses_s == NEVER else lapses_s if due is None else min(due, lapses_s)

    def due_s(self) -> float | None:
        """The deadline if the broker answers all the time, so that no answer can expire."""
        if self.state in WORKING:
            due = (self.work.retry_s, self.pace.deadline, self.announcer.restates_s, self.announcer.confirms_s)
            return min((one for one in due if one is not None), default=None)
        if self.state in RESTING:
            return self.announcer.restates_s
        return self.restoring.deadline if self.state == TaskState.RESTORING else None

    # ------------------------------------------------------------------------------------------------------------- orders

    def on_Start(self, event: Start, now: Now) -> Out:
        self.run, self.grant = event.run, event.grant
        self.state = TaskState.RESTORING
        return self.restoring.start(event)

    def on_RunChanged(self, event: RunChanged, now: Now) -> Out:
        if self.state in GONE or self.state == TaskState.RELEASING:
            return []
        if event.run.run_id != self.run.run_id:
            return [t.TaskNote("other-run", f"the task is in run {self.run.run_id}, not in {event.run.run_id}")]
        self.run = event.run
        if self.state == TaskState.RESTORING:
            return []
        inputs = self.inputs
        inputs.progress.producers_changed(inputs.producers(event.run))
        for at, (offset, frame) in list(inputs.waiting.items()):
            if inputs.hear(at, offset, frame):
                self.ledger.touch()
        if self.state in RESTING:
            return self._announce(with_time=True)
        self._look_again(time=True)
        if event.run.draining is not None and self.completion.drain_id is None and self.state != TaskState.ENDING:
            return self._begin_drain(event.run.draining) + self._settle(now)
        return self._settle(now) + self.ledger.request_commit()

    def on_Release(self, event: Release, now: Now) -> Out:
        if self.state in (TaskState.WAITING, TaskState.FAILED):
            return self._released(event.why)
        if self.state == TaskState.RELEASING:
            self._leaving = TaskState.RELEASED  # a failing task that must be released is only released
            return []
        if self.state in GONE:
            return []
        self.why, self._leaving = event.why, TaskState.RELEASED
        if self.state == TaskState.RESTORING:
            self.ledger.forget()
        return self.work.stop(event.why) + self._leave()

    def on_Abandon(self, event: Abandon, now: Now) -> Out:
        if self.state in (TaskState.RELEASED, TaskState.ABANDONED):
            return []
        self.state, self.why = TaskState.ABANDONED, event.why
        return [t.Discard(event.why)]

    def on_Seek(self, event: Seek, now: Now) -> Out:
        if self.state == TaskState.RESTORING:
            self.seeks.early.append(event)
            return []
        if self.state in RESTING:
            return self.seeks.too_late(event, self.state)
        if self.state == TaskState.RELEASING:
            self.seeks.late.append(event)
            return []
        if self.state == TaskState.FAILED and not self._dropped:
            self.state = TaskState.ABANDONED
            return [t.BeginAgain((*self.seeks.kept, event))]
        if self.state not in WORKING:
            return []
        self._regate = True
        return self.seeks.seek(event) + self._settle(now)

    def on_SettingsChanged(self, event: t.SettingsChanged, now: Now) -> Out:
        # the size above which control messages are aggregated stays the same during a run
        settings = replace(event.settings, aggregate_above=self.plan.settings.aggregate_above)
        self.plan = replace(self.plan, settings=settings)
        self.inputs.go_by(self.plan, now)
        self.pace.hurry(now, settings.watermark_interval_s)
        if self.state not in WORKING:
            return []
        self.inputs.weigh_lag()
        self._look_again(time=True)
        return self._settle(now)

    def on_Tick(self, event: Tick, now: Now) -> Out:
        if self.state == TaskState.RESTORING:
            limit = self.restoring.deadline
            if limit is None or now.mono < limit:
                return []
            return self._fail_now(
                "open transaction: the task's log holds an unfinished transaction of an owner that is neither released nor "
                "fenced; it ends with its transaction timeout, or when that worker is fenced"
            )
        if self.state in RESTING:
            return self._announce(with_time=True) if self.announcer.restate(now) else []
        if self.state not in WORKING:
            return []
        work = self.work
        if work.retry_s is not None and now.mono >= work.retry_s:
            work.retry_s = None
            return [t.RunAgain(work.attempt)]
        return self._settle(now)

    # -------------------------------------------------------------------------------------------------- store and task log

    def on_StoreOpened(self, event: t.StoreOpened, now: Now) -> Out:
        return self.restoring.store_opened(event, now) if self.state == TaskState.RESTORING else []

    def on_StoreBroken(self, event: t.StoreBroken, now: Now) -> Out:
        return self.restoring.store_broken(event) if self.state == TaskState.RESTORING else []

    def on_LogEnds(self, event: t.LogEnds, now: Now) -> Out:
        return self.restoring.log_ends(event, now) if self.state == TaskState.RESTORING else []

    def on_StoreWiped(self, event: t.StoreWiped, now: Now) -> Out:
        return self.restoring.store_wiped(event, now) if self.state == TaskState.RESTORING else []

    def on_RestoreProgress(self, event: t.RestoreProgress, now: Now) -> Out:
        return self.restoring.progress(event, now) if self.state == TaskState.RESTORING else []

    def on_Restored(self, event: t.Restored, now: Now) -> Out:
        if self.state != TaskState.RESTORING:
            return []
        if why := self.restoring.foreign(event, self.run):
            return self._fail_now(why, passing=False)
        checkpoint = self.restoring.restored(event, self.run)
        self.time.load()
        self.time.owes(event.owed)
        self._remember(checkpoint)  # before any commit: the next checkpoint must contain what the last one did
        if checkpoint.phase in RESTING:  # it had drained or ended durably before the restart: only report it again
            self.state = checkpoint.phase
            out = [*self.seeks.when_at_rest(self.state), *self._announce(with_time=True)]
            return [*out, self._report(checkpoint.phase)]
        return self.restoring.ask(self.run) + self._open(now)

    def _remember(self, checkpoint: Checkpoint) -> None:
        """Restore the state of the checkpoint."""
        self.completion.remember(checkpoint)
        self.seeks.applied = list(checkpoint.applied)

    def on_OffsetsResolved(self, event: t.OffsetsResolved, now: Now) -> Out:
        if self.state == TaskState.RESTORING and event.request == BEGINNING:
            if not self.restoring.resolving:
                raise IllegalEvent(self, event)
            return self.restoring.resolved(event) + self._open(now)
        if self.state not in WORKING:
            return []
        offset, end = next(iter(event.positions.values()), None), next(iter(event.ends.values()), None)
        self._look_again()
        return self.seeks.resolved(event.request, offset, end) + self._settle(now)

    def _open(self, now: Now) -> Out:
        """Begin to work: everything that restoring and resolving had to provide is there and durable."""
        if not self.restoring.opens():
            return []
        inputs = self.inputs
        drain = resumes_draining(self.restoring.checkpoint, self.run)
        for at in list(inputs.positions):
            inputs.advance(at, inputs.positions[at])
        if drain is not None:
            self.completion.begin_drain(drain)
            inputs.bootstrap.clear()
            through, sought = inputs.through(self.run), self.seeks.before_drain(inputs.external)
            inputs.drain(
                drain, {at: max(inputs.positions[at], through.get(at, 0)) for at in inputs.external if at not in sought}
            )
        self._look_again(time=True)
        self.state = TaskState.RUNNING
        reading = {at: inputs.positions[at] for at in inputs.partitions if at not in inputs.finished}
        out: Out = [t.Bounds(dict(inputs.until), dict(inputs.bootstrap)), *self._settle(now)]
        out += [t.SeekConsumer(reading), self._report(TaskState.RUNNING, self.restoring.remark)]
        if not self.seeks.early:
            return out
        return out + self.seeks.begin() + self._sought(now)

    def _sought(self, now: Now) -> Out:
        """A seek is settled, and its partition may drain: nothing else may wake the task."""
        self._look_again(time=True)
        return self._settle(now)

    # ------------------------------------------------------------------------------------------------------------- intake

    def on_ChunkTaken(self, event: t.ChunkTaken, now: Now) -> Out:
        if self.state in GONE:
            return []
        if not self.may_take(event.at) or event.upto <= self.inputs.positions[event.at]:
            raise IllegalEvent(self, event)
        self.work.chunk = event
        self.inputs.moved(event.at)
        return self._stirs()

    def on_PositionMoved(self, event: t.PositionMoved, now: Now) -> Out:
        at = event.at
        if self.state not in WORKING or event.position <= self.inputs.positions.get(at, event.position):
            return []
        if self.work.reads(at):
            raise IllegalEvent(self, event)
        self._advance(at, event.position)
        return self._settle(now)

    def _advance(self, at: StreamPartition, position: int) -> None:
        """Move a position; the next commit includes it."""
        self.ledger.touch()
        if self.inputs.advance(at, position):
            self._look_again()

    def on_ControlAtHead(self, event: t.ControlAtHead, now: Now) -> Out:
        at = event.at
        if self.state not in WORKING or event.offset < self.inputs.positions.get(at, event.offset + 1):
            return []
        if self.work.reads(at):
            raise IllegalEvent(self, event)
        self._look_again(time=True)
        self.ledger.touch()
        self.inputs.hear(at, event.offset, event.frame)
        reason = HEARD if at in self.inputs.waiting else self.inputs.progress.reason
        note: Out = [] if reason == HEARD else [t.TaskNote(t.IGNORED + reason, str(at), "debug")]
        return note + self._stirs() + self.ledger.request_commit() + self._settle(now)

    def on_AtEnd(self, event: t.AtEnd, now: Now) -> Out:
        at = event.at
        if self.state not in WORKING or self.work.reads(at):
            return []
        if event.position > self.inputs.positions.get(at, event.position):
            self._advance(at, event.position)
        if event.position == self.inputs.positions.get(at):
            news = self.inputs.at_end(at, now, event.age_s) or self.time.may_lift()
            self.pace.news = news or self.pace.news
        return [
            *self._settle(now),
            *(self._stirs() if event.owes else self.stillness.look(self.run, self.grant, self.state)),
        ]

    def on_NotAtEnd(self, event: t.NotAtEnd, now: Now) -> Out:
        if self.state in WORKING and self.inputs.not_at_end(event.at, now):
            self.pace.news = True
            return self._settle(now)
        return []

    def on_NotAnswered(self, event: t.NotAnswered, now: Now) -> Out:
        if self.state not in WORKING:
            return []
        self.pace.news = self.inputs.not_at_end(event.at, now) or self.pace.news
        return [t.TaskNote("degraded", f"no fetch of {event.at} is answered", "debug"), *self._settle(now)]

    def on_Lost(self, event: t.Lost, now: Now) -> Out:
        if self.state not in WORKING:
            return []
        self._regate = True
        gone = self.seeks.gone(event)
        if not gone:
            return self._settle(now)
        if self.inputs.by_stream[event.at.stream].on_lost == "fail":
            return self._fail(
                f"{gone}; continue with `headgate seek JOB {event.at} --to oldest`{self.seeks.otherwise(event)}"
            )
        return self.seeks.lost(event, gone) + self._settle(now)

    def on_Identified(self, event: t.Identified, now: Now) -> Out:
        if self.state not in WORKING or not self.inputs.identify(event.at, event.topic):
            return []
        self.ledger.touch()
        return self.ledger.request_commit()

    def on_Lag(self, event: t.Lag, now: Now) -> Out:
        self.inputs.lag = event.records
        if self.state not in WORKING or not self.inputs.weigh_lag():
            return []
        self._regate = True
        return self._settle(now)

    def on_FetchStopped(self, event: t.FetchStopped, now: Now) -> Out:
        if self.state != TaskState.DRAINING or self.inputs.drain_upto is not None:
            return []
        self.draining.stopped(self.completion.drain_id or "", self.run, event)
        self._look_again()
        return self._settle(now)

    # --------------------------------------------------------------------------------------------------------------- work

    def on_ChunkDone(self, event: t.ChunkDone, now: Now) -> Out:
        chunk = self.work.chunk
        if self.state in GONE or self.state in RESTING or chunk is None:
            return []
        if event.at != chunk.at or event.upto < chunk.upto:
            raise IllegalEvent(self, event)
        self.work.chunk = None
        self.work.succeeded()
        self.pace.news = self.inputs.saw(event.at, event.max_ts, now) or self.pace.news  # first: it may end here
        self._advance(event.at, event.upto)
        self._owes(event.owed)
        if self.state == TaskState.RELEASING:
            return self._leave()
        if event.ends:
            self.inputs.end_here(event.ends)
            self._look_again()
        out = self.seeks.after_chunk(event.at)
        out += self.ledger.request_commit(urgent=event.commit)
        return out + self._settle(now)

    def on_ChunkDropped(self, event: t.ChunkDropped, now: Now) -> Out:
        if self.state != TaskState.RELEASING or self._closing:
            return []
        self.work.drop()
        return self._leave()

    def on_WorkFailed(self, event: t.WorkFailed, now: Now) -> Out:
        if not self.work.awaited:
            return []
        if self.state == TaskState.RELEASING:
            self.work.drop()
            return self._leave()
        if self.state not in WORKING:
            return []
        retry = self.work.failed(event, self.plan.settings, now)
        if retry is not None:
            return [retry]
        self.work.drop()
        return self._fail(event.why)

    def on_Broken(self, event: t.Broken, now: Now) -> Out:
        if self.state in GONE:
            return []
        if self.state == TaskState.RESTORING:
            return self._fail_now(event.why, passing=event.passing)
        drop: Out = [] if self.work.idle else [t.DropChunk(event.why)]
        self.work.drop()
        if self.state == TaskState.RELEASING:
            return drop + self._leave()
        return drop + self._fail(event.why, passing=event.passing)

    def on_WorkDue(self, event: t.WorkDue, now: Now) -> Out:
        if self.state not in WORKING or self.completion.hooks:
            return []
        self.letters.work.append(event)
        self._restless = True
        return self._stirs() + self._settle(now)

    def on_StepDone(self, event: t.StepDone, now: Now) -> Out:
        work, step = self.work, self.work.step
        if self.state in GONE or step is None or step.letter != event.letter or work.step_made is not None:
            return []
        work.succeeded()
        made = self.ledger.touch()
        for at, greatest in event.seen:
            self.pace.news = self.inputs.saw(at, greatest, now) or self.pace.news
        self._owes(event.owed)
        if event.ends:
            self.inputs.end_here(event.ends)
            self._regate = True
        if event.more and self.state != TaskState.RELEASING:
            work.step_made = made
            return self.ledger.request_commit(urgent=True)
        work.step = None
        if not event.more:
            self.letters.complete(step)
            if step.stream is None and step.kind in (t.END, t.DRAIN):
                self.completion.complete(step.kind)
        if self.state == TaskState.RELEASING:
            return self._leave()
        self._restless = True
        after = self._settle(now)
        ends = step.cause in (t.END, t.DRAIN) and work.step is None  # else the next letter of the end shares its commit
        return after + self.ledger.request_commit(urgent=event.commit or ends)

    def _owes(self, owed: t.Owed) -> None:
        """Take what the steps owe after a letter. The time behind them may advance, or no longer."""
        if self.time.owes(owed):
            self._restless = self.pace.news = True

    def on_CommitWanted(self, event: t.CommitWanted, now: Now) -> Out:
        if self.state not in WORKING:
            return []
        self.ledger.touch()
        return self.ledger.request_commit()

    # ------------------------------------------------------------------------------------------------------------- commit
    #
    # CommitBegins → SendControl(newer times), Contribute(everything that is complete) → CommitDone: reports, the next step, the end
    #                                                        → CommitLost: everything that was not durable is void
    #                                                        → ApplyFailed: durable, but the store is void
    #
    # A contribution holds the positions, the bookkeeping and the rows of one and the same moment. A task that fails still commits what it
    # had completed, for its outputs may be in the transaction already.

    def on_CommitBegins(self, event: t.CommitBegins, now: Now) -> Out:
        if self.state in GONE or self._closing:
            return []
        # the time of the records whose positions are committed here survives a restart, and announcements are true now
        self._observe(now)
        with_time = self.pace.announces(now, self.plan.settings.watermark_interval_s)
        said: Out = [*self._say(with_time=with_time)] if self.state in WORKING else []
        self.announcer.confirmations.begins()
        if said and with_time:
            self.pace.announced(now)
        own = self.ledger.contribute(event.txn)
        if own is None:
            return []
        rows: t.RowChanges = {**own, **self.inputs.progress.take_changes()}
        return [*said, t.Contribute(self._checkpoint(), MappingProxyType(rows))]

    def _checkpoint(self) -> Checkpoint:
        """What a restart needs beside the control table, as of now. The current chunk has no part in it."""
        return Checkpoint(
            job=self.plan.job,
            job_uuid=self.run.job_uuid,
            run=self.run.run_id,
            epoch=max((one.epoch for one in self.run.producers.values()), default=0),
            positions=dict(self.inputs.positions),
            topics=dict(self.inputs.topics),
            adopted=self.inputs.adopted,
            until=dict(self.inputs.until),
            phase=self.completion.phase,
            drain_id=self.completion.drain_id or "",
            hooks=self.completion.hooks,
            applied=tuple(self.seeks.applied),
            grant=self.grant,
        )

    def on_CommitDone(self, event: t.CommitDone, now: Now) -> Out:
        if self.state in GONE or not self.ledger.done(event.txn):
            return []
        self.announcer.confirmations.done(now)
        held_up = self.seeks.held_up
        out = self.seeks.durable()
        if self.state == TaskState.RESTORING:
            return out + self._open(now)
        if self.completion.reached():
            out.append(self._report(self.completion.phase))
            if self.state != TaskState.RELEASING:
                self.state = self.completion.phase
                out += self.seeks.when_at_rest(self.state)
        work = self.work
        if work.step is not None and work.step_made is not None and self.ledger.is_durable(work.step_made):
            work.step_made = None
            out.append(work.step)
        if self.state == TaskState.RELEASING:
            return out + self._leave()
        return out + self._sought(now) if self.seeks.held_up < held_up else out

    def on_CommitLost(self, event: t.CommitLost, now: Now) -> Out:
        if self.state in GONE:
            return []
        self.state, self.why, self._dropped = TaskState.FAILED if event.blamed else TaskState.ABANDONED, event.why, True
        return [t.Discard(event.why)]

    def on_ApplyFailed(self, event: t.ApplyFailed, now: Now) -> Out:
        if self.state in GONE:
            return []
        self.ledger.done_anyway()
        if self.state == TaskState.RESTORING:
            return self._fail_now(event.why)
        return self._leave() if self.state == TaskState.RELEASING else self._fail(event.why, passing=True)

    # ----------------------------------------------------------------------------------------------------------- settling

    def _look_again(self, *, time: bool = False) -> None:
        """Something has changed that the task must settle: letters, announcements, closed partitions, and perhaps the time."""
        self._restless = self._regate = True
        self.pace.news = self.pace.news or time
        self.announcer.stir()

    def _settle(self, now: Now) -> Out:
        """Do what follows from the current state."""
        out: Out = []
        if self.state not in WORKING:
            return out
        self.pace.news = self.inputs.lapse(now) or self.pace.news
        if self.pace.due(now):
            self._restless = True
            overheard, newer = self._observe(now), self.letters.newer_time()
            if overheard or newer:
                self.pace.told(now, self.plan.settings.watermark_interval_s)
            self.letters.due.update(newer)
        if self.announcer.restate(now) or self.announcer.confirm(now, self.run, self.completion.drain_id or ""):
            self.ledger.touch()
            out += self.ledger.request_commit()
        if self._restless:
            out += self._hear_and_say()
        if self._regate:
            self._regate = False
            if self.inputs.gate(self.run, draining=self.completion.drain_id is not None):
                out.append(t.Gate(self.inputs.closed))
                self.pace.soon(now, self.inputs.unobserved)
            self._restate()
        return out

    def _observe(self, now: Now) -> bool:
        """Look how far the streams are. Returns whether one has a newer time that no step hears of."""
        self.inputs.observe(now)
        self.time.lift(now)
        return self.time.overhear()

    def _hear_and_say(self) -> Out:
        step: t.RunStep | None = None
        if self.work.idle and not self.completion.awaited:
            step = self.work.step = self.letters.next(self.completion.hooks)
            self._restless = step is not None
        out = self._announce(with_time=False)
        if self.pace.owed and step is None:
            out += self._request_time()
            self.pace.owed = not self.work.idle
        finished = self.letters.finished()
        if finished and self.completion.drain_id is None and self.state != TaskState.ENDING:
            self._regate = True
            if finished == t.DRAIN:
                out += self._begin_drain(self.inputs.drain_in_frames())
        return [*out, step] if step is not None else out

    def _say(self, *, with_time: bool) -> list[t.SendControl]:
        """Everything that must be announced to the streams. Without `with_time`, a message that only brings a newer time waits."""
        said = self.announcer.say(self.run, self.completion.drain_id or "", with_time=with_time)
        self.pace.news = self.pace.news or self.announcer.withheld
        return said

    def _announce(self, *, with_time: bool) -> Out:
        """Announce what is due, and request a commit."""
        said = self._say(with_time=with_time)
        if not said:
            return []
        self.ledger.touch()
        return [*said, *self.ledger.request_commit()]

    def _request_time(self) -> Out:
        """Request a commit for a newer time, which is announced when it begins: nobody reads it before, and the operators' pending results
        are sent only once.
        """
        if not self.announcer.owes_time(self.run, self.completion.drain_id or ""):
            return []
        self.ledger.touch()
        return self.ledger.request_commit()

    def _restate(self) -> None:
        if self.completion.drain_id is not None:
            self.state = TaskState.DRAINING
        elif self.letters.finished() == t.END:
            self.state = TaskState.ENDING
        elif self.inputs.bootstrap:
            self.state = TaskState.BOOTSTRAPPING
        else:
            self.state = TaskState.PAUSED if self.run.paused_job else TaskState.RUNNING

    def _begin_drain(self, drain_id: str) -> Out:
        """Begin to drain. That alone needs no commit: whoever restarts the task is told again, and the letters of the drain want one."""
        keep = self.state != TaskState.BOOTSTRAPPING
        self.completion.begin_drain(drain_id)
        self.ledger.touch()
        self._look_again()
        self.state = TaskState.DRAINING
        return self.draining.begin(drain_id, self.run, keep=keep)

    # ----------------------------------------------------------------------------------------------------------- reporting

    def _report(self, state: TaskState, why: str = "") -> t.SendReport:
        return t.SendReport(TaskReported(self.plan.task, self.grant, state, why))

    def _stirs(self) -> Out:
        return self.stillness.stirs(self.grant, self.state)

    # ------------------------------------------------------------------------------------------------------------- leaving

    def _fail(self, why: str, *, passing: bool = False) -> Out:
        """User code or data has failed, or the task's environment (`passing`): commit what is complete, then report."""
        self.why, self._leaving, self._passing = why, TaskState.FAILED, passing
        return [t.TaskNote("failed", why, "error"), *self.work.stop(why), *self._leave()]

    def _fail_now(self, why: str, *, passing: bool = True) -> Out:
        """Fail without a commit: drop everything and report it. `passing`: a disk, a broker, or a log that is held up."""
        self.why = why
        self.state, self._dropped = TaskState.FAILED, True
        report = TaskReported(self.plan.task, self.grant, TaskState.FAILED, why, gone=True, passing=passing)
        return [t.Discard(why), t.SendReport(report)]

    def _leave(self) -> Out:
        """Take the next step of leaving: wait for the actor, commit, close."""
        self.state = TaskState.RELEASING
        if not self.work.idle or self._closing:
            return []
        if not self.ledger.clean:
            return self.ledger.request_commit(urgent=True)
        self._closing = True
        return [t.CloseStore()]

    def on_StoreClosed(self, event: t.StoreClosed, now: Now) -> Out:
        if self.state != TaskState.RELEASING or not self._closing:
            return []
        if self._leaving == TaskState.RELEASED:
            return self._released(self.why)
        return self._fail_now(self.why) if self._passing else self._failed()

    def _released(self, why: str) -> Out:
        self.state = TaskState.RELEASED
        return [self._report(TaskState.RELEASED, why)]

    def _failed(self) -> Out:
        """The task has failed for good, unless a seek has come meanwhile that moves it past the failure."""
        refused, again = self.seeks.when_failed(self.why)
        if again:
            self.state = TaskState.ABANDONED
            return [*refused, t.BeginAgain(again)]
        self.state = TaskState.FAILED
        return [*refused, self._report(TaskState.FAILED, self.why)]
