"""Streams that meet in a join stay together in event time, and nobody hangs."""

from __future__ import annotations

from headgate.core.choosing.chooser import Choice, Head, Wait
from headgate.core.choosing.drift import UNKNOWN, Drift
from headgate.core.choosing.rules import RoundRobin
from headgate.core.names import StreamPartition


def head(stream, ready=1, partition=0, **more):
    return Head(StreamPartition(stream, partition), ready=ready, **more)


def layer(max_drift=10, inner=None):
    return Drift(inner or RoundRobin(), [frozenset("ab"), frozenset("bc")], max_drift, 0.5)


def read(one, *heads, now=0.0):
    """What is chosen, if it is a choice."""
    answer = one.choose(heads, now)
    if isinstance(answer, Choice):
        one.taken(answer, 1)
        return answer.at.stream
    return answer


def test_who_is_too_far_ahead_waits_for_the_oldest():
    one = layer()
    heads = [head("a", timestamp=0), head("b", timestamp=11), head("x", timestamp=10**9)]
    assert [read(one, *heads) for _ in range(4)] == ["a", "x", "a", "x"]
    assert one.describe()["ahead"] == ["b:0"]
    heads[0].timestamp = 1
    assert {read(one, *heads) for _ in range(3)} == {"a", "b", "x"}


def test_each_join_is_a_group_of_its_own():
    heads = [head("a", timestamp=100), head("b", timestamp=105), head("c", timestamp=90)]
    assert [read(layer(), *heads) for _ in range(2)] == ["a", "a"]  # b is ahead of c, and c is not too old for a
    assert {read(layer(15), *heads), read(layer(0), *heads)} == {"a"}


def test_no_one_waits_for_who_has_nothing_to_come():
    """A partition that is paused, ended or drained, or at its end; a control frame, or a record without a time."""
    for other in (
        head("a", paused=True),
        head("a", ended=True),
        head("a", 0, draining=True),
        head("a", 0, offset=7, end=7),
        head("a", timestamp=UNKNOWN),
    ):
        assert "b" in [read(one := layer(), other, head("b", timestamp=99)), read(one, other, head("b", timestamp=99))]


def test_an_empty_partition_that_is_not_at_its_end_is_waited_for_a_while():
    """What it last had counts; before that, anything may come."""
    one = layer()
    late, ahead = head("a", 0, offset=0, end=None), head("b", timestamp=99)
    assert read(one, late, ahead, now=1.0) == Wait(1.5, "aligning the streams of a join: b:0 is ahead")
    assert read(one, late, ahead, now=1.5) == "b"
    late.ready, late.timestamp = 1, 95
    assert read(one, late, head("b", timestamp=106), now=2.0) == "a"
    late.ready, late.offset, late.end = 0, 1, 3
    assert read(one, late, head("b", timestamp=105), now=3.0) == "b"
    assert isinstance(read(one, late, head("b", timestamp=106), now=3.2), Wait)
    assert read(one, late, head("b", timestamp=106), now=3.5) == "b"


def test_a_wait_of_the_rule_ends_when_the_first_of_both_ends():
    class Patient(RoundRobin):
        def choose(self, heads, now):
            return Wait(1.2, "patience") if self.speaks else None

        speaks = True

    heads = [head("a", 0, end=5), head("b", timestamp=9)]
    rule = Patient()
    one = layer(inner=rule)
    assert one.choose(heads, 1.0) == Wait(1.2, "patience")
    rule.speaks = False
    assert one.choose(heads, 1.0) == Wait(1.5, "aligning the streams of a join: b:0 is ahead")


def test_without_a_limit_no_one_waits():
    assert read(layer(0), head("b", timestamp=99), head("a", timestamp=0)) == "a"
    assert read(layer(0), head("b", timestamp=99)) == "b"
