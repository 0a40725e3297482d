"""How far a task is on its way out of its run: whether it drains, and what of the end has run and is durable.

Promises: a task that drains in a run drains in every life of that run, since the checkpoint says so; the hooks of the end run once, in the
transaction of their outputs; that the task has drained or ended is reported when the commit of its last letter is durable, and once.
"""

from __future__ import annotations

from ..orders import RunView, TaskState
from .checkpoint import Checkpoint
from .ledger import Ledger


class Completion:
    """The phase of a task in its run."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.phase = TaskState.RUNNING
        """As the checkpoint keeps it: running, draining, drained or ended."""
        self.drain_id: str | None = None
        """The drain that the task is in."""
        self.hooks: frozenset[str] = frozenset()
        """The letters of the whole task that have run: `end`, `drain`."""
        self._made: int | None = None
        """The change that completes the phase, while it is not reported."""

    def remember(self, checkpoint: Checkpoint) -> None:
        """Take over what the checkpoint says has happened."""
        self.phase, self.hooks = checkpoint.phase, checkpoint.hooks
        self.drain_id = None if self.phase == TaskState.RUNNING else checkpoint.drain_id or None

    def begin_drain(self, drain_id: str) -> None:
        """From now on the task drains."""
        self.drain_id, self.phase = drain_id, TaskState.DRAINING

    def complete(self, kind: str) -> None:
        """The last letter of the task has run: it has drained or ended as soon as that is durable."""
        self.hooks |= {kind}
        self.phase = TaskState.ENDED if self.drain_id is None else TaskState.DRAINED
        self._made = self.ledger.touch()

    @property
    def awaited(self) -> bool:
        """Whether the last letter has run, and its commit is not durable yet."""
        return self._made is not None

    def reached(self) -> bool:
        """Whether the phase has just become durable; true once."""
        if self._made is None or not self.ledger.is_durable(self._made):
            return False
        self._made = None
        return True


def resumes_draining(checkpoint: Checkpoint | None, run: RunView) -> str | None:
    """The drain that a restarted task goes on with: the run's, or the one that its checkpoint remembers."""
    if run.draining is not None:
        return run.draining
    if (
        checkpoint is not None
        and checkpoint.run == run.run_id
        and checkpoint.phase in (TaskState.DRAINING, TaskState.DRAINED)
    ):
        return checkpoint.drain_id
    return None
