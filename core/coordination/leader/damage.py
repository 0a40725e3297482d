"""Repairs the leader's own keys if somebody overwrote them with unreadable messages: the leader writes the previous message again.

An unreadable message is skipped (`JobState.damaged`), so nothing changes at first; but compaction would delete the message that it hides.
Only the leader writes these keys, so the previous message is right, and it is written again.

If the previous message is not known, guessing would lose state: no run begins over an unreadable one, no model is created, no log partition
is given to a task. An unreadable grant may be held by any worker that was recorded before it: all of these are fenced, and then the task is
granted again. All of this is logged once.
"""

from __future__ import annotations

from ..messages import LEADERS, Key, ProcessorState
from .draft import Draft
from .members import fence


def repair(draft: Draft) -> None:
    """Write known messages again, and log the damage and the overrides without effect."""
    for key, offset in sorted(draft.state.damaged.items(), key=lambda item: item[1]):
        if key[0] not in LEADERS:
            continue
        name, where = " ".join((key[0], *map(str, key[1]))), f"the message at offset {offset} of the coordinator stream"
        known = draft.state.messages[key[0]].get(key[1])
        if known is not None:
            draft.put(known)
            draft.note_once(f"{where}, about '{name}', cannot be decoded; the previous message is written again")
        else:
            draft.note_once(f"{where}, about '{name}', cannot be decoded, and there is no previous message")
    for setting, why in draft.state.wrong_configs.items():
        draft.note_once(f"the override of '{setting}' has no effect: {why}")


def unknown(draft: Draft, kind: str, *key: str | int) -> bool:
    """Whether this key is damaged and its previous message is not known."""
    return (kind, key) in draft.state.damaged and key not in draft.state.messages[kind]


def may_be_held(draft: Draft, task: str) -> bool:
    """Whether somebody may hold an unreadable grant of this task. If so, fences all who may."""
    key: Key = ("set-grant", (task,))
    if not unknown(draft, *("set-grant", task)):
        return False
    state, waits = draft.state, False
    for processor in state.processors():
        for life in state.incarnations(processor):
            recorded = state.at["set-processor", (processor, life.incarnation)][0]
            if life.state != ProcessorState.LEFT and recorded < state.damaged[key]:
                fence(draft, processor, life.incarnation)
                waits = True
    return waits
