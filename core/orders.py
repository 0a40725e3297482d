"""What a member tells the tasks that it was granted, and what they report back.

A member never reaches into a task, and a task never looks at the coordinator stream. Everything that one has to know of the
other is one of these values, so each of the two machines can be tested, and attacked, without the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class TaskState(StrEnum):
    """Where a task is in its life. A worker says it in its heartbeats by number, so new states are only ever appended."""

    WAITING = "waiting"
    RESTORING = "restoring"
    BOOTSTRAPPING = "bootstrapping"
    RUNNING = "running"
    PAUSED = "paused"
    DRAINING = "draining"
    DRAINED = "drained"
    ENDING = "ending"
    ENDED = "ended"
    RELEASING = "releasing"
    RELEASED = "released"
    FAILED = "failed"
    ABANDONED = "abandoned"


WORKING = (TaskState.BOOTSTRAPPING, TaskState.RUNNING, TaskState.PAUSED, TaskState.DRAINING, TaskState.ENDING)
"""The task processes."""
RESTING = (TaskState.DRAINED, TaskState.ENDED)
"""The task has reported its last, and keeps its grant until the run closes."""
REPORTED = (TaskState.RUNNING, TaskState.RELEASED, TaskState.DRAINED, TaskState.ENDED, TaskState.FAILED)
"""The states that a task reports, and that its grant is known by in the coordinator stream."""

_NONE: Mapping[str, ProducerSet] = MappingProxyType({})
_NO_ENDS: Mapping[str, tuple[int, ...]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ProducerSet:
    """Who writes an intermediate stream: the task names, and the epoch, which rises when the set changes (never when a task moves)."""

    stream: str
    epoch: int
    tasks: frozenset[str]


@dataclass(frozen=True, slots=True)
class RunView:
    """What a task must know of the run: its id, whether it drains, what is paused, and who produces the intermediate streams."""

    run_id: str
    job_uuid: str
    draining: str | None = None
    """The id of the drain while the run drains, else None."""
    paused_job: bool = False
    paused_streams: frozenset[str] = frozenset()
    producers: Mapping[str, ProducerSet] = field(default_factory=lambda: _NONE)
    """By intermediate stream, and by stream that is shared with other jobs."""
    drain_upto: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: _NO_ENDS)
    """Streams of other jobs that a drain still reads, up to these offsets, partition by partition."""
    goes_on: bool = False
    """The run before this one was drained: what other jobs said to it still counts."""
    bounded: bool = False
    """It has an end of its own, so a task says when it only waits for others (`TaskReported.still`)."""


# ---------------------------------------------------------------------------------------------------------------- orders


@dataclass(frozen=True, slots=True)
class Start:
    """Run this task under this grant. The predecessor has released it or is fenced, so its log may be read now."""

    task: str
    grant: int
    run: RunView
    log_partition: int


@dataclass(frozen=True, slots=True)
class RunChanged:
    """The run changed: a pause, a drain, a newer epoch of producers."""

    run: RunView


@dataclass(frozen=True, slots=True)
class Release:
    """Finish or drop the chunk, commit, apply, close the store, then report `released`. `why`: moved, stop, leaving."""

    why: str


@dataclass(frozen=True, slots=True)
class Abandon:
    """The incarnation is fenced or superseded: drop everything at once, write nothing, report nothing."""

    why: str


NO_POSITION = -1
"""A position that was seen before there was one: no checkpoint of the task knew the partition."""


@dataclass(frozen=True, slots=True)
class Seek:
    """Go on from another position. `to` is `oldest`, `newest`, an offset, or a time as `("time", ms)`. Applied once per `request`."""

    request: str
    stream: str
    partition: int
    to: str | int | tuple[str, int]
    expected: int | None = None
    """The position that whoever asked saw, or `NO_POSITION`; elsewhere it is refused. None: wherever the task stands."""


Order = Start | RunChanged | Release | Abandon | Seek

# --------------------------------------------------------------------------------------------------------------- reports


@dataclass(frozen=True, slots=True)
class TaskReported:
    """A task's state changed, after the commit that it rests on. `state` is one of `REPORTED`."""

    task: str
    grant: int
    state: TaskState
    why: str = ""
    still: bool = False
    """It runs, has read and made durable all that there is, and only somebody else can bring it more."""
    gone: bool = False
    """It has failed, and nothing of it is left here."""
    passing: bool = False
    """What it failed at may pass: it is started again under the same grant. Else a seek or other code is needed."""


@dataclass(frozen=True, slots=True)
class SeekApplied:
    """The checkpoint that remembers this request is durable."""

    task: str
    request: str
    refused: str = ""


Report = TaskReported | SeekApplied
