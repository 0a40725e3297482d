"""The windows of a worker by step: what is open, when the oldest ends, and how many rows were late.

    windows.<step>  entries.<step>  oldest.<step>  late.<step>  partly.<step>        in a heartbeat

The numbers are sums over all tasks of the worker. Late rows are counted since each task started there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .times import fitting

if TYPE_CHECKING:
    from ...runtime.task.task import TaskActor


@dataclass(frozen=True, slots=True)
class StepWindows:
    """The windows of one step."""

    step: str
    windows: int = 0
    """Open windows. A window that is open in several tasks counts once for each."""
    entries: int = 0
    """Keys in the open windows, each of which will give one result; for joins and batches, rows."""
    oldest_ms: int | None = None
    """The end of the oldest open window."""
    late: int = 0
    """Rows that came too late for all of their windows."""
    partly: int = 0
    """Rows that came too late for some of their windows."""

    def plus(self, other: StepWindows) -> StepWindows:
        """The sum of both."""
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
    """The windows of these tasks, summed by step."""
    return summed(
        StepWindows(step, open_.windows, open_.keys, open_.oldest_ms, late.rows, late.partly)
        for actor in actors
        if actor.site.pipeline is not None
        for step, open_, late in actor.site.pipeline.windows()
    )


def summed(found: Iterable[StepWindows]) -> list[StepWindows]:
    """One sum for each step, sorted by name.

    >>> summed([StepWindows("w", 1, 2, 9, 0, 0), StepWindows("w", 1, 1, 5, 3, 1)])
    [StepWindows(step='w', windows=2, entries=3, oldest_ms=5, late=3, partly=1)]
    """
    steps: dict[str, StepWindows] = {}
    for one in found:
        steps[one.step] = steps[one.step].plus(one) if one.step in steps else one
    return [steps[step] for step in sorted(steps)]


def window_load(found: Iterable[StepWindows], most_bytes: int) -> dict[str, float]:
    """The windows as numbers under short names, in at most `most_bytes`. From the first step that does not fit, steps are left out."""
    return fitting(map(_named, found), most_bytes)


def _named(one: StepWindows) -> dict[str, float]:
    named = {f"windows.{one.step}": float(one.windows), f"entries.{one.step}": float(one.entries)}
    if one.oldest_ms is not None:
        named[f"oldest.{one.step}"] = float(one.oldest_ms)
    return named | {f"late.{one.step}": float(one.late), f"partly.{one.step}": float(one.partly)}


def windows_of_load(load: Mapping[str, float]) -> list[StepWindows]:
    """The windows in a heartbeat.

    >>> one = StepWindows("w", 2, 7, -5, 1, 0)
    >>> windows_of_load(window_load([one], 1000)) == [one]
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
