"""How soon a worker begins another incarnation after the last one ended and neither a target nor a task was the reason.

Each incarnation uses a new transactional id, at the broker and in this process, and makes every task of the worker lose its uncommitted
work. So incarnations must not end one after the other without a pause, whatever the reason.

It decides: the first loss costs no time. Then the pause doubles, from `first_s` to thirty times that. After an incarnation that lasted
longer than the longest pause, the pauses begin again, and also after one that ended because of a target or a task; those are held back
instead (`targets`).
"""

from __future__ import annotations

LONGEST = 30.0
"""The longest pause, as a multiple of the first."""


class Pauses:
    """
    >>> pauses = Pauses(1.0)
    >>> pauses.lost(10.0), pauses.lost(10.1), pauses.lost(11.2)
    (10.0, 11.1, 13.2)
    """

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._losses = 0
        self._began_s: float | None = None
        self.until = float("-inf")
        """No incarnation begins before this time (monotonic)."""

    def began(self, mono: float) -> None:
        """Note that an incarnation has its producer."""
        self._began_s = mono

    def lost(self, mono: float) -> float:
        """Note that an incarnation ended, or could not begin, without a target or task to blame. Returns when the next may begin."""
        longest = self._first_s * LONGEST
        if self._began_s is not None and mono - self._began_s > longest:
            self._losses = 0
        self._began_s = None
        self._losses += 1
        pause = min(longest, self._first_s * 2.0 ** min(self._losses - 2, 60)) if self._losses > 1 else 0.0
        self.until = mono + pause
        return self.until

    def blamed(self) -> None:
        """Note that an incarnation ended because of a target or task, which is held back instead."""
        self._losses, self._began_s, self.until = 0, None, float("-inf")
