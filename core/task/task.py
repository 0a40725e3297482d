"""The life of one task under one grant: what it may read, what its operators hear, what it says, and when it is durable.

    waiting → restoring → bootstrapping → running ⇄ paused → draining → drained
                                                           → ending → ended
    from anywhere: → releasing → released | failed;  → abandoned

States: *waiting* for its order; *restoring* its tables and control state; *bootstrapping*: nothing flows but the bootstrap inputs;
*running*; *paused*: nothing from outside; *draining*: what is buffered and between the stages flows out; *ending*: all inputs have
ended, the operators flush; *drained*, *ended*: durable and reported, the grant is kept and control is said again when epochs
change; *releasing*: finishing, committing, closing (on its way to *released*, or to *failed* when user code gave up);
*abandoned*: the incarnation is over, everything that was not durable is void. The table stands in `task_states`.

What it promises:

- Half a chunk is never in a transaction: positions move with what is complete, and a commit takes what is complete.
- The bookkeeping of control messages is in the same commit as the position behind them and what was said because of them.
- Letters (watermark, end, drain, timers) run one at a time, in bounded steps, with a commit between the steps, and never beside a
  chunk. What operators have heard is remembered with the last step.
- Drained, ended, released and an applied seek are reported after the commit that holds them, once.
- Every seek is answered, or told again to the next life: by a task that begins anew with it, or to the next holder of the grant.
- The first failure decides what becomes of the task; what goes wrong while it is put down decides nothing.
- A restart resumes where it was: a drain goes on without new input, what has run is not run again, a control message that was
  half aggregated completes.
- The machine sees no record.
"""

from __future__ import annotations

from dataclasses import replace

from ..machine import IllegalEvent, Now, Tick
from ..names import StreamPartition
from ..orders import Abandon, Release, RunChanged, Seek, Start, TaskReported
from .checkpoint import DRAINED as PHASE_DRAINED
from .checkpoint import ENDED as PHASE_ENDED
from .commits import TaskCommits
from .protocol import (
    AtEnd,
    BeginAgain,
    Broken,
    ChunkDone,
    ChunkDropped,
    ChunkTaken,
    CommitWanted,
    ControlAtHead,
    Discard,
    DropChunk,
    FetchStopped,
    Lag,
    LogEnds,
    Lost,
    NotAnswered,
    NotAtEnd,
    Note,
    PositionMoved,
    Resolved,
    Restored,
    RestoreProgress,
    RunAgain,
    SettingsChanged,
    StepDone,
    StoreBroken,
    StoreClosed,
    StoreOpened,
    StoreWiped,
    TaskInstruction,
    Tell,
    WorkDue,
    WorkFailed,
)
from .restoring import BEGINNING
from .states import (
    ABANDONED,
    DRAINING,
    ENDING,
    FAILED,
    GONE,
    RELEASED,
    RELEASING,
    RESTING,
    RESTORING,
    TABLE,
    WAITING,
    WORKING,
)

Out = list[TaskInstruction]


class Task(TaskCommits):
    """One task, as rules.

    >>> from headgate.core.task.plan import InputPlan, TaskPlan
    >>> from headgate.core.orders import RunView
    >>> task = Task(TaskPlan("sales/1", "Partition 0", (InputPlan("orders", (0,), 1),)))
    >>> task.handle(Start("Partition 0", 1, RunView("r1", "u1"), 0), Now(0.0, 0))
    [OpenStore(), AskLogEnds(log_partition=0)]
    """

    TABLE = TABLE
    INITIAL = WAITING

    # ------------------------------------------------------------------------------------------------------------ orders

    def on_Start(self, event: Start, now: Now) -> Out:
        self.run, self.grant = event.run, event.grant
        self.state = RESTORING
        return self.restoring.start(event)

    def on_RunChanged(self, event: RunChanged, now: Now) -> Out:
        if self.state in GONE or self.state == RELEASING:
            return []
        if event.run.run_id != self.run.run_id:
            return [Note("other-run", f"the task is in run {self.run.run_id}, not in {event.run.run_id}")]
        self.run = event.run
        if self.state == RESTORING:
            return []
        inputs = self.inputs
        inputs.progress.producers_changed(inputs.producers(event.run))
        for at, (offset, frame) in list(inputs.waiting.items()):
            if inputs.hear(at, offset, frame):
                self.ledger.touch()
        if self.state in RESTING:
            return self.speak(with_time=True)
        self._restless = self._regate = self._time_news = True
        out: Out = []
        if event.run.draining is not None and self.drain_id is None and self.state != ENDING:
            out += self.begin_drain(event.run.draining)
        return out + self.settle(now) + self.ask_commit("a change of the run")

    def on_Release(self, event: Release, now: Now) -> Out:
        if self.state in (WAITING, FAILED):
            self.state = RELEASED
            return [Tell(TaskReported(self.plan.task, self.grant, RELEASED, event.why))]
        if self.state == RELEASING:
            self._leaving = RELEASED  # also one that is failing: whoever waits for the release waits for nothing else
            return []
        if self.state in GONE:
            return []
        self.why, self._leaving = event.why, RELEASED
        if self.state == RESTORING:
            self.ledger.forget()
        return self.stop_work(event.why) + self.leave()

    def on_Abandon(self, event: Abandon, now: Now) -> Out:
        if self.state in (RELEASED, ABANDONED):
            return []
        self.state, self.why = ABANDONED, event.why
        return [Discard(event.why)]

    def on_Seek(self, event: Seek, now: Now) -> Out:
        if self.state == RESTORING:
            self.seeks.early.append(event)
            return []
        if self.state in RESTING:
            return self.seeks.too_late(event)
        if self.state == RELEASING:
            self.seeks.late.append(event)
            return []
        if self.state == FAILED and not self._dropped:
            self.state = ABANDONED
            return [BeginAgain((event,))]
        if self.state not in WORKING:
            return []
        self._regate = True
        return self.seeks.seek(event) + self.settle(now)

    def on_SettingsChanged(self, event: SettingsChanged, now: Now) -> Out:
        settings = replace(
            event.settings, aggregate_above=self.plan.settings.aggregate_above
        )  # the run's, for as long as it lasts
        self.plan = replace(self.plan, settings=settings)
        self.inputs.go_by(self.plan, now)
        self._pace_s = min(self._pace_s, now.mono + settings.watermark_interval_s)
        if self.state not in WORKING:
            return []
        self.inputs.weigh_lag()
        self._restless = self._regate = self._time_news = True
        return self.settle(now)

    # --------------------------------------------------------------------------------------------------- store and task log

    def on_StoreOpened(self, event: StoreOpened, now: Now) -> Out:
        return self.restoring.store_opened(event, now) if self.state == RESTORING else []

    def on_StoreBroken(self, event: StoreBroken, now: Now) -> Out:
        return self.restoring.store_broken(event) if self.state == RESTORING else []

    def on_LogEnds(self, event: LogEnds, now: Now) -> Out:
        return self.restoring.log_ends(event, now) if self.state == RESTORING else []

    def on_StoreWiped(self, event: StoreWiped, now: Now) -> Out:
        return self.restoring.store_wiped(event, now) if self.state == RESTORING else []

    def on_RestoreProgress(self, event: RestoreProgress, now: Now) -> Out:
        return self.restoring.progress(event, now) if self.state == RESTORING else []

    def on_Restored(self, event: Restored, now: Now) -> Out:
        if self.state != RESTORING:
            return []
        return self.restoring.restored(event, self.run) + self.open(now)

    def on_Resolved(self, event: Resolved, now: Now) -> Out:
        if self.state == RESTORING and event.request == BEGINNING:
            if not self.restoring.resolving:
                raise IllegalEvent(self, event)
            return self.restoring.resolved(event) + self.open(now)
        if self.state not in WORKING:
            return []
        offsets = list(event.positions.values())
        self._regate = self._restless = True
        ends = list(event.ends.values())
        sought = self.seeks.resolved(event.request, offsets[0] if offsets else None, ends[0] if ends else None)
        return sought + self.settle(now)

    def on_StoreClosed(self, event: StoreClosed, now: Now) -> Out:
        if self.state != RELEASING or not self._closing:
            return []
        if self._leaving == FAILED:
            return self.fail_now(self.why) if self._passing else self._failed()
        self.state = RELEASED
        return [Tell(TaskReported(self.plan.task, self.grant, RELEASED, self.why))]

    def _failed(self) -> Out:
        """It has failed for good, unless somebody has asked meanwhile that it goes on elsewhere."""
        refused, again = self.seeks.when_failed()
        if again:
            self.state = ABANDONED
            return [*refused, BeginAgain(again)]
        self.state = FAILED
        return [*refused, Tell(TaskReported(self.plan.task, self.grant, FAILED, self.why))]

    # ------------------------------------------------------------------------------------------------------------ intake

    def on_ChunkTaken(self, event: ChunkTaken, now: Now) -> Out:
        if self.state in GONE:
            return []
        if not self.may_take(event.at) or event.upto <= self.inputs.positions[event.at]:
            raise IllegalEvent(self, event)
        self.chunk = event
        self.inputs.moved(event.at)
        return self.stirs()

    def on_PositionMoved(self, event: PositionMoved, now: Now) -> Out:
        at = event.at
        if self.state not in WORKING or event.position <= self.inputs.positions.get(at, event.position):
            return []
        if self.chunk is not None and self.chunk.at == at:
            raise IllegalEvent(self, event)
        return self._advance(at, event.position) + self.settle(now)

    def _advance(self, at: StreamPartition, position: int) -> Out:
        """A position moves: it is committed with whatever else there is, sooner or later."""
        self.ledger.touch()
        if self.inputs.advance(at, position):
            self._restless = self._regate = True
        return []

    def on_ControlAtHead(self, event: ControlAtHead, now: Now) -> Out:
        at = event.at
        if self.state not in WORKING or event.offset < self.inputs.positions.get(at, event.offset + 1):
            return []
        if self.chunk is not None and self.chunk.at == at:
            raise IllegalEvent(self, event)
        self._restless = self._regate = self._time_news = True
        self.ledger.touch()
        if self.hears(at, event.frame):
            self.inputs.hear(at, event.offset, event.frame)
        else:
            self.inputs.advance(at, event.offset + 1)
        return self.stirs() + self.ask_commit("control") + self.settle(now)

    def on_AtEnd(self, event: AtEnd, now: Now) -> Out:
        at = event.at
        if self.state not in WORKING or (self.chunk is not None and self.chunk.at == at):
            return []
        if event.position > self.inputs.positions.get(at, event.position):
            self._advance(at, event.position)
        if event.position == self.inputs.positions.get(at) and self.inputs.at_end(at, now, event.age_s):
            self._time_news = True
        return [*self.settle(now), *(self.stirs() if event.owes else self.rests())]

    def on_NotAtEnd(self, event: NotAtEnd, now: Now) -> Out:
        if self.state in WORKING and self.inputs.not_at_end(event.at, now):
            self._time_news = True
            return self.settle(now)
        return []

    def on_NotAnswered(self, event: NotAnswered, now: Now) -> Out:
        if self.state not in WORKING:
            return []
        self._time_news = self.inputs.not_at_end(event.at, now) or self._time_news
        return [Note("degraded", f"no fetch of {event.at} is answered", "debug"), *self.settle(now)]

    def on_Lost(self, event: Lost, now: Now) -> Out:
        if self.state not in WORKING:
            return []
        self._regate = True
        return self.seeks.lost(event) + self.settle(now)

    def on_Lag(self, event: Lag, now: Now) -> Out:
        self.inputs.lag = event.records
        if self.state not in WORKING or not self.inputs.weigh_lag():
            return []
        self._regate = True
        return self.settle(now)

    def on_FetchStopped(self, event: FetchStopped, now: Now) -> Out:
        if self.state != DRAINING or self.inputs.drain_upto is not None:
            return []
        through = self.through()
        upto = {
            at: max(event.upto.get(at, 0), through.get(at, 0), self._in_hand(at))
            for at in self.inputs.external
            if at not in self.inputs.finished
        }
        self.inputs.drain(self.drain_id or "", upto)
        self._restless = self._regate = True
        return self.settle(now)

    # -------------------------------------------------------------------------------------------------------------- work

    def on_ChunkDone(self, event: ChunkDone, now: Now) -> Out:
        if self.state in GONE or self.state in RESTING or self.chunk is None:
            return []
        if event.at != self.chunk.at or event.upto < self.chunk.upto:
            raise IllegalEvent(self, event)
        self.chunk, self.attempt, self.retry_s = None, 0, None
        self._advance(event.at, event.upto)
        if self.inputs.saw(event.at, event.max_ts, now):
            self._time_news = True
        if self.state == RELEASING:
            return self.leave()
        if event.stop:
            self.inputs.end_all()
            self._restless = self._regate = True
        out = self.seeks.after_chunk(event.at)
        out += self.ask_commit("asked for" if event.commit else "chunk", urgent=event.commit)
        return out + self.settle(now)

    def on_ChunkDropped(self, event: ChunkDropped, now: Now) -> Out:
        if self.state != RELEASING or self._closing:
            return []
        self.chunk = self.letters.current = None
        return self.leave()

    def on_WorkFailed(self, event: WorkFailed, now: Now) -> Out:
        nothing = self.chunk is None and (self.letters.current is None or self._step_at is not None)
        if self.state == RELEASING and not nothing:
            self.chunk = self.letters.current = None
            return self.leave()
        if self.state not in WORKING or nothing or self.retry_s is not None:
            return []
        settings = self.plan.settings
        self.attempt += 1
        if event.final or self.attempt > settings.error_retries:
            self.chunk = self.letters.current = None
            return self.fail(event.why)
        wait = min(settings.error_backoff_s * 2 ** (self.attempt - 1), settings.error_backoff_max_s)
        self.retry_s = now.mono + wait
        return [Note("retry", f"attempt {self.attempt} in {wait:g} s: {event.why}", "warning")]

    def on_Broken(self, event: Broken, now: Now) -> Out:
        if self.state in GONE:
            return []
        if self.state == RESTORING:
            return self.fail_now(event.why, passing=event.passing)
        working = self.chunk is not None or self.letters.current is not None
        drop: Out = [DropChunk(event.why)] if working else []
        self.chunk = self.letters.current = self.retry_s = self._step_at = None
        return drop + (self.leave() if self.state == RELEASING else self.fail(event.why, passing=event.passing))

    def on_WorkDue(self, event: WorkDue, now: Now) -> Out:
        if self.state not in WORKING or self.hooks:
            return []
        self.letters.work.append(event)
        self._restless = True
        return self.stirs() + self.settle(now)

    def on_StepDone(self, event: StepDone, now: Now) -> Out:
        step = self.letters.current
        if self.state in GONE or step is None or step.letter != event.letter or self._step_at is not None:
            return []
        self.attempt, self.retry_s = 0, None
        made = self.ledger.touch()
        if event.stop:
            self.inputs.end_all()
            self._regate = True
        if event.more:
            if self.state == RELEASING:
                self.letters.current = None
                return self.leave()
            self._step_at = made
            return self.ask_commit("a step of a letter", urgent=True)
        self._letter_complete()
        if self.state == RELEASING:
            return self.leave()
        self._restless = True
        urgent = event.commit or step.cause in ("end", "drain")
        return self.ask_commit(step.kind, urgent=urgent) + self.settle(now)

    def _letter_complete(self) -> None:
        step = self.letters.complete()
        if step.stream is None and step.kind in ("end", "drain"):
            self.hooks |= {step.kind}
            self.with_phase(PHASE_ENDED if self.drain_id is None else PHASE_DRAINED)

    def on_CommitWanted(self, event: CommitWanted, now: Now) -> Out:
        if self.state not in WORKING:
            return []
        self.ledger.touch()
        return self.ask_commit("changed beside the letters", urgent=False)

    def on_Tick(self, event: Tick, now: Now) -> Out:
        if self.state == RESTORING:
            limit = self.restoring.deadline
            if limit is None or now.mono < limit:
                return []
            return self.fail_now(
                "open transaction: the task's log holds an unfinished transaction of somebody who is neither released nor "
                "fenced; it ends with its transaction timeout, or fence that worker"
            )
        if self.state not in WORKING:
            return []
        if self.retry_s is not None and now.mono >= self.retry_s:
            self.retry_s = None
            return [RunAgain(self.attempt)]
        return self.settle(now)
