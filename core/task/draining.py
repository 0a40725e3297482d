"""How far a draining task still reads its external inputs.

Nothing more is fetched. What was fetched before the drain is processed, unless the task is still bootstrapping: then nothing else may flow.
A paused input has drained where its position stands: what a fetch has brought since the pause is left to the next run, with whatever else
has not been processed. So a restart, another holder and the task that has seen the pause agree, for the position is in the checkpoint.
A cascade still reads the streams of jobs that were drained before, up to their ends. Each partition has drained where it stands then.
"""

from __future__ import annotations

from ..orders import RunView
from .inputs import Inputs
from .protocol import FetchStopped, StopFetching, TaskInstruction
from .work import Work


class Draining:
    """The last positions of a task's external inputs in a drain."""

    def __init__(self, inputs: Inputs, work: Work) -> None:
        self._inputs = inputs
        self._work = work

    def begin(self, drain_id: str, run: RunView, *, keep: bool) -> list[TaskInstruction]:
        """Stop fetching. `keep`: process what is buffered, but of nothing paused; the intake then says how far that is (`stopped`)."""
        inputs = self._inputs
        inputs.bootstrap.clear()
        inputs.held.clear()
        external = tuple(at for at in inputs.external if at not in inputs.finished)
        through = inputs.through(run) if keep else {}
        stopped = [at for at in external if at not in through]
        kept = tuple(at for at in stopped if keep and not inputs.is_paused(at, run))
        dropped = tuple(at for at in stopped if at not in kept)
        if kept:
            return [StopFetching(kept, dropped)]
        inputs.drain(
            drain_id, {at: max(self._work.upto(at, inputs.positions[at]), through.get(at, 0)) for at in external}
        )
        return [StopFetching(drop=dropped)] if dropped else []

    def stopped(self, drain_id: str, run: RunView, event: FetchStopped) -> None:
        """The intake has stopped: this is what it has buffered."""
        inputs, through = self._inputs, self._inputs.through(run)
        upto = {
            at: max(event.upto.get(at, 0), through.get(at, 0), self._work.upto(at, inputs.positions[at]))
            for at in inputs.external
            if at not in inputs.finished
        }
        inputs.drain(drain_id, upto)
