"""Carries out requests: each open request, in the order in which they were written, gets its effect and its answer.

There is one rule for each verb, `(draft, request) -> answer or None`. A rule looks only at the state: whether its effect is there already,
whether it is complete, or cannot be reached any more. So a later leader continues where the last one stopped, and gives the same answer.
Effect and answer are in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ...errors import DeclarationError
from ...graph.model import JobModel
from ...settings import DYNAMIC, conflict, find, override_problem, parse, stream_problem
from ..drains import Meaning, drain_verdict
from ..fleet import WORKERS, follower_problem, idle_note
from ..messages import (
    CLOSED,
    AnswerState,
    Change,
    Delete,
    ProcessorState,
    Reason,
    RunState,
    SetAnswer,
    SetConfig,
    SetJobModel,
    SetMember,
    SetRequest,
    SetRun,
)
from ..placement import moved
from ..requests import (
    DRAIN,
    GROW,
    MOVE,
    PAUSE,
    RELEASE_PARKED,
    RESUME,
    SEEK,
    SET_CONFIG,
    SKIP_PARKED,
    START,
    STOP,
    UNPARKING,
    UNSET_CONFIG,
    WITHDRAW,
    drain_ends,
    expired,
    may_follow,
    problem,
)
from ..run_choice import cannot_follow
from .answers import Answer, no_live_run, other_run
from .assignment import FOR_GOOD, rewanted
from .draft import Draft
from .looks import grow
from .seeks import seek, withdraw
from .unparks import unpark, withdraw_unpark

CHANGES_KEPT = 10
SHOWN = 20
"""The most tasks that an answer names, because it is one message."""

RequestRule = Callable[[Draft, SetRequest], Answer | None]


def withdrawals(draft: Draft) -> None:
    """Handle withdrawals first, so that a run that begins in this round does not find a withdrawn request."""
    _answered(draft, [request for request in draft.state.open_requests() if request.verb == WITHDRAW])


def before_a_start(draft: Draft) -> None:
    """Handle what was asked before a start, while no run is live. A stop, a drain or a pause does not mean the run that this start begins;
    a setting does. A seek waits for that run anyway.
    """
    asked = draft.state.open_requests()
    start = next((at for at, request in enumerate(asked) if request.verb == START), None)
    if start is not None and (draft.run is None or draft.run.state in CLOSED):
        _answered(draft, [request for request in asked[:start] if request.verb not in (SEEK, *UNPARKING)])


def requests(draft: Draft) -> None:
    """Handle the requests without a final answer."""
    _answered(draft, draft.state.open_requests())


def _answered(draft: Draft, requests: list[SetRequest]) -> None:
    for request in requests:
        before = draft.state.answer(request.uuid)
        if wrong := problem(request):
            found: Answer | None = Answer(AnswerState.REFUSED, wrong)
        elif expired(request, before, draft.now.wall):
            found = Answer(AnswerState.REFUSED, Reason.EXPIRED.value, reason=Reason.EXPIRED)
        else:
            found = _RULES[request.verb](draft, request)
        if found is not None:
            kept = {} if before is None else dict(before.progress)
            progress = kept if found.progress is None else found.progress
            answer = SetAnswer(request.uuid, found.state, found.why, progress, found.reason, found.remedy)
            if may_follow(before, answer):
                draft.put(answer)


def _withdraw(draft: Draft, request: SetRequest) -> Answer | None:
    """Answer another pending request instead of carrying it out."""
    meant = next((one for one in draft.state.open_requests() if one.uuid == request.arguments["request"]), None)
    if meant is None or meant.verb == WITHDRAW:
        return Answer(AnswerState.REFUSED, f"there is no pending request {request.arguments['request']}")
    taken_up = draft.state.answer(meant.uuid) is not None
    if taken_up and meant.verb not in (SEEK, *UNPARKING):
        return Answer(AnswerState.REFUSED, f"{meant.verb} is in progress; it cannot be withdrawn")
    state, why = AnswerState.REFUSED, f"withdrawn by {request.requested_by}"
    if taken_up and meant.verb == SEEK:
        state, why = AnswerState.FAILED, f"{why}; applied in partitions: {withdraw(draft, meant)}"
    elif taken_up:
        state, why = AnswerState.FAILED, f"{why}; done by tasks: {withdraw_unpark(draft, meant)}"
    before = draft.state.answer(meant.uuid)
    draft.put(SetAnswer(meant.uuid, state, why, {} if before is None else dict(before.progress)))
    return Answer(AnswerState.DONE, f"{meant.verb} of {meant.requested_by}")


def _asked_of(draft: Draft, request: SetRequest) -> str:
    """The run for which a request was accepted; empty if it was not accepted yet."""
    answer = draft.state.answer(request.uuid)
    return "" if answer is None else str(answer.progress.get("run", ""))


# ----------------------------------------------------------------------------------------------------------------- the run


def _drain(draft: Draft, request: SetRequest) -> Answer | None:
    run, accepted = draft.run, _asked_of(draft, request)
    if accepted:
        return _drained(draft, run, accepted)
    verdict = drain_verdict(run, request.run_id)
    if verdict.meaning == Meaning.OVER:
        return Answer(AnswerState.DONE, verdict.why)
    if verdict.meaning == Meaning.WAITS or (verdict.reason == Reason.OTHER_RUN and request.not_after is None):
        return None  # it was asked for before this run began, and waits for its own
    if verdict.meaning == Meaning.REFUSED:
        return Answer(AnswerState.REFUSED, verdict.why, reason=verdict.reason)
    assert run is not None
    if run.state == RunState.RUNNING:
        upto = drain_ends(request.arguments)
        draft.put(
            replace(run, state=RunState.DRAINING, drain=request.uuid, drain_upto=upto, drain_by=request.requested_by)
        )
    return Answer(AnswerState.RUNNING, "", {"run": run.run_id})


def _drained(draft: Draft, run: SetRun | None, accepted: str) -> Answer | None:
    if run is None or run.run_id != accepted or run.state in (RunState.DRAINED, RunState.ENDED):
        return Answer(AnswerState.DONE, "")
    if run.state == RunState.STOPPED:
        return Answer(AnswerState.FAILED, "stopped before it was drained; it resumes draining when it is started")
    if run.state == RunState.DRAINING and (given_up := draft.state.failed()):
        shown = [f"{task}: {why:.500}" for task, why in list(given_up.items())[:SHOWN]]
        return Answer(
            AnswerState.FAILED,
            "; ".join([*shown, *([f"and {len(given_up) - SHOWN} more"] if len(given_up) > SHOWN else [])]),
        )
    return None


def _stop(draft: Draft, request: SetRequest) -> Answer | None:
    if "worker" in request.arguments:
        return _stop_worker(draft, request, request.arguments["worker"])
    run, accepted = draft.run, _asked_of(draft, request)
    if run is None or run.state in CLOSED:
        stopped = accepted or (run is not None and run.state == RunState.STOPPED and request.run_id in ("", run.run_id))
        return Answer(AnswerState.DONE, "") if stopped else no_live_run()
    if accepted:
        return None if accepted == run.run_id else Answer(AnswerState.DONE, "")
    if request.run_id and request.run_id != run.run_id:
        return other_run(f"the live run is {run.run_id}")
    if run.state in (RunState.RUNNING, RunState.DRAINING) and not run.closing:
        draft.put(replace(run, state=RunState.STOPPING))
    return Answer(AnswerState.RUNNING, "", {"run": run.run_id})


def _stop_worker(draft: Draft, request: SetRequest, processor: str) -> Answer | None:
    answer = draft.state.answer(request.uuid)
    if answer is not None and "incarnation" in answer.progress:
        incarnation = str(answer.progress["incarnation"])
        worker = draft.state.recorded(processor).get(incarnation)
        if worker is None or worker.state == ProcessorState.LEFT or draft.state.fenced(processor, incarnation):
            return Answer(AnswerState.DONE, "")
        _works_on(draft, processor, incarnation)
        return None
    member, worker = draft.state.member(processor), draft.state.newest(processor)
    if worker is None or worker.state == ProcessorState.LEFT:
        if member is not None and request.arguments.get("for_good") and not member.dismissed:
            draft.put(replace(member, dismissed=FOR_GOOD))
            return Answer(AnswerState.DONE, "")
        return Answer(AnswerState.REFUSED, f"there is no worker '{processor}'")
    if member is None or member.incarnation != worker.incarnation:  # it waits for a run
        member = SetMember(processor, worker.incarnation, worker.location)
    prepare_ms = member.prepare_ms if member.dismissed else int(draft.timing.work_on_s * 1000)
    dismissed = FOR_GOOD if request.arguments.get("for_good") else "stopped"
    draft.put(replace(member, dismissed=dismissed, prepare_ms=prepare_ms))
    why = f"it works on for {prepare_ms / 1000:g} s at most, while others prepare its tasks" if prepare_ms else ""
    return Answer(AnswerState.RUNNING, why, {"processor": processor, "incarnation": member.incarnation})


def _works_on(draft: Draft, processor: str, incarnation: str) -> None:
    """Let a worker that was dismissed work on only while it has time for that. It leaves by itself before, unless it hangs, or an operator
    has shortened the time since; and each leader counts that anew.
    """
    member = draft.state.member(processor)
    if member is None or member.incarnation != incarnation or not member.prepare_ms:
        return
    if draft.waits.over(("works on", processor, incarnation), min(member.prepare_ms / 1000, draft.timing.work_on_s)):
        draft.put(replace(member, prepare_ms=0))


def _start(draft: Draft, request: SetRequest) -> Answer | None:
    run = draft.run
    if run is not None and run.state not in CLOSED:
        if run.state == RunState.STOPPING:
            return None
        return (
            Answer(AnswerState.DONE, "")
            if request.run_id in ("", run.run_id)
            else Answer(AnswerState.REFUSED, f"run {run.run_id} is live")
        )
    if run is not None and request.run_id:
        if run.state == RunState.STOPPED and request.run_id != run.run_id:
            return Answer(AnswerState.REFUSED, f"run {run.run_id} is stopped; start that one, or drain it first")
        if run.state != RunState.STOPPED and request.run_id in (run.run_id, *run.past_runs):
            return Answer(AnswerState.REFUSED, f"run {request.run_id} is closed; a new run needs a new id")
    if draft.impossible is not None:
        return Answer(AnswerState.REFUSED, draft.impossible.what, remedy=draft.impossible.remedy)
    workers = draft.alive()
    if workers and all(cannot_follow(run, worker.fingerprint) for worker in workers):
        return Answer(
            AnswerState.REFUSED,
            "; ".join(cannot_follow(run, workers[-1].fingerprint)),
            remedy="run the former code until `headgate drain` has closed its run; this code may begin the next one",
        )
    return None


def _pause(draft: Draft, request: SetRequest) -> Answer | None:
    run, stream = draft.run, request.arguments.get("stream")
    if run is None or run.state not in (RunState.RUNNING, RunState.DRAINING, RunState.ENDING):
        return no_live_run()
    if request.run_id and request.run_id != run.run_id:
        return other_run(f"the live run is {run.run_id}")
    if run.state != RunState.RUNNING:
        return Answer(AnswerState.REFUSED, f"run {run.run_id} is {run.state}; that takes precedence over pause")
    model = draft.state.model
    if stream is not None and model is not None and stream not in model.streams:
        return Answer(AnswerState.REFUSED, f"the job has no stream '{stream}'; it has {', '.join(model.streams)}")
    pause = request.verb == PAUSE
    if stream is None:
        changed = replace(run, paused_job=pause, paused_streams=run.paused_streams if pause else frozenset())
    elif pause:
        changed = replace(run, paused_streams=run.paused_streams | {stream})
    else:
        changed = replace(run, paused_streams=run.paused_streams - {stream})
    if changed != run:
        draft.put(changed)
    return Answer(AnswerState.DONE, "")


# --------------------------------------------------------------------------------------------------------------- one task


def _move(draft: Draft, request: SetRequest) -> Answer | None:
    run, model = draft.run, draft.state.model
    task, to = request.arguments["task"], request.arguments["to"]
    if run is None or model is None or run.state in CLOSED or model.run_id != run.run_id:
        return None if _is_put_off(draft, request) else no_live_run()
    if draft.state.answer(request.uuid) is not None:
        held = draft.state.held(task)
        if held is not None and held.processor == to and draft.state.says(task):
            return Answer(AnswerState.DONE, "")
        return None if model.target.get(task) == to else Answer(AnswerState.FAILED, "superseded by a newer placement")
    if request.run_id and request.run_id != run.run_id:
        return other_run(f"the live run is {run.run_id}")
    if run.state != RunState.RUNNING:
        return Answer(AnswerState.REFUSED, f"run {run.run_id} is {run.state}; no task can move now")
    if (worker := draft.workers().get(to)) is None:
        return Answer(AnswerState.REFUSED, f"there is no worker '{to}' in this run")
    if worker.retires:
        return Answer(AnswerState.REFUSED, f"worker '{to}' is about to leave")
    if _waits_to_move(draft, model, request):
        return None
    try:
        placed = moved(model.placement(), task, to)
    except DeclarationError as error:
        return Answer(AnswerState.REFUSED, error.what)
    wanted = {one: processor for processor, given in placed.items() for one in given}
    if wanted != model.target:
        draft.put(SetJobModel(rewanted(draft, model, wanted)))
    return Answer(AnswerState.RUNNING, "", {"task": task, "to": to})


def _is_put_off(draft: Draft, request: SetRequest) -> bool:
    """Whether the run has stopped in the middle of this move, which goes on with the run."""
    run, model = draft.run, draft.state.model
    if run is None or model is None or run.state != RunState.STOPPED or run.drain is not None:
        return False
    taken_up = draft.state.answer(request.uuid) is not None
    to = model.target.get(request.arguments["task"])
    return taken_up and model.run_id == run.run_id and to == request.arguments["to"]


def _waits_to_move(draft: Draft, model: JobModel, request: SetRequest) -> bool:
    """Whether a task cannot be moved yet: its holder, where it should be, was told to release it, and nothing revokes that. Wanting it
    there at once would look as if it had moved, while the holder lets go. Behind a move that waits, the next moves of the task wait, too.
    """
    task, to = request.arguments["task"], request.arguments["to"]
    held = draft.state.held(task)
    lets_go = held is not None and held.processor == to != model.wanted.get(task)
    before = next(
        one
        for one in draft.state.open_requests()
        if one.verb == MOVE and one.arguments.get("task") == task and draft.state.answer(one.uuid) is None
    )
    return lets_go or before.uuid != request.uuid


# ----------------------------------------------------------------------------------------------------------- configuration


def _set_config(draft: Draft, request: SetRequest) -> Answer | None:
    name, value = request.arguments["setting"], request.arguments["value"]
    if why := override_problem(name, value, ran=draft.run is not None) or stream_problem(name, draft.plan.inputs):
        return Answer(AnswerState.REFUSED, why)
    if (refused := _refused_by_others(draft, name, {name: value})) is not None:
        return refused
    if name == WORKERS and (why := follower_problem(draft.alive())):
        return Answer(AnswerState.REFUSED, why, remedy=_OF_WORKERS)
    before = draft.state.configs.get(name)
    change = Change(value, request.requested_by, draft.now.wall)
    changes = (*(() if before is None else before.changes), change)[-CHANGES_KEPT:]
    draft.put(SetConfig(name, value, changes))
    applies = "applies immediately" if find(name).kind == DYNAMIC else "applies at next run"
    idle = idle_note(parse(name, value), _tasks(draft)) if name == WORKERS else ""
    return Answer(AnswerState.DONE, f"{applies}; {idle}" if idle else applies)


def _tasks(draft: Draft) -> int:
    """How many tasks the job has; 0 if that is not known yet."""
    return 0 if draft.state.model is None else len(draft.state.model.tasks)


def _unset_config(draft: Draft, request: SetRequest) -> Answer | None:
    name = request.arguments["setting"]
    if (name,) not in draft.state.messages["set-config"] and ("set-config", (name,)) not in draft.state.damaged:
        why = override_problem(name, None, ran=draft.run is not None, unset=True)
        return Answer(AnswerState.REFUSED, why) if why else Answer(AnswerState.DONE, "it was not set")
    if name in draft.state.configs and (refused := _refused_by_others(draft, name, {})) is not None:
        return refused
    draft.delete(Delete(("set-config", (name,))).key)
    return Answer(AnswerState.DONE, "the next source applies again")


def _refused_by_others(draft: Draft, name: str, then: Mapping[str, Any]) -> Answer | None:
    """A refusal if a setting would make no sense together with another one; None if it would. `then`: its override after the change, if
    any.

    The values of the next run are those of all overrides. A dynamic setting applies to the live run, too, which has its own values of what
    changes only between runs.
    """
    settings = draft.plan.settings if draft.run is None else draft.run.settings
    pending = {one: config.value for one, config in draft.state.configs.items()}
    judged = {_NEXT_RUN: pending}
    if draft.state.live and find(name).kind == DYNAMIC:
        judged = {_LIVE_RUN: draft.state.overrides, **judged}
    for when, overrides in judged.items():
        others = {one: value for one, value in overrides.items() if one != name}
        if why := conflict({**settings, **others, **then}, name):
            return Answer(AnswerState.REFUSED, f"{when}, {why}", remedy=_REMEDIES[when])
    return None


_OF_WORKERS = (
    "only the supervisor of `headgate run --workers N` follows, if it has started all workers of the job; otherwise start or stop workers "
    "where they run, or change the replicas of the StatefulSet"
)
_LIVE_RUN, _NEXT_RUN = "in the live run", "in the next run"
_REMEDIES = {
    _LIVE_RUN: "`headgate config diff JOB` shows what waits for the next run; `headgate stop JOB`, and start it first",
    _NEXT_RUN: "change the other one first",
}


_RULES: dict[str, RequestRule] = {
    DRAIN: _drain,
    STOP: _stop,
    START: _start,
    PAUSE: _pause,
    RESUME: _pause,
    SEEK: seek,
    MOVE: _move,
    GROW: grow,
    SET_CONFIG: _set_config,
    UNSET_CONFIG: _unset_config,
    WITHDRAW: _withdraw,
    RELEASE_PARKED: unpark,
    SKIP_PARKED: unpark,
}
