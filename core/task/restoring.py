"""The first half of a task's life: from the order to start until everything is restored.

    waiting → restoring:  open the store, ask for the log's ends → wipe what cannot be trusted → replay → resolve what is new

Promises: a store that may be stale, foreign or damaged is wiped before it is used. An open transaction of another producer delays restoring
for a limited time. What is resolved (starts, bounds) is durable before the first record is read. A checkpoint of another job is refused.
"""

from __future__ import annotations

from dataclasses import replace

from ..machine import Now
from ..names import StreamPartition
from ..orders import RunView, Start
from .completion import resumes_draining
from .inputs import Inputs
from .ledger import Ledger
from .protocol import (
    AskLogEnds,
    LogEnds,
    OffsetsResolved,
    OpenStore,
    ResolveOffsets,
    Restore,
    Restored,
    RestoreProgress,
    StoreBroken,
    StoreOpened,
    StoreWiped,
    TaskInstruction,
    WipeStore,
)
from .store_trust import Beginning, beginning, distrust
from .stored.checkpoint import Checkpoint

BEGINNING = 0
"""The number of the `ResolveOffsets` at the start; seeks and lost positions have others."""


class Restoring:
    """What must be known before a task can work."""

    def __init__(self, inputs: Inputs, ledger: Ledger) -> None:
        self.inputs, self.ledger = inputs, ledger
        self._job_uuid = ""
        self._store: StoreOpened | None = None
        self._log: LogEnds | None = None
        self._blocked_s: float | None = None
        """Since when an open transaction has delayed restoring."""
        self.checkpoint: Checkpoint | None = None
        self.remark = ""
        """The remark for the report that the task runs."""
        self._open_at: int | None = None
        """The task opens when this change is durable."""
        self._asked = False
        self.resolving = False
        """Whether the broker was asked for what is new, and has not answered."""
        self._begin: Beginning | None = None
        self._fresh = True
        """Whether the task has not been in this run before."""

    def start(self, order: Start) -> list[TaskInstruction]:
        """Open the store, and ask for the ends of the log."""
        self._job_uuid = order.run.job_uuid
        return [OpenStore(), AskLogEnds()]

    def store_opened(self, event: StoreOpened, now: Now) -> list[TaskInstruction]:
        self._store = event
        return self._replay(now)

    def store_broken(self, event: StoreBroken) -> list[TaskInstruction]:
        return [WipeStore(event.why)]

    def log_ends(self, event: LogEnds, now: Now) -> list[TaskInstruction]:
        self._log = event
        return self._replay(now)

    def store_wiped(self, event: StoreWiped, now: Now) -> list[TaskInstruction]:
        self._store = StoreOpened()
        return self._replay(now)

    def _replay(self, now: Now) -> list[TaskInstruction]:
        if self._store is None or self._log is None or self._asked:
            return []
        if why := distrust(self._store, self._log, self._job_uuid, now.wall):
            self._store = None
            return [WipeStore(why)]
        self._asked = True
        start = self._log.start if self._store.position is None else self._store.position
        return [Restore(start, self._log.end)]

    def progress(self, event: RestoreProgress, now: Now) -> list[TaskInstruction]:
        """Note since when an open transaction has delayed restoring."""
        if not event.blocked:
            self._blocked_s = None
        elif self._blocked_s is None:
            self._blocked_s = now.mono
        return []

    @property
    def deadline(self) -> float | None:
        """When an open transaction has delayed restoring for too long."""
        return None if self._blocked_s is None else self._blocked_s + self.inputs.plan.settings.restore_deadline_s

    # ------------------------------------------------------------------------------------------------------- restored

    def foreign(self, event: Restored, run: RunView) -> str:
        """Why the checkpoint of the log is not this job's; empty if it is, or if there is none."""
        found = event.checkpoint
        if found is None or found.job_uuid == run.job_uuid:
            return ""
        return (
            f"its log holds checkpoints of job uuid {found.job_uuid}, and this job is {run.job_uuid}: its topics belong to "
            f"another life of the job; use another job id, or run `headgate reset`"
        )

    def restored(self, event: Restored, run: RunView) -> Checkpoint:
        """Take over the restored state. Returns the checkpoint from which this task continues."""
        self._blocked_s = None
        self.remark = event.remark
        found = event.checkpoint
        self._fresh = found is None or found.run != run.run_id
        base = found or Checkpoint(self.inputs.plan.job, run.job_uuid, run.run_id)
        self.checkpoint = replace(base.for_run(run.run_id), job_uuid=run.job_uuid)
        self.inputs.positions = dict(self.checkpoint.positions)
        self.inputs.load(run, self.ledger.load(run.run_id, event.rows))
        self.inputs.topics = dict(self.checkpoint.topics)
        self.inputs.adopted = dict(self.checkpoint.adopted)
        return self.checkpoint

    def ask(self, run: RunView) -> list[TaskInstruction]:
        """Ask the broker for what is new, or continue at once."""
        assert self.checkpoint is not None
        inputs = self.inputs
        begin = beginning(inputs.plan.inputs, self.checkpoint.positions, self.checkpoint.until, new_run=self._fresh)
        self._begin = begin
        inputs.positions = dict(begin.positions)
        read = {one.stream for one in inputs.plan.inputs}
        inputs.elsewhere = {at: to for at, to in self.checkpoint.positions.items() if at.stream not in read}
        inputs.until = dict(begin.until)
        draining = resumes_draining(self.checkpoint, run) is not None
        bootstrap = frozenset(at for one in inputs.by_stream.values() if one.bootstrap for at in one.owned)
        alone = len(bootstrap) == len(inputs.partitions)
        ends: frozenset[StreamPartition] = frozenset() if draining or alone else bootstrap
        if begin.ask_positions or begin.ask_until or ends:
            self.resolving = True
            return [ResolveOffsets(BEGINNING, begin.ask_positions, begin.ask_until, ends)]
        return self._settle()

    def resolved(self, event: OffsetsResolved) -> list[TaskInstruction]:
        """Take the broker's answer. What is new must be made durable first."""
        assert self._begin is not None
        self.resolving = False
        inputs = self.inputs
        inputs.positions.update(event.positions)
        inputs.until.update(event.until)
        inputs.bootstrap = {at: end for at, end in event.ends.items() if inputs.positions[at] < end}
        return self._settle()

    def _settle(self) -> list[TaskInstruction]:
        assert self._begin is not None
        assert self.checkpoint is not None
        inputs, known = self.inputs, self.checkpoint.positions
        inputs.first = {at: offset for at, offset in inputs.positions.items() if at not in known}
        if not self._begin.news:
            self._open_at = self.ledger.made
            return []
        self._open_at = self.ledger.touch()
        return self.ledger.request_commit(urgent=True)

    def opens(self) -> bool:
        """Whether everything for the start is there and durable, so that the task can work; true once."""
        if self._open_at is None or not self.ledger.is_durable(self._open_at):
            return False
        self._open_at = None
        return True
