"""Lifts what is idle to the others whose time is combined with its own.

A part that is idle (a partition, a stream, a step) must not hold the others for ever, and what it reads later must not be late because of
them. So it is not left out of the minimum; it is lifted to a time that the others had reached at a moment after which it is known to have
been silent. What it reads then was written after they had reached that time. The lifted time is a fact. Whoever is not known to be silent
any more (its worker is dead, stopped or moved) stays where it was lifted to, and holds.
"""

from __future__ import annotations

from ..progress.frames import MAX_TIME, NO_TIME

NOT_YET_S = float("-inf")


class Lift:
    """How far one part has been lifted.

    >>> lift = Lift()
    >>> lift.confirm(silent_since=1.0, now_s=2.0, others=50)      # where the others are at 2.0
    >>> lift.upto == NO_TIME
    True
    >>> lift.confirm(silent_since=1.5, now_s=3.0, others=60)      # it is not certain that it was silent after that
    >>> lift.upto == NO_TIME
    True
    >>> lift.confirm(silent_since=2.5, now_s=4.0, others=70)
    >>> lift.upto
    50
    """

    __slots__ = ("_at_s", "_others", "upto")

    def __init__(self) -> None:
        self.upto = NO_TIME
        self._others: int | None = None
        self._at_s = NOT_YET_S

    def confirm(self, silent_since: float, now_s: float, others: int | None) -> None:
        """The part is idle, and certain to have been silent since that moment. `others`: the least time of those that are not idle now;
        None if none moves.
        """
        if self._others is not None:
            if silent_since < self._at_s:
                return
            self.upto = max(self.upto, self._others)
        self._others, self._at_s = others if _known(others) > NO_TIME else None, now_s

    def drop(self) -> None:
        """The part is not idle."""
        self._others = None

    def waits(self, silent_since: float, others: int | None) -> bool:
        """Whether a confirmation would lift it, or note where the others are."""
        ahead = max(_known(self._others), _known(others)) > self.upto
        return ahead and (self._others is None or silent_since >= self._at_s)


def _known(ts: int | None) -> int:
    return NO_TIME if ts is None or ts == MAX_TIME else ts
