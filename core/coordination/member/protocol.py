"""The events and instructions of a worker's `Member` machine.

A member decides what one worker process must do, given the job state: become a known incarnation, run what it is granted, release what it
should not run any more, and leave when it must. The orders to tasks, and their reports, are in `core.orders`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...machine import Tick
from ...names import StreamPartition
from ...orders import Order, SeekApplied, TaskReported
from ..events import Beat, Fence, FenceFailed, FenceReturned, JobNote
from ..messages import AskEnd, End, Message, Read

# --------------------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class ProducerReady:
    """Answers `InitProducer`: this incarnation's transactional id is initialised, and its producer may write."""

    incarnation: str


@dataclass(frozen=True, slots=True)
class ProducerLost:
    """The data producer is dead (fenced, fatal error, unknown outcome), or could not be made. All its tasks get `Abandon`.

    `failed` names the tasks that wrote to a broken target, with the reason; they start again when the target can be written. `target`: that
    target; None if they failed by themselves during a commit. `refused`: the target is healthy but rejected what they wrote.
    """

    incarnation: str
    why: str
    failed: tuple[tuple[str, str], ...] = ()
    target: StreamPartition | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Probed:
    """Answers `Probe`: `why` the target cannot be written; empty if it can."""

    target: StreamPartition
    why: str = ""


@dataclass(frozen=True, slots=True)
class MessagesWritten:
    """Answers `WriteMessages`: all messages are acknowledged. `last_offset` is the offset of the last record."""

    last_offset: int


@dataclass(frozen=True, slots=True)
class MessagesUnknown:
    """Answers `WriteMessages`: it is not known which messages are in the stream. They are read back, and written again if missing."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class Followed:
    """Answers `Follow`, once for each task and grant: the store lacks little of the task's log."""

    task: str
    grant: int


@dataclass(frozen=True, slots=True)
class Leave:
    """SIGTERM or the like: commit, release, write `left`, exit with 0."""

    why: str
    prepare_s: float = 0.0
    """For how long at most it works on, while others prepare its tasks."""


MemberEvent = (
    Read | End | Beat | FenceReturned | FenceFailed | ProducerReady | ProducerLost | Probed | MessagesWritten | MessagesUnknown
    | TaskReported | SeekApplied | Followed | Leave | Tick
)  # fmt: skip

# --------------------------------------------------------------------------------------------------------- instructions


@dataclass(frozen=True, slots=True)
class InitProducer:
    """Initialise this incarnation's transactional id, exactly once. Answer `ProducerReady` or `ProducerLost`."""

    incarnation: str


@dataclass(frozen=True, slots=True)
class CloseProducer:
    """This incarnation's producer is not needed any more: drop it and abort what is open. There is no answer."""

    incarnation: str


@dataclass(frozen=True, slots=True)
class Probe:
    """Test whether this target can be written, without writing a record and without the incarnation's producer. Always answer `Probed`."""

    target: StreamPartition


@dataclass(frozen=True, slots=True)
class WriteMessages:
    """Write these as single records (no transaction) through the worker's idempotent producer, in order, one `WriteMessages` at a time.

    Answer `MessagesWritten` or `MessagesUnknown` (the next write then uses a new producer).
    """

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class SendOrder:
    """An order for one task (`core.orders`). After `Abandon`, and after it has reported `released`, the task is gone."""

    task: str
    order: Order


@dataclass(frozen=True, slots=True)
class FollowedLog:
    """The log of a task that another worker runs. `grant`: that of its holder; 0: it is followed whoever that is."""

    grant: int
    partition: int
    job_uuid: str


@dataclass(frozen=True, slots=True)
class Follow:
    """Follow the logs of these tasks, each in a store of its own, and of no others. Answer `Followed` for each.

    A task that is started takes over its store. It stays named here while it is to run on this worker, and is not followed again.
    """

    logs: Mapping[str, FollowedLog]


@dataclass(frozen=True, slots=True)
class WriteOut:
    """These tasks run here and are about to be released, because they are prepared elsewhere: write to the disk now what their stores hold
    in memory, so that closing them takes no time. There is no answer.
    """

    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    """The operator's overrides as of this offset. Acknowledge the offset in heartbeats once they are applied."""

    overrides: Mapping[str, Any]
    offset: int


@dataclass(frozen=True, slots=True)
class Readiness:
    """The readiness of this worker, for status and `/readyz`: `ready` only while its tasks may run; `why` says what it waits for."""

    ready: bool
    why: str


@dataclass(frozen=True, slots=True)
class Exit:
    """End the process with this code. This machine gives no more instructions."""

    code: int
    why: str


MemberInstruction = (
    AskEnd | Fence | InitProducer | CloseProducer | Probe | WriteMessages | SendOrder | Follow | WriteOut | ConfigChanged | Readiness
    | Exit | JobNote
)  # fmt: skip
