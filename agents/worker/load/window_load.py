"""The windows of a worker by step: what is open, when the oldest ends, and how many rows were late.

    windows.<step>  entries.<step>  oldest.<step>  late.<step>  partly.<step>        in a heartbeat

The numbers are sums over all tasks of the worker. Late rows are counted since each task started there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from .step_facts import StepFacts, summed

if TYPE_CHECKING:
    from ...runtime.task.past import Past
    from ...runtime.task.task import TaskActor


@dataclass(frozen=True, slots=True)
class StepWindows(StepFacts):
    """The windows of one step."""

    KEYS: ClassVar[Mapping[str, str]] = {
        "windows": "windows",
        "entries": "entries",
        "oldest_ms": "oldest",
        "late": "late",
        "partly": "partly",
    }

    windows: int = 0
    """Open windows. A window that is open in several tasks counts once for each."""
    entries: int = 0
    """Keys in the open windows, each of which will give one result; for joins, batches and sliding windows, rows."""
    oldest_ms: int | None = None
    """The end of the oldest open window."""
    late: int = 0
    """Rows that came too late for all of their windows."""
    partly: int = 0
    """Rows that came too late for some of their windows."""


def windows_of(actors: Iterable[TaskActor], past: Past | None = None) -> list[StepWindows]:
    """The windows of these tasks, summed by step. `past`: those that have left count, too."""
    left = [] if past is None else [StepWindows(step, late=n, partly=m) for step, (n, m) in past.windows.items()]
    here = (
        StepWindows(step, open_.windows, open_.keys, open_.oldest_ms, late.rows, late.partly)
        for actor in actors
        if actor.site.pipeline is not None
        for step, open_, late in actor.site.pipeline.windows()
    )
    return summed([*here, *left])
