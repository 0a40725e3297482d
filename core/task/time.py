"""The time of a step, and of what a task says to a stream: derived here, and nowhere else; and how often it is told.

    the least of the streams that lead there and are neither ended nor idle; if all that are left are idle, the least of those

What operators have *heard* of their streams goes in; a newer time than the one that a step was told is a letter of its own (see
`letters`), so that it goes on when a stream ends or falls silent, too. It never goes back: whoever asks keeps the greatest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from ..machine import Now
from ..progress.frames import NO_TIME
from ..progress.producers import StreamPhase


class Heard(NamedTuple):
    """What the operators have been told of an input stream: up to which time, and whether it has drained or ended."""

    ts: int = NO_TIME
    status: StreamPhase = StreamPhase.OPEN


DEAF = Heard()


class Through(NamedTuple):
    """How far time has come behind these streams; `idle`: none of them moves at present."""

    ts: int
    idle: bool


def time_through(
    upstream: Collection[str], streams: Iterable[str], heard: Mapping[str, Heard], idle: Callable[[str], bool]
) -> Through | None:
    """The time behind those of `streams` that lead to something (`upstream`); None when all of them have ended or drained.

    >>> time_through({"a", "b"}, ["a", "b"], {"a": Heard(5), "b": Heard(9)}, lambda stream: stream == "a")
    Through(ts=9, idle=False)
    """
    live = [one for one in streams if one in upstream and heard.get(one, DEAF).status == StreamPhase.OPEN]
    if not live:
        return None
    active = [one for one in live if not idle(one)]
    return Through(min(heard.get(one, DEAF).ts for one in active or live), not active)


class Pace:
    """At most once an interval a newer time is told to the operators, and said to the streams."""

    def __init__(self) -> None:
        self.news = False
        """A newer time may be there to tell."""
        self.owed = False
        """The interval is over, and the newer time has not been said to the streams yet."""
        self._next_s = float("-inf")

    def due(self, now: Now, interval_s: float) -> bool:
        """Whether newer times are to be told now; true once an interval, and only where there is news."""
        if not self.news or now.mono < self._next_s:
            return False
        self.news, self.owed = False, True
        self._next_s = now.mono + interval_s
        return True

    def hurry(self, now: Now, interval_s: float) -> None:
        """The interval is another one: the present one ends no later than it would under that."""
        self._next_s = min(self._next_s, now.mono + interval_s)

    @property
    def deadline(self) -> float | None:
        """When newer times are due; None while there are none."""
        return self._next_s if self.news else None
