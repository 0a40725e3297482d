"""The events and instructions that the leader and the member of a process have in common.

Every worker has both machines. Both receive all heartbeats. Either may request a fence (the leader for dead workers, the member for its own
predecessors); the answer goes to the one that requested it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ..machine import Level


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What every worker sends each second on the heartbeat topic, from a thread of its own."""

    processor: str
    process: str
    incarnation: str
    sent_s: float
    """The sender's monotonic clock when it sent this; only compared with other heartbeats of the same sender."""
    turn_age_s: float = 0.0
    """How long ago the sender's main loop last turned."""
    term: int = 0
    """The newest term that the sender has seen."""
    gone: bool = False
    """Set by a supervisor for its child: this process is dead."""
    load: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Lag, watermarks, progress, applied configuration offset: for people and metrics. No decision depends on it."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat was read, of any process including this one, in the order of the topic. Reading begins at the end of the topic."""

    heartbeat: Heartbeat


@dataclass(frozen=True, slots=True)
class FenceReturned:
    """Answers `Fence`: this process has initialised that incarnation's transactional id, so the incarnation can write no more."""

    processor: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class FenceFailed:
    """Answers `Fence`: it has failed so far. The machine requests it again."""

    processor: str
    incarnation: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Fence:
    """Initialise the transactional id of that incarnation, in the background. Answer `FenceReturned` or `FenceFailed`."""

    processor: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class JobNote:
    """An entry for the log: became leader, declared a worker dead, refused growth."""

    text: str
    fields: Mapping[str, str | int] = field(default_factory=lambda: MappingProxyType({}))
    level: Level = "info"
