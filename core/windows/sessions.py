"""Sessions: windows that grow as long as rows of a key follow within the gap. Decides which sessions a row joins, which rows are late, and
when a session ends.

A session is the span from its first to its last row. It ends `gap` after its last row, inclusive: a row exactly `gap` away from a session
joins it. A row within reach of two sessions merges them. A row is late only if the session that it would join is closed; so an old row is
accepted if it joins an open session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class JoinedSessions(NamedTuple):
    """The session of a row: the row merges the sessions from `first` up to, not including, `upto` into one with this span."""

    first: int
    upto: int
    start: int
    last: int


def join(starts: Sequence[int], lasts: Sequence[int], time: int, gap: int, until: int | None = None) -> JoinedSessions:
    """Which of its key's sessions a row joins; the sessions are sorted, and more than the gap apart. `until`: so do rows from this time up
    to that one, which are of one session.

    >>> join([0, 20], [5, 30], 12, 10), join([0, 20], [5, 30], 41, 10)
    (JoinedSessions(first=0, upto=2, start=0, last=30), JoinedSessions(first=2, upto=2, start=41, last=41))
    """
    last = time if until is None else until
    upto = len(starts)
    while upto and starts[upto - 1] - gap > last:
        upto -= 1
    first, start = upto, time
    while first and lasts[first - 1] + gap >= time:
        first -= 1
        start, last = min(start, starts[first]), max(last, lasts[first])
    return JoinedSessions(first, upto, start, last)


def end_of(last: int, gap: int) -> int:
    """When a session ends whose last row has this time."""
    return last + gap


def closed_up_to(floor: int, grace: int) -> int:
    """Sessions that end at or before the returned time are closed. Time must have passed their end, not only reached it: a row with exactly
    that time joins them, and may still arrive."""
    return floor - grace - 1
