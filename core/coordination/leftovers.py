"""Which tasks a worker may have left a store of, and how long such a store is kept.

A task that moves leaves its store on the disk. That is of use as long as the task may come back: it then replays only the difference. But a
store that was not followed for half of the task log's `delete.retention.ms` is rebuilt anyway, unless the log has stood still. That is 12
hours, unless the topic was changed. So by default a store is kept for 12 hours; after that it only takes space.

Promises: a task that runs here, that is to run here, that moves or is prepared to, whose standby this worker is, that restores, or that no
worker runs has left nothing behind. The stream may be behind, so it does not say whether a store is in use: its lock on the disk decides
(`agents.state.leftovers`).
"""

from __future__ import annotations

from ..orders import TaskState
from .state import JobState

LOOK_S = 60.0
"""The most seconds between two looks at the disk."""


def left_behind(state: JobState, processor: str) -> dict[str, int]:
    """The tasks that run elsewhere, are to stay there, and have restored there, with their partitions of the task log.

    >>> left_behind(JobState(), "w1")
    {}
    """
    model, logs = state.model, state.changelogs
    if model is None:
        return {}
    found: dict[str, int] = {}
    for grant in state.grants():
        task, held = grant.task, state.held(grant.task)
        stays = held is not None and held.processor != processor and model.wanted.get(task) == held.processor
        followed = task in model.preparing or model.standby.get(task) == processor
        if stays and not followed and state.says(task) == TaskState.RUNNING and task in logs:
            found[task] = logs[task]
    return found


def over(unused_s: float, delay_s: float) -> bool:
    """Whether a store that was not written to for so long is not kept any more. A delay of 0 keeps it for ever.

    >>> over(10.0, 5.0), over(10.0, 0.0)
    (True, False)
    """
    return 0 < delay_s <= unused_s


def look_s(delay_s: float) -> float | None:
    """The seconds until the next look at the disk: the delay, but between a second and a minute. None: never.

    >>> look_s(3600.0), look_s(5.0), look_s(0.0)
    (60.0, 5.0, None)
    """
    return min(LOOK_S, max(1.0, delay_s)) if delay_s else None
