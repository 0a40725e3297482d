"""Round robin is fair, time alignment never oversteps, starting alignment keeps distances."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.choosing.chooser import Choice, Head, Wait
from headgate.core.choosing.rules import RoundRobin, StartingAlignment, TimeAligned
from headgate.core.names import StreamPartition

NO_TIME = -(2**63)


def at(stream, partition=0):
    return StreamPartition(stream, partition)


def head(stream, ready=0, **more):
    return Head(at(stream), ready=ready, **more)


def run(rule, heads, turns, now=0.0):
    """Serve `turns` turns without using anything up; who was served."""
    served = []
    for _ in range(turns):
        choice = rule.choose(heads, now)
        rule.taken(choice, choice.max_records)
        served.append(str(choice.at))
    return served


# ---------------------------------------------------------------------------------------------------------- round robin


def test_round_robin_goes_round():
    assert run(RoundRobin(), [head("b", 1), head("a", 1), head("c", 1)], 4) == ["a:0", "b:0", "c:0", "a:0"]


def test_a_turn_that_took_nothing_was_none():
    rule = RoundRobin()
    rule.taken(Choice(at("a"), 1), 0)
    assert rule.choose([head("a", 1), head("b", 1)], 0.0).at == at("a")


def test_round_robin_waits_for_no_one_and_waits_when_there_is_nothing():
    assert RoundRobin().choose([head("a"), head("b", 1)], 0.0) == Choice(at("b"), 1)
    assert RoundRobin().choose([head("a"), head("b", 1, paused=True), head("c", 1, ended=True)], 0.0) == Wait()
    assert RoundRobin().choose([], 0.0) == Wait()


def test_round_robin_lets_a_batch_stay():
    assert RoundRobin().stay(head("a", 7), [], 0.0) == Choice(at("a"), 7)


def test_round_robin_describes_whose_turn_it_is():
    rule = RoundRobin()
    run(rule, [head("a", 1), head("b", 1)], 3)
    assert rule.describe() == {"rule": "RoundRobin", "least recent first": ["b:0", "a:0"]}


@given(st.lists(st.sets(st.integers(0, 5), min_size=1), min_size=1, max_size=60))
@settings(deadline=None, max_examples=50)
def test_no_one_that_stays_ready_waits_longer_than_a_round(steps):
    """Whatever comes and goes: between two turns of one, another that was ready throughout had its turn."""
    rule = RoundRobin()
    waiting = dict.fromkeys(range(6), 0)
    for ready in steps:
        choice = rule.choose([head(str(n), int(n in ready)) for n in range(6)], 0.0)
        rule.taken(choice, 1)
        for n in range(6):
            waiting[n] = waiting[n] + 1 if n in ready and at(str(n)) != choice.at else 0
            assert waiting[n] < 6


# --------------------------------------------------------------------------------------------------------- time aligned


def test_the_oldest_timestamp_first_up_to_where_the_next_one_stands():
    rule = TimeAligned(1.0)
    assert rule.choose(
        [head("a", 5, timestamp=30), head("b", 5, timestamp=10), head("c", 5, timestamp=20)], 0.0
    ) == Choice(at("b"), 5, 20)
    assert rule.choose([head("a", 5, timestamp=30)], 0.0) == Choice(at("a"), 5, None)


def test_equal_timestamps_take_turns():
    assert run(TimeAligned(1.0), [head("a", 1, timestamp=1), head("b", 1, timestamp=1)], 3) == ["a:0", "b:0", "a:0"]


def test_an_empty_partition_is_waited_for_and_then_left_out_until_it_has_something():
    rule = TimeAligned(2.0)
    heads = [head("a", 5, timestamp=30), head("b")]
    assert rule.choose(heads, 10.0) == Wait(12.0, "aligning: waiting for b:0")
    assert rule.choose(heads, 11.9) == Wait(12.0, "aligning: waiting for b:0")
    assert rule.choose(heads, 12.0) == Choice(at("a"), 5)
    heads[1].ready, heads[1].timestamp = 1, 40
    assert rule.choose(heads, 13.0) == Choice(at("a"), 5, 40)
    heads[1].ready = 0
    assert rule.choose(heads, 14.0) == Wait(16.0, "aligning: waiting for b:0")
    assert rule.describe()["empty since"] == {"b:0": 14.0}


def test_the_first_wait_that_is_over_is_the_time_to_ask_again():
    rule = TimeAligned(2.0)
    heads = [head("a", 5, timestamp=30), head("b"), head("c", 1, timestamp=50)]
    rule.choose(heads, 10.0)
    heads[2].ready = 0
    assert rule.choose(heads, 11.0).until == 12.0


def test_who_can_bring_nothing_older_is_not_waited_for():
    for what in ("paused", "ended", "draining"):
        assert TimeAligned(2.0).choose([head("a", 5), head("b", **{what: True})], 0.0) == Choice(at("a"), 5)


def test_a_control_frame_waits_for_no_one():
    assert TimeAligned(2.0).choose([head("a", 1, timestamp=NO_TIME), head("b")], 0.0) == Choice(at("a"), 1)


def test_nothing_ready_is_nothing_to_align():
    assert TimeAligned(2.0).choose([head("a")], 0.0) == Wait()


def test_a_batch_may_stay_as_long_as_it_is_the_oldest():
    rule = TimeAligned(1.0)
    mine, other = head("a", 5, timestamp=10), head("b", 5, timestamp=12)
    assert rule.stay(mine, [mine, other], 0.0) == Choice(at("a"), 5, 12)
    mine.timestamp = 13
    assert rule.stay(mine, [mine, other], 0.0) is None
    mine.timestamp, other.ready = 5, 0
    assert rule.stay(mine, [mine, other], 0.0) is None
    assert rule.stay(mine, [mine, other], 1.0) == Choice(at("a"), 5)


@given(st.lists(st.lists(st.integers(0, 50), max_size=12).map(sorted), min_size=1, max_size=4))
@settings(deadline=None, max_examples=60)
def test_what_is_in_order_comes_out_in_order(streams):
    """The intake takes as much as the choice allows; the merge of sorted streams is sorted, and complete."""
    rule = TimeAligned(1.0)
    left = {at(str(n)): list(times) for n, times in enumerate(streams)}
    out = []
    while any(left.values()):
        heads = [
            Head(sp, ready=len(times), timestamp=times[0] if times else 0, ended=not times)
            for sp, times in left.items()
        ]
        choice = rule.choose(heads, 0.0)
        times = left[choice.at]
        taken = [
            t for t in times[: choice.max_records] if choice.up_to_timestamp is None or t <= choice.up_to_timestamp
        ]
        assert taken
        assert all(taken[-1] <= other[0] for sp, other in left.items() if sp != choice.at and other)
        del times[: len(taken)]
        rule.taken(choice, len(taken))
        out += taken
    assert out == sorted(time for times in streams for time in times)


# --------------------------------------------------------------------------------------------------- starting alignment


def lag(stream, distance, start=None, ready=1000, end=10_000, **more):
    more.setdefault("start_end", end if start is not None else None)
    return head(stream, ready, offset=end - distance, end=end, **more)


def seen(rule, **distances):
    """A rule that saw these distances at start."""
    rule.choose([lag(stream, distance) for stream, distance in distances.items()], 0.0)
    return rule


def test_who_has_fallen_farthest_behind_its_distance_at_start_comes_first():
    """The three cases of the rule: all behind, some behind, all ahead."""
    for distances, first in (
        ((150, 1020), "a"),
        ((120, 1050), "b"),
        ((150, 900), "a"),
        ((90, 1100), "b"),
        ((90, 900), "a"),
        ((50, 990), "b"),
    ):
        rule = seen(StartingAlignment(), a=100, b=1000)
        assert rule.choose([lag("a", distances[0]), lag("b", distances[1])], 0.0).at == at(first)


def test_a_turn_lasts_as_long_as_the_lead_but_at_least_a_grain():
    rule = seen(StartingAlignment(grain=10), a=100, b=100, c=100)
    assert rule.choose([lag("a", 300), lag("b", 220), lag("c", 250)], 0.0) == Choice(at("a"), 50)
    assert rule.choose([lag("b", 220), lag("c", 250), lag("a", 300)], 0.0) == Choice(at("a"), 50)
    assert rule.choose([lag("a", 300), lag("c", 250), lag("b", 220)], 0.0) == Choice(at("a"), 50)
    assert rule.choose([lag("a", 100), lag("b", 100)], 0.0) == Choice(at("a"), 10)
    assert rule.choose([lag("a", 100, ready=7)], 0.0) == Choice(at("a"), 7)
    assert rule.choose([lag("a", 100), lag("b", 500, paused=True)], 0.0) == Choice(at("a"), 1000)


def test_the_distance_at_start_is_that_to_the_end_at_start():
    rule = StartingAlignment()
    rule.choose([lag("a", 700, start_end=9_400), lag("b", 5, start_end=0)], 0.0)
    assert rule.describe()["distance at start"] == {"a:0": 100, "b:0": 0}


def test_without_an_end_the_buffer_is_the_distance():
    rule = StartingAlignment()
    rule.choose([head("a", 3, offset=9)], 0.0)
    assert rule.describe()["distance at start"] == {"a:0": 3}


def test_equal_claims_take_turns_and_nothing_is_nothing():
    assert run(StartingAlignment(), [lag("b", 100), lag("a", 100)], 3) == ["a:0", "b:0", "a:0"]
    assert StartingAlignment().choose([lag("a", 100, ready=0)], 0.0) == Wait()


def test_starting_alignment_lets_a_batch_stay():
    assert StartingAlignment().stay(head("a", 7), [], 0.0) == Choice(at("a"), 7)


@given(st.lists(st.integers(0, 5000), min_size=2, max_size=4))
@settings(deadline=None, max_examples=60)
def test_streams_reach_their_ends_in_step(distances):
    """Nothing is written meanwhile: whoever is served is never more than a grain ahead of the rest, until it has arrived."""
    assert StartingAlignment(9).choose([lag("a", 100, bulk=8), lag("b", 100)], 0.0).max_records == 72
    rule = StartingAlignment(grain=10)
    left = list(distances)
    while any(left):
        heads = [lag(str(n), distance, ready=min(distance, 500), start_end=10_000) for n, distance in enumerate(left)]
        choice = rule.choose(heads, 0.0)
        rule.taken(choice, choice.max_records)
        n = int(choice.at.stream)
        left[n] -= choice.max_records
        gone = [then - now for then, now in zip(distances, left, strict=True)]
        assert all(gone[n] <= gone[other] + 10 for other in range(len(left)) if left[other])
