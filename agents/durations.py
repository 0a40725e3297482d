"""How long things took, as a histogram: how many of them took at most so long.

It decides the bounds: each is about twice the one before, from a millisecond to a minute. Promises: adding one costs a search among them;
counts never fall.
"""

from __future__ import annotations

from bisect import bisect_left

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Durations:
    """A histogram of durations in seconds."""

    __slots__ = ("_counts", "seconds")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self.seconds = 0.0
        """Of all of them together."""

    def add(self, seconds: float) -> None:
        """Something took so long."""
        self._counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.seconds += seconds

    def up_to(self) -> list[tuple[str, int]]:
        """By bound, how many took at most so long; the last bound is `+Inf`.

        >>> took = Durations()
        >>> took.add(0.002); took.add(0.0025); took.add(99)
        >>> took.up_to()[:3], took.up_to()[-1]
        ([('0.001', 0), ('0.0025', 2), ('0.005', 2)], ('+Inf', 3))
        """
        found: list[tuple[str, int]] = []
        so_far = 0
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), self._counts, strict=True):
            so_far += count
            found.append((bound, so_far))
        return found
