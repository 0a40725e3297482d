"""What the steps of a job have taken in one process: for how long each has held the main loop, and how many rows reached it.

Promise: it outlives tasks, so nothing in it ever falls.
"""

from __future__ import annotations


class StepWork:
    """What a step has taken so far."""

    __slots__ = ("ns", "rows")

    def __init__(self) -> None:
        self.ns = 0
        """For how long it has held the loop."""
        self.rows = 0
        """Rows that reached it, those of letters that run again included."""


class StepTotals(dict[str, StepWork]):
    """By step, what all tasks of a process have taken since it started."""

    def of(self, step: str) -> StepWork:
        """What this step has taken; it counts from now on."""
        return self.setdefault(step, StepWork())
