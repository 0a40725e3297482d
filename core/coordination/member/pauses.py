"""How soon a worker begins another life when the one before ended and nobody is to blame for it.

Each life takes a transactional id of its own, at the broker and in this process, and has every task of the worker drop what it had not
committed. So what ends every life, whatever it is, must not end one after the other without a pause.

It decides: the first loss costs no time; then a pause that doubles from `first_s` to thirty times that. A life that lasted longer than the
longest pause begins anew, and so does one that ended because of a target or a task: those are held back instead (`member_targets`).
"""

from __future__ import annotations

LONGEST = 30.0
"""In first pauses."""


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
        """Before this (monotonic) no life begins."""

    def began(self, mono: float) -> None:
        """A life has its producer."""
        self._began_s = mono

    def lost(self, mono: float) -> float:
        """A life ended, or could not begin, and nobody is to blame. When the next one may begin."""
        longest = self._first_s * LONGEST
        if self._began_s is not None and mono - self._began_s > longest:
            self._losses = 0
        self._began_s = None
        self._losses += 1
        pause = min(longest, self._first_s * 2.0 ** min(self._losses - 2, 60)) if self._losses > 1 else 0.0
        self.until = mono + pause
        return self.until

    def blamed(self) -> None:
        """A life ended, and who is to blame is held back."""
        self._losses, self._began_s, self.until = 0, None, float("-inf")
