"""The first half of a task's life: from the order to start until everything stands where it stood.

    waiting → restoring:  open the store, ask the log's ends → wipe what cannot be trusted → replay → resolve what is new

Promises: a store that may be stale, foreign or damaged is wiped before it is used; an open transaction of somebody else holds
restoring up for a bounded time; what is resolved (starts, bounds) is durable before the first record is read; a checkpoint of
another job is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..machine import Now
from ..names import StreamPartition
from ..orders import RunView, Start
from .checkpoint import DRAINED, DRAINING, ENDED, Checkpoint
from .protocol import (
    AskLogEnds,
    LogEnds,
    OpenStore,
    Resolve,
    Resolved,
    Restore,
    Restored,
    RestoreProgress,
    StoreBroken,
    StoreOpened,
    StoreWiped,
    TaskInstruction,
    WipeStore,
)
from .restore import Beginning, beginning

if TYPE_CHECKING:
    from .body import TaskBody

BEGINNING = 0
"""The number of the `Resolve` that belongs to the start; seeks and lost positions have others."""


class Restoring:
    """What must be gathered before a task can work. It belongs to one `Task`, which hands it the events of that time."""

    def __init__(self, task: TaskBody) -> None:
        self.task = task
        self.log_partition = 0
        self.store: StoreOpened | None = None
        self.log: LogEnds | None = None
        self.blocked_s: float | None = None
        """Since when an open transaction has held it up."""
        self.checkpoint: Checkpoint | None = None
        self.remark = ""
        """What is to be said with the report that the task runs."""
        self.open_at: int | None = None
        """Opens when this change is durable."""
        self._asked = False
        self.resolving = False
        """The broker is asked what is new, and has not answered."""
        self._begin: Beginning | None = None

    def start(self, order: Start) -> list[TaskInstruction]:
        self.log_partition = order.log_partition
        return [OpenStore(), AskLogEnds(order.log_partition)]

    def store_opened(self, event: StoreOpened, now: Now) -> list[TaskInstruction]:
        self.store = event
        return self._replay(now)

    def store_broken(self, event: StoreBroken) -> list[TaskInstruction]:
        return [WipeStore(event.why)]

    def log_ends(self, event: LogEnds, now: Now) -> list[TaskInstruction]:
        self.log = event
        return self._replay(now)

    def store_wiped(self, event: StoreWiped, now: Now) -> list[TaskInstruction]:
        self.store = StoreOpened()
        return self._replay(now)

    def _replay(self, now: Now) -> list[TaskInstruction]:
        if self.store is None or self.log is None or self._asked:
            return []
        why = self.task.judge_store(self.store, self.log, now.wall)
        if why:
            self.store = None
            return [WipeStore(why)]
        self._asked = True
        start = self.log.start if self.store.position is None else self.store.position
        return [Restore(self.log_partition, start, self.log.end)]

    def progress(self, event: RestoreProgress, now: Now) -> list[TaskInstruction]:
        if not event.blocked:
            self.blocked_s = None
        elif self.blocked_s is None:
            self.blocked_s = now.mono
        return []

    @property
    def deadline(self) -> float | None:
        """When an open transaction has held it up for too long."""
        return None if self.blocked_s is None else self.blocked_s + self.task.plan.settings.restore_deadline_s

    # ------------------------------------------------------------------------------------------------------- restored

    def restored(self, event: Restored, run: RunView) -> list[TaskInstruction]:
        """Everything that was durable is known again; ask what is new, or go on."""
        self.blocked_s = None
        self.remark = event.remark
        task = self.task
        found = event.checkpoint
        if found is not None and found.job_uuid != run.job_uuid:
            return task.fail_now(
                f"its log holds checkpoints of job uuid {found.job_uuid}, and this job is {run.job_uuid}: the topics of "
                f"another life of the job; use another job id, or `headgate reset` it",
                passing=False,
            )
        fresh = found is None or found.run != run.run_id
        base = found or Checkpoint(task.plan.job, run.job_uuid, run.run_id)
        self.checkpoint = replace(base.for_run(run.run_id), job_uuid=run.job_uuid)
        task.inputs.load(run, task.ledger.load(run.run_id, event.rows))
        task.letters.load()
        task.inputs.positions = dict(self.checkpoint.positions)
        task.remember()  # before anything is committed: the next checkpoint must remember what the last one did
        if self.checkpoint.phase in (DRAINED, ENDED):
            return task.rest(self.checkpoint.phase)
        return self._ask(run, fresh=fresh)

    def _ask(self, run: RunView, *, fresh: bool) -> list[TaskInstruction]:
        assert self.checkpoint is not None
        task = self.task
        begin = beginning(task.plan.inputs, self.checkpoint.positions, self.checkpoint.until, new_run=fresh)
        self._begin = begin
        task.inputs.positions = dict(begin.positions)
        task.inputs.until = dict(begin.until)
        draining = task.resumes_draining(self.checkpoint, run) is not None
        bootstrap = frozenset(at for one in task.inputs.by_stream.values() if one.bootstrap for at in one.owned)
        alone = len(bootstrap) == len(task.inputs.partitions)
        ends: frozenset[StreamPartition] = frozenset() if draining or alone else bootstrap
        if begin.ask_positions or begin.ask_until or ends:
            self.resolving = True
            return [Resolve(BEGINNING, begin.ask_positions, begin.ask_until, ends)]
        return self._settle()

    def resolved(self, event: Resolved) -> list[TaskInstruction]:
        """The broker has answered; what is new must be durable first."""
        assert self._begin is not None
        self.resolving = False
        inputs = self.task.inputs
        inputs.positions.update(event.positions)
        inputs.until.update(event.until)
        inputs.bootstrap = {at: end for at, end in event.ends.items() if inputs.positions[at] < end}
        return self._settle()

    def _settle(self) -> list[TaskInstruction]:
        assert self._begin is not None
        assert self.checkpoint is not None
        inputs, known = self.task.inputs, self.checkpoint.positions
        inputs.first = {at: offset for at, offset in inputs.positions.items() if at not in known}
        if not self._begin.news:
            self.open_at = self.task.ledger.made
            return []
        self.open_at = self.task.ledger.touch()
        return self.task.ask_commit("where to start and to end", urgent=True)


def resumes_draining(checkpoint: Checkpoint | None, run: RunView) -> str | None:
    """The drain that a restarted task is in: the run's, or the one that its checkpoint remembers."""
    if run.draining is not None:
        return run.draining
    if checkpoint is not None and checkpoint.run == run.run_id and checkpoint.phase in (DRAINING, DRAINED):
        return checkpoint.drain_id
    return None
