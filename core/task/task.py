"""The life of one task under one grant: what it may read, what its operators hear, what it announces, and when that is durable.

    waiting → restoring → working → resting
    and from these: → releasing → closing → released | failed;  → abandoned

The states say which events count (`phase.TaskMode`). What is shown of a task that works (bootstrapping, running, paused, draining, ending)
or rests (drained, ended) is its *phase*, which is derived from the facts.

Promises:

- Half a chunk is never in a transaction: positions move over complete chunks, and a commit takes what is complete.
- The bookkeeping of control messages is in the same commit as the position after them and the announcements that follow from them.
- Letters (watermark, end, drain, timers) run one at a time, in bounded steps, with a commit between the steps, and never together with a
  chunk. What operators have heard is stored with the last step.
- Drained, ended, released and an applied seek are reported once, after the commit that contains them.
- Every seek is answered, or delivered again: to the task that restarts with it, or to the next holder of the grant.
- The first failure decides the outcome of the task; errors while it is stopped do not change it.
- A restart resumes where it was: a drain continues without new input, what has run is not repeated, and a half-aggregated control message
  completes.
- The machine sees no record.

After each event the task *settles*: it looks for the next thing that its operators must hear, announces what follows from what they have
heard, and closes and opens partitions. It repeats this until nothing is left to do, so no event needs to know what
another one left behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar

from ..machine import IGNORED, IllegalEvent, Machine, Now, Tick, rules
from ..names import StreamPartition
from ..orders import (
    RESTING,
    UNPARK,
    Abandon,
    Errand,
    Release,
    RunChanged,
    RunView,
    Seek,
    Start,
    TaskReported,
    TaskState,
    Unpark,
)
from ..progress.producers import HEARD
from . import protocol as t
from .announcer import Announcer
from .completion import Completion, resumes_draining
from .draining import Draining
from .inputs import NEVER, Inputs
from .ledger import Ledger
from .letters import Letters
from .phase import TaskMode, phase_at_work
from .plan import TaskPlan
from .protocol import TaskEvent, TaskInstruction
from .restoring import BEGINNING, Restoring
from .seeks import Seeks
from .stillness import Stillness
from .stored.checkpoint import Checkpoint
from .time import Pace, TaskTime
from .view import TaskView
from .work import Work

Out = list[TaskInstruction]

OPEN = (TaskMode.RESTORING, TaskMode.WORKING, TaskMode.RESTING)
"""It has started, and does not leave."""
LEAVING = (TaskMode.RELEASING, TaskMode.CLOSING)
ALIVE = (*OPEN, *LEAVING)
"""It has started, and is not gone."""
GONE = (TaskMode.RELEASED, TaskMode.FAILED, TaskMode.ABANDONED)
"""The task is gone, and gives no more instructions."""
LEAVES = ("", *LEAVING)
"""Where an event leads after which the task may leave: it waits for its work and its commit, or closes at once."""

STORE = (t.StoreOpened, t.StoreBroken, t.LogEnds, t.StoreWiped, t.RestoreProgress)
INTAKE = (
    t.PositionMoved, t.ControlAtHead, t.AtEnd, t.NotAtEnd, t.NotAnswered, t.Lost, t.Identified, t.Lag, t.FetchStopped, t.WorkDue,
    t.CommitWanted,
)  # fmt: skip
ACTOR = (t.ChunkDone, t.ChunkDropped, t.WorkFailed, t.StepDone)
COMMIT = (t.CommitBegins, t.CommitDone)
FACTS = (
    *STORE, t.Restored, *INTAKE, *ACTOR, *COMMIT, t.OffsetsResolved, t.StoreClosed, t.ChunkTaken, t.CommitLost, t.ApplyFailed, t.Broken,
)  # fmt: skip
"""The events of the edge. Such an event may come late: the edge was told to stop while an answer was on its way. Late events are ignored.
Unexpected orders and answers are mistakes, and raise.
"""


def _without(events: tuple[type, ...], *others: type) -> tuple[type, ...]:
    return tuple(event for event in events if event not in others)


s = TaskMode
TABLE = rules(
    [
        (s.WAITING, Start, s.RESTORING, "the predecessor has released it, or is fenced"),
        ((s.WAITING, s.FAILED), Release, s.RELEASED, "nothing of it is left to finish", "release_at_once"),
        ((s.WAITING, s.RESTORING, s.RESTING), t.SettingsChanged, "", "used when it works", "note_settings"),
        (s.WAITING, Tick, IGNORED, "nothing to do"),
        (s.RESTORING, RunChanged, "", "applied when the task opens", "note_run"),
        (s.RESTORING, (Seek, Unpark), "", "applied when the task opens", "note_seek"),
        (s.RESTORING, Tick, ("", s.FAILED), "an open transaction has blocked the log for too long", "look_at_log"),
        (s.RESTORING, STORE, "", "store and log"),
        (
            s.RESTORING,
            t.Restored,
            ("", s.WORKING, s.RESTING, s.FAILED),
            "the state is restored; new positions are committed first",
        ),
        (s.RESTORING, t.OffsetsResolved, ("", s.WORKING), "the new positions are committed first", "take_positions"),
        (s.RESTORING, t.CommitDone, ("", s.WORKING), "the new positions are durable", "open_durable"),
        (s.RESTORING, Release, LEAVING, "drop what is not durable, close, report", "release_unopened"),
        (s.RESTORING, (t.ApplyFailed, t.Broken), s.FAILED, "nothing to commit: it fails at once", "break_at_once"),
        (s.RESTORING, (*INTAKE, t.StoreClosed), IGNORED, "belongs to an earlier start"),
        (s.WORKING, RunChanged, "", "a pause, a drain, a newer epoch"),
        (s.WORKING, Seek, "", "applied between chunks"),
        (s.WORKING, Unpark, "", "a letter of its own"),
        (s.WORKING, (Tick, t.SettingsChanged), "", "a retry is due, or an announcement; settings apply at once"),
        (s.WORKING, t.OffsetsResolved, "", "the offset of a seek, or for a position that is lost"),
        (s.WORKING, t.ChunkTaken, "", "the actor works"),
        (s.WORKING, (t.ChunkDone, t.StepDone), "", "the actor has worked"),
        (s.WORKING, t.WorkFailed, LEAVES, "retried, or the task fails"),
        (s.WORKING, t.ChunkDropped, IGNORED, "a seek dropped it; it is given again"),
        (s.WORKING, _without(INTAKE, t.Lost), "", "what was read, and what is due"),
        (s.WORKING, t.Lost, LEAVES, "continued elsewhere, or the task fails"),
        (s.WORKING, t.CommitBegins, "", "all complete chunks join the transaction, and what is newer is announced"),
        (s.WORKING, t.CommitDone, ("", s.RESTING), "durable; so is its end, perhaps"),
        (s.RESTING, RunChanged, "", "control messages are repeated when epochs change", "repeat_for_run"),
        (s.RESTING, (Seek, Unpark), "", "refused: the task reads nothing more in this run", "refuse_seek"),
        (s.RESTING, Tick, "", "other jobs are notified again", "repeat"),
        (s.RESTING, t.CommitDone, "", "a repeated control message is durable", "note_durable"),
        (s.RESTING, (*INTAKE, *ACTOR, t.OffsetsResolved), IGNORED, "the task has reported its end"),
        ((s.WORKING, s.RESTING), Release, LEAVING, "finish or drop the chunk, commit, close, report"),
        ((s.WORKING, s.RESTING), t.ApplyFailed, LEAVING, "durable, but the store is invalid: it fails"),
        ((s.WORKING, s.RESTING), t.Broken, LEAVING, "commits what is complete, then fails"),
        (
            (s.RESTORING, s.RESTING, s.RELEASING),
            t.CommitBegins,
            "",
            "what is complete joins the transaction",
            "contribute",
        ),
        (s.RELEASING, t.ChunkDone, LEAVES, "its last chunk", "leave_after_chunk"),
        (s.RELEASING, t.StepDone, LEAVES, "its last step", "leave_after_step"),
        (s.RELEASING, t.ChunkDropped, LEAVES, "its work is dropped", "leave_dropped"),
        (s.RELEASING, t.WorkFailed, LEAVES, "its work is not tried again", "leave_failed"),
        (s.RELEASING, t.CommitDone, LEAVES, "the store may close now", "leave_durable"),
        (s.RELEASING, t.ApplyFailed, LEAVES, "durable all the same", "leave_applied"),
        (s.RELEASING, t.Broken, LEAVES, "it leaves already", "leave_broken"),
        (LEAVING, Release, "", "already leaving; a failing task is released instead", "release_after_all"),
        (
            LEAVING,
            (Seek, Unpark),
            "",
            "the next owner gets it again; a task that failed for good restarts with it",
            "keep_seek",
        ),
        (s.CLOSING, t.StoreClosed, GONE, "the last step"),
        (s.RELEASING, t.StoreClosed, IGNORED, "it was not told to close yet"),
        (s.CLOSING, (*ACTOR, *COMMIT, t.ApplyFailed, t.Broken), IGNORED, "everything is durable"),
        (LEAVING, (*STORE, t.Restored, *INTAKE, t.OffsetsResolved), IGNORED, "late answers"),
        (LEAVING, (RunChanged, Tick, t.SettingsChanged), IGNORED, "no effect any more"),
        (ALIVE, t.CommitLost, (s.ABANDONED, s.FAILED), "the incarnation is over"),
        ((s.WAITING, *ALIVE, s.FAILED), Abandon, s.ABANDONED, "fenced or superseded: drop everything, write nothing"),
        (s.FAILED, (Seek, Unpark), ("", s.ABANDONED), "it restarts after the record that it failed on", "begin_again"),
        ((s.RELEASED, s.ABANDONED), (Release, Abandon, Seek, Unpark), IGNORED, "already gone"),
        (GONE, (*FACTS, RunChanged, Tick, t.SettingsChanged), IGNORED, "too late"),
    ]
)
del s


class Task(Machine[TaskEvent, TaskInstruction]):
    """The machine of one task.

    >>> from headgate.core.task.plan import InputPlan, TaskPlan
    >>> from headgate.core.orders import RunView
    >>> task = Task(TaskPlan("sales/1", "Partition 0", (InputPlan("orders", (0,), 1),)))
    >>> task.handle(Start("Partition 0", 1, RunView("r1", "u1"), 0), Now(0.0, 0))
    [OpenStore(), AskLogEnds()]
    """

    TABLE = TABLE
    INITIAL = TaskMode.WAITING
    GROUPS: ClassVar[Mapping[str, tuple[str, ...]]] = {"alive": ALIVE, "open": OPEN}

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
        self.seeks = Seeks(self.inputs, self.ledger, self.work, self.completion, self.letters)
        self.restoring = Restoring(self.inputs, self.ledger)
        self.pace = Pace()
        self.stillness = Stillness(plan.task, self.inputs, self.ledger, self.work, self.letters, self.pace)
        self.view = TaskView(self.inputs, self.time, self.announcer)
        """What the edge and the status read."""
        self.why = ""
        """Why it failed or was released, for people."""
        self._fails = False
        """It leaves because it has failed."""
        self._passing = False
        """The reason of the first failure may pass: the task shall be restarted when it is gone."""
        self._dropped = False
        """The task failed at once and everything of it is dropped, so only its next start can answer."""
        self._unsettled = False
        """There may be something to hear or to announce."""
        self._regate = False
        """The set of closed partitions may have changed."""

    # ------------------------------------------------------------------------------------------------------------- queries

    def may_take(self, at: StreamPartition) -> bool:
        """Whether a chunk of this partition may be given to the actor now."""
        return (
            self.state == TaskMode.WORKING
            and self.work.idle
            and at not in self.inputs.closed
            and at in self.inputs.positions
            and not self.completion.hooks
        )

    @property
    def may_work(self) -> bool:
        """Whether operators may do what is due now."""
        return self.state == TaskMode.WORKING and not self.completion.hooks

    def position(self, at: StreamPartition) -> int:
        """The next position to read, after everything complete."""
        return self.inputs.positions[at]

    @property
    def step_times(self) -> Mapping[str, int]:
        """The time of each step, as far as known; available before the first letter after a start."""
        return self.time.delivered

    @property
    def phase(self) -> TaskState:
        """What is shown of it."""
        if self.state == TaskMode.WORKING:
            return phase_at_work(
                drains=self.completion.drain_id is not None,
                finished=self.letters.finished(),
                bootstraps=bool(self.inputs.bootstrap),
                paused=self.run.paused_job,
            )
        if self.state == TaskMode.RESTING:
            return self.completion.phase
        return TaskState.RELEASING if self.state == TaskMode.CLOSING else TaskState(self.state)

    @property
    def readable(self) -> bool:
        """Whether its state is there and its own, to be read by others."""
        return self.state in (TaskMode.WORKING, TaskMode.RESTING)

    def stale(self, event: TaskEvent) -> bool:
        """Whether it answers an order that was withdrawn, or replaced by a newer one."""
        work = self.work
        match event:
            case t.ChunkDone():
                return work.chunk is None
            case t.StepDone():
                return work.step is None or work.step.letter != event.letter or work.step_made is not None
            case t.WorkFailed():
                return not work.awaited
            case t.CommitDone():
                return not self.ledger.awaits(event.txn)
            case t.OffsetsResolved():
                return self.state == TaskMode.RESTORING and event.request != BEGINNING
            case t.FetchStopped():
                return self.completion.drain_id is None or self.inputs.drain_upto is not None
            case _:
                return False

    def deadline(self) -> float | None:
        due = self.due_s()
        lapses_s = self.inputs.idle_until_s if self.state == TaskMode.WORKING else NEVER
        return due if lapses_s == NEVER else lapses_s if due is None else min(due, lapses_s)

    def due_s(self) -> float | None:
        """The deadline if the broker answers all the time, so that no answer can expire."""
        if self.state == TaskMode.WORKING:
            due = (self.work.retry_s, self.pace.deadline, self.announcer.restates_s, self.announcer.confirms_s)
            return min((one for one in due if one is not None), default=None)
        if self.state == TaskMode.RESTING:
            return self.announcer.restates_s
        return self.restoring.deadline if self.state == TaskMode.RESTORING else None

    # ------------------------------------------------------------------------------------------------------------- orders

    def on_Start(self, event: Start, now: Now) -> Out:
        self.run, self.grant = event.run, event.grant
        self.state = TaskMode.RESTORING
        return self.restoring.start(event)

    def on_RunChanged(self, event: RunChanged, now: Now) -> Out:
        if other := self._other_run(event):
            return other
        self._follow(event.run)
        self._look_again(time=True)
        if event.run.draining is not None and self.completion.drain_id is None and self.letters.finished() != t.END:
            return self._begin_drain(event.run.draining) + self._settle(now)
        return self._settle(now) + self.ledger.request_commit()

    def note_run(self, event: RunChanged, now: Now) -> Out:
        """The run has changed before the task opens."""
        other = self._other_run(event)
        if not other:
            self.run = event.run
        return other

    def repeat_for_run(self, event: RunChanged, now: Now) -> Out:
        """The run has changed while the task rests."""
        if other := self._other_run(event):
            return other
        self._follow(event.run)
        return self._announce(with_time=True)

    def _other_run(self, event: RunChanged) -> Out:
        if event.run.run_id == self.run.run_id:
            return []
        return [t.TaskNote("other-run", f"the task is in run {self.run.run_id}, not in {event.run.run_id}")]

    def _follow(self, run: RunView) -> None:
        """The producers are others, and control messages that waited for them may count now."""
        self.run = run
        inputs = self.inputs
        inputs.progress.producers_changed(inputs.producers(run))
        for at, (offset, frame) in list(inputs.waiting.items()):
            if inputs.hear(at, offset, frame):
                self.ledger.touch()

    def on_Release(self, event: Release, now: Now) -> Out:
        self.why = event.why
        return self.work.stop(event.why) + self._leave()

    def release_unopened(self, event: Release, now: Now) -> Out:
        """It has not opened: what is not durable is made again by the next owner."""
        self.ledger.forget()
        return self.on_Release(event, now)

    def release_at_once(self, event: Release, now: Now) -> Out:
        """It holds nothing."""
        return self._released(event.why)

    def release_after_all(self, event: Release, now: Now) -> Out:
        """A failing task that must be released is only released."""
        self._fails = False
        return []

    def on_Abandon(self, event: Abandon, now: Now) -> Out:
        self.state, self.why = TaskMode.ABANDONED, event.why
        return [t.Discard(event.why)]

    def on_Seek(self, event: Seek, now: Now) -> Out:
        self._regate = True
        return self.seeks.seek(event) + self._settle(now)

    def on_Unpark(self, event: Unpark, now: Now) -> Out:
        self._unsettled = True
        return self.seeks.unpark(event) + self._moves_again() + self._settle(now)

    def note_seek(self, event: Errand, now: Now) -> Out:
        """A seek before the task opens."""
        self.seeks.early.append(event)
        return []

    def refuse_seek(self, event: Errand, now: Now) -> Out:
        """A seek while it rests."""
        return self.seeks.too_late(event, self.phase)

    def keep_seek(self, event: Errand, now: Now) -> Out:
        """A seek while it leaves."""
        self.seeks.late.append(event)
        return []

    def begin_again(self, event: Errand, now: Now) -> Out:
        """A seek after it has failed. What has failed at once was dropped, so only its next start can answer."""
        if self._dropped:
            return []
        self.state = TaskMode.ABANDONED
        return [t.BeginAgain((*self.seeks.kept, event))]

    def note_settings(self, event: t.SettingsChanged, now: Now) -> Out:
        """The settings are others, and nothing is to be done about it now."""
        self._use(event, now)
        return []

    def _use(self, event: t.SettingsChanged, now: Now) -> None:
        # the size above which control messages are aggregated stays the same during a run
        settings = replace(event.settings, aggregate_above=self.plan.settings.aggregate_above)
        self.plan = replace(self.plan, settings=settings)
        self.inputs.go_by(self.plan, now)
        self.pace.hurry(now, settings.watermark_interval_s)

    def on_SettingsChanged(self, event: t.SettingsChanged, now: Now) -> Out:
        self._use(event, now)
        self.inputs.weigh_lag()
        self._look_again(time=True)
        return self._settle(now)

    def on_Tick(self, event: Tick, now: Now) -> Out:
        work = self.work
        if work.retry_s is not None and now.mono >= work.retry_s:
            work.retry_s = None
            return [t.RunAgain(work.attempt)]
        return self._settle(now)

    def look_at_log(self, event: Tick, now: Now) -> Out:
        """An open transaction may have blocked the log for too long."""
        limit = self.restoring.deadline
        if limit is None or now.mono < limit:
            return []
        return self._fail_now(
            "open transaction: the task's log holds an unfinished transaction of an owner that is neither released nor "
            "fenced; it ends with its transaction timeout, or when that worker is fenced"
        )

    def repeat(self, event: Tick, now: Now) -> Out:
        """Other jobs may be due to be notified again."""
        return self._announce(with_time=True) if self.announcer.restate(now) else []

    # -------------------------------------------------------------------------------------------------- store and task log

    def on_StoreOpened(self, event: t.StoreOpened, now: Now) -> Out:
        return self.restoring.store_opened(event, now)

    def on_StoreBroken(self, event: t.StoreBroken, now: Now) -> Out:
        return self.restoring.store_broken(event)

    def on_LogEnds(self, event: t.LogEnds, now: Now) -> Out:
        return self.restoring.log_ends(event, now)

    def on_StoreWiped(self, event: t.StoreWiped, now: Now) -> Out:
        return self.restoring.store_wiped(event, now)

    def on_RestoreProgress(self, event: t.RestoreProgress, now: Now) -> Out:
        return self.restoring.progress(event, now)

    def on_Restored(self, event: t.Restored, now: Now) -> Out:
        if why := self.restoring.foreign(event, self.run):
            return self._fail_now(why, passing=False)
        checkpoint = self.restoring.restored(event, self.run)
        self.time.load()
        self.time.owes(event.owed)
        self._remember(checkpoint)  # before any commit: the next checkpoint must contain what the last one did
        if checkpoint.phase in RESTING:  # it had drained or ended durably before the restart: only report it again
            self.state = TaskMode.RESTING
            out = [*self.seeks.when_at_rest(checkpoint.phase), *self._announce(with_time=True)]
            return [*out, self._report(checkpoint.phase)]
        return self.restoring.ask(self.run) + self._open(now)

    def _remember(self, checkpoint: Checkpoint) -> None:
        """Restore the state of the checkpoint."""
        self.completion.remember(checkpoint)
        self.seeks.applied = list(checkpoint.applied)

    def on_OffsetsResolved(self, event: t.OffsetsResolved, now: Now) -> Out:
        offset, end = next(iter(event.positions.values()), None), next(iter(event.ends.values()), None)
        self._look_again()
        return self.seeks.resolved(event.request, offset, end) + self._settle(now)

    def take_positions(self, event: t.OffsetsResolved, now: Now) -> Out:
        """The positions at which it begins."""
        if not self.restoring.resolving:
            raise IllegalEvent(self, event)
        return self.restoring.resolved(event) + self._open(now)

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
        self.state = TaskMode.WORKING
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
        if not self.may_take(event.at) or event.upto <= self.inputs.positions[event.at]:
            raise IllegalEvent(self, event)
        self.work.chunk = event
        self.inputs.moved(event.at)
        return self._moves_again()

    def on_PositionMoved(self, event: t.PositionMoved, now: Now) -> Out:
        at = event.at
        if event.position <= self.inputs.positions.get(at, event.position):
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
        if event.offset < self.inputs.positions.get(at, event.offset + 1):
            return []
        if self.work.reads(at):
            raise IllegalEvent(self, event)
        self._look_again(time=True)
        self.ledger.touch()
        self.inputs.hear(at, event.offset, event.frame)
        reason = HEARD if at in self.inputs.waiting else self.inputs.progress.reason
        note: Out = [] if reason == HEARD else [t.TaskNote(t.IGNORED + reason, str(at), "debug")]
        return note + self._moves_again() + self.ledger.request_commit() + self._settle(now)

    def on_AtEnd(self, event: t.AtEnd, now: Now) -> Out:
        at = event.at
        if self.work.reads(at):
            return []
        if event.position > self.inputs.positions.get(at, event.position):
            self._advance(at, event.position)
        if event.position == self.inputs.positions.get(at):
            news = self.inputs.at_end(at, now, event.age_s) or self.time.may_lift()
            self.pace.news = news or self.pace.news
        return [
            *self._settle(now),
            *(self._moves_again() if event.owes else self.stillness.look(self.run, self.grant, self.phase)),
        ]

    def on_NotAtEnd(self, event: t.NotAtEnd, now: Now) -> Out:
        if self.inputs.not_at_end(event.at, now):
            self.pace.news = True
            return self._settle(now)
        return []

    def on_NotAnswered(self, event: t.NotAnswered, now: Now) -> Out:
        self.pace.news = self.inputs.not_at_end(event.at, now) or self.pace.news
        return [t.TaskNote("degraded", f"no fetch of {event.at} is answered", "debug"), *self._settle(now)]

    def on_Lost(self, event: t.Lost, now: Now) -> Out:
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
        if not self.inputs.identify(event.at, event.topic):
            return []
        self.ledger.touch()
        return self.ledger.request_commit()

    def on_Lag(self, event: t.Lag, now: Now) -> Out:
        self.inputs.lag = event.records
        if not self.inputs.weigh_lag():
            return []
        self._regate = True
        return self._settle(now)

    def on_FetchStopped(self, event: t.FetchStopped, now: Now) -> Out:
        self.draining.stopped(self.completion.drain_id or "", self.run, event)
        self._look_again()
        return self._settle(now)

    # --------------------------------------------------------------------------------------------------------------- work

    def on_ChunkDone(self, event: t.ChunkDone, now: Now) -> Out:
        self._chunk_done(event, now)
        if event.ends:
            self.inputs.end_here(event.ends)
            self._look_again()
        out = self.seeks.after_chunk(event.at)
        out += self.ledger.request_commit(urgent=event.commit)
        return out + self._settle(now)

    def leave_after_chunk(self, event: t.ChunkDone, now: Now) -> Out:
        """Its last chunk is complete."""
        self._chunk_done(event, now)
        return self._leave()

    def _chunk_done(self, event: t.ChunkDone, now: Now) -> None:
        chunk = self.work.chunk
        if chunk is None or event.at != chunk.at or event.upto < chunk.upto:
            raise IllegalEvent(self, event)
        self.work.chunk = None
        self.work.succeeded()
        self.pace.news = self.inputs.saw(event.at, event.max_ts, now) or self.pace.news  # first: it may end here
        self._advance(event.at, event.upto)
        self._owes(event.owed)

    def on_WorkFailed(self, event: t.WorkFailed, now: Now) -> Out:
        retry = self.work.failed(event, self.plan.settings, now)
        if retry is not None:
            return [retry]
        self.work.drop()
        return self._fail(event.why)

    def leave_dropped(self, event: t.ChunkDropped, now: Now) -> Out:
        """Its last work is dropped."""
        self.work.drop()
        return self._leave()

    def leave_failed(self, event: t.WorkFailed, now: Now) -> Out:
        """Its last work has failed, and is not tried again."""
        self.work.drop()
        return self._leave()

    def on_Broken(self, event: t.Broken, now: Now) -> Out:
        return self._drop_work(event.why) + self._fail(event.why, passing=event.passing)

    def leave_broken(self, event: t.Broken, now: Now) -> Out:
        """Something of it is broken while it leaves: the first failure decides its outcome."""
        return self._drop_work(event.why) + self._leave()

    def break_at_once(self, event: t.Broken | t.ApplyFailed, now: Now) -> Out:
        """Something of it is broken before it opens."""
        if isinstance(event, t.ApplyFailed):
            return self._fail_now(event.why)
        return self._fail_now(event.why, passing=event.passing)

    def _drop_work(self, why: str) -> Out:
        dropped: Out = [] if self.work.idle else [t.DropChunk(why)]
        self.work.drop()
        return dropped

    def on_WorkDue(self, event: t.WorkDue, now: Now) -> Out:
        if self.completion.hooks:
            return []
        self.letters.work.append(event)
        self._unsettled = True
        return self._moves_again() + self._settle(now)

    def on_StepDone(self, event: t.StepDone, now: Now) -> Out:
        step = self._step_done(event, now)
        if event.more:
            self.work.step, self.work.step_made = step, self.ledger.made
            return self.ledger.request_commit(urgent=True)
        self._unsettled = True
        after = self._unparked(step, event) + self._settle(now)
        ends = (
            step.cause in (t.END, t.DRAIN) and self.work.step is None
        )  # else the next letter of the end shares its commit
        return after + self.ledger.request_commit(urgent=event.commit or ends)

    def leave_after_step(self, event: t.StepDone, now: Now) -> Out:
        """Its last step is complete. If its letter needs more of them, the next owner begins with the letter."""
        step = self._step_done(event, now)
        return self._unparked(step, event) + self._leave()

    def _unparked(self, step: t.RunStep, event: t.StepDone) -> Out:
        return self.seeks.unparked(step.key, event.refused) if step.kind == UNPARK else []

    def _step_done(self, event: t.StepDone, now: Now) -> t.RunStep:
        step, self.work.step = self.work.step, None
        assert step is not None, "a stale answer"
        self.work.succeeded()
        self.ledger.touch()
        for at, greatest in event.seen:
            self.pace.news = self.inputs.saw(at, greatest, now) or self.pace.news
        self._owes(event.owed)
        if event.ends:
            self.inputs.end_here(event.ends)
            self._regate = True
        if not event.more:
            self.letters.complete(step)
            if step.stream is None and step.kind in (t.END, t.DRAIN):
                self.completion.complete(step.kind)
        return step

    def _owes(self, owed: t.Owed) -> None:
        """Take what the steps owe after a letter. The time behind them may advance, or no longer."""
        if self.time.owes(owed):
            self._unsettled = self.pace.news = True

    def on_CommitWanted(self, event: t.CommitWanted, now: Now) -> Out:
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
        with_time = self._looks_for_commit(now)
        said: Out = [*self._say(with_time=with_time)]
        self.announcer.confirmations.begins()
        if said and with_time:
            self.pace.announced(now)
        rows = self._contribution(event.txn)
        return [*said, *rows] if rows else []

    def contribute(self, event: t.CommitBegins, now: Now) -> Out:
        """A commit begins in which it only takes part."""
        self._looks_for_commit(now)
        self.announcer.confirmations.begins()
        return self._contribution(event.txn)

    def _looks_for_commit(self, now: Now) -> bool:
        """The time of the records whose positions are committed survives a restart, and announcements are true now. Returns whether newer
        times are announced.
        """
        self._observe(now)
        return self.pace.announces(now, self.plan.settings.watermark_interval_s)

    def _contribution(self, txn: int) -> Out:
        own = self.ledger.contribute(txn)
        if own is None:
            return []
        rows: t.RowChanges = {**own, **self.inputs.progress.take_changes()}
        return [t.Contribute(self._checkpoint(), MappingProxyType(rows))]

    def _checkpoint(self) -> Checkpoint:
        """What a restart needs in addition to the control table, as of now. The current chunk has no part in it."""
        return Checkpoint(
            job=self.plan.job,
            job_uuid=self.run.job_uuid,
            run=self.run.run_id,
            epoch=max((one.epoch for one in self.run.producers.values()), default=0),
            positions={**self.inputs.elsewhere, **self.inputs.positions},
            topics=dict(self.inputs.topics),
            adopted=dict(self.inputs.adopted),
            until=dict(self.inputs.until),
            phase=self.completion.phase,
            drain_id=self.completion.drain_id or "",
            hooks=self.completion.hooks,
            applied=tuple(self.seeks.applied),
            grant=self.grant,
        )

    def on_CommitDone(self, event: t.CommitDone, now: Now) -> Out:
        held_up = self.seeks.held_up
        out = self.note_durable(event, now)
        if self.completion.reached():
            out.append(self._report(self.completion.phase))
            self.state = TaskMode.RESTING
            out += self.seeks.when_at_rest(self.phase)
        work = self.work
        if work.step is not None and work.step_made is not None and self.ledger.is_durable(work.step_made):
            work.step_made = None
            out.append(work.step)
        return out + self._sought(now) if self.seeks.held_up < held_up else out

    def note_durable(self, event: t.CommitDone, now: Now) -> Out:
        """What the commit contains is durable."""
        self.ledger.done(event.txn)
        self.announcer.confirmations.done(now)
        return self.seeks.durable()

    def open_durable(self, event: t.CommitDone, now: Now) -> Out:
        """The positions at which it begins are durable."""
        return self.note_durable(event, now) + self._open(now)

    def leave_durable(self, event: t.CommitDone, now: Now) -> Out:
        """Its last commit is durable, or another one is needed."""
        out = self.note_durable(event, now)
        if self.completion.reached():
            out.append(self._report(self.completion.phase))
        return out + self._leave()

    def on_CommitLost(self, event: t.CommitLost, now: Now) -> Out:
        self.state, self.why, self._dropped = TaskMode.FAILED if event.blamed else TaskMode.ABANDONED, event.why, True
        return [t.Discard(event.why)]

    def on_ApplyFailed(self, event: t.ApplyFailed, now: Now) -> Out:
        self.ledger.done_anyway()
        return self._fail(event.why, passing=True)

    def leave_applied(self, event: t.ApplyFailed, now: Now) -> Out:
        """Its last commit is durable, though its store is invalid."""
        self.ledger.done_anyway()
        return self._leave()

    # ----------------------------------------------------------------------------------------------------------- settling

    def _look_again(self, *, time: bool = False) -> None:
        """Something has changed that the task must settle: letters, announcements, closed partitions, and perhaps the time."""
        self._unsettled = self._regate = True
        self.pace.news = self.pace.news or time
        self.announcer.wake()

    def _settle(self, now: Now) -> Out:
        """Do what follows from the current state."""
        out: Out = []
        if self.state != TaskMode.WORKING:
            return out
        self.pace.news = self.inputs.lapse(now) or self.pace.news
        if self.pace.due(now):
            self._unsettled = True
            overheard, newer = self._observe(now), self.letters.newer_time()
            if overheard or newer:
                self.pace.delivered_newer(now, self.plan.settings.watermark_interval_s)
            self.letters.due.update(newer)
        if self.announcer.restate(now) or self.announcer.confirm(now, self.run, self.completion.drain_id or ""):
            self.ledger.touch()
            out += self.ledger.request_commit()
        if self._unsettled:
            out += self._hear_and_say()
        if self._regate:
            self._regate = False
            if self.inputs.gate(self.run, draining=self.completion.drain_id is not None):
                out.append(t.Gate(self.inputs.closed))
                self.pace.soon(now, self.inputs.unobserved)
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
            self._unsettled = step is not None
        out: Out = []
        if self.completion.drain_id is None and self.letters.finished() == t.DRAIN:
            out += self._begin_drain(self.inputs.drain_in_frames())  # before it is announced, which names it
        out += self._announce(with_time=False)
        if self.pace.owed and step is None:
            out += self._request_time()
            self.pace.owed = not self.work.idle
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
        """Request a commit for a newer time, which is announced when it begins: no one reads it before, and the operators' pending results
        are sent only once.
        """
        if not self.announcer.owes_time(self.run, self.completion.drain_id or ""):
            return []
        self.ledger.touch()
        return self.ledger.request_commit()

    def _begin_drain(self, drain_id: str) -> Out:
        """Begin to drain. That alone needs no commit: whoever restarts the task is told again, and the letters of the drain want one."""
        keep = self.phase != TaskState.BOOTSTRAPPING
        self.completion.begin_drain(drain_id)
        self.ledger.touch()
        self._look_again()
        return self.draining.begin(drain_id, self.run, keep=keep)

    # ----------------------------------------------------------------------------------------------------------- reporting

    def _report(self, state: TaskState, why: str = "") -> t.SendReport:
        return t.SendReport(TaskReported(self.plan.task, self.grant, state, why))

    def _moves_again(self) -> Out:
        return self.stillness.moves_again(self.grant)

    # ------------------------------------------------------------------------------------------------------------- leaving

    def _fail(self, why: str, *, passing: bool = False) -> Out:
        """User code or data has failed, or the task's environment (`passing`): commit what is complete, then report."""
        self.why, self._fails, self._passing = why, True, passing
        return [t.TaskNote("failed", why, "error"), *self.work.stop(why), *self._leave()]

    def _fail_now(self, why: str, *, passing: bool = True) -> Out:
        """Fail without a commit: drop everything and report it. `passing`: a disk, a broker, or a log that is held up."""
        self.why = why
        self.state, self._dropped = TaskMode.FAILED, True
        report = TaskReported(self.plan.task, self.grant, TaskState.FAILED, why, gone=True, passing=passing)
        return [t.Discard(why), t.SendReport(report)]

    def _leave(self) -> Out:
        """Take the next step of leaving: wait for the actor, commit, close."""
        self.state = TaskMode.RELEASING
        if not self.work.idle:
            return []
        if not self.ledger.clean:
            return self.ledger.request_commit(urgent=True)
        self.state = TaskMode.CLOSING
        return [t.CloseStore()]

    def on_StoreClosed(self, event: t.StoreClosed, now: Now) -> Out:
        if not self._fails:
            return self._released(self.why)
        return self._fail_now(self.why) if self._passing else self._failed()

    def _released(self, why: str) -> Out:
        self.state = TaskMode.RELEASED
        return [self._report(TaskState.RELEASED, why)]

    def _failed(self) -> Out:
        """The task has failed for good, unless a seek has come meanwhile that moves it past the failure."""
        refused, again = self.seeks.when_failed(self.why)
        if again:
            self.state = TaskMode.ABANDONED
            return [*refused, t.BeginAgain(again)]
        self.state = TaskMode.FAILED
        return [*refused, self._report(TaskState.FAILED, self.why)]
