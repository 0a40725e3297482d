"""The orders that a member gives to the tasks it was granted, and what the tasks report back.

A member never reaches into a task, and a task never reads the coordinator stream. All that one knows of the other is one of these values,
so each of the two machines can be tested without the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, cast


class TaskState(StrEnum):
    """The states of a task. Heartbeats send a state as its number, so new states are only appended."""

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
"""The states in which a task processes records."""
RESTING = (TaskState.DRAINED, TaskState.ENDED)
"""The states in which a task has sent its final report, and keeps its grant until the run closes."""
REPORTED = (TaskState.RUNNING, TaskState.RELEASED, TaskState.DRAINED, TaskState.ENDED, TaskState.FAILED)
"""The states that a task reports, and that the coordinator stream records for its grant."""

_NONE: Mapping[str, ProducerSet] = MappingProxyType({})
_NO_ENDS: Mapping[str, tuple[int, ...]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ProducerSet:
    """The tasks that write an intermediate stream, and the epoch, which rises when the set changes (never when a task moves)."""

    stream: str
    epoch: int
    tasks: frozenset[str]


@dataclass(frozen=True, slots=True)
class RunView:
    """What a task must know about the run: its id, whether it drains, what is paused, and the producers of intermediate streams."""

    run_id: str
    job_uuid: str
    draining: str | None = None
    """The id of the drain while the run drains, otherwise None."""
    paused_job: bool = False
    paused_streams: frozenset[str] = frozenset()
    producers: Mapping[str, ProducerSet] = field(default_factory=lambda: _NONE)
    """By intermediate stream, and by stream shared with other jobs."""
    drain_upto: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: _NO_ENDS)
    """Streams of other jobs that a drain still reads, with the offset up to which each partition is read."""
    goes_on: bool = False
    """The previous run was drained: what other jobs announced to it still counts."""
    reopens: bool = False
    """A seek between the runs leads back: the windows forget which of them watermarks have closed."""
    bounded: bool = False
    """The run ends by itself, so a task reports when it only waits for others (`TaskReported.still`)."""


# ---------------------------------------------------------------------------------------------------------------- orders


@dataclass(frozen=True, slots=True)
class Start:
    """Run this task under this grant. The previous owner has released it or is fenced, so its log may be read now."""

    task: str
    grant: int
    run: RunView
    log_partition: int
    after_death: bool = False
    """Whether the previous owner was fenced, dead or in the middle of its work: one of its letters may be to blame."""


@dataclass(frozen=True, slots=True)
class RunChanged:
    """The run has changed: a pause, a drain, a newer epoch of a producer set."""

    run: RunView


@dataclass(frozen=True, slots=True)
class Release:
    """Finish or drop the current chunk, commit, apply, close the store, then report `released`. `why`: moved, stop, leaving."""

    why: str


@dataclass(frozen=True, slots=True)
class Abandon:
    """The incarnation is fenced or superseded: drop everything at once, write nothing, report nothing."""

    why: str


SKIP = "skip"
Goal = str | int | tuple[str, int] | tuple[str, int, int]
"""Where a seek leads."""


def skips(to: Any) -> bool:
    """Whether a seek with this goal leaves out one record, and moves no position.

    >>> skips(("skip", 7)), skips("newest")
    (True, False)
    """
    return isinstance(to, list | tuple) and cast("tuple[Any, ...]", to)[:1] in ((SKIP,), [SKIP])


NO_POSITION = -1
"""Stands for a position that does not exist yet: no checkpoint of the task contains the partition."""


HERE = "here"
"""A seek to where the task is: the topic was replaced by a copy of the same records, and its new id is accepted."""


@dataclass(frozen=True, slots=True)
class Seek:
    """Continue at another position. `to` is `oldest`, `newest`, `HERE`, an offset, or a time as `("time", ms)`. Applied once per `request`.

    Or leave out one record, and go on from where the task is: `("skip", offset)`, or `("skip", offset, row)` for one row of a frame.
    """

    request: str
    stream: str
    partition: int
    to: Goal
    expected: int | None = None
    """The position that the requester saw, or `NO_POSITION`; if the task is elsewhere, the seek is refused. None: any position."""


RELEASE, LEAVE_OUT = "release", "skip"
UNPARK = "unpark"
"""The kind of the letter that carries out an `Unpark`; its key is that of the letter."""
UNPARKS = (RELEASE, LEAVE_OUT)
"""What an operator may do with parked records: try them now, or leave them out."""


@dataclass(frozen=True, slots=True)
class Unpark:
    """Try parked records now (`RELEASE`), or leave them out (`LEAVE_OUT`). Carried out once per `request`, like a seek."""

    request: str
    what: str
    number: int | None = None
    """The number of a parked record in the table of the task: only its key is meant. None: every key."""
    upto: int | None = None
    """No record with a greater number is left out: those that the requester did not see stay."""

    @property
    def key(self) -> str:
        """The order as the key of a letter. Two with the same key are the same.

        >>> Unpark("u1:0", "skip", 7).key, Unpark.of("skip/7/-/u1:0")
        ('skip/7/-/u1:0', Unpark(request='u1:0', what='skip', number=7, upto=None))
        """
        numbers = ("-" if one is None else str(one) for one in (self.number, self.upto))
        return "/".join((self.what, *numbers, self.request))

    @classmethod
    def of(cls, key: str) -> Unpark:
        """The order with this key."""
        what, number, upto, request = key.split("/", 3)
        return cls(request, what, *(None if one == "-" else int(one) for one in (number, upto)))


Errand = Seek | Unpark
"""What an operator wants of a task, once: its request is in the checkpoint that carried it out."""
Order = Start | RunChanged | Release | Abandon | Seek | Unpark

# --------------------------------------------------------------------------------------------------------------- reports


@dataclass(frozen=True, slots=True)
class TaskReported:
    """A task's state has changed; sent after the commit that the state depends on. `state` is one of `REPORTED`."""

    task: str
    grant: int
    state: TaskState
    why: str = ""
    still: bool = False
    """The task runs, has read and committed everything available, and only others can bring it more."""
    gone: bool = False
    """The task has failed, and nothing of it is left on this worker."""
    passing: bool = False
    """The cause of the failure may pass: the task is restarted under the same grant. Otherwise it needs a seek or other code."""
    unproven: bool = False
    """The owner before this one died, and too few commits have passed since: one of the task's letters may still be to blame."""


@dataclass(frozen=True, slots=True)
class SeekApplied:
    """The checkpoint that records this seek, or this order to unpark, is durable; or it was refused."""

    task: str
    request: str
    refused: str = ""


Report = TaskReported | SeekApplied
