"""What somebody wrote over the leader's own keys, so that nobody can read it: the leader writes again what stood there.

A message that cannot be read is skipped (`JobState.damaged`), so everything goes on as before; but compaction would take what it
hides. Only the leader writes these keys, so what stood there before is what counts, and it says so again.

Where nothing is known any more of what stood there, guessing would lose state: no run is begun over one that cannot be read, no model is
made, no log partition is given to a task. A grant that cannot be read may be held by whoever was recorded before: all of these are
fenced, and then the task is granted anew. All of it is said once.
"""

from __future__ import annotations

from ..messages import LEADERS, Key, ProcessorState
from .draft import Draft
from .members import fence


def repair(draft: Draft) -> None:
    """Write again what is known, and say what is not, and which overrides count for nothing."""
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
    """Whether something was said under this key that nobody can read, and nothing is known of what stood there before."""
    return (kind, key) in draft.state.damaged and key not in draft.state.messages[kind]


def may_be_held(draft: Draft, task: str) -> bool:
    """Whether somebody may hold a grant of this task that cannot be read; sees to it that nobody does."""
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
