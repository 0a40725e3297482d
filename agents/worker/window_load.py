"""The windows of a worker by step: what is open, when the oldest ends, and how many rows were late.

    windows.<step>  entries.<step>  oldest.<step>  late.<step>  partly.<step>        in a heartbeat

Numbers are those of all tasks of the worker together; what was late is counted since each task began there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..runtime.task import TaskActor


@dataclass(frozen=True, slots=True)
class StepWindows:
    """The windows of one step."""

    step: str
    windows: int = 0
    """Open windows, each counted in every task."""
    entries: int = 0
    """Keys in them: as many results will come."""
    oldest_ms: int | None = None
    """When the oldest one ends."""
    late: int = 0
    """Rows that no window took."""
    partly: int = 0
    """Rows that some of their windows did not take."""

    def and_(self, other: StepWindows) -> StepWindows:
        """Both together."""
        ends = [ms for ms in (self.oldest_ms, other.oldest_ms) if ms is not None]
        return StepWindows(
            self.step,
            self.windows + other.windows,
            self.entries + other.entries,
            min(ends, default=None),
            self.late + other.late,
            self.partly + other.partly,
        )


def windows_of(actors: Iterable[TaskActor]) -> list[StepWindows]:
    """The windows of these tasks, by step."""
    return summed(
        StepWindows(step, open_.windows, open_.keys, open_.oldest_ms, missed.rows, missed.partly)
        for actor in actors
        if actor.site.pipeline is not None
        for step, open_, missed in actor.site.pipeline.windows()
    )


def summed(found: Iterable[StepWindows]) -> list[StepWindows]:
    """Each step once, in the order of their names.

    >>> summed([StepWindows("w", 1, 2, 9, 0, 0), StepWindows("w", 1, 1, 5, 3, 1)])
    [StepWindows(step='w', windows=2, entries=3, oldest_ms=5, late=3, partly=1)]
    """
    steps: dict[str, StepWindows] = {}
    for one in found:
        steps[one.step] = steps[one.step].and_(one) if one.step in steps else one
    return [steps[step] for step in sorted(steps)]


def window_load(found: Iterable[StepWindows], most_bytes: int) -> dict[str, float]:
    """As numbers under short names, in at most so many bytes; steps that do not fit are left out, in their order."""
    load: dict[str, float] = {}
    for one in found:
        said = {f"windows.{one.step}": float(one.windows), f"entries.{one.step}": float(one.entries)}
        if one.oldest_ms is not None:
            said[f"oldest.{one.step}"] = float(one.oldest_ms)
        said |= {f"late.{one.step}": float(one.late), f"partly.{one.step}": float(one.partly)}
        most_bytes -= sum(len(name.encode()) + 12 for name in said)
        if most_bytes < 0:
            break
        load |= said
    return load


def windows_said(load: Mapping[str, float]) -> list[StepWindows]:
    """What a heartbeat says of windows.

    >>> one = StepWindows("w", 2, 7, -5, 1, 0)
    >>> windows_said(window_load([one], 1000)) == [one]
    True
    """
    steps = [name.removeprefix("windows.") for name in load if name.startswith("windows.")]
    return [
        StepWindows(
            step,
            int(load[f"windows.{step}"]),
            int(load.get(f"entries.{step}", 0)),
            None if (oldest := load.get(f"oldest.{step}")) is None else int(oldest),
            int(load.get(f"late.{step}", 0)),
            int(load.get(f"partly.{step}", 0)),
        )
        for step in steps
    ]
