"""Which worker may join which run: what its code must have in common with the run, and which closed run is resumed or followed by another.

The leader, who begins runs, and the member, who must know what the leader will do, share this derivation.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..graph.fingerprint import differences
from ..graph.schema import STATE_PARTS
from .messages import ProcessorState, RunState, SetProcessor, SetRun
from .state import JobState

IMMUTABLE_PARTS = "setting:"
"""Parts of a fingerprint that no later run may change either, because they decide where state is kept."""


def fits(run: SetRun, worker: SetProcessor) -> bool:
    """Whether this worker may take part in this run: its fingerprint is the same, and it names no other run.

    >>> fits(SetRun("r1", "d", "running", "u"), SetProcessor("p", "000001-a", "x", "here", "joined", run_id="r2"))
    False
    """
    return dict(worker.fingerprint) == dict(run.fingerprint) and worker.run_id in ("", run.run_id)


def reads_joined(run: SetRun, worker: SetProcessor) -> bool:
    """Whether this worker can run every task of this run: an older version reads no topic that has joined it, and fails where it should.

    >>> old = SetProcessor("p", "000001-a", "x", "here", "joined")
    >>> reads_joined(SetRun("r1", "d", "running", "u", joined=("orders-it",)), old)
    False
    """
    return worker.widens or not run.joined


def too_old(state: JobState) -> list[SetProcessor]:
    """The workers that are there and get no tasks of the run, for they cannot read what has joined it."""
    run = state.run
    here = [state.recorded(member.processor)[member.incarnation] for member in state.members()]
    return [one for one in here if run and one.state == ProcessorState.JOINED and not reads_joined(run, one)]


def ran(run: SetRun, worker: SetProcessor) -> bool:
    """Whether this worker has the code that the run ran. A worker with other code was not started for it, however soon it came."""
    return worker.deployment == run.deployment and fits(run, worker)


def cannot_follow(run: SetRun | None, fingerprint: Mapping[str, str]) -> list[str]:
    """What differs in a worker's code, so that it may not follow or resume this closed run; empty if nothing does.

    State may differ: each task compares it with the contents of its log.
    """
    if run is None:
        return []
    if run.state != RunState.STOPPED:
        return differences(run.fingerprint, fingerprint, IMMUTABLE_PARTS)
    before, after = _without_state(run.fingerprint), _without_state(fingerprint)
    if run.drain is not None:
        return differences(before, after)
    return differences(before, {part: value for part, value in after.items() if part in before})


def _without_state(fingerprint: Mapping[str, str]) -> dict[str, str]:
    return {part: value for part, value in fingerprint.items() if not part.startswith(STATE_PARTS)}


def late(state: JobState, worker: SetProcessor, session_s: float) -> bool:
    """Whether this worker came so long after the run had closed that it was not started for it."""
    came, closed = state.at["set-processor", (worker.processor, worker.incarnation)][1], state.at["set-run", ()][1]
    return came - closed > session_s * 1000


def in_charge(state: JobState, worker: SetProcessor) -> bool:
    """Whether the last run was this worker's, and closed while its supervisor was running. A supervisor restarts whoever dies while the run
    closes, and that must not undo a stop or repeat a batch, however late the restarted worker comes.
    """
    run = state.run
    return run is not None and 0 < worker.since_ms <= state.at["set-run", ()][1] and ran(run, worker)


def may_begin(run: SetRun, worker: SetProcessor, *, late: bool) -> bool:
    """Whether a closed run is resumed, or another one begun, for this worker without a request. `late`: see `late()`."""
    if run.state == RunState.STOPPED:
        return worker.run_id == run.run_id or bool(run.failed and not worker.run_id)
    if worker.run_id:
        return worker.run_id not in (run.run_id, *run.past_runs)
    if run.state == RunState.ENDED and worker.bounded and (late or not ran(run, worker)):
        return True
    return worker.deployment not in run.past_deployments
