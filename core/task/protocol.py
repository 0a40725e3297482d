"""The events and instructions of a task's machine.

Instructions are carried out in order. An instruction that requests something names the event that answers it; the others take effect at
once and have no answer. A report (`SendReport`) contains only what is durable.

The machine sees positions, counts, timestamps and control messages, but never a record. The edge owns the consumer, the buffers, the
operators and the store. The orders from the member, and the reports to it, are in `orders`.

The edge keeps one *ready buffer* for each task: outputs, table changes and control frames of completed work, in the order of completion.
Its contents and the machine's state always belong to the same moment, and a commit makes that moment durable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..machine import Level, Tick
from ..names import StreamPartition
from ..orders import Abandon, Errand, Release, Report, RunChanged, Seek, Start, Unpark

if TYPE_CHECKING:
    from ..progress.frames import ControlFrame
    from .plan import Bound, TaskSettings
    from .stored.checkpoint import Checkpoint

ControlRows = Mapping[tuple[Any, ...], tuple[Any, ...]]
"""Rows of the control table: what the machine must find after a restart, in addition to the checkpoint. Keys and values are tuples of plain
values; the edge encodes them (keys with stable bytes).
"""

Owed = tuple[tuple[str, int], ...]
"""By step, the least timestamp of the results that it owes (see `time`). A step that owes none is absent."""

_NO_POSITIONS: Positions = MappingProxyType({})
_NO_ROWS: ControlRows = MappingProxyType({})


# ------------------------------------------------------------------------------------------------------ store and task log


@dataclass(frozen=True, slots=True)
class StoreOpened:
    """Answers `OpenStore`. `position` is the store's position in the task log; None for a new one."""

    position: int | None = None
    job_uuid: str | None = None
    followed_until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StoreBroken:
    """Also answers `OpenStore`: the store cannot be opened (damaged, of a newer version) and is wiped."""

    why: str


@dataclass(frozen=True, slots=True)
class LogEnds:
    """Answers `AskLogEnds`: requested from the broker (read uncommitted) after the predecessor's release or fence."""

    start: int
    end: int
    delete_retention_ms: int


@dataclass(frozen=True, slots=True)
class StoreWiped:
    """Answers `WipeStore`: an empty store is open."""


@dataclass(frozen=True, slots=True)
class RestoreProgress:
    """Given repeatedly while restoring. `blocked`: the reader is at the last stable offset, below the end."""

    position: int
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class Restored:
    """Answers `Restore`: the store is at the log's end. `checkpoint` is the last one in the log; None for a task that never ran."""

    position: int
    checkpoint: Checkpoint | None = None
    rows: ControlRows = field(default_factory=lambda: _NO_ROWS)
    """The whole control table."""
    remark: str = ""
    """A remark about this state for people; it is added to the report that the task runs."""
    owed: Owed = ()
    """The results that the steps owe after this."""


@dataclass(frozen=True, slots=True)
class OffsetsResolved:
    """Answers `ResolveOffsets` with the offsets. A bound that the log has not reached yet is its current end."""

    request: int
    positions: Positions = field(default_factory=lambda: _NO_POSITIONS)
    until: Positions = field(default_factory=lambda: _NO_POSITIONS)
    ends: Positions = field(default_factory=lambda: _NO_POSITIONS)


@dataclass(frozen=True, slots=True)
class StoreClosed:
    """Answers `CloseStore`."""


# ---------------------------------------------------------------------------------------------------------------- intake


@dataclass(frozen=True, slots=True)
class ChunkTaken:
    """The actor was given a chunk: the positions from the current one up to `upto`. Legal only while `may_take(at)`."""

    at: StreamPartition
    upto: int


@dataclass(frozen=True, slots=True)
class ChunkDone:
    """The chunk is complete; its outputs and table changes are in the ready buffer."""

    at: StreamPartition
    upto: int
    """The next position to read."""
    max_ts: int | None = None
    """The greatest event time in it; None if no record had one."""
    commit: bool = False
    """User code requested a commit."""
    ends: frozenset[str] = frozenset()
    """The inputs that end here, because every actor that reads them has stopped."""
    owed: Owed = ()
    """The results that the steps owe after this."""


@dataclass(frozen=True, slots=True)
class ChunkDropped:
    """The chunk was dropped, as `DropChunk` requested; its position has not moved."""

    at: StreamPartition


@dataclass(frozen=True, slots=True)
class WorkFailed:
    """User code raised in the current chunk or step; nothing of it is in the ready buffer.

    The edge handles skipping and dead letters; this comes only if the policy is `fail`. `final`: a retry is of no use.
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
    """A control message is at the head of a partition. Given once; it stays there until the position has passed it."""

    at: StreamPartition
    offset: int
    frame: ControlFrame


@dataclass(frozen=True, slots=True)
class AtEnd:
    """A fetch that was just answered shows that nothing is behind `position`, and the buffer is empty. Given for *each* such answer."""

    at: StreamPartition
    position: int
    owes: bool = False
    """The operators still have work without a further record: a batch at Spark, a timer, a batch that gets old."""
    age_s: float = 0.0
    """How long ago the answer came, if the edge could not report it at once."""


@dataclass(frozen=True, slots=True)
class NotAtEnd:
    """An answered fetch shows that there is more; or it is at the last stable offset, below the high watermark."""

    at: StreamPartition


@dataclass(frozen=True, slots=True)
class NotAnswered:
    """No fetch of this partition was answered for `fetch.watchdog`: what was known of its end is not valid any more."""

    at: StreamPartition


@dataclass(frozen=True, slots=True)
class Lost:
    """The log does not contain the position: it begins after it (the records between are gone), or ends before it (it is another log)."""

    at: StreamPartition
    position: int
    log_start: int
    log_end: int | None = None
    topic: str = ""
    """The id of the topic; if the position belongs to another one, the log is another, whatever offsets it has."""

    @property
    def ends_before(self) -> bool:
        """Whether the log ends before the position."""
        return self.log_end is not None and self.position > self.log_end


@dataclass(frozen=True, slots=True)
class Identified:
    """The topic whose records this partition brings has this id, and the task knew none. Comes before the first of them."""

    at: StreamPartition
    topic: str


@dataclass(frozen=True, slots=True)
class Lag:
    """How many records of its intermediate streams wait for this task."""

    records: int


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """An operator has changed settings that may change while a task runs."""

    settings: TaskSettings


@dataclass(frozen=True, slots=True)
class FetchStopped:
    """Answers `StopFetching`: for each partition the position after the last buffered record."""

    upto: Positions


# ------------------------------------------------------------------------------------------------------------- operators


@dataclass(frozen=True, slots=True)
class WorkDue:
    """A letter that is neither chunk nor control: a timer of user code, a full or old batch, a Spark result, an expiry."""

    kind: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class StepDone:
    """Answers `RunStep`: one bounded step of a letter is complete and in the ready buffer. `more`: it needs another."""

    letter: int
    more: bool = False
    commit: bool = False
    """User code requested a commit."""
    ends: frozenset[str] = frozenset()
    """The inputs that end here, because every actor that reads them has stopped."""
    owed: Owed = ()
    """The results that the steps owe after this."""
    seen: tuple[tuple[StreamPartition, int], ...] = ()
    """The greatest event times of records that this task's positions have passed unread, now that others have read them for it."""
    refused: str = ""
    """Why a step of the kind `orders.UNPARK` has changed nothing."""


@dataclass(frozen=True, slots=True)
class CommitWanted:
    """Something was changed outside of letters, such as by expiry. The next commit includes it; it is not urgent."""


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
    """The incarnation is over (failed, fenced or unknown outcome): everything that was not durable is lost.

    `blamed`: this task wrote to the failed target, so it is `failed` with that reason. The others only stop here, and are granted again to
    the next incarnation.
    """

    why: str
    blamed: bool = False


@dataclass(frozen=True, slots=True)
class ApplyFailed:
    """The transaction is durable, but the store refused its changes (a full disk): the log is right, and the store is invalid."""

    why: str


@dataclass(frozen=True, slots=True)
class Broken:
    """The edge cannot continue this task: its actor was stopped, its log cannot be read, or an unexpected exception came. `passing`: its
    environment failed (a broker, a disk), and may recover.
    """

    why: str
    passing: bool = False


TaskEvent = (
    Start | RunChanged | Release | Abandon | Seek | Unpark | Tick | SettingsChanged
    | StoreOpened | StoreBroken | LogEnds | StoreWiped | RestoreProgress | Restored | OffsetsResolved | StoreClosed
    | ChunkTaken | ChunkDone | ChunkDropped | WorkFailed | PositionMoved | ControlAtHead | AtEnd | NotAtEnd | NotAnswered
    | Lost | Identified | Lag | FetchStopped
    | WorkDue | StepDone | CommitWanted | CommitBegins | CommitDone | CommitLost | ApplyFailed | Broken
)  # fmt: skip

# --------------------------------------------------------------------------------------------------------- instructions

Positions = Mapping[StreamPartition, int]
RowChanges = Mapping[tuple[Any, ...], tuple[Any, ...] | None]
"""The changes of the control table, see `ControlRows`; None deletes a row."""

WATERMARK = "watermark"
END = "end"
DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class OpenStore:
    """Open the task's local store, whatever it contains; answer `StoreOpened` or `StoreBroken`."""


@dataclass(frozen=True, slots=True)
class AskLogEnds:
    """Ask the broker for start and end of the task's log partition; answer `LogEnds`."""


@dataclass(frozen=True, slots=True)
class WipeStore:
    """Remove the local store and open an empty one; answer `StoreWiped`. Log the reason `why`."""

    why: str


@dataclass(frozen=True, slots=True)
class Restore:
    """Read the log from `start` (read committed) into the store until the position reaches `end`; answer `Restored`.

    The last checkpoint may be before `start` (then it is the one in the store).
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
    """Bootstrap partitions: their current read-committed end."""


@dataclass(frozen=True, slots=True)
class SeekConsumer:
    """Continue reading at these positions, and drop what is buffered of these partitions. The first one starts fetching."""

    positions: Positions


@dataclass(frozen=True, slots=True)
class SkipRecord:
    """Leave out this record of the partition: the row of the frame at this offset, or all that the record holds (`row` is None)."""

    at: StreamPartition
    offset: int
    row: int | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """Hand out nothing at or after these offsets (`until`), and tell the chooser which partitions to bootstrap up to which offset."""

    until: Positions
    bootstrap: Positions


@dataclass(frozen=True, slots=True)
class Gate:
    """From now on these partitions may not be taken, each with the reason. It replaces the last `Gate`. A reason is one of `ended`,
    `draining`, `bootstrap`, `paused`, `lag`, `epoch` (a control message waits for a newer job state), `lost`, `seek`.
    """

    closed: Mapping[StreamPartition, str]


@dataclass(frozen=True, slots=True)
class StopFetching:
    """Stop fetching these partitions, and keep or drop what is buffered; answer `FetchStopped`, once for all of them."""

    keep: tuple[StreamPartition, ...] = ()
    drop: tuple[StreamPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class DropChunk:
    """Drop the current chunk (or step) if it has not completed; answer `ChunkDropped`, or `ChunkDone` if it had."""

    why: str


@dataclass(frozen=True, slots=True)
class RunAgain:
    """Run the failed chunk or step once more; it is answered as before."""

    attempt: int


@dataclass(frozen=True, slots=True)
class RunStep:
    """Let the operators do one bounded step of a letter; answer `StepDone` or `WorkFailed`. No chunk runs until its last step.

    `kind` is `watermark` (of `stream`, at `ts`), `end`, `drain` (of `stream`; of the whole task if it is None), or the kind of a `WorkDue`.
    `cause` is the reason that results must give: `watermark`, `end` or `drain`. A `watermark` contains in `times` the new time of each step
    that it advances; its `stream` is None if that is because a stream has ended or fallen silent.
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
    """There is something to commit. `urgent`: do not wait for the interval."""

    urgent: bool = False


@dataclass(frozen=True, slots=True)
class Contribute:
    """Answers `CommitBegins`: the whole ready buffer, these rows of the control table and this checkpoint join its transaction."""

    checkpoint: Checkpoint
    rows: RowChanges = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class SendReport:
    """Report this to the member, and through it to the coordinator stream. Its contents are durable."""

    report: Report


@dataclass(frozen=True, slots=True)
class CloseStore:
    """Close the store (it stays on disk) and the consumer; answer `StoreClosed`."""


@dataclass(frozen=True, slots=True)
class Discard:
    """Drop everything at once: the chunk, the buffers, the ready buffer, the consumer; close the store. There is no answer."""

    why: str


@dataclass(frozen=True, slots=True)
class BeginAgain:
    """The task has failed, but a seek moves it to another position, or parked records are to leave: drop it, and start it once more under
    its grant, with these orders.
    """

    seeks: tuple[Errand, ...]


IGNORED = "ignored-"
"""With the reason, the note of a control message that did not fully count; the detail says where."""


@dataclass(frozen=True, slots=True)
class TaskNote:
    """For the log, the status and the counters; nothing depends on it."""

    what: str
    detail: str = ""
    level: Level = "info"


TaskInstruction = (
    OpenStore | AskLogEnds | WipeStore | Restore | ResolveOffsets | SeekConsumer | SkipRecord | Bounds | Gate | StopFetching | DropChunk
    | RunAgain | RunStep | SendControl | RequestCommit | Contribute | SendReport | CloseStore | Discard | BeginAgain | TaskNote
)  # fmt: skip
