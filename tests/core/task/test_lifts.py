"""How far one idle part is lifted, and since when a partition of frames is certain to be silent."""

from __future__ import annotations

from collections import Counter

import pytest

from headgate.core.progress.frames import MAX_TIME, NO_TIME
from headgate.core.task.inputs import Silence
from headgate.core.task.lifts import NOT_YET_S, Lift


def test_a_part_is_lifted_to_where_the_others_were_before_it_was_known_to_be_silent_and_not_to_where_they_are():
    lift = Lift()
    lift.confirm(1.0, 2.0, 50)
    assert lift.upto == NO_TIME
    lift.confirm(1.9, 3.0, 60)  # it was asked before the look
    assert lift.upto == NO_TIME
    lift.confirm(2.0, 4.0, 70)
    assert lift.upto == 50
    lift.confirm(4.1, 5.0, 80)
    assert lift.upto == 70


def test_what_is_lifted_stays_and_one_that_was_not_idle_begins_anew():
    lift = Lift()
    lift.confirm(1.0, 2.0, 50)
    lift.confirm(3.0, 4.0, 70)
    lift.drop()
    lift.confirm(5.0, 6.0, 90)
    assert lift.upto == 50
    lift.confirm(7.0, 8.0, 90)
    assert lift.upto == 90
    lift.confirm(9.0, 10.0, 30)
    lift.confirm(11.0, 12.0, 30)  # another one is behind now: that lifts nothing, and takes nothing back
    assert lift.upto == 90


@pytest.mark.parametrize("others", [None, NO_TIME, MAX_TIME])
def test_those_that_have_no_time_lift_no_one(others):
    lift = Lift()
    for now in (1.0, 2.0, 3.0):
        assert not lift.waits(now - 0.1, others)
        lift.confirm(now - 0.1, now, others)
    assert lift.upto == NO_TIME
    assert lift.waits(3.5, 10)


def test_a_part_waits_for_a_look_exactly_while_one_would_change_something():
    """A look that was wanted and changed nothing would be wanted for ever."""
    lift = Lift()
    assert lift.waits(NOT_YET_S, 50)
    lift.confirm(NOT_YET_S, 2.0, 50)
    assert not lift.waits(NOT_YET_S, 70)
    assert lift.waits(2.5, 50)
    lift.confirm(2.5, 3.0, 50)
    assert lift.upto == 50
    assert not lift.waits(4.0, 50)
    assert lift.waits(4.0, 60)


class Confirmed:
    """A stand-in for the producers of one partition: how often one of them has confirmed."""

    def __init__(self) -> None:
        self.count = 0

    def so_far(self) -> dict[str, Counter[str]]:
        return {"job": Counter(a=self.count)}

    def twice(self, since: dict[str, Counter[str]]) -> bool:
        return self.count >= since["job"]["a"] + 2

    def confirm(self, silence: Silence) -> float:
        self.count += 1
        silence.heard(self.twice)
        return silence.since_s


def test_a_partition_is_silent_since_the_fetch_was_asked_for_after_which_each_producer_has_confirmed_twice():
    silence, made = Silence(), Confirmed()
    assert [made.confirm(silence), made.confirm(silence)] == [NOT_YET_S, NOT_YET_S]
    silence.at_end(10.0, made.so_far)
    assert [made.confirm(silence), made.confirm(silence)] == [NOT_YET_S, NOT_YET_S]  # when was that fetch asked for?
    silence.at_end(11.0, made.so_far)
    assert [made.confirm(silence), made.confirm(silence)] == [NOT_YET_S, 10.0]
    assert made.confirm(silence) == 10.0


def test_confirmations_are_waited_for_from_one_answer_on_however_many_more_come():
    """If each answer began anew, they would never have been twice."""
    silence, made = Silence(), Confirmed()
    silence.at_end(10.0, made.so_far)
    silence.at_end(11.0, made.so_far)
    assert made.confirm(silence) == NOT_YET_S
    silence.at_end(12.0, made.so_far)
    silence.at_end(13.0, made.so_far)
    assert made.confirm(silence) == 10.0
    silence.at_end(14.0, made.so_far)
    assert [made.confirm(silence), made.confirm(silence)] == [10.0, 13.0]


def test_an_answer_before_something_was_there_does_not_say_when_the_next_one_was_asked_for():
    silence, made = Silence(), Confirmed()
    silence.at_end(10.0, made.so_far)
    silence.not_at_end()
    silence.at_end(12.0, made.so_far)
    assert [made.confirm(silence), made.confirm(silence)] == [NOT_YET_S, NOT_YET_S]
    silence.at_end(13.0, made.so_far)
    assert [made.confirm(silence), made.confirm(silence)] == [NOT_YET_S, 12.0]


def test_what_is_read_again_confirms_nothing():
    """The frames behind a seek were written long ago; and their count begins anew, so an old one was never reached."""
    silence, made = Silence(), Confirmed()
    made.count = 1000
    silence.at_end(10.0, made.so_far)
    silence.at_end(11.0, made.so_far)
    silence.moved()
    made.count = 0
    assert [made.confirm(silence), made.confirm(silence)] == [NOT_YET_S, NOT_YET_S]
    silence.at_end(12.0, made.so_far)
    silence.at_end(13.0, made.so_far)
    assert [made.confirm(silence), made.confirm(silence)] == [NOT_YET_S, 12.0]
