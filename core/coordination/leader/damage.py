"""Repairs keys that someone overwrote with unreadable messages, or deleted by hand: the leader writes the previous message again.

Such a message is skipped (`JobState.damaged`), so nothing changes at first; but compaction would delete the message that it hides. Only the
leader writes its keys, so the previous message is right, and it is written again. So is a request, which is written once, and what a worker
has said that is fenced or has left; a living worker repeats its own messages itself.

If the previous message is not known, guessing would lose state (`missing`): no run begins without the one before, no model is created, no
log partition is given to a task. An unreadable grant may be held by any worker that was recorded before it: all of these are fenced, and
then the task is granted again. All of this is logged once.
"""

from __future__ import annotations

from ..messages import (
    FOR_EVER,
    LEADERS,
    Key,
    Message,
    ProcessorState,
    SetProcessor,
    SetTaskState,
    shown,
    unlawful,
)
from ..missing import missing, needed
from ..state import JobState
from .draft import Draft
from .members import fence


def repair(draft: Draft) -> None:
    """Write known messages again, and log the damage and the overrides without effect."""
    folded = draft.state
    if why := needed(folded):
        draft.note_once(why, level="error")
    for key, offset in sorted(folded.damaged.items(), key=lambda item: item[1]):
        where = f"offset {offset} of the coordinator stream"
        what = folded.problems.get(offset, f"the message about '{shown(key)}' cannot be decoded")
        known = folded.messages[key[0]].get(key[1])
        if known is not None and _may_write(folded, known):
            draft.put(known)
            draft.note_once(
                f"{where}, about '{shown(key)}': {what}; the previous message is written again", level="error"
            )
        elif known is None and key[0] in LEADERS:
            draft.note_once(f"{where}, about '{shown(key)}': {what}; there is no previous message", level="error")
            if folded.problems.get(offset) == unlawful(key, transactional=False) and key[0] not in FOR_EVER:
                draft.delete(key)  # it was deleted, and nothing can be restored
    for setting, why in folded.wrong_configs.items():
        draft.note_once(f"the override of '{setting}' has no effect: {why}")


def _may_write(state: JobState, known: Message) -> bool:
    """Whether no one but the leader can write this key now."""
    if isinstance(known, SetTaskState):
        grant = state.grant(known.task)
        return grant is not None and grant.grant == known.grant and _over(state, grant.processor, grant.incarnation)
    if isinstance(known, SetProcessor):
        return _over(state, known.processor, known.incarnation)
    return True


def _over(state: JobState, processor: str, incarnation: str) -> bool:
    """Whether this incarnation writes no more."""
    worker = state.recorded(processor).get(incarnation)
    return state.fenced(processor, incarnation) or (worker is not None and worker.state == ProcessorState.LEFT)


def unknown(draft: Draft, kind: str, *key: str | int) -> bool:
    """Whether the message of this key was there and is not known."""
    return (kind, key) in missing(draft.state)


def may_be_held(draft: Draft, task: str) -> bool:
    """Whether someone may hold an unreadable grant of this task. If so, fences all who may."""
    key: Key = ("set-grant", (task,))
    if not unknown(draft, *("set-grant", task)):
        return False
    state, waits = draft.state, False
    for processor in state.processors():
        for worker in state.incarnations(processor):
            recorded = state.at["set-processor", (processor, worker.incarnation)][0]
            if worker.state != ProcessorState.LEFT and recorded < state.damaged[key]:
                fence(draft, processor, worker.incarnation)
                waits = True
    return waits
