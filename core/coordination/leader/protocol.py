"""The events and instructions of `core.coordination.leader.leader`.

Every worker has a `Leader` machine; it is a candidate until it leads. Each instruction names the event that answers it. An edge carries out
instructions in the given order; `Fence`, `ResolveBounds` and `AskEnd` may take long and must not delay the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ...machine import Tick
from ..events import Beat, Fence, FenceFailed, FenceReturned, JobNote
from ..messages import AskEnd, End, Read, Write

_EMPTY: Mapping[str, tuple[int, ...]] = MappingProxyType({})
_NO_COUNTS: Mapping[str, int] = MappingProxyType({})


# --------------------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class LeaderIdReady:
    """Answers `InitLeaderId`: this process now holds the leader's transactional id."""


@dataclass(frozen=True, slots=True)
class TransactionWritten:
    """Answers `WriteTransaction`: the transaction is in the stream. `last_offset` is the offset of its last record (not of the marker)."""

    last_offset: int


@dataclass(frozen=True, slots=True)
class LeaderIdLost:
    """The leader's producer is dead. `fenced`: another candidate took the id. Otherwise the outcome of what was in flight is unknown."""

    fenced: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Counts:
    """The broker's partition counts of the job's input streams. Feed it at the start, and after each change (poll for it)."""

    streams: Mapping[str, int]
    more: Mapping[str, int] = field(default_factory=lambda: _NO_COUNTS)
    """The same of the topics that match a pattern of the job and are no inputs of this code yet: they came after its run began."""
    asked: int = 0
    """The number of the last `CountInputs` that was there before it was counted; 0: none."""


@dataclass(frozen=True, slots=True)
class BoundsResolved:
    """Answers `ResolveBounds`: where a new run starts and ends, for each stream and partition. Streams without a bound are absent."""

    run_id: str
    starts: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: _EMPTY)
    untils: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: _EMPTY)


@dataclass(frozen=True, slots=True)
class Resign:
    """This process is about to end: stop leading, and stop standing. Answered by `Resigned`."""


LeaderEvent = (
    Read | End | Beat | LeaderIdReady | TransactionWritten | LeaderIdLost | FenceReturned | FenceFailed | Counts | BoundsResolved
    | Resign | Tick
)  # fmt: skip

# --------------------------------------------------------------------------------------------------------- instructions


@dataclass(frozen=True, slots=True)
class InitLeaderId:
    """Initialise the leader's transactional id (with a new producer). Answer `LeaderIdReady` or `LeaderIdLost`."""

    term: int
    """The term that it will stand for, for the log."""


@dataclass(frozen=True, slots=True)
class WriteTransaction:
    """Write all of it in one transaction; there is one at a time. Answer `TransactionWritten` or `LeaderIdLost`.

    If a `SetChangelog` names a partition that the task log does not have yet, create it first.
    """

    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class ResolveBounds:
    """Look up where the inputs of this new run start and end. Answer `BoundsResolved`."""

    run_id: str


@dataclass(frozen=True, slots=True)
class CountInputs:
    """Count the partitions of the inputs now. Answer `Counts` with this number, or a later one."""

    number: int


@dataclass(frozen=True, slots=True)
class Resigned:
    """This machine gives no more instructions; its producer may be closed."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """No run of this code can begin: its tasks cannot be made, and waiting does not help. The process leaves, and ends with this error."""

    what: str
    remedy: str = ""


LeaderInstruction = (
    InitLeaderId | AskEnd | WriteTransaction | Fence | ResolveBounds | CountInputs | Resigned | JobNote | Refuse
)
