"""How a task takes part in commits: what it contributes, and what follows when that is durable, or is not.

    CommitBegins → SendControl(newer times), Contribute(everything that is complete) → CommitDone: reports, the next step, the end
                                                           → CommitLost: everything that was not durable is void
                                                           → ApplyFailed: durable, but the store is void

Promises: a contribution holds the positions, the bookkeeping and the rows of one and the same moment; nothing is reported before
the commit that holds it; a task that fails still commits what it had completed, for its outputs may be in the transaction already.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..machine import Now
from ..names import StreamPartition
from ..orders import DRAINED as SAYS_DRAINED
from ..orders import ENDED as SAYS_ENDED
from ..orders import TaskReported
from .body import TaskBody
from .checkpoint import DRAINED as PHASE_DRAINED
from .checkpoint import Checkpoint
from .protocol import (
    ApplyFailed,
    CommitBegins,
    CommitDone,
    CommitLost,
    Contribute,
    Discard,
    RowChanges,
    SendControl,
    TaskInstruction,
    Tell,
)
from .states import ABANDONED, DRAINED, ENDED, FAILED, GONE, RELEASING, RESTORING, WORKING

Out = list[TaskInstruction]


class TaskCommits(TaskBody):
    """The commit side of a `Task`."""

    def checkpoint(self) -> Checkpoint:
        """What a restart needs beside the control table, as of now."""
        return Checkpoint(
            job=self.plan.job,
            job_uuid=self.run.job_uuid,
            run=self.run.run_id,
            epoch=max((one.epoch for one in self.run.producers.values()), default=0),
            positions=self.checkpoint_positions(),
            until=dict(self.inputs.until),
            phase=self.phase,
            drain_id=self.drain_id or "",
            hooks=self.hooks,
            applied=tuple(self.seeks.applied),
            grant=self.grant,
        )

    def checkpoint_positions(self) -> dict[StreamPartition, int]:
        """Positions with everything complete before them. A chunk under work has no part in it: half a chunk is never committed."""
        return dict(self.inputs.positions)

    def control_rows(self) -> RowChanges:
        """What changed in the bookkeeping of control messages: it goes with the positions behind them, or a restart forgets."""
        return self.inputs.progress.take_changes()

    def time_to_say(self) -> list[SendControl]:
        """Markers of a newer time, which stand behind everything that this commit holds."""
        if self.state not in WORKING:
            return []
        return self.mouth.say(self.run, self.drain_id or "", heard=self.letters.heard, with_time=True)

    def on_CommitBegins(self, event: CommitBegins, now: Now) -> Out:
        if self.state in GONE or self._closing:
            return []
        # the time of the records whose positions are committed here is known after a restart, too, and what is said is true now
        self.inputs.observe(now)
        said: Out = [*self.time_to_say()]
        own = self.ledger.contribute(event.txn)
        if own is None:
            return []
        rows: Mapping[tuple[object, ...], tuple[object, ...] | None] = {**own, **self.control_rows()}
        return [*said, Contribute(event.txn, self.checkpoint(), MappingProxyType(rows))]

    def on_CommitDone(self, event: CommitDone, now: Now) -> Out:
        if self.state in GONE or not self.ledger.done(event.txn):
            return []
        waited = len(self.seeks.before_drain)
        out = self.seeks.durable()
        if self.state == RESTORING:
            return out + self.open(now)
        if self._final_at is not None and self.ledger.is_durable(self._final_at):
            self._final_at = None
            says = SAYS_DRAINED if self.phase == PHASE_DRAINED else SAYS_ENDED
            out.append(Tell(TaskReported(self.plan.task, self.grant, says)))
            if self.state != RELEASING:
                self.state = DRAINED if self.phase == PHASE_DRAINED else ENDED
                out += self.seeks.when_at_rest()
        if self._step_at is not None and self.ledger.is_durable(self._step_at):
            step, self._step_at = self.letters.current, None
            assert step is not None  # who drops a letter drops this, too
            out.append(step)
        if self.state == RELEASING:
            return out + self.leave()
        return out + self.sought(now) if len(self.seeks.before_drain) < waited else out

    def on_CommitLost(self, event: CommitLost, now: Now) -> Out:
        if self.state in GONE:
            return []
        self.state, self.why, self._dropped = (FAILED if event.blamed else ABANDONED), event.why, True
        return [Discard(event.why)]

    def on_ApplyFailed(self, event: ApplyFailed, now: Now) -> Out:
        if self.state in GONE:
            return []
        self.ledger.done_anyway()
        if self.state == RESTORING:
            return self.fail_now(event.why)
        return self.leave() if self.state == RELEASING else self.fail(event.why, passing=True)
