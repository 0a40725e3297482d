"""Who may run which task: grants, and the releases that they wait for.

- Grant n+1 is written only after its holder has `released` grant n (even a grant that it never used), or in one transaction with the fence
  of the holder. Nothing else frees a task.
- A holder that is not wanted any more, that leaves, or whose run closes, has `release.timeout` to release; then it is fenced. So has one
  that says that it releases a task that is wanted there again.
- A task gets its task log partition once, and keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from ...orders import TaskState
from ..messages import ProcessorState, RunState, SetChangelog, SetGrant, SetProcessor
from .damage import may_be_held, unknown
from .draft import Draft
from .members import fence


def changelogs(draft: Draft) -> None:
    """Give every task of the model its partition of the task log."""
    model = draft.state.model
    if model is None:
        return
    given = draft.state.changelogs
    taken = set(given.values())
    free = (partition for partition in count() if partition not in taken)
    for task in model.tasks:
        if task not in given and not unknown(draft, "set-changelog", task):
            draft.put(SetChangelog(task, next(free)))


def grants(draft: Draft) -> None:
    """Grant free tasks to the workers that should run them, and make the other holders release."""
    run, model = draft.run, draft.state.model
    workers = draft.workers()
    granting = run is not None and run.state in (RunState.RUNNING, RunState.DRAINING) and not run.closing
    current = model is not None and run is not None and model.is_of(run.run_id, run.deployment)
    wanted: Mapping[str, str] = model.wanted if model is not None and current else {}
    for task in sorted({grant.task for grant in draft.state.grants()} | set(wanted)):
        owner = workers.get(wanted.get(task, "")) if granting else None
        held = draft.state.held(task)
        if held is None:
            if owner is not None and not may_be_held(draft, task):
                _grant(draft, task, owner)
        elif not granting or _must_go(draft, held, owner, wanted.get(task)):
            _let_go(draft, held)


def _let_go(draft: Draft, held: SetGrant) -> None:
    """Fence the holder if it has not released in time. It sees in the stream itself that it must release."""
    if draft.waits.over(("release", held.task, held.grant), draft.timing.release_s):
        text = f"grant {held.grant} of '{held.task}' was not released in time"
        draft.note_once(text, level="error", task=held.task, grant=held.grant, processor=held.processor)
        fence(draft, held.processor, held.incarnation)


def _must_go(draft: Draft, held: SetGrant, owner: SetProcessor | None, wanted: str | None) -> bool:
    """Whether the holder must release: another worker should run the task, none should, it releases already, or it is leaving."""
    if draft.state.says(held.task) == TaskState.RELEASING:
        return True
    if owner is not None:
        return (owner.processor, owner.incarnation) != (held.processor, held.incarnation)
    worker = draft.state.recorded(held.processor).get(held.incarnation)
    member = draft.state.member(held.processor)
    going = worker is None or worker.state != ProcessorState.JOINED or (member is not None and member.out)
    return going or wanted is None or wanted != held.processor


def _grant(draft: Draft, task: str, owner: SetProcessor) -> None:
    state = draft.state
    released = state.task_state(task) if state.released(task) else None
    died = state.grant(task) is not None and (released is None or released.unproven)
    last = state.location(task) or ""
    draft.put(SetGrant(task, state.next_grant(task), owner.processor, owner.incarnation, last, died))
