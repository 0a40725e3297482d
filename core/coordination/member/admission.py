"""Whether a worker may take part in the current run: what it refuses itself, before it writes anything.

- In a live run, nothing covered by the fingerprint may differ; the worker is told what does.
- What is fixed for the life of a job may not differ after a closed run either, because no run would ever begin with that code. A bounded
  worker whose code cannot continue the stopped run exits, too; any other waits for one that can.
- A worker with a run id of its own is refused while another run is live or stopped. The id of a closed run is no error: the worker waits,
  or has nothing to do if that run has ended (`over`).
"""

from __future__ import annotations

from collections.abc import Mapping

from ...graph.fingerprint import differences
from ..messages import CLOSED, RunState, SetProcessor, SetRun
from ..run_choice import cannot_follow, ran
from .plan import MemberConfig


def refusal(run: SetRun | None, config: MemberConfig) -> str:
    """Why this process must not take part in the current run; empty if it may, or may wait.

    >>> refusal(SetRun("r1", "d", "stopped", "u"), MemberConfig("p1", "x", "x", run_id="r2"))
    "run r1 is stopped; start or drain it before 'r2' begins"
    """
    if run is None:
        return ""
    other = config.run_id not in ("", run.run_id, *run.past_runs)
    if run.state == RunState.STOPPED and other:
        return f"run {run.run_id} is stopped; start or drain it before '{config.run_id}' begins"
    if run.state in CLOSED:
        lines = cannot_follow(run, config.fingerprint)
        if lines and run.state == RunState.STOPPED:
            return f"this code cannot go on with run {run.run_id}: {'; '.join(lines)}" if config.bounded else ""
        return f"what is fixed for the life of a job differs from run {run.run_id}: {'; '.join(lines)}" if lines else ""
    if other:
        return f"run {run.run_id} is live; '{config.run_id}' may begin when it is closed"
    if lines := differences(run.fingerprint, config.fingerprint):
        return f"this code differs from what run {run.run_id} runs: {'; '.join(lines)}"
    return ""


def closed_run(run: SetRun, fingerprint: Mapping[str, str]) -> str:
    """Why a worker waits at a closed run. One whose code cannot go on with a stopped run is told what differs.

    >>> closed_run(SetRun("r1", "d", "stopped", "u", fingerprint={"setting:x": "1"}), {"setting:x": "2"})
    "run r1 is stopped, and this code cannot go on with it: setting:x: was '1', is '2'"
    """
    lines = cannot_follow(run, fingerprint) if run.state == RunState.STOPPED else []
    differs = f", and this code cannot go on with it: {'; '.join(lines)}" if lines else ""
    return f"run {run.run_id} is {run.state}{': ' + run.failed if run.failed else ''}{differs}"


def over(run: SetRun, worker: SetProcessor, *, late: bool) -> str:
    """Why a process that finds this run closed has nothing to do and exits; empty if it may begin another, or waits.

    `late`: it came so long after the end that it was not started for this run.
    """
    if worker.run_id:
        past = worker.bounded and worker.run_id in run.past_runs
        return (
            f"run {worker.run_id} has ended"
            if past or (run.state, run.run_id) == (RunState.ENDED, worker.run_id)
            else ""
        )
    if run.state != RunState.ENDED or late or not ran(run, worker):
        return ""
    return f"run {run.run_id} had just ended when this worker came with the same code, and counts as its own"


def goes_on(state: str, job: str, failed: str = "") -> str:
    """The commands that continue a job whose run is closed, for people.

    >>> goes_on("drained", "sales")
    '`headgate start sales` begins the next run, and so does `headgate run` with a new --run-id, a new --deployment or another graph'
    >>> goes_on("running", "sales")
    ''
    """
    if state == RunState.STOPPED and failed:
        return "fix what has failed and run the job again: `headgate run` continues this run where it stopped"
    if state == RunState.STOPPED:
        return f"`headgate start {job}` resumes it, and so does `headgate run` with its --run-id"
    ways = "a new --run-id, a new --deployment or another graph"
    begins = f"`headgate start {job}` begins the next run, and so does `headgate run` with {ways}"
    if state == RunState.ENDED:
        return f"{begins}, or with --bounded"
    return begins if state == RunState.DRAINED else ""
