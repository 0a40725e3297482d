"""Whether a worker may take part in the run that stands: what it refuses by itself, before it asks anybody.

- In a live run nothing may differ that its fingerprint covers; the worker is told what does.
- A run id of its own is refused while another run is live or stopped. The id of a run that is closed is no error: it waits.
"""

from __future__ import annotations

from .coordinator import CLOSED, STOPPED, SetRun
from .leader_draft import differences
from .member_plan import MemberConfig


def refusal(run: SetRun | None, config: MemberConfig) -> str:
    """Why this process must not take part in the run that stands; empty if it may, or may wait.

    >>> refusal(SetRun("r1", "d", "stopped", "u"), MemberConfig("p1", "x", "x", run_id="r2"))
    "run r1 is stopped; start or drain it before 'r2' begins"
    """
    if run is None:
        return ""
    other = config.run_id not in ("", run.run_id, *run.past_runs)
    if run.state == STOPPED:
        return f"run {run.run_id} is stopped; start or drain it before '{config.run_id}' begins" if other else ""
    if run.state in CLOSED:
        return ""
    if other:
        return f"run {run.run_id} is live; '{config.run_id}' may begin when it is closed"
    if lines := differences(run.fingerprint, config.fingerprint):
        return f"this code differs from what run {run.run_id} runs: {'; '.join(lines)}"
    return ""


def may_begin(run: SetRun, config: MemberConfig) -> bool:
    """Whether the leader will begin, or resume, a closed run for this worker by itself."""
    if run.state == STOPPED:
        return config.run_id == run.run_id
    if config.run_id:
        return config.run_id not in (run.run_id, *run.past_runs)
    return config.deployment not in run.past_deployments
