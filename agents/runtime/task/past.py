"""What tasks have counted by step that no longer run here.

Promise: with it, the counters of a worker never fall. A counter that falls when one of several tasks moves away looks like a restart of the
process to whoever reads it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ....core.batching.batch_progress import StepBatches, Tally
from ...operators.pipeline.pipeline import Pipeline
from ...operators.windows.windowed import LateCounts


class Past:
    """The sums of the tasks that have left."""

    def __init__(self) -> None:
        self.windows: dict[str, LateCounts] = {}
        """By step, its late rows."""
        self.joins: dict[tuple[str, int], tuple[int, int]] = {}
        """By step and side of a join, the late rows, and those that came out without a partner."""
        self._batches: dict[str, Tally] = {}

    @property
    def batches(self) -> Iterable[StepBatches]:
        """The batches of each step, none of which is under way."""
        return [StepBatches("", step, tally=tally) for step, tally in self._batches.items()]

    def take(self, pipeline: Pipeline) -> None:
        """A task leaves: add what its pipeline has counted."""
        for step, _, late in pipeline.windows():
            self.windows[step] = self.windows.get(step, LateCounts()).plus(*late)
        for step, sides in pipeline.joins():
            for side, one in enumerate(sides):
                late, alone = self.joins.get((step, side), (0, 0))
                self.joins[step, side] = late + one.late, alone + one.alone
        for one in pipeline.batches():
            self._batches[one.step] = self._batches.get(one.step, Tally()).plus(one.tally)
