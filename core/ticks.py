"""When a periodic function of the job is called next, and what the call is told.

Ticks stand on the calendar: those of `"10s"` at each multiple of ten seconds since 1970, by the clock of the worker that has the task. So
it does not matter who calls, nor since when: an owner goes on where the last one stopped.

Promises:

- ticks are numbered 1, 2, 3 …, without a gap, as they are committed;
- what was not called in its time is not made up for: one tick comes late, at once, and says how many were missed before it;
- a clock that goes back by less than a period calls nothing twice; one that was far ahead does not keep the others from calling.
"""

from __future__ import annotations

from typing import NamedTuple


class DueTick(NamedTuple):
    """The next tick."""

    number: int
    """How many there were, with this one."""
    at: int
    """Its place on the calendar (ms)."""
    missed: int = 0
    """How many places of the calendar were passed over since the one before it."""


class LastTick(NamedTuple):
    """The newest tick that is committed."""

    number: int
    at: int


def next_tick(period_ms: int, last: LastTick | None, since: int, now: int) -> DueTick:
    """The next tick; it is due when the clock has reached its `at`. `since`: since when the task is watched, if there was none before.

    >>> next_tick(10, None, since=12, now=15)
    DueTick(number=1, at=20, missed=0)
    >>> next_tick(10, LastTick(1, 20), since=12, now=21), next_tick(10, LastTick(1, 20), since=12, now=57)
    (DueTick(number=2, at=30, missed=0), DueTick(number=2, at=50, missed=2))
    """
    place = now // period_ms
    before = (since if last is None else last.at) // period_ms
    number = 1 if last is None else last.number + 1
    if before > place + 1:  # a clock that was far ahead has called it, or the period is another one
        before = place
    wanted = max(before + 1, place)
    return DueTick(number, wanted * period_ms, wanted - before - 1)
