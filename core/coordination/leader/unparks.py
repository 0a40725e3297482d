"""Requests about parked records: accepted into the run, carried out once by each task that they name, then removed from the run.

- The request adds one `UnparkRequest` for each key to `set-run`. The task stores its id in the checkpoint with the effect, and then
  reports it; a later grant only reports it again.
- When all have reported, the request is done. If a task refuses, for the record is not parked any more, the request has failed, with the
  reason.
- What was not carried out before its `not_after` is removed, and has failed; the tasks that have carried it out are named.
"""

from __future__ import annotations

from dataclasses import replace

from ..messages import AnswerState, Reason, RunState, SetRequest, SetRun, UnparkRequest
from ..requests import UNPARKING, parked_picks
from .answers import Answer, no_live_run, other_run
from .draft import Draft


def unpark(draft: Draft, request: SetRequest) -> Answer | None:
    """Accept a request about parked records, or check its progress."""
    run, model = draft.run, draft.state.model
    if run is None or model is None:
        return no_live_run()
    if draft.state.answer(request.uuid) is not None:
        return _progress(draft, run, request)
    if request.run_id and request.run_id != run.run_id:
        return other_run(f"the run is {run.run_id}")
    if run.state in (RunState.ENDING, RunState.STOPPING):
        return Answer(
            AnswerState.REFUSED, f"run {run.run_id} is {run.state}; ask again when it is closed, or in the next run"
        )
    picks = parked_picks(request.arguments["tasks"])
    assert picks is not None, "`problem` has refused it"
    if unknown := sorted(picks.keys() - model.tasks.keys()):
        return Answer(AnswerState.REFUSED, f"there is no task '{unknown[0]}'")
    what = UNPARKING[request.verb]
    found = tuple(
        UnparkRequest(f"{request.uuid}:{task}:{at}", request.uuid, task, what, number, upto)
        for task, some in sorted(picks.items())
        for at, (number, upto) in enumerate(some)
    )
    draft.put(replace(run, unparks=run.unparks + found))
    return Answer(AnswerState.ACCEPTED, "", {"tasks": len(picks)})


def withdraw_unpark(draft: Draft, request: SetRequest) -> str:
    """Withdraw an accepted request. Returns the tasks that have carried it out, whose records stay as they are now."""
    run = draft.run
    parts = () if run is None else _parts(run, request)
    if run is not None and parts:
        draft.put(replace(run, unparks=tuple(one for one in run.unparks if one.request != request.uuid)))
    return ", ".join(_done(draft, parts)) or "none"


def _parts(run: SetRun, request: SetRequest) -> tuple[UnparkRequest, ...]:
    return tuple(one for one in run.unparks if one.request == request.uuid)


def _done(draft: Draft, parts: tuple[UnparkRequest, ...]) -> list[str]:
    """The tasks that have carried out all of their parts."""
    left = {one.task for one in parts if not _applied(draft, one)}
    return sorted({one.task for one in parts} - left)


def _progress(draft: Draft, run: SetRun, request: SetRequest) -> Answer | None:
    parts = _parts(run, request)
    if not parts:
        return Answer(AnswerState.FAILED, "it is not in the run any more")
    refused = [why for one in parts if (why := _refused(draft, one))]
    open_ = [one for one in parts if not _applied(draft, one) and not _refused(draft, one)]
    late = request.not_after is not None and draft.now.wall > request.not_after
    if open_ and not late:
        return None
    draft.put(replace(run, unparks=tuple(one for one in run.unparks if one.request != request.uuid)))
    done = ", ".join(_done(draft, parts)) or "none"
    if open_:
        return Answer(AnswerState.FAILED, f"{Reason.EXPIRED}; done by tasks: {done}", reason=Reason.EXPIRED)
    if refused:
        return Answer(AnswerState.FAILED, "; ".join(refused[:20]))
    return Answer(AnswerState.DONE, "")


def _applied(draft: Draft, one: UnparkRequest) -> bool:
    return any(one.id in report.applied for report in draft.state.task_states(one.task).values())


def _refused(draft: Draft, one: UnparkRequest) -> str:
    reports = draft.state.task_states(one.task).values()
    return next((f"{one.task}: {why}" for report in reports if (why := report.refused.get(one.id))), "")
