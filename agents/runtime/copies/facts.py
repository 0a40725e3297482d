"""What is shown of a copy. Commands read it in heartbeats, so it imports nothing that runs one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

OPENING, READING, LIVE, STOPPED, STALE = "opening", "reading", "live", "stopped", "stale"
"""Its states: its store is opened; it reads up to the end at which tasks may have it; they have it; a record has stopped it; they have it,
but what comes to its topic cannot be read."""


@dataclass(frozen=True, slots=True)
class CopyFacts:
    """What is shown of a copy."""

    table: str
    topic: str
    state: str
    rows: int
    bytes: int
    lag: int | None
    """How many records it lacks, by the last answers of the broker; None before the first."""
    age_ms: int | None
    """How long ago it was last known to have read everything; None if that was not so yet."""
    read: int
    """Records that were read since the worker started."""
    left_out: int
    built_anew: int
    positions: Mapping[int, int]
    why: str
    """What it waits for, or why it has stopped."""
