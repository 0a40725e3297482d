"""Periodic functions: every place of the calendar once, whoever calls, and whatever the clocks do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.ticks import DueTick, LastTick, next_tick


def test_the_first_tick_stands_at_the_next_place_of_the_calendar() -> None:
    """Nobody knows what was before, so nothing was missed."""
    assert next_tick(60_000, None, since=60_001, now=60_001) == DueTick(1, 120_000)
    assert next_tick(60_000, None, since=60_001, now=200_000) == DueTick(1, 180_000, 1)


def test_ticks_that_were_missed_are_counted_and_not_made_up_for() -> None:
    """One comes late, at once; the next one is in time again."""
    late = next_tick(10, LastTick(7, 100), since=0, now=145)
    assert late == DueTick(8, 140, 3)
    assert next_tick(10, LastTick(late.number, late.at), since=0, now=145) == DueTick(9, 150)


def test_a_clock_that_goes_back_calls_nothing_twice() -> None:
    """A task moves to a worker whose clock is a little behind."""
    assert next_tick(10, LastTick(7, 100), since=0, now=98) == DueTick(8, 110)


def test_a_clock_that_was_far_ahead_does_not_silence_the_job() -> None:
    """The numbers go on, and the calendar is that of the clock that is there."""
    assert next_tick(10, LastTick(7, 10_000), since=0, now=98) == DueTick(8, 100)


def test_another_period_goes_on_from_the_last_tick() -> None:
    """A deployment may call more often, or less."""
    assert next_tick(1_000, LastTick(7, 10_500), since=0, now=10_700) == DueTick(8, 11_000)
    assert next_tick(100, LastTick(7, 10_000), since=0, now=10_050) == DueTick(8, 10_100)


@given(st.integers(1, 50), st.integers(0, 1000), st.lists(st.integers(-20, 120), max_size=30))
def test_each_place_is_called_or_missed_once(period: int, since: int, steps: list[int]) -> None:
    """While no clock goes back by a period or more, places and numbers rise, and called and missed ones are all there are."""
    last, now, highest = None, since, since
    told = since // period
    for step in steps:
        now = max(now + step, highest - period + 1)
        highest = max(highest, now)
        due = next_tick(period, last, since, now)
        if due.at > now:
            continue
        assert due.at % period == 0
        assert due.number == (1 if last is None else last.number + 1)
        assert due.at // period == told + 1 + due.missed
        told, last = due.at // period, LastTick(due.number, due.at)
