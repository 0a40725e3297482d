"""A timer for the deadline of a machine.

Most events only move the deadline further out. So the timer is not re-armed each time: when it fires too early, it checks the deadline
again and rings only if it has passed.
"""

from __future__ import annotations

from collections.abc import Callable

from .port import Clock, Timer


class Alarm:
    """Calls `ring` when the deadline has passed. The owner calls `see` whenever the deadline may have moved."""

    def __init__(self, deadline: Callable[[], float | None], clock: Clock, ring: Callable[[], object]) -> None:
        """`ring` must feed the machine, so that `see` is called again."""
        self._deadline = deadline
        self._clock = clock
        self._ring = ring
        self._timer: Timer | None = None
        self._armed = 0.0

    def see(self) -> None:
        """Make sure that the timer fires no later than the deadline."""
        deadline = self._deadline()
        if deadline is None or (self._timer is not None and self._armed <= deadline):
            return
        self.stop()
        self._armed = deadline
        self._timer = self._clock.call_later(max(0.0, deadline - self._clock.now().mono), self._look)

    def _look(self) -> None:
        self._timer = None
        deadline = self._deadline()
        if deadline is not None and deadline <= self._clock.now().mono:
            self._ring()
        else:
            self.see()

    def stop(self) -> None:
        """Cancel the timer until `see` is called again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
