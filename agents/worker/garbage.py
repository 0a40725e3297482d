"""Lets go of what tasks leave behind. A task that has gone is a circle of objects, with its rows and what it had fetched, and a worker's
collector, which must not hold up chunks, looks at old objects next to never (`process.memory`): a worker that lost incarnations or moved
tasks would grow with each of them.

Promises: what was made for a task is let go soon after it has gone, and what was still being closed then, a minute later. Looking for it
takes at most a hundredth of the time, however many objects there are.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable

from ..logger import Logger

PAUSE_S = 10.0
LATER_S = 60.0
"""After a task has gone it is looked for twice. The second time all requests are over that were on their way for it."""
PAUSES = 100
"""The pause after a collection is at least so many times as long as it took."""
log = Logger("headgate.upkeep")


class Garbage:
    """Of one worker."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._there: frozenset[int] = frozenset()
        """The tasks that were there last. As long as one that has gone is not let go, no other has its number."""
        self._due_s: list[float] = []
        """When it is looked for."""
        self._next_s = 0.0

    def turn(self, tasks: Iterable[object]) -> bool:
        """These tasks are there now. Returns whether garbage was collected."""
        before, self._there = self._there, frozenset(map(id, tasks))
        began_s = self._now_s()
        if not before <= self._there:
            self._due_s = [began_s, began_s + LATER_S]
        if not self._due_s or began_s < max(self._next_s, self._due_s[0]):
            return False
        self._due_s = [at_s for at_s in self._due_s if at_s > began_s]
        found = gc.collect()
        took_s = self._now_s() - began_s
        self._next_s = began_s + max(PAUSE_S, PAUSES * took_s)
        log.debug("what tasks left behind is let go", objects=found, took_ms=round(took_s * 1000))
        return True
