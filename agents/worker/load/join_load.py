"""The joins of a worker by step and side: what is kept, how old it is, what was late, and what came out without a partner.

    joined.<rows, bytes, memory, oldest, late or alone>.<side>.<step>        in a heartbeat

The numbers are sums over all tasks of the worker. Late rows and rows without a partner are counted since each task started there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .times import fitting

if TYPE_CHECKING:
    from ...runtime.task.task import TaskActor

SIDE_NAMES = ("left", "right")
NUMBERS = ("rows", "bytes", "memory", "late", "alone")
OLDEST = "oldest"


@dataclass(frozen=True, slots=True)
class JoinRows:
    """The rows of one side of a join."""

    step: str
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

    def plus(self, other: JoinRows) -> JoinRows:
        """The sum of both."""
        times = [ms for ms in (self.oldest_ms, other.oldest_ms) if ms is not None]
        return JoinRows(
            self.step,
            self.side,
            self.rows + other.rows,
            self.size + other.size,
            self.in_memory + other.in_memory,
            min(times, default=None),
            self.late + other.late,
            self.alone + other.alone,
        )


def joins_of(actors: Iterable[TaskActor]) -> list[JoinRows]:
    """The joins of these tasks, summed by step and side."""
    return joins_summed(
        JoinRows(step, SIDE_NAMES[side], *kept, late, alone)
        for actor in actors
        if actor.site.pipeline is not None
        for step, sides in actor.site.pipeline.joins()
        for side, (kept, late, alone) in enumerate(sides)
    )


def joins_summed(found: Iterable[JoinRows]) -> list[JoinRows]:
    """One sum for each step and side, sorted.

    >>> joins_summed([JoinRows("j", "left", 1, 30, 1, 9), JoinRows("j", "left", 2, 50, 0, 5, 1, 1)])
    [JoinRows(step='j', side='left', rows=3, size=80, in_memory=1, oldest_ms=5, late=1, alone=1)]
    """
    sums: dict[tuple[str, str], JoinRows] = {}
    for one in found:
        at = one.step, one.side
        sums[at] = sums[at].plus(one) if at in sums else one
    return [sums[at] for at in sorted(sums)]


def join_load(found: Iterable[JoinRows], most_bytes: int) -> dict[str, float]:
    """The joins as numbers under short names, in at most `most_bytes`. From the first side that does not fit, they are left out."""
    return fitting(map(_named, found), most_bytes)


def _named(one: JoinRows) -> dict[str, float]:
    values = one.rows, one.size, one.in_memory, one.late, one.alone
    place = f"{one.side}.{one.step}"
    named = {f"joined.{name}.{place}": float(value) for name, value in zip(NUMBERS, values, strict=True)}
    return named if one.oldest_ms is None else named | {f"joined.{OLDEST}.{place}": float(one.oldest_ms)}


def joins_of_load(load: Mapping[str, float]) -> list[JoinRows]:
    """The joins in a heartbeat.

    >>> one = JoinRows("j", "right", 2, 70, 1, -5, 1, 0)
    >>> joins_of_load(join_load([one], 1000)) == [one]
    True
    """
    first = f"joined.{NUMBERS[0]}."
    made: list[JoinRows] = []
    for place in (name.removeprefix(first) for name in load if name.startswith(first)):
        side, _, step = place.partition(".")
        rows, size, memory, late, alone = (int(load.get(f"joined.{name}.{place}", 0)) for name in NUMBERS)
        oldest = load.get(f"joined.{OLDEST}.{place}")
        made.append(JoinRows(step, side, rows, size, memory, None if oldest is None else int(oldest), late, alone))
    return made
