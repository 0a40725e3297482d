"""The copies of tables that a worker keeps, in its heartbeats.

    copy.<rows, bytes, lag, age, state, left or anew>.<table>

They are shown for each worker alone: a copy that is behind, or stands still, must not hide behind those of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...runtime.copies.facts import LIVE, OPENING, READING, STALE, STOPPED, CopyFacts
from .step_facts import StepFacts

STATES = (OPENING, READING, LIVE, STOPPED, STALE)
"""By number. Workers of different versions read each other's heartbeats, so this may only be appended to."""


@dataclass(frozen=True, slots=True)
class CopyLoad(StepFacts):
    """The copy of one table, `step`."""

    KEYS: ClassVar[Mapping[str, str]] = {
        "state": "copy.state",
        "rows": "copy.rows",
        "size": "copy.bytes",
        "lag": "copy.lag",
        "age_ms": "copy.age",
        "left_out": "copy.left",
        "built_anew": "copy.anew",
    }

    state: int = 0
    rows: int = 0
    size: int = 0
    lag: int | None = None
    """How many records it lacks; None if that is not known."""
    age_ms: int | None = None
    """How long ago it was last known to have read everything; None if that was never so."""
    left_out: int = 0
    built_anew: int = 0


def copies_of(facts: Iterable[CopyFacts]) -> list[CopyLoad]:
    """The copies of this worker."""
    return [
        CopyLoad(
            one.table,
            STATES.index(one.state),
            one.rows,
            one.bytes,
            one.lag,
            one.age_ms,
            one.left_out,
            one.built_anew,
        )
        for one in facts
    ]


def copy_documents(copies: Iterable[CopyLoad]) -> list[dict[str, Any]]:
    """The copies of a worker as plain values."""
    return [
        {
            "table": one.step,
            "state": STATES[one.state] if one.state < len(STATES) else "unknown",
            "rows": one.rows,
            "bytes": one.size,
            "lag": one.lag,
            "age_s": None if one.age_ms is None else round(one.age_ms / 1000, 1),
            "left_out": one.left_out,
            "built_anew": one.built_anew,
        }
        for one in copies
    ]
