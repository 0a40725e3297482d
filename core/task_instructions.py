"""What a task's machine asks of its edge: the instructions, each with the fact that answers it.

They are carried out in order. Those that ask for something name the fact of `task_events` that is awaited; the others are done
at once and never answered. A report (`Tell`) says only what is durable already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .machine import Level
from .names import StreamPartition
from .orders import Report, Seek

if TYPE_CHECKING:
    from .checkpoint import Checkpoint
    from .frames import ControlFrame
    from .task_plan import Bound

Positions = Mapping[StreamPartition, int]
RowChanges = Mapping[tuple[Any, ...], tuple[Any, ...] | None]
"""What changed in the control table, see `task_events.Rows`; None deletes a row."""

WATERMARK = "watermark"
END = "end"
DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class OpenStore:
    """Open the local store of this task, whatever is there; answer `StoreOpened` or `StoreBroken`."""


@dataclass(frozen=True, slots=True)
class AskLogEnds:
    """Ask the broker for start and end of the task's log partition; answer `LogEnds`."""

    log_partition: int


@dataclass(frozen=True, slots=True)
class WipeStore:
    """Remove the local store and open an empty one; answer `StoreWiped`. `why` belongs in the log."""

    why: str


@dataclass(frozen=True, slots=True)
class Restore:
    """Read the log from `start` (read committed) into the store until the position reaches `end`; answer `Restored`.

    The last checkpoint may stand before `start` (it is then the one kept in the store).
    """

    log_partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Resolve:
    """Ask the broker for offsets; answer `Resolved` with the same `request` (retry while the broker is unavailable)."""

    request: int
    positions: Mapping[StreamPartition, Bound] = field(default_factory=lambda: MappingProxyType({}))
    until: Mapping[StreamPartition, Bound] = field(default_factory=lambda: MappingProxyType({}))
    ends: frozenset[StreamPartition] = frozenset()
    """Bootstrap partitions: their read-committed end, now."""


@dataclass(frozen=True, slots=True)
class SeekConsumer:
    """Read on from these positions; what was buffered of these partitions is dropped. Fetching begins with the first one."""

    positions: Positions


@dataclass(frozen=True, slots=True)
class Bounds:
    """Hand out nothing at or behind these offsets (`until`), and tell the chooser which partitions to bootstrap up to where."""

    until: Positions
    bootstrap: Positions


@dataclass(frozen=True, slots=True)
class Gate:
    """From now on these partitions may not be taken, each with the reason: it replaces the last `Gate`. A reason is one of
    `ended`, `draining`, `bootstrap`, `paused`, `lag`, `epoch` (a control message waits for a newer job state), `lost`, `seek`."""

    closed: Mapping[StreamPartition, str]


@dataclass(frozen=True, slots=True)
class StopFetching:
    """Fetch these partitions no longer, keep what is buffered (`keep`) or drop it; answer `FetchStopped`."""

    partitions: tuple[StreamPartition, ...]
    keep: bool = True


@dataclass(frozen=True, slots=True)
class DropChunk:
    """Drop the chunk (or step) under work if it has not completed; answer `ChunkDropped`, or `ChunkDone` if it had."""

    why: str


@dataclass(frozen=True, slots=True)
class RunAgain:
    """Run the chunk, or the step, that failed once more; answered as the first time."""

    attempt: int


@dataclass(frozen=True, slots=True)
class RunStep:
    """Let the operators do one bounded step of a letter; answer `StepDone` or `WorkFailed`. No chunk runs until its last step.

    `kind` is `watermark` (of `stream`, at `ts`), `end`, `drain` (of `stream`; of the whole task where it is None), or the kind of a
    `WorkDue`. `cause` says what results must name as their reason: `watermark`, `end` or `drain`. A `watermark` says in `times` how far
    each step is whose time goes on with it; its `stream` is None where that is because a stream has ended or fallen silent.
    """

    letter: int
    kind: str
    stream: str | None = None
    ts: int | None = None
    key: str = ""
    cause: str = ""
    times: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SendControl:
    """Put this control message into the ready buffer, for each of these partitions of the stream."""

    frame: ControlFrame
    stream: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RequestCommit:
    """There is something to commit; `urgent`: do not wait for the interval."""

    why: str
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class Contribute:
    """Answer to `CommitBegins`: the whole ready buffer, these rows of the control table and this checkpoint join `txn`."""

    txn: int
    checkpoint: Checkpoint
    rows: RowChanges = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Tell:
    """Report this to the member, and through it to the coordinator stream. What it says is durable."""

    report: Report


@dataclass(frozen=True, slots=True)
class CloseStore:
    """Close the store (it stays on disk) and the consumer; answer `StoreClosed`."""


@dataclass(frozen=True, slots=True)
class Discard:
    """Drop everything at once: the chunk, the buffers, the ready buffer, the consumer; close the store. No answer is wanted."""

    why: str


@dataclass(frozen=True, slots=True)
class BeginAgain:
    """The task has failed, and somebody wants it to go on elsewhere: drop it, and start it once more under its grant, with these seeks."""

    seeks: tuple[Seek, ...]


@dataclass(frozen=True, slots=True)
class Note:
    """For the log, the status and the counters; nothing depends on it."""

    what: str
    detail: str = ""
    level: Level = "info"


TaskInstruction = (
    OpenStore | AskLogEnds | WipeStore | Restore | Resolve | SeekConsumer | Bounds | Gate | StopFetching | DropChunk | RunAgain
    | RunStep | SendControl | RequestCommit | Contribute | Tell | CloseStore | Discard | BeginAgain | Note
)  # fmt: skip
