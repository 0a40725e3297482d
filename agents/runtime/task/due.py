"""Waits for the next work that is due in a task's operators: a timer of user code, or a batch that is full or old enough.

Promises: work that was requested is not requested again before it has begun; when no work is due, no timer runs.
"""

from __future__ import annotations

from ....core.task.protocol import WorkDue
from ...port.port import Timer
from .site import Site


class Due:
    """The timer of one task's operators."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._timer: Timer | None = None
        self._asked: set[str] = set()

    def watch(self) -> None:
        """Look up what is due next, and set the timer for that alone."""
        self.stop()
        pipeline = self._site.pipeline
        if pipeline is None or self._site.gone:
            return
        found = pipeline.due()
        if found is not None and found[1] not in self._asked:
            at, key = found
            clock = self._site.clock
            wait_s = max(0.0, (at - clock.now().wall) / 1000)
            self._timer = clock.call_later(wait_s, self._is_due, key)

    def _is_due(self, key: str) -> None:
        self._timer = None
        if self._site.machine.may_work:
            self._asked.add(key)
            self._site.feed(WorkDue("work", key))

    def begins(self, key: str) -> None:
        """The requested work begins; from now on it may be requested again."""
        self._asked.discard(key)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
