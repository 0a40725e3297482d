"""What the leader and the member of one process hear alike, and what both ask of their edge.

Every worker has both machines. Heartbeats go to both; either may have an incarnation fenced (the leader whoever is dead, the member
its own predecessors), and the answer goes to the one that asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ..machine import Level


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What every worker says each second on the heartbeat topic, from a thread of its own."""

    processor: str
    process: str
    incarnation: str
    sent_s: float
    """The sender's monotonic clock when it was produced (only compared with the same sender's)."""
    turn_age_s: float = 0.0
    """How long ago the sender's main loop last turned."""
    term: int = 0
    """The newest term that it has seen."""
    gone: bool = False
    """A supervisor says so of its child: this process is dead."""
    load: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Lag, watermarks, progress, applied configuration offset: for people and metrics; no decision rests on it."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat was read: of anybody, oneself included, in the order of the topic, which is read from its end at start."""

    heartbeat: Heartbeat


@dataclass(frozen=True, slots=True)
class FenceReturned:
    """Answers `Fence`: that incarnation's transactional id was initialised by us; it can write nothing any more."""

    processor: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class FenceFailed:
    """Answers `Fence`: it did not work (yet). The machine asks again."""

    processor: str
    incarnation: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Fence:
    """Initialise the transactional id of that incarnation, beside everything else. Answer `FenceReturned` or `FenceFailed`."""

    processor: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class JobNote:
    """Something that people should see in the log: became leader, declared a worker dead, refused growth."""

    text: str
    fields: Mapping[str, str | int] = field(default_factory=lambda: MappingProxyType({}))
    level: Level = "info"
