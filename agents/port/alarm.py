"""A timer for a machine's deadline.

Most events only move a deadline on. So a timer that comes too early stays: when it comes it looks again, and rings only if it is time.
"""

from __future__ import annotations

from collections.abc import Callable

from .port import Clock, Timer


class Alarm:
    """Rings when the deadline has come; `see` is called whenever that may have moved."""

    def __init__(self, deadline: Callable[[], float | None], clock: Clock, ring: Callable[[], None]) -> None:
        """`ring` must lead to another `see`: it feeds the machine."""
        self._deadline = deadline
        self._clock = clock
        self._ring = ring
        self._timer: Timer | None = None
        self._armed = 0.0

    def see(self) -> None:
        """Make sure that the deadline is not missed."""
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
        """Ring no more, unless `see` is called again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
