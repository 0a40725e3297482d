"""What the leader's edge tells it, and what it tells its edge: the events and instructions of `core.coordination.leader.leader`.

Every worker has a `Leader` machine; it is a candidate until it leads. Each instruction names the event that answers it. An edge
carries instructions out in the order given; `Fence`, `ResolveBounds` and `AskEnd` may take long and must not hold up the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ...machine import Tick
from ..events import Beat, Fence, FenceFailed, FenceReturned, JobNote
from ..messages import AskEnd, End, Read, Write

_EMPTY: Mapping[str, tuple[int, ...]] = MappingProxyType({})


# --------------------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class LeaderIdReady:
    """Answers `InitLeaderId`: the transactional id of the leader is ours now."""


@dataclass(frozen=True, slots=True)
class TransactionWritten:
    """Answers `WriteTransaction`: the transaction is in the stream; `last_offset` is the offset of its last record (not of the marker)."""

    last_offset: int


@dataclass(frozen=True, slots=True)
class LeaderIdLost:
    """The leader's producer is dead. `fenced`: another candidate took the id; else the outcome of what was in flight is unknown."""

    fenced: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Counts:
    """The broker's partition counts of the job's input streams. Feed it at start, and whenever it has changed (poll it)."""

    streams: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class BoundsResolved:
    """Answers `ResolveBounds`: where a new run starts and ends, per stream and partition. Streams without a bound are absent."""

    run_id: str
    starts: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: _EMPTY)
    untils: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: _EMPTY)


@dataclass(frozen=True, slots=True)
class Resign:
    """This process is about to end: lead no more, stand no more. Answered by `Resigned`."""


LeaderEvent = (
    Read | End | Beat | LeaderIdReady | TransactionWritten | LeaderIdLost | FenceReturned | FenceFailed | Counts | BoundsResolved
    | Resign | Tick
)  # fmt: skip

# --------------------------------------------------------------------------------------------------------- instructions


@dataclass(frozen=True, slots=True)
class InitLeaderId:
    """Initialise the leader's transactional id (a new producer). Answer `LeaderIdReady` or `LeaderIdLost`."""

    term: int
    """The term that it will stand for, for the log."""


@dataclass(frozen=True, slots=True)
class WriteTransaction:
    """Write all of it in one transaction. One at a time. Answer `TransactionWritten` or `LeaderIdLost`.

    If a `SetChangelog` names a partition that the task log does not have yet, create it first."""

    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class ResolveBounds:
    """Find out where the inputs of this new run start and end. Answer `BoundsResolved`."""

    run_id: str


@dataclass(frozen=True, slots=True)
class Resigned:
    """Nothing more comes from this machine; its producer may be closed."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """No run of this code can begin: its tasks cannot be made, and waiting changes nothing. The process leaves, and ends with this."""

    what: str
    remedy: str = ""


LeaderInstruction = InitLeaderId | AskEnd | WriteTransaction | Fence | ResolveBounds | Resigned | JobNote | Refuse
