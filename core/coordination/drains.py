"""What a drain means in the state that a job is in, and which drains are not over.

What it decides: whether a drain that no one has taken up drains the live run, waits for its run to begin, is done already, or is refused.
The leader and the command that asks for a drain share this, so a drain that cannot be carried out is refused where it is asked for, also
if no worker is there who could refuse it.

Promises: a drain that waits for its run goes on waiting whatever other runs begin and end, until it is withdrawn. A drain is listed from
the moment when it is written until its run is over, also if its request has its answer already: one that failed goes on when it can.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..orders import RESTING
from .messages import CLOSED, Reason, RunState, SetRequest, SetRun
from .requests import DEFAULT_MODE, DRAIN
from .state import JobState

WRITTEN, RUNNING, STOPPED = "written", "running", "stopped"
"""The states of a drain that is not over: no one has taken it up, it is in progress, its run was stopped in the middle of it."""


class Meaning(StrEnum):
    """What a drain does that is asked for now."""

    DRAINS = "drains"
    WAITS = "waits"
    OVER = "over"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a drain means now, and why."""

    meaning: Meaning
    why: str = ""
    reason: Reason | None = None


def drain_verdict(run: SetRun | None, run_id: str) -> Verdict:
    """What a drain of this run (empty: the live one) means while `run` is the last run of the job.

    >>> drain_verdict(SetRun("r1", "d", "running", "u"), "r2").why
    'other run: the live run is r1'
    """
    if run is not None and run_id in run.past_runs:
        return Verdict(Meaning.OVER, f"run {run_id} is closed")
    if run is None or run.state in CLOSED:
        return _closed(run, run_id)
    if run_id not in ("", run.run_id):
        return Verdict(Meaning.REFUSED, f"{Reason.OTHER_RUN}: the live run is {run.run_id}", Reason.OTHER_RUN)
    if run.state == RunState.STOPPING:
        return Verdict(Meaning.REFUSED, f"run {run.run_id} is stopping")
    return Verdict(Meaning.DRAINS)


def _closed(run: SetRun | None, run_id: str) -> Verdict:
    if run is None or run_id not in ("", run.run_id):
        if not run_id:
            return Verdict(Meaning.REFUSED, Reason.NO_LIVE_RUN.value, Reason.NO_LIVE_RUN)
        return Verdict(Meaning.WAITS, f"it waits for run {run_id} to begin")
    if run.state != RunState.STOPPED:
        return Verdict(Meaning.OVER, f"run {run.run_id} is {run.state}")
    if run_id:
        return Verdict(Meaning.REFUSED, f"run {run.run_id} is stopped; start it, then drain it")
    return Verdict(Meaning.REFUSED, Reason.NO_LIVE_RUN.value, Reason.NO_LIVE_RUN)


@dataclass(frozen=True, slots=True)
class OpenDrain:
    """A drain that is not over."""

    request: str
    run: str
    """The run that it drains or waits for; empty if no one has taken it up and it names none."""
    mode: str
    by: str
    state: str
    why: str
    written_ms: int | None
    """None: the request has its answer already, and is deleted."""
    done: int = 0
    of: int = 0
    """How many tasks have drained or ended, and how many there are; 0 of 0 if it has not begun."""


def open_drains(state: JobState) -> list[OpenDrain]:
    """The drains that wait or are in progress: the run's own, then the requests in the order in which they were written.

    >>> open_drains(JobState())
    []
    """
    run = state.run
    requests = {one.uuid: one for one in state.open_requests() if one.verb == DRAIN}
    found = [] if run is None or run.drain is None else _of_run(state, run, requests.pop(run.drain, None))
    return found + [_asked(state, one) for one in requests.values()]


def _of_run(state: JobState, run: SetRun, request: SetRequest | None) -> list[OpenDrain]:
    if run.state in (RunState.DRAINED, RunState.ENDED):
        return [] if request is None else [_asked(state, request)]
    assert run.drain is not None
    mode = DEFAULT_MODE if request is None else request.arguments.get("mode", DEFAULT_MODE)
    going = run.state == RunState.DRAINING
    why = (
        "; ".join(f"{task}: {reason}" for task, reason in state.failed().items())
        if going
        else f"run {run.run_id} is {run.state}"
    )
    done, of = _progress(state)
    written = None if request is None else state.at["set-request", (run.drain,)][1]
    return [OpenDrain(run.drain, run.run_id, mode, run.drain_by, RUNNING if going else STOPPED, why, written, done, of)]


def _progress(state: JobState) -> tuple[int, int]:
    tasks = () if state.model is None else tuple(state.model.tasks)
    said = [state.task_state(task) for task in tasks]
    return sum(1 for one in said if one is not None and one.state in RESTING), len(tasks)


def _asked(state: JobState, request: SetRequest) -> OpenDrain:
    answer = state.answer(request.uuid)
    written = state.at["set-request", (request.uuid,)][1]
    mode = request.arguments.get("mode", DEFAULT_MODE)
    if answer is not None:  # it drains the same run as another drain
        run, (done, of) = str(answer.progress.get("run", request.run_id)), _progress(state)
        return OpenDrain(request.uuid, run, mode, request.requested_by, RUNNING, answer.why, written, done, of)
    verdict = drain_verdict(state.run, request.run_id)
    why = verdict.why if verdict.meaning == Meaning.WAITS else "no leader has read it yet"
    if verdict.reason == Reason.OTHER_RUN and request.not_after is None:
        assert state.run is not None
        why = f"it waits for run {request.run_id} to begin; the live run is {state.run.run_id}"
    return OpenDrain(request.uuid, request.run_id, mode, request.requested_by, WRITTEN, why, written)
