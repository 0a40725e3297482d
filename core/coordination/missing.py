"""What the coordinator stream should contain and does not.

No one deletes these keys (`messages.FOR_EVER`), and the leader writes a message again that someone else has deleted or overwritten. But
where no leader was alive until compaction had removed the message, it is gone. Other messages show that it was there: one transaction
contains a run's first model, the log partitions of its tasks and their grants, and each of them needs the one before it.

To guess would lose state: another run has another job uuid, another model other producer sets, and another log partition is another task's
or empty. So what is missing is named, and nothing is begun on top of it.
"""

from __future__ import annotations

from .messages import FOR_EVER, Key, shown
from .state import JobState

REMEDY = "`headgate reset` the job: its tables and positions are lost, and it starts from its inputs"
MOST_SHOWN = 3


def missing(state: JobState) -> dict[Key, str]:
    """The keys whose message is missing, each with what shows that it was there.

    >>> missing(JobState())
    {}
    """
    found: dict[Key, str] = {
        key: f"it was deleted or overwritten at offset {offset}"
        for key, offset in state.damaged.items()
        if key[0] in FOR_EVER and key[1] not in state.messages[key[0]]
    }
    granted = {grant.task for grant in state.grants()}
    if state.run is None and (state.model is not None or state.changelogs or granted):
        found.setdefault(("set-run", ()), "tasks were made for a run")
    if state.model is None and (state.changelogs or granted):
        found.setdefault(("set-job-model", ()), "tasks have a log partition or a grant")
    for task in sorted(granted - state.changelogs.keys()):
        found.setdefault(("set-changelog", (task,)), f"'{task}' was granted")
    if state.leader is None and state.run is not None:
        found.setdefault(("set-leader", ()), "a run was begun")
    return found


def needed(state: JobState) -> str:
    """What is missing and keeps the job from going on, with the remedy; empty if nothing does. A leader is found anyway, and a task whose
    grant is missing is granted again when all who may hold it are fenced.

    >>> needed(JobState())
    ''
    """
    gone = [
        (key, why) for key, why in missing(state).items() if key[0] in ("set-run", "set-job-model", "set-changelog")
    ]
    if not gone:
        return ""
    said = ", ".join(f"'{shown(key)}' ({why})" for key, why in gone[:MOST_SHOWN])
    more = f" and {len(gone) - MOST_SHOWN} more" if len(gone) > MOST_SHOWN else ""
    return f"missing in the coordinator stream: {said}{more}; {REMEDY}"
