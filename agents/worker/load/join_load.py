"""The joins of a worker by step and side: what is kept, how old it is, what was late, and what came out without a partner.

    joined.<rows, bytes, memory, oldest, late or alone>.<side>.<step>        in a heartbeat

The numbers are sums over all tasks of the worker. Late rows and rows without a partner are counted since each task started there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from .step_facts import StepFacts, summed

if TYPE_CHECKING:
    from ...runtime.task.past import Past
    from ...runtime.task.task import TaskActor

SIDE_NAMES = ("left", "right")


@dataclass(frozen=True, slots=True)
class JoinRows(StepFacts):
    """The rows of one side of a join."""

    KEYS: ClassVar[Mapping[str, str]] = {
        "rows": "joined.rows",
        "size": "joined.bytes",
        "in_memory": "joined.memory",
        "late": "joined.late",
        "alone": "joined.alone",
        "oldest_ms": "joined.oldest",
    }

    side: str
    rows: int = 0
    """Rows that are kept, because they may still find partners."""
    size: int = 0
    """Their bytes: keys, values and headers."""
    in_memory: int = 0
    """Rows whose values are in memory. The others are read from the store when they are wanted."""
    oldest_ms: int | None = None
    """The time of the oldest kept row."""
    late: int = 0
    """Rows that came too late."""
    alone: int = 0
    """Rows that were emitted because they found no partner."""

    @property
    def place(self) -> str:
        return f"{self.side}.{self.step}"

    @property
    def order(self) -> tuple[str, ...]:
        return self.step, self.side

    @classmethod
    def at(cls, place: str) -> JoinRows:
        side, _, step = place.partition(".")
        return cls(step, side)


def joins_of(actors: Iterable[TaskActor], past: Past | None = None) -> list[JoinRows]:
    """The joins of these tasks, summed by step and side. `past`: those that have left count, too."""
    gone = {} if past is None else past.joins
    left = [JoinRows(step, SIDE_NAMES[side], late=n, alone=m) for (step, side), (n, m) in gone.items()]
    here = (
        JoinRows(step, SIDE_NAMES[side], *kept, late, alone)
        for actor in actors
        if actor.site.pipeline is not None
        for step, sides in actor.site.pipeline.joins()
        for side, (kept, late, alone) in enumerate(sides)
    )
    return summed([*here, *left])
