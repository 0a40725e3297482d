"""Bootstrap first, higher tiers before lower ones, batches from one partition; and nobody hangs, and nobody starves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.choosing.chooser import Choice, Head, Wait
from headgate.core.choosing.layers import Batching, Bootstrap, Tiers
from headgate.core.choosing.rules import RoundRobin, TimeAligned
from headgate.core.names import StreamPartition


def at(stream, partition=0):
    return StreamPartition(stream, partition)


def head(stream, ready=0, partition=0, **more):
    return Head(at(stream, partition), ready=ready, **more)


def boot(stream, ready=0, offset=0, end=10, **more):
    return head(stream, ready, offset=offset, start_end=end, bootstrap=True, **more)


class Never:
    """A rule that answers None, as a user's may."""

    def choose(self, heads, now):
        return None

    def taken(self, choice, records):
        raise AssertionError

    def describe(self):
        return {}


# ------------------------------------------------------------------------------------------------------------ bootstrap


def test_while_one_bootstrap_partition_lags_only_bootstrap_flows():
    layer = Bootstrap(RoundRobin())
    assert layer.choose([head("a", 5), boot("r", 5)], 0.0) == Choice(at("r"), 5, None, 10)
    assert layer.choose([head("a", 5), boot("r", 0, offset=9)], 0.0) == Wait(None, "bootstrapping: waiting for r:0")
    assert layer.choose([head("a", 5), boot("r", 0, offset=10)], 0.0) == Choice(at("a"), 5)


def test_a_bootstrap_partition_that_is_there_waits_for_the_others():
    heads = [boot("r", 5, offset=10), boot("s", 0, offset=3)]
    assert Bootstrap(RoundRobin()).choose(heads, 0.0) == Wait(None, "bootstrapping: waiting for s:0")


def test_a_bootstrap_stops_at_its_end_or_where_the_rule_says():
    class Short(RoundRobin):
        def choose(self, heads, now):
            return Choice(heads[0].at, 1, None, 7)

    assert Bootstrap(Short()).choose([boot("r", 5, end=10)], 0.0).up_to_offset == 7
    assert Bootstrap(Short()).choose([boot("r", 5, end=6)], 0.0).up_to_offset == 6


@pytest.mark.parametrize(
    "there",
    [
        boot("r", 0, offset=0, end=0),
        boot("r", 0, offset=4, ended=True),
        boot("r", 0, offset=4, draining=True),
        boot("r", 3, offset=4, draining=True, paused=True),
        boot("r", 0, end=None),
    ],
)
def test_what_is_empty_or_ends_or_drains_holds_no_one_up(there):
    assert Bootstrap(RoundRobin()).choose([head("a", 5), there], 0.0).at == at("a")


def test_a_bootstrap_whose_end_is_unknown_has_not_reached_it():
    """It is read without a bound, and nothing else flows."""
    unknown = boot("r", 5, end=None, start_unknown=True)
    assert Bootstrap(RoundRobin()).choose([head("a", 5), unknown], 0.0) == Choice(at("r"), 5)


def test_no_lower_tier_flows_before_the_end_of_a_higher_one_is_known():
    """Not known is not reached; unless it has ended, or is paused."""
    low = head("low", 5)
    tiers = Tiers(RoundRobin, {"high": 1})
    held = tiers.choose([low, head("high", start_unknown=True)], 0.0)
    assert held == Wait(None, "catching up before lower priorities: high:0")
    for there in ({"start_end": 0}, {"start_unknown": True, "paused": True}, {"start_unknown": True, "ended": True}):
        assert tiers.choose([low, head("high", **there)], 0.0).at == at("low")


def test_what_drains_in_the_middle_is_read_as_far_as_it_was_fetched():
    """So that a drain does not join what is buffered with half of a table whose other half stands in the next buffer."""
    assert Bootstrap(RoundRobin()).choose([head("a", 5), boot("r", 3, offset=4, draining=True)], 0.0).at == at("r")


def test_a_paused_bootstrap_partition_pauses_what_depends_on_it():
    assert isinstance(Bootstrap(RoundRobin()).choose([head("a", 5), boot("r", 3, paused=True)], 0.0), Wait)


def test_a_wait_of_the_rule_keeps_its_time():
    heads = [boot("r", 5), boot("s", 0), head("a", 1)]
    assert Bootstrap(TimeAligned(2.0)).choose(heads, 1.0) == Wait(3.0, "bootstrapping: waiting for r:0, s:0")
    assert Bootstrap(Never()).choose(heads, 1.0) == Wait(None, "bootstrapping: waiting for r:0, s:0")
    assert Bootstrap(Never()).choose([head("a", 1)], 1.0) is None


def test_bootstrap_describes_what_it_waits_for():
    layer = Bootstrap(RoundRobin())
    layer.choose([boot("r", 5)], 0.0)
    layer.taken(Choice(at("r"), 5), 5)
    assert layer.describe() == {"bootstrapping": ["r:0"], "then": {"rule": "RoundRobin", "least recent first": ["r:0"]}}


@given(
    st.dictionaries(st.sampled_from("rstu"), st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1),
    st.lists(
        st.tuples(
            st.sampled_from("rstuab"), st.integers(1, 4), st.sampled_from(["fetch", "pause", "resume", "end", "drain"])
        ),
        max_size=60,
    ),
)
@settings(deadline=None, max_examples=60)
def test_the_rule_of_bootstrap_holds_for_any_interleaving(ends, events):
    """Whatever is fetched, paused, ended and drained in whatever order: nothing else is taken while one that can still move lags,
    none is taken beyond its end before all are there, and nothing paused, ended or empty is ever taken."""
    heads = {name: boot(name, 0, offset=start, end=end) for name, (start, end) in ends.items()} | {
        n: head(n) for n in "ab"
    }
    layer = Bootstrap(Tiers(lambda: Batching(RoundRobin(), 3), {"r": 1}))
    for now, (name, count, what) in enumerate(events):
        one = heads.get(name, heads["a"])
        one.ready += count if what == "fetch" and one.active else 0
        one.paused = what == "pause" or (one.paused and what != "resume")
        one.draining = one.draining or what == "drain"
        if what == "end":
            one.ended, one.ready = True, 0
        answer = layer.choose(list(heads.values()), float(now))
        lagging = {h.at for h in heads.values() if h.bootstrap and h.lagging}
        if isinstance(answer, Choice):
            chosen = heads[answer.at.stream]
            assert chosen.takeable
            assert not lagging or chosen.at in lagging
            taken = min(answer.max_records, chosen.ready, (answer.up_to_offset or 10**9) - chosen.offset)
            assert taken > 0
            assert not lagging or chosen.offset + taken <= chosen.start_end
            chosen.offset += taken
            chosen.ready -= taken
            layer.taken(answer, taken)
        else:
            # The tier of r is the higher one: while it catches up, even the bootstrap of the others waits.
            first = "r" in heads and heads["r"].lagging and not heads["r"].paused
            assert not [h for h in heads.values() if h.takeable and (not lagging or (h.at in lagging and not first))]
            assert not first or not heads["r"].takeable


# ---------------------------------------------------------------------------------------------------------------- tiers


def tiers(max_starve=None, **priorities):
    return Tiers(RoundRobin, priorities, max_starve)


def test_a_higher_tier_flows_first_and_a_lower_one_when_it_is_empty():
    layer = tiers(high=1, low=-1)
    assert layer.choose([head("low", 1), head("mid", 1), head("high", 1)], 0.0).at == at("high")
    assert layer.choose([head("low", 1), head("mid", 1), head("high")], 0.0).at == at("mid")
    assert layer.choose([head("low", 1), head("mid"), head("high")], 0.0).at == at("low")
    assert layer.choose([head("low"), head("mid"), head("high")], 0.0) == Wait()


def test_after_a_start_nothing_lower_flows_before_the_higher_has_caught_up():
    """Even when the higher has nothing in its buffer, and however long it takes."""
    layer = tiers(5.0, high=1)
    heads = [head("low", 1), head("high", 0, offset=3, start_end=9)]
    for now in (0.0, 100.0):
        assert layer.choose(heads, now) == Wait(None, "catching up before lower priorities: high:0")
    heads[1].offset = 9
    assert layer.choose(heads, 101.0).at == at("low")


def test_starving_counts_from_when_the_tier_may_flow():
    layer = tiers(5.0, high=1)
    heads = [head("low", 1), head("high", 1, offset=3, start_end=9)]
    layer.choose(heads, 0.0)
    heads[1].offset = 9
    assert [layer.choose(heads, now).at.stream for now in (100.0, 104.9, 105.0, 105.1, 110.0)] == [
        "high",
        "high",
        "low",
        "high",
        "low",
    ]


def test_a_tier_that_is_paused_ended_or_drained_holds_up_no_one():
    for what in ("paused", "ended", "draining"):
        assert tiers(high=1).choose(
            [head("low", 1), head("high", 0, offset=3, start_end=9, **{what: True})], 0.0
        ).at == at("low")


def test_a_tier_that_had_nothing_to_do_did_not_starve():
    layer = tiers(5.0, high=1)
    heads = [head("low", 1), head("high", 1)]
    layer.choose(heads, 0.0)
    heads[0].ready = 0
    layer.choose(heads, 4.0)
    heads[0].ready = 1
    assert layer.choose(heads, 6.0).at == at("high")
    assert layer.choose(heads, 11.0).at == at("low")


def test_the_longest_wait_is_served_first():
    layer = tiers(5.0, high=2, mid=1)
    heads = [head("low", 1), head("mid"), head("high", 1)]
    layer.choose(heads, 0.0)
    heads[1].ready = 1
    layer.choose(heads, 1.0)
    heads[2].ready = 0
    heads[2].ready = 1
    layer.choose(heads, 4.0)
    assert [layer.choose(heads, now).at.stream for now in (7.0, 7.1, 7.2)] == ["low", "mid", "high"]


def test_without_a_guard_priority_is_strict():
    layer = tiers(None, high=1)
    assert {layer.choose([head("low", 1), head("high", 1)], now * 1000.0).at for now in range(9)} == {at("high")}


def test_a_tier_whose_rule_waits_does_not_keep_lower_ones_from_work():
    layer = Tiers(lambda: TimeAligned(2.0), {"x": 1, "y": 1})
    assert layer.choose([head("low", 1), head("x", 1), head("y")], 0.0).at == at("low")
    assert layer.choose([head("low"), head("x", 1), head("y")], 0.0) == Wait(2.0, "aligning: waiting for y:0")
    assert layer.choose([head("low", 1), head("x", 1), head("y")], 2.0).at == at("x")
    assert Tiers(Never, {"x": 1}).choose([head("low", 1), head("x", 1)], 2.0) == Wait()


def test_priorities_change_while_it_runs():
    layer = tiers(high=1)
    heads = [head("low", 1), head("high", 1)]
    layer.priorities = {"high": 1, "low": 2}
    assert layer.choose(heads, 0.0).at == at("low")
    layer.priorities = {"high": 1}
    assert layer.choose(heads, 0.0).at == at("high")


def test_one_tier_is_just_its_rule_and_each_tier_has_its_own():
    layer = tiers(5.0, high=1)
    layer.choose([head("low", 1), head("high", 1)], 0.0)
    layer.taken(Choice(at("low"), 1), 1)
    assert layer.choose([head("low", 1), head("other", 1)], 0.0).at == at("other")
    assert layer.describe() == {
        "priorities": {"high": 1},
        "max starve": 5.0,
        "waiting since": {},
        "tiers": {
            "1": {"rule": "RoundRobin", "least recent first": []},
            "0": {"rule": "RoundRobin", "least recent first": ["low:0"]},
        },
    }


@given(st.lists(st.sampled_from([0.1, 0.5, 1.0]), min_size=30, max_size=120), st.integers(2, 4))
@settings(deadline=None, max_examples=60)
def test_within_max_starve_each_tier_progresses(steps, count):
    """Always full: no tier waits longer than the guard, the chunk that is running, and one chunk of each other tier."""
    layer = Tiers(RoundRobin, {str(n): n for n in range(count)}, 5.0)
    heads = [head(str(n), 9) for n in range(count)]
    served = dict.fromkeys(range(count), 0.0)
    now = 0.0
    for step in steps:
        choice = layer.choose(heads, now)
        layer.taken(choice, choice.max_records)
        served[int(choice.at.stream)] = now
        assert all(now - last <= 5.0 + count * 1.0 for last in served.values())
        now += step


# ------------------------------------------------------------------------------------------------------------- batching


def take(layer, heads, now=0.0):
    choice = layer.choose(heads, now)
    layer.taken(choice, choice.max_records)
    return choice.at.stream, choice.max_records


def test_a_batch_of_columns_does_not_cut_a_fetch():
    """A choice may be several times the size, and a turn is over when the size has been taken; rows keep to the size."""
    layer = Batching(RoundRobin(), 10)
    heads = [head("columns", 1000, bulk=8), head("rows", 1000)]
    assert [take(layer, heads) for _ in range(4)] == [("columns", 80), ("rows", 10)] * 2
    heads[0].ready = 6
    assert [take(layer, heads) for _ in range(3)] == [("columns", 6), ("columns", 6), ("rows", 10)]


@pytest.mark.parametrize("size", [1, 2, 5, 7])
def test_a_batch_is_exactly_as_long_as_it_is_said(size):
    layer = Batching(RoundRobin(), size)
    heads = [head("a", 3), head("b", 3)]
    taken = [take(layer, heads) for _ in range(12)]
    runs = []
    for stream, records in taken:
        if runs and runs[-1][0] == stream and runs[-1][1] < size:
            runs[-1][1] += records
        else:
            runs.append([stream, records])
    assert {count for _, count in runs[:-1]} == {size}
    assert [stream for stream, _ in runs] == ["a", "b"] * (len(runs) // 2) + ["a"] * (len(runs) % 2)


def test_a_batch_ends_when_its_partition_has_nothing_or_is_paused_or_gone():
    for change in ({"ready": 0}, {"paused": True}, {"ended": True}, None):
        layer = Batching(RoundRobin(), 10)
        heads = [head("a", 3), head("b", 3)]
        assert take(layer, heads) == ("a", 3)
        if change is None:
            heads = heads[1:]
        for name, value in (change or {}).items():
            setattr(heads[0], name, value)
        assert take(layer, heads) == ("b", 3)


def test_a_new_batch_begins_whole():
    layer = Batching(RoundRobin(), 5)
    heads = [head("a", 3), head("b")]
    assert [take(layer, heads) for _ in range(4)] == [("a", 3), ("a", 2), ("a", 3), ("a", 2)]


def test_a_batch_ends_where_the_rule_would_be_broken():
    layer = Batching(TimeAligned(1.0), 100)
    heads = [head("a", 5, timestamp=10), head("b", 5, timestamp=20)]
    assert layer.choose(heads, 0.0) == Choice(at("a"), 5, 20)
    layer.taken(Choice(at("a"), 5, 20), 5)
    heads[0].timestamp = 15
    assert layer.choose(heads, 0.0) == Choice(at("a"), 5, 20)
    heads[0].timestamp = 25
    assert layer.choose(heads, 0.0) == Choice(at("b"), 5, 25)


def test_a_batch_of_a_lower_tier_never_holds_up_a_higher_one():
    layer = Tiers(lambda: Batching(RoundRobin(), 100), {"high": 1})
    heads = [head("low", 3), head("high", 0)]
    assert take(layer, heads) == ("low", 3)
    heads[1].ready = 2
    assert take(layer, heads) == ("high", 2)
    heads[1].ready = 0
    assert take(layer, heads) == ("low", 3)


def test_a_wait_of_the_rule_is_passed_on():
    assert Batching(RoundRobin(), 5).choose([head("a")], 0.0) == Wait()


def test_what_was_taken_of_another_does_not_shorten_the_batch():
    layer = Batching(RoundRobin(), 5)
    take(layer, [head("a", 2)])
    layer.taken(Choice(at("b"), 2), 2)
    assert layer.describe()["left"] == 3
    assert layer.describe()["from"] == "a:0"
