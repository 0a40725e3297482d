"""The clock of a test driver. It moves only on request, and then calls the timers that are due."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any

from ...core.machine import Now

NEARLY_S = 1e-6
"""Sums of durations are not exact: a timer that is due this soon is due now."""


class _Timer:
    """A pending call."""

    __slots__ = ("args", "callback", "due_s")

    def __init__(self, due_s: float, callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.due_s = due_s
        self.callback: Callable[..., None] | None = callback
        self.args = args

    def cancel(self) -> None:
        """See `port`."""
        self.callback = None


class VirtualClock:
    """A clock whose two times move together. The wall clock starts at `wall`."""

    def __init__(self, wall: int) -> None:
        self._wall = wall
        self._now = Now(0.0, wall)
        self._timers: list[tuple[float, int, _Timer]] = []
        self._numbers = itertools.count()

    def now(self) -> Now:
        """See `port`."""
        return self._now

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> _Timer:
        """See `port`."""
        timer = _Timer(self._now.mono + max(0.0, delay_s), callback, args)
        heapq.heappush(self._timers, (timer.due_s, next(self._numbers), timer))
        return timer

    # -------------------------------------------------------------------------------------------------------- moving the clock

    def due_s(self) -> float | None:
        """The time of the next pending call; None if there is none."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def move(self, until_s: float) -> bool:
        """Move to the next pending call, or to `until_s` if none is due before. Returns whether `until_s` is reached."""
        due = self.due_s()
        there = due is None or due > until_s + NEARLY_S
        mono = max(self._now.mono, until_s if there or due is None else due)
        self._now = Now(mono, self._wall + round(mono * 1000))
        return there

    def ring(self) -> bool:
        """Make one call that is due. Returns whether there was one."""
        due = self.due_s()
        if due is None or due > self._now.mono:
            return False
        _, _, timer = heapq.heappop(self._timers)
        callback, timer.callback = timer.callback, None
        assert callback is not None
        callback(*timer.args)
        return True
