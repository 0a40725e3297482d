"""What the edge of a worker tells its `Member` machine, and what that tells its edge.

A member is what one worker process must do, given the job state: become a known incarnation, run what it is granted, release what it
no longer should, and go when it must. The orders to tasks, and their reports, stand in `core.orders`.
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
    """Answers `InitProducer`: this incarnation's transactional id is initialised; its producer may write."""

    incarnation: str


@dataclass(frozen=True, slots=True)
class ProducerLost:
    """The data producer is dead (fenced, fatal error, unknown outcome), or could not be made. All its tasks are `Abandon`ed.

    `failed` names tasks that wrote to a target that is broken, with the reason; they are started when the target takes something
    again. `target`: which; None when they failed by themselves, at the moment of a commit. `refused`: it is well, and did not take what
    they wrote.
    """

    incarnation: str
    why: str
    failed: tuple[tuple[str, str], ...] = ()
    target: StreamPartition | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Probed:
    """Answers `Probe`: `why` the target cannot be written, or nothing when it would take something now."""

    target: StreamPartition
    why: str = ""


@dataclass(frozen=True, slots=True)
class MessagesWritten:
    """Answers `WriteMessages`: all of it is acknowledged; `last_offset` is the offset of the last of its records."""

    last_offset: int


@dataclass(frozen=True, slots=True)
class MessagesUnknown:
    """Answers `WriteMessages`: some or all of it may or may not be in the stream. It is read back, and rewritten if it is not there."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class Leave:
    """SIGTERM or the like: commit, release, say `left`, exit 0."""

    why: str


MemberEvent = (
    Read | End | Beat | FenceReturned | FenceFailed | ProducerReady | ProducerLost | Probed | MessagesWritten | MessagesUnknown
    | TaskReported | SeekApplied | Leave | Tick
)  # fmt: skip

# --------------------------------------------------------------------------------------------------------- instructions


@dataclass(frozen=True, slots=True)
class InitProducer:
    """Initialise this incarnation's transactional id, exactly once, ever. Answer `ProducerReady` or `ProducerLost`."""

    incarnation: str


@dataclass(frozen=True, slots=True)
class CloseProducer:
    """This incarnation's producer is not needed any more: drop it, aborting what is open. Nothing answers."""

    incarnation: str


@dataclass(frozen=True, slots=True)
class Probe:
    """Find out whether this target would take something, without writing a record to it, and beside the incarnation's producer.
    Answer `Probed`, always."""

    target: StreamPartition


@dataclass(frozen=True, slots=True)
class WriteMessages:
    """Write these as single records (no transaction) through the worker's idempotent producer, in order, one `WriteMessages` at a time.
    Answer `MessagesWritten` or `MessagesUnknown` (then with a fresh producer)."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class SendOrder:
    """An order for one task (`core.orders`). After `Abandon`, and after it has reported `released`, the task is gone."""

    task: str
    order: Order


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    """The operator's overrides as of this offset; acknowledge the offset in heartbeats once they are applied."""

    overrides: Mapping[str, Any]
    offset: int


@dataclass(frozen=True, slots=True)
class Readiness:
    """How this worker stands, for status and `/readyz`: `ready` only when its tasks may run; `why` says what it waits for."""

    ready: bool
    why: str


@dataclass(frozen=True, slots=True)
class Exit:
    """End the process with this code. Nothing more comes from this machine."""

    code: int
    why: str


MemberInstruction = (
    AskEnd | Fence | InitProducer | CloseProducer | Probe | WriteMessages | SendOrder | ConfigChanged | Readiness | Exit | JobNote
)  # fmt: skip
