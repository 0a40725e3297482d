"""What becomes of wishes: each open request, in the order in which it was written, gets its effect and its answer.

One rule a verb, `(draft, wish) -> answer or None`. A rule looks only at the state: whether its effect is there already, whether it has
come true, or cannot any more. So a later leader goes on where the last one stopped, and gives the same answer. Effect and
answer stand in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...errors import DeclarationError
from ...settings import DYNAMIC, find, override_problem, stream_problem
from ..following import cannot_follow
from ..messages import (
    CLOSED,
    DRAINED,
    DRAINING,
    ENDED,
    ENDING,
    LEFT,
    RUNNING,
    STOPPED,
    STOPPING,
    Change,
    Delete,
    SetAnswer,
    SetConfig,
    SetJobModel,
    SetMember,
    SetRequest,
    SetRun,
)
from ..placement import moved
from ..requests import (
    DONE,
    DRAIN,
    EXPIRED,
    FAILED,
    MOVE,
    NO_LIVE_RUN,
    OTHER_RUN,
    PAUSE,
    REFUSED,
    RESUME,
    SEEK,
    SET_CONFIG,
    START,
    STOP,
    UNSET_CONFIG,
    WITHDRAW,
    drain_ends,
    expired,
    may_follow,
    problem,
)
from ..requests import RUNNING as UNDER_WAY
from .assignment import FOR_GOOD, rewanted
from .draft import Draft
from .seeks import seek, withdraw

CHANGES_KEPT = 10
SHOWN = 20
"""So many tasks are named in an answer, which is one message."""

Answer = tuple[str, str] | tuple[str, str, dict[str, Any]] | None
"""State, why, progress; None while there is nothing (new) to say."""
Rule = Callable[[Draft, SetRequest], Answer]


def withdrawals(draft: Draft) -> None:
    """Take back first what somebody does not want any more: a run that begins in this round must not find it."""
    _answered(draft, [wish for wish in draft.state.open_requests() if wish.verb == WITHDRAW])


def requests(draft: Draft) -> None:
    """Go through the wishes that have no final answer."""
    _answered(draft, draft.state.open_requests())


def _answered(draft: Draft, wishes: list[SetRequest]) -> None:
    for wish in wishes:
        before = draft.state.answer(wish.uuid)
        if wrong := problem(wish):
            found: Answer = (REFUSED, wrong)
        elif expired(wish, before, draft.now.wall):
            found = (REFUSED, EXPIRED)
        else:
            found = _RULES[wish.verb](draft, wish)
        if found is not None:
            progress = found[2] if len(found) == 3 else ({} if before is None else dict(before.progress))
            answer = SetAnswer(wish.uuid, found[0], found[1], progress)
            if may_follow(before, answer):
                draft.put(answer)


def _withdraw(draft: Draft, wish: SetRequest) -> Answer:
    """Answer another wish, that only waits, in place of what it asked for."""
    meant = next((one for one in draft.state.open_requests() if one.uuid == wish.arguments["request"]), None)
    if meant is None or meant.verb == WITHDRAW:
        return REFUSED, f"there is no request {wish.arguments['request']} that waits"
    taken_up = draft.state.answer(meant.uuid) is not None
    if taken_up and meant.verb != SEEK:
        return REFUSED, f"{meant.verb} is under way; it cannot be taken back"
    why = f"withdrawn by {wish.requested_by}"
    state, why = (FAILED, f"{why}; applied in partitions: {withdraw(draft, meant)}") if taken_up else (REFUSED, why)
    before = draft.state.answer(meant.uuid)
    draft.put(SetAnswer(meant.uuid, state, why, {} if before is None else dict(before.progress)))
    return DONE, f"{meant.verb} of {meant.requested_by}"


def _asked_of(draft: Draft, wish: SetRequest) -> str:
    """The run that a wish was accepted for; empty if it was not accepted yet."""
    answer = draft.state.answer(wish.uuid)
    return "" if answer is None else str(answer.progress.get("run", ""))


# ----------------------------------------------------------------------------------------------------------------- the run


def _drain(draft: Draft, wish: SetRequest) -> Answer:
    run, accepted = draft.run, _asked_of(draft, wish)
    if accepted:
        return _drained(draft, run, accepted)
    if run is None or run.state in CLOSED:
        past = () if run is None else (*run.past_runs, run.run_id)
        if wish.run_id and run is not None and run.state == STOPPED and wish.run_id == run.run_id:
            return REFUSED, f"run {run.run_id} is stopped; start it, then drain it"
        if wish.run_id in past:
            return REFUSED, f"{OTHER_RUN}: run {wish.run_id} is closed"
        return None if wish.run_id else (REFUSED, NO_LIVE_RUN)
    if wish.run_id and wish.run_id != run.run_id:
        return REFUSED, f"{OTHER_RUN}: the live run is {run.run_id}"
    if run.state == STOPPING:
        return REFUSED, f"run {run.run_id} is stopping"
    if run.state == RUNNING:
        upto = drain_ends(wish.arguments)
        draft.put(replace(run, state=DRAINING, drain=wish.uuid, drain_upto=upto, drain_by=wish.requested_by))
    return UNDER_WAY, "", {"run": run.run_id}


def _drained(draft: Draft, run: SetRun | None, accepted: str) -> Answer:
    if run is None or run.run_id != accepted or run.state in (DRAINED, ENDED):
        return DONE, ""
    if run.state == STOPPED:
        return FAILED, "stopped before it was drained; it goes on draining when it is started"
    if run.state == DRAINING and (given_up := draft.state.failed()):
        shown = [f"{task}: {why:.500}" for task, why in list(given_up.items())[:SHOWN]]
        return FAILED, "; ".join([*shown, *([f"and {len(given_up) - SHOWN} more"] if len(given_up) > SHOWN else [])])
    return None


def _stop(draft: Draft, wish: SetRequest) -> Answer:
    if "worker" in wish.arguments:
        return _stop_worker(draft, wish, wish.arguments["worker"])
    run, accepted = draft.run, _asked_of(draft, wish)
    if run is None or run.state in CLOSED:
        stopped = accepted or (run is not None and run.state == STOPPED and wish.run_id in ("", run.run_id))
        return (DONE, "") if stopped else (REFUSED, NO_LIVE_RUN)
    if accepted:
        return None if accepted == run.run_id else (DONE, "")
    if wish.run_id and wish.run_id != run.run_id:
        return REFUSED, f"{OTHER_RUN}: the live run is {run.run_id}"
    if run.state in (RUNNING, DRAINING) and not run.closing:
        draft.put(replace(run, state=STOPPING))
    return UNDER_WAY, "", {"run": run.run_id}


def _stop_worker(draft: Draft, wish: SetRequest, processor: str) -> Answer:
    answer = draft.state.answer(wish.uuid)
    if answer is not None and "incarnation" in answer.progress:
        incarnation = str(answer.progress["incarnation"])
        life = draft.state.recorded(processor).get(incarnation)
        gone = life is None or life.state == LEFT or draft.state.fenced(processor, incarnation)
        return (DONE, "") if gone else None
    member, life = draft.state.member(processor), draft.state.newest(processor)
    if life is None or life.state == LEFT:
        if member is not None and wish.arguments.get("for_good") and not member.dismissed:
            draft.put(replace(member, dismissed=FOR_GOOD))
            return DONE, ""
        return REFUSED, f"there is no worker '{processor}'"
    if member is None or member.incarnation != life.incarnation:  # it waits for a run
        member = SetMember(processor, life.incarnation, life.location)
    draft.put(replace(member, dismissed=FOR_GOOD if wish.arguments.get("for_good") else "stopped"))
    return UNDER_WAY, "", {"processor": processor, "incarnation": member.incarnation}


def _start(draft: Draft, wish: SetRequest) -> Answer:
    run = draft.run
    if run is not None and run.state not in CLOSED:
        if run.state == STOPPING:
            return None
        return (DONE, "") if wish.run_id in ("", run.run_id) else (REFUSED, f"run {run.run_id} is live")
    if run is not None and wish.run_id:
        if run.state == STOPPED and wish.run_id != run.run_id:
            return REFUSED, f"run {run.run_id} is stopped; start that one, or drain it first"
        if run.state != STOPPED and wish.run_id in (run.run_id, *run.past_runs):
            return REFUSED, f"run {wish.run_id} is closed; a new run needs a new id"
    if draft.impossible:
        return REFUSED, draft.impossible
    lives = draft.alive()
    if lives and all(cannot_follow(run, life.fingerprint) for life in lives):
        return REFUSED, "; ".join(cannot_follow(run, lives[-1].fingerprint))
    return None


def _pause(draft: Draft, wish: SetRequest) -> Answer:
    run, stream = draft.run, wish.arguments.get("stream")
    if run is None or run.state not in (RUNNING, DRAINING, ENDING):
        return REFUSED, NO_LIVE_RUN
    if wish.run_id and wish.run_id != run.run_id:
        return REFUSED, f"{OTHER_RUN}: the live run is {run.run_id}"
    if run.state != RUNNING:
        return REFUSED, f"run {run.run_id} is {run.state}; that overrides pause"
    model = draft.state.model
    if stream is not None and model is not None and stream not in model.streams:
        return REFUSED, f"the job has no stream '{stream}'; it has {', '.join(model.streams)}"
    pause = wish.verb == PAUSE
    if stream is None:
        changed = replace(run, paused_job=pause, paused_streams=run.paused_streams if pause else frozenset())
    elif pause:
        changed = replace(run, paused_streams=run.paused_streams | {stream})
    else:
        changed = replace(run, paused_streams=run.paused_streams - {stream})
    if changed != run:
        draft.put(changed)
    return DONE, ""


# --------------------------------------------------------------------------------------------------------------- one task


def _move(draft: Draft, wish: SetRequest) -> Answer:
    run, model = draft.run, draft.state.model
    task, to = wish.arguments["task"], wish.arguments["to"]
    if run is None or model is None or run.state in CLOSED or model.run_id != run.run_id:
        return REFUSED, NO_LIVE_RUN
    if draft.state.answer(wish.uuid) is not None:
        held = draft.state.held(task)
        if held is not None and held.processor == to and draft.state.says(task):
            return DONE, ""
        return None if model.wanted.get(task) == to else (FAILED, "superseded by a newer placement")
    if wish.run_id and wish.run_id != run.run_id:
        return REFUSED, f"{OTHER_RUN}: the live run is {run.run_id}"
    if run.state != RUNNING:
        return REFUSED, f"run {run.run_id} is {run.state}; nothing moves now"
    if to not in draft.workers():
        return REFUSED, f"there is no worker '{to}' in this run"
    try:
        placed = moved(model.placement(), task, to)
    except DeclarationError as error:
        return REFUSED, error.what
    wanted = {one: processor for processor, given in placed.items() for one in given}
    if wanted != dict(model.wanted):
        draft.put(SetJobModel(rewanted(model, draft.term, wanted)))
    return UNDER_WAY, "", {"task": task, "to": to}


# ----------------------------------------------------------------------------------------------------------- configuration


def _set_config(draft: Draft, wish: SetRequest) -> Answer:
    name, value = wish.arguments["setting"], wish.arguments["value"]
    if why := override_problem(name, value, ran=draft.run is not None) or stream_problem(name, draft.plan.inputs):
        return REFUSED, why
    before = draft.state.configs.get(name)
    change = Change(value, wish.requested_by, draft.now.wall)
    changes = (*(() if before is None else before.changes), change)[-CHANGES_KEPT:]
    draft.put(SetConfig(name, value, changes))
    return DONE, "applies at once" if find(name).kind == DYNAMIC else "applies at next run"


def _unset_config(draft: Draft, wish: SetRequest) -> Answer:
    name = wish.arguments["setting"]
    if (name,) not in draft.state.messages["set-config"] and ("set-config", (name,)) not in draft.state.damaged:
        why = override_problem(name, None, ran=draft.run is not None, unset=True)
        return (REFUSED, why) if why else (DONE, "it was not set")
    draft.delete(Delete(("set-config", (name,))).key)
    return DONE, "the next source counts again"


_RULES: dict[str, Rule] = {
    DRAIN: _drain,
    STOP: _stop,
    START: _start,
    PAUSE: _pause,
    RESUME: _pause,
    SEEK: seek,
    MOVE: _move,
    SET_CONFIG: _set_config,
    UNSET_CONFIG: _unset_config,
    WITHDRAW: _withdraw,
}
