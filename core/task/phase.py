"""What a task may do (its mode), and what is shown of it (its phase).

The mode decides which events count, so it is the state of the machine. The phase is derived: while a task works, the facts of the moment
say whether it bootstraps, runs, is paused, drains or ends. Heartbeats, status and reports show the phase.
"""

from __future__ import annotations

from enum import StrEnum

from ..orders import TaskState
from . import protocol as t


class TaskMode(StrEnum):
    """The states of the task machine."""

    WAITING = "waiting"
    """For its order."""
    RESTORING = "restoring"
    """Its store, its control state and its positions."""
    WORKING = "working"
    """It takes chunks and letters."""
    RESTING = "resting"
    """It has drained or ended, durably. It keeps its grant, and repeats control messages when epochs change."""
    RELEASING = "releasing"
    """It finishes its work, and commits."""
    CLOSING = "closing"
    """Its store is told to close; then it is released, or has failed."""
    RELEASED = "released"
    FAILED = "failed"
    ABANDONED = "abandoned"
    """The incarnation is over, and everything that was not durable is lost."""


def phase_at_work(*, drains: bool, finished: str, bootstraps: bool, paused: bool) -> TaskState:
    """The phase of a task that works. `finished`: the letter that its operators have heard of all inputs that count.

    >>> phase_at_work(drains=False, finished="", bootstraps=False, paused=True)
    <TaskState.PAUSED: 'paused'>
    """
    if drains:
        return TaskState.DRAINING
    if finished == t.END:
        return TaskState.ENDING
    if bootstraps:
        return TaskState.BOOTSTRAPPING
    return TaskState.PAUSED if paused else TaskState.RUNNING
