"""When the next call may go, if there may be only so many in a second.

Promises: in any span of time there are at most `per_s` calls for each second of it, and those of `AHEAD_S` more, which a pause has saved
up. Whoever asks is given a time of its own, so calls go in the order in which they asked.
"""

from __future__ import annotations

AHEAD_S = 0.1
"""For how long unused calls are saved up. A clock that wakes late by less than this costs no calls."""


class Rate:
    """At most `per_s` calls in a second."""

    def __init__(self, per_s: float) -> None:
        self._every_s = 1 / per_s
        self._next_s = float("-inf")

    def wait_s(self, now_s: float) -> float:
        """Take the next call. Returns in how many seconds it may go: 0 if that is now."""
        at_s = max(self._next_s, now_s - AHEAD_S)
        self._next_s = at_s + self._every_s
        return max(0.0, at_s - now_s)
