"""How far a task has come at the end of its run: whether it drains, and which parts of the end have run and are durable.

Promises: a task that drains in a run drains after every restart in that run, because the checkpoint says so. The hooks of the end run once,
in the transaction of their outputs. The task reports once that it has drained or ended, when the commit of its last letter is durable.
"""

from __future__ import annotations

from ..orders import RunView, TaskState
from .ledger import Ledger
from .stored.checkpoint import Checkpoint


class Completion:
    """The phase of a task in its run."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.phase = TaskState.RUNNING
        """The phase in the checkpoint: running, draining, drained or ended."""
        self.drain_id: str | None = None
        """The drain in which the task takes part."""
        self.hooks: frozenset[str] = frozenset()
        """The letters for the whole task that have run: `end`, `drain`."""
        self._made: int | None = None
        """The change that completes the phase, until it is reported."""

    def remember(self, checkpoint: Checkpoint) -> None:
        """Restore the state of the checkpoint."""
        self.phase, self.hooks = checkpoint.phase, checkpoint.hooks
        self.drain_id = None if self.phase == TaskState.RUNNING else checkpoint.drain_id or None

    def begin_drain(self, drain_id: str) -> None:
        """Begin to drain."""
        self.drain_id, self.phase = drain_id, TaskState.DRAINING

    def complete(self, kind: str) -> None:
        """Note that the last letter of the task has run. The task has drained or ended once that is durable."""
        self.hooks |= {kind}
        self.phase = TaskState.ENDED if self.drain_id is None else TaskState.DRAINED
        self._made = self.ledger.touch()

    @property
    def awaited(self) -> bool:
        """Whether the last letter has run and its commit is not durable yet."""
        return self._made is not None

    def reached(self) -> bool:
        """Whether the phase has just become durable; true once."""
        if self._made is None or not self.ledger.is_durable(self._made):
            return False
        self._made = None
        return True


def resumes_draining(checkpoint: Checkpoint | None, run: RunView) -> str | None:
    """The drain with which a restarted task continues: the run's, or the one in its checkpoint."""
    if run.draining is not None:
        return run.draining
    if (
        checkpoint is not None
        and checkpoint.run == run.run_id
        and checkpoint.phase in (TaskState.DRAINING, TaskState.DRAINED)
    ):
        return checkpoint.drain_id
    return None
