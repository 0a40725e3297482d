"""Sessions: windows that grow as long as rows of a key come within the gap. What a row joins, what is late, when a session ends.

A session is the span of its rows, first and last. It ends `gap` after its last row, and the gap counts: a row exactly `gap` away from a
session joins it. A row that reaches two sessions makes one of them. It is late only if the session that it would be in is closed; so a row
that is old by itself is taken where it joins an open session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class JoinedSessions(NamedTuple):
    """What becomes of a row: the sessions from `first` up to, not including, `upto` and the row are one, with this span."""

    first: int
    upto: int
    start: int
    last: int


def join(starts: Sequence[int], lasts: Sequence[int], time: int, gap: int) -> JoinedSessions:
    """What a row joins of the sessions of its key, which stand in order and farther than the gap from each other.

    >>> join([0, 20], [5, 30], 12, 10), join([0, 20], [5, 30], 41, 10)
    (JoinedSessions(first=0, upto=2, start=0, last=30), JoinedSessions(first=2, upto=2, start=41, last=41))
    """
    upto = len(starts)
    while upto and starts[upto - 1] - gap > time:
        upto -= 1
    first, start, last = upto, time, time
    while first and lasts[first - 1] + gap >= time:
        first -= 1
        start, last = min(start, starts[first]), max(last, lasts[first])
    return JoinedSessions(first, upto, start, last)


def end_of(last: int, gap: int) -> int:
    """When a session ends whose last row is of this time."""
    return last + gap


def closed_up_to(floor: int, grace: int) -> int:
    """The sessions that end then or before are closed. Time must have passed their end, not only reached it: a row of just that time
    joins them, and may still come."""
    return floor - grace - 1
