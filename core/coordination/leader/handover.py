"""Planned moves of tasks with state: the next owner prepares while the present one works, and only then they switch.

    wanted: A                      the task runs at A
    wanted: A, preparing: B        B follows the task's log in a store of its own; A works on           `prepared_first`
    wanted: B                      A releases, B is granted the task, and replays what it still lacks     `hand_over`

A preparation is a field of the model, and ends with it: it is of one grant of A, and every model is made anew from what the leader wants
now. B says in its own record that it lacks little (`SetProcessor.prepared`), for that grant.

Promises:

- Nothing but time depends on a preparation. The grant and the checks of the restore decide who runs a task, and from which store.
- A task is never without an owner because of one. If A dies, leaves or releases, B gets the task at once, however far it is.
- B has `placement.prepare` to come near the end of the log; then the task moves as it is. Each leader counts that anew.
- While B is away, but awaited, the preparation stands and the task stays with A. The placement without B ends it.
- If A is about to leave (`SetProcessor.retires`), by a signal or because it was dismissed with time to work on (`SetMember.prepare_ms`), it
  is placed as if it were gone, and works on meanwhile like any other A.
- Nothing is prepared where it would not help: in a job without state, for a task that does not run, by a version that cannot, or at the
  location where the task runs, whose disk has its store.
- A run that does not run prepares nothing. In a drain, and at an end, the tasks stay where they are. A stop puts the moves off: they stay
  in the model, of no grant (`PUT_OFF`), and each begins anew in the resumed run, once its task works for its owner again; if it has failed
  there, it moves as it is. Otherwise a resumed run with the same workers would have no reason to place its tasks again.
- What is put off names workers of the model only. A placement without one of them ends it, and so does a new deployment, whose tasks are
  placed anew.

With `standby=1` a worker at another location follows the log of each task all the time, whatever becomes of the task (`standby`, and
`core.coordination.standbys` for who). It is the same mechanism without a release behind it: a field of the model, derived in each round.
A standby that is away, but awaited, stays the standby. So does that of a run that is stopped: it follows nothing then, but a task goes to
its disk if the owner does not come back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from ...graph.model import PUT_OFF, JobModel, Preparation
from ...orders import TaskState
from ..messages import RunState, SetGrant, SetJobModel, SetProcessor, SetRun
from ..standbys import standbys
from .damage import unknown
from .draft import Draft

_MOVES_AT_ONCE = ("", TaskState.RELEASING, TaskState.FAILED)
"""Reports of a holder, or none, for which waiting would not help: the task does not work there."""


def prepared_first(
    draft: Draft, before: JobModel | None, wanted: Mapping[str, str], processors: Collection[str]
) -> tuple[dict[str, str], dict[str, Preparation]]:
    """Of the tasks that would move: who runs each now, and where it is prepared. `processors`: those that the model will name."""
    stays, preparing = dict(wanted), dict[str, Preparation]()
    run = draft.run
    if before is None or run is None or run.state != RunState.RUNNING or not before.is_of(run.run_id, run.deployment):
        return stays, preparing
    if not _may_prepare(draft):
        return stays, preparing
    workers = draft.workers()
    for task, to in wanted.items():
        held, owner = draft.state.held(task), before.wanted.get(task, "")
        if before.preparing.get(task) == Preparation(to, PUT_OFF) and owner in processors:
            stays[task], preparing[task] = owner, Preparation(to, PUT_OFF)
            continue
        if held is None or held.processor == to or owner != held.processor:
            continue
        begun = before.preparing.get(task) == Preparation(to, held.grant)
        if held.processor in processors and _works(draft, workers, held) and (begun or _helps(workers, held, to)):
            stays[task], preparing[task] = held.processor, Preparation(to, held.grant)
    return stays, preparing


def _may_prepare(draft: Draft) -> bool:
    """Whether tasks of this job are prepared at all."""
    return draft.plan.stateful and draft.timing.prepare_s > 0


def _works(draft: Draft, workers: Mapping[str, SetProcessor], held: SetGrant) -> bool:
    """Whether the holder is there to stay, and the task works there."""
    holder = workers.get(held.processor)
    there = holder is not None and holder.incarnation == held.incarnation
    return there and draft.state.says(held.task) not in _MOVES_AT_ONCE


def _helps(workers: Mapping[str, SetProcessor], held: SetGrant, to: str) -> bool:
    """Whether the next owner can prepare, and has not the disk with the task's store."""
    here, there = workers.get(held.processor), workers.get(to)
    if here is None or there is None or not there.follows:
        return False
    return not here.location or here.location != there.location


def hand_over(draft: Draft) -> None:
    """Switch the tasks whose next owners are prepared, or need not be waited for any longer. Put off and take up again what is prepared, as
    the run stops and goes on."""
    run, model = draft.run, draft.state.model
    if run is None or model is None or not model.preparing or unknown(draft, "set-job-model"):
        return
    if run.state != RunState.RUNNING or run.closing or not model.is_of(run.run_id, run.deployment):
        if (left := _put_off(run, model)) != model.preparing:
            _write(draft, model, {}, left)
        return
    workers = draft.workers()
    ready: dict[str, str] = {}
    left = dict(model.preparing)
    for task, ahead in model.preparing.items():
        worker, held = workers.get(ahead.processor), draft.state.held(task)
        late = ahead.under_way and draft.waits.over(("prepare", task, ahead), draft.timing.prepare_s)
        if worker is None:
            continue  # who is awaited may come back; a placement without it ends this
        if not ahead.under_way and held is not None and _begins(draft, workers, held, ahead.processor):
            left[task] = Preparation(ahead.processor, held.grant)
            continue
        why = _why_now(draft, workers, held, worker, task, ahead) or ("placement.prepare is over" if late else "")
        if why:
            ready[task] = ahead.processor
            del left[task]
            draft.note("task is handed over", task=task, to=ahead.processor, why=why)
    if left != model.preparing:
        _write(draft, model, ready, left)


def _put_off(run: SetRun, model: JobModel) -> dict[str, Preparation]:
    """What is left to prepare while the run does not run: all of it, for later, if the run may go on as it was; otherwise nothing."""
    if not _goes_on(run, model):
        return {}
    return {task: Preparation(ahead.processor, PUT_OFF) for task, ahead in model.preparing.items()}


def _goes_on(run: SetRun, model: JobModel) -> bool:
    """Whether the run is stopped, or about to be, and may go on with this model."""
    stopped = run.state in (RunState.STOPPING, RunState.STOPPED) and run.drain is None
    return stopped and model.is_of(run.run_id, run.deployment)


def _begins(draft: Draft, workers: Mapping[str, SetProcessor], held: SetGrant, to: str) -> bool:
    """Whether what was put off is prepared now: the task works again, and waiting for its next owner helps."""
    return _may_prepare(draft) and _works(draft, workers, held) and _helps(workers, held, to)


def _why_now(
    draft: Draft,
    workers: Mapping[str, SetProcessor],
    held: SetGrant | None,
    worker: SetProcessor,
    task: str,
    ahead: Preparation,
) -> str:
    """Why the task is handed over now; empty if its next owner should go on preparing, or wait until the task works again."""
    if not ahead.under_way:
        if held is None or not draft.state.says(task):
            return ""
        return "preparing would not help" if _works(draft, workers, held) else "its owner does not work on it"
    if held is None or held.grant != ahead.grant:
        return "no one runs it"
    if not _works(draft, workers, held):
        return "its owner does not work on it"
    if not worker.follows:
        return "the next owner cannot prepare"
    return "prepared" if worker.prepared.get(task) == ahead.grant else ""


def standby(draft: Draft) -> None:
    """Choose who follows the log of each task all the time. No one does unless the run runs, and an operator wants it."""
    run, model = draft.run, draft.state.model
    if run is None or model is None or unknown(draft, "set-job-model") or _goes_on(run, model):
        return
    wanted: dict[str, str] = {}
    current = model.is_of(run.run_id, run.deployment)
    if run.state == RunState.RUNNING and not run.closing and current and draft.timing.standby and draft.plan.stateful:
        workers = draft.workers()
        going = {one for one, worker in workers.items() if worker.retires}
        locations = {one: _location(draft, one) for one in model.processors if one not in going}
        able = [one for one, worker in workers.items() if worker.follows and one in locations]
        wanted = standbys(model.target, locations, able, model.standby)
    if wanted != dict(model.standby):
        draft.put(SetJobModel(replace(model, term=draft.term, version=model.version + 1, standby=wanted)))


def _location(draft: Draft, processor: str) -> str | None:
    member = draft.state.member(processor)
    return None if member is None else member.location or None


def named(draft: Draft, processors: Iterable[str], wanted: Mapping[str, str]) -> tuple[str, ...]:
    """The workers that a model names: not one that is about to leave and has no task any more. So it is a new one when it comes back."""
    going = {processor for processor, worker in draft.workers().items() if worker.retires} - set(wanted.values())
    return tuple(processor for processor in processors if processor not in going)


def _write(draft: Draft, model: JobModel, ready: Mapping[str, str], left: Mapping[str, Preparation]) -> None:
    """Write the model in which these tasks are wanted there, and of which only these preparations are left."""
    wanted = {**model.wanted, **ready}
    there = named(draft, model.processors, wanted)
    standby = {task: one for task, one in model.standby.items() if one in there}
    made = replace(
        model,
        term=draft.term,
        version=model.version + 1,
        wanted=wanted,
        processors=there,
        preparing=left,
        standby=standby,
    )
    draft.put(SetJobModel(made))
