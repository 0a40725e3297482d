"""The events and instructions of a task's machine: what its edge tells it, and what it tells its edge.

Instructions are carried out in order. Those that ask for something name the fact that is awaited; the others are done at once and never
answered. A report (`SendReport`) says only what is durable already.

The machine sees positions, counts, timestamps and control messages; it never sees a record. The edge owns what is behind them:
the consumer, the buffers, the operators, the store. The orders that come from the member, and the reports that go back to it,
stand in `orders`.

The edge keeps one *ready buffer* per task: outputs, table changes and control frames of completed work, in the order of completion.
What is in it and what the machine believes are always the same moment: that moment is what a commit makes durable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..machine import Level, Tick
from ..names import StreamPartition
from ..orders import Abandon, Release, Report, RunChanged, Seek, Start

if TYPE_CHECKING:
    from ..progress.frames import ControlFrame
    from .checkpoint import Checkpoint
    from .plan import Bound, TaskSettings

ControlRows = Mapping[tuple[Any, ...], tuple[Any, ...]]
"""Rows of the control table: what the machine must find again after a restart, beside the checkpoint. Keys and values are tuples of
plain values; the edge packs them (keys with stable bytes)."""

Owed = tuple[tuple[str, int], ...]
"""By step, the least timestamp of the results that it owes, see `time`; a step that owes none is absent."""

_NO_POSITIONS: Positions = MappingProxyType({})
_NO_ROWS: ControlRows = MappingProxyType({})


# ------------------------------------------------------------------------------------------------------ store and task log


@dataclass(frozen=True, slots=True)
class StoreOpened:
    """Answer to `OpenStore`. `position` is where the store stands in the task log; None for a fresh one."""

    position: int | None = None
    job_uuid: str | None = None
    followed_until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StoreBroken:
    """Answer to `OpenStore`, too: it cannot be opened (damaged, of a newer version); it is wiped."""

    why: str


@dataclass(frozen=True, slots=True)
class LogEnds:
    """Answer to `AskLogEnds`: asked of the broker (read uncommitted) after the predecessor's release or fence."""

    start: int
    end: int
    delete_retention_ms: int


@dataclass(frozen=True, slots=True)
class StoreWiped:
    """Answer to `WipeStore`: an empty store is open."""


@dataclass(frozen=True, slots=True)
class RestoreProgress:
    """Said now and then while restoring. `blocked`: the reader stands at the last stable offset, below the end."""

    position: int
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class Restored:
    """Answer to `Restore`: the store stands at the log's end. The last checkpoint of the log (None: a task that never ran)."""

    position: int
    checkpoint: Checkpoint | None = None
    rows: ControlRows = field(default_factory=lambda: _NO_ROWS)
    """The whole control table."""
    remark: str = ""
    """What people should know of this state; said with the report that the task runs."""
    owed: Owed = ()
    """What the steps owe now."""


@dataclass(frozen=True, slots=True)
class OffsetsResolved:
    """Answer to `ResolveOffsets`: offsets for what was asked. A bound that is not reached yet in the log is the present end."""

    request: int
    positions: Positions = field(default_factory=lambda: _NO_POSITIONS)
    until: Positions = field(default_factory=lambda: _NO_POSITIONS)
    ends: Positions = field(default_factory=lambda: _NO_POSITIONS)


@dataclass(frozen=True, slots=True)
class StoreClosed:
    """Answer to `CloseStore`."""


# ---------------------------------------------------------------------------------------------------------------- intake


@dataclass(frozen=True, slots=True)
class ChunkTaken:
    """The actor was handed a chunk, the positions from the present one up to `upto`. Legal only while `may_take(at)`."""

    at: StreamPartition
    upto: int


@dataclass(frozen=True, slots=True)
class ChunkDone:
    """The chunk that was taken is complete; its outputs and table changes stand in the ready buffer."""

    at: StreamPartition
    upto: int
    """The next position to read."""
    max_ts: int | None = None
    """The greatest event time in it; None when it had no record with one."""
    commit: bool = False
    """User code asked for a commit."""
    stop: bool = False
    """User code asked that the task stop: its inputs count as ended from here."""
    owed: Owed = ()
    """What the steps owe now."""


@dataclass(frozen=True, slots=True)
class ChunkDropped:
    """The chunk that was taken was dropped, as `DropChunk` wanted; its position has not moved."""

    at: StreamPartition


@dataclass(frozen=True, slots=True)
class WorkFailed:
    """User code raised in the chunk that was taken, or in the step that was asked for; nothing of it is in the ready buffer.

    Skipping and dead letters are the edge's; this comes only when the policy is `fail`. `final`: no use to try again.
    """

    why: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class PositionMoved:
    """The head of a partition's buffer moved without a chunk: empty, aborted or control batches of Kafka."""

    at: StreamPartition
    position: int


@dataclass(frozen=True, slots=True)
class ControlAtHead:
    """A control message stands at the head of a partition. Said once; it stays there until the position has passed it."""

    at: StreamPartition
    offset: int
    frame: ControlFrame


@dataclass(frozen=True, slots=True)
class AtEnd:
    """A fetch that was answered just now says: nothing is behind `position`, and the buffer is empty. Said at *each* such answer."""

    at: StreamPartition
    position: int
    owes: bool = False
    """The operators still have something to do without a further record: a batch at Spark, a timer, a batch that gets old."""
    age_s: float = 0.0
    """How long ago the answer came, for whoever could not tell at once."""


@dataclass(frozen=True, slots=True)
class NotAtEnd:
    """A fetch was answered, and there is more; or it stands at the last stable offset, below the high watermark."""

    at: StreamPartition


@dataclass(frozen=True, slots=True)
class NotAnswered:
    """No fetch of this partition was answered for `fetch.watchdog`: whatever was known of its end is not known any more."""

    at: StreamPartition


@dataclass(frozen=True, slots=True)
class Lost:
    """The log does not hold the position: it begins behind it (the records between are gone), or it ends before it (it is another log)."""

    at: StreamPartition
    position: int
    log_start: int
    log_end: int | None = None


@dataclass(frozen=True, slots=True)
class Lag:
    """How many records of its intermediate streams wait for this task."""

    records: int


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """An operator has changed what may change while a task runs."""

    settings: TaskSettings


@dataclass(frozen=True, slots=True)
class FetchStopped:
    """Answer to `StopFetching`: for each partition the position behind the last record that was buffered."""

    upto: Positions


# ------------------------------------------------------------------------------------------------------------- operators


@dataclass(frozen=True, slots=True)
class WorkDue:
    """A letter that is neither chunk nor control: a timer of user code, a full or old batch, a Spark result, an expiry."""

    kind: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class StepDone:
    """Answer to `RunStep`: one bounded step of a letter is complete and stands in the ready buffer. `more`: it needs another."""

    letter: int
    more: bool = False
    commit: bool = False
    """User code asked for a commit."""
    stop: bool = False
    """User code asked that the task stop: its inputs count as ended from here."""
    owed: Owed = ()
    """What the steps owe now."""


@dataclass(frozen=True, slots=True)
class CommitWanted:
    """Something was changed beside the letters, as by expiry: the next commit takes it along, and nobody hurries for it."""


# ---------------------------------------------------------------------------------------------------------------- commit


@dataclass(frozen=True, slots=True)
class CommitBegins:
    """The committer divides: what is in the ready buffer now joins transaction `txn`. Answered with `Contribute` (or nothing)."""

    txn: int


@dataclass(frozen=True, slots=True)
class CommitDone:
    """Transaction `txn` is durable, and its table changes are in the store."""

    txn: int


@dataclass(frozen=True, slots=True)
class CommitLost:
    """The incarnation is over (failed, fenced or unknown outcome): everything that was not durable is void.

    `blamed`: this task wrote to the target that failed, so it is `failed` with that reason; the others only stop here, and are
    granted again to the next incarnation.
    """

    why: str
    blamed: bool = False


@dataclass(frozen=True, slots=True)
class ApplyFailed:
    """The transaction is durable, but the store would not take its changes (a full disk): the log is the truth, the store is void."""

    why: str


@dataclass(frozen=True, slots=True)
class Broken:
    """The edge cannot go on with this task: its actor was stopped, its log cannot be read, something raised that must not. `passing`: its
    surroundings failed (a broker, a disk), and may be well again."""

    why: str
    passing: bool = False


TaskEvent = (
    Start | RunChanged | Release | Abandon | Seek | Tick | SettingsChanged
    | StoreOpened | StoreBroken | LogEnds | StoreWiped | RestoreProgress | Restored | OffsetsResolved | StoreClosed
    | ChunkTaken | ChunkDone | ChunkDropped | WorkFailed | PositionMoved | ControlAtHead | AtEnd | NotAtEnd | NotAnswered
    | Lost | Lag | FetchStopped | WorkDue | StepDone | CommitWanted | CommitBegins | CommitDone | CommitLost | ApplyFailed | Broken
)  # fmt: skip

# --------------------------------------------------------------------------------------------------------- instructions

Positions = Mapping[StreamPartition, int]
RowChanges = Mapping[tuple[Any, ...], tuple[Any, ...] | None]
"""What changed in the control table, see `ControlRows`; None deletes a row."""

WATERMARK = "watermark"
END = "end"
DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class OpenStore:
    """Open the local store of this task, whatever is there; answer `StoreOpened` or `StoreBroken`."""


@dataclass(frozen=True, slots=True)
class AskLogEnds:
    """Ask the broker for start and end of the task's log partition; answer `LogEnds`."""


@dataclass(frozen=True, slots=True)
class WipeStore:
    """Remove the local store and open an empty one; answer `StoreWiped`. `why` belongs in the log."""

    why: str


@dataclass(frozen=True, slots=True)
class Restore:
    """Read the log from `start` (read committed) into the store until the position reaches `end`; answer `Restored`.

    The last checkpoint may stand before `start` (it is then the one kept in the store).
    """

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ResolveOffsets:
    """Ask the broker for offsets; answer `OffsetsResolved` with the same `request` (retry while the broker is unavailable)."""

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

    urgent: bool = False


@dataclass(frozen=True, slots=True)
class Contribute:
    """Answer to `CommitBegins`: the whole ready buffer, these rows of the control table and this checkpoint join its transaction."""

    checkpoint: Checkpoint
    rows: RowChanges = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class SendReport:
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
class TaskNote:
    """For the log, the status and the counters; nothing depends on it."""

    what: str
    detail: str = ""
    level: Level = "info"


TaskInstruction = (
    OpenStore | AskLogEnds | WipeStore | Restore | ResolveOffsets | SeekConsumer | Bounds | Gate | StopFetching | DropChunk | RunAgain
    | RunStep | SendControl | RequestCommit | Contribute | SendReport | CloseStore | Discard | BeginAgain | TaskNote
)  # fmt: skip
