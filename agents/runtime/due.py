"""What the operators of a task want next (a timer of user code, a batch that is full or old), and the clock that waits for it.

Promises: what has been asked for is not asked for again before it began; when nothing is wanted, nothing waits.
"""

from __future__ import annotations

from ...core.orders import WORKING
from ...core.task.protocol import WorkDue
from ..port.port import Timer
from .site import Site


class Due:
    """The clock of one task."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._timer: Timer | None = None
        self._asked: set[str] = set()

    def watch(self) -> None:
        """Look what is wanted next, and wait for that alone."""
        self.stop()
        pipeline = self._site.pipeline
        if pipeline is None or self._site.gone:
            return
        found = pipeline.due()
        if found is not None and found[1] not in self._asked:
            at, key = found
            clock = self._site.runtime.port.clock
            wait_s = max(0.0, (at - clock.now().wall) / 1000)
            self._timer = clock.call_later(wait_s, self._is_due, key)

    def _is_due(self, key: str) -> None:
        self._timer = None
        machine = self._site.machine
        if machine.state in WORKING and not machine.completion.hooks:
            self._asked.add(key)
            self._site.feed(WorkDue("work", key))

    def begins(self, key: str) -> None:
        """What was asked for is done now; from here on it may be wanted again."""
        self._asked.discard(key)

    def stop(self) -> None:
        """Wait for nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
