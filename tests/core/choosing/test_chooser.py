"""The values of choosing: what a head says of its partition."""

from __future__ import annotations

import pytest

from headgate.core.choosing.chooser import Choice, Chooser, Head, Rule, Wait, listed, sooner
from headgate.core.choosing.rules import RoundRobin
from headgate.core.names import StreamPartition

AT = StreamPartition("a", 0)


def test_what_is_ready_can_be_taken_unless_it_is_paused_or_has_ended():
    assert Head(AT, ready=1).takeable
    assert Head(AT, ready=1, draining=True).takeable
    assert not Head(AT, ready=0).takeable
    assert not Head(AT, ready=1, paused=True).takeable
    assert not Head(AT, ready=1, ended=True).takeable


def test_an_active_partition_may_still_get_something():
    assert Head(AT).active
    assert [Head(AT, **{what: True}).active for what in ("paused", "draining", "ended")] == [False, False, False]


@pytest.mark.parametrize(
    ("head", "lagging"),
    [
        (Head(AT, offset=4, start_end=5), True),
        (Head(AT, offset=5, start_end=5), False),
        (Head(AT, offset=0, start_end=0), False),
        (Head(AT, offset=4), False),
        (Head(AT, offset=4, start_end=5, ended=True), False),
        (Head(AT, offset=4, start_end=5, draining=True), False),
        (Head(AT, offset=4, start_end=5, draining=True, ready=1), True),
        (Head(AT, offset=4, start_end=5, draining=True, ready=1, paused=True), False),
        (Head(AT, offset=4, start_end=5, paused=True), True),
    ],
)
def test_empty_ended_and_drained_partitions_are_where_they_should_be(head, lagging):
    assert head.lagging == lagging


def test_the_earlier_of_two_times_either_of_which_may_be_never():
    assert [sooner(1.0, 2.0), sooner(None, 2.0), sooner(1.0, None), sooner(None, None)] == [1.0, 2.0, 1.0, None]


def test_long_lists_are_cut_for_people():
    assert listed([Head(StreamPartition("a", n)) for n in range(3)]) == "a:0, a:1, a:2"
    assert listed([Head(StreamPartition("a", n)) for n in range(9)], most=1) == "a:0 and 8 more"


def test_a_rule_is_a_chooser_is_a_protocol():
    rule: Rule = RoundRobin()
    chooser: Chooser = rule
    assert chooser.choose([Head(AT)], 0.0) == Wait()
    assert chooser.choose([Head(AT, ready=2)], 0.0) == Choice(AT, 2)
    # The protocol's own bodies do nothing; a class of the user's may inherit from it.
    assert Chooser.choose(chooser, [], 0.0) is None
    assert Chooser.taken(chooser, Choice(AT, 1), 1) is None
    assert Chooser.describe(chooser) is None
    assert Rule.stay(rule, Head(AT), [], 0.0) is None
