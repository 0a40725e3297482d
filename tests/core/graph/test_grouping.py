"""Grouping: every partition has its task, and growth never takes one away."""

from __future__ import annotations

from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.errors import DeclarationError
from headgate.core.graph.grouping import (
    GROUPERS,
    all_in_one,
    by_partition,
    by_stream_partition,
    check_grouping,
    counts,
    group,
    owners_of,
    regroup,
)
from headgate.core.names import StreamPartition


def plain(grouping):
    return {task: [str(at) for at in owned] for task, owned in grouping.items()}


def at(text):
    stream, partition = text.split(":")
    return StreamPartition(stream, int(partition))


# ------------------------------------------------------------------------------------------------- built-in groupers


def test_by_partition_joins_equal_partitions_and_broadcasts_the_rest():
    assert plain(by_partition({"orders": 3, "users": 2, "rates": 2}, frozenset({"rates"}))) == {
        "Partition 0": ["orders:0", "rates:0", "rates:1", "users:0"],
        "Partition 1": ["orders:1", "rates:0", "rates:1", "users:1"],
        "Partition 2": ["orders:2", "rates:0", "rates:1"],
    }


def test_by_stream_partition_makes_one_task_of_each():
    assert plain(by_stream_partition({"orders": 2, "users": 1, "rates": 1}, frozenset({"rates"}))) == {
        "orders 0": ["orders:0", "rates:0"],
        "orders 1": ["orders:1", "rates:0"],
        "users 0": ["rates:0", "users:0"],
    }


def test_all_in_one_owns_everything():
    assert plain(all_in_one({"orders": 2, "rates": 1}, frozenset({"rates"}))) == {
        "All": ["orders:0", "orders:1", "rates:0"]
    }
    assert dict(all_in_one({"rates": 1}, frozenset({"rates"}))) == {}


widths = st.dictionaries(st.sampled_from(["a", "b", "c", "a-b"]), st.integers(1, 12), min_size=1)


@given(widths, st.sets(st.sampled_from(["a", "b", "c", "a-b"])), st.sampled_from(sorted(GROUPERS)))
@settings(deadline=None, max_examples=60)
def test_every_partition_has_its_task_whatever_the_order(partitions, broadcast, which):
    wide = broadcast & set(partitions)
    if wide == set(partitions):
        return
    grouping = group(GROUPERS[which], partitions, wide)
    assert counts(grouping) == dict(sorted(partitions.items()))
    for stream, width in partitions.items():
        owners = owners_of(grouping, stream)
        assert list(owners) == list(range(width))
        assert {len(tasks) for tasks in owners.values()} == {len(grouping) if stream in wide else 1}
    again = group(GROUPERS[which], dict(reversed(list(partitions.items()))), sorted(wide, reverse=True))
    assert list(again.items()) == list(grouping.items())


def test_a_grouping_cannot_be_changed_and_stands_in_natural_order():
    grouping = group(by_partition, {"orders": 11})
    assert isinstance(grouping, MappingProxyType)
    assert list(grouping)[-2:] == ["Partition 9", "Partition 10"]
    with pytest.raises(TypeError):
        grouping["Partition 0"] = ()


@pytest.mark.parametrize(
    ("partitions", "broadcast", "why"),
    [
        ({"orders": 1}, ["rates"], "'rates' is broadcast but is not a stream of the job"),
        ({"orders": 0}, [], "'orders' has 0 partitions"),
        ({"rates": 1}, ["rates"], "every stream of the job is broadcast"),
        ({}, [], "no partition to create tasks from"),
    ],
)
def test_what_cannot_be_grouped_is_refused(partitions, broadcast, why):
    with pytest.raises(DeclarationError, match=why):
        group(by_partition, partitions, broadcast)


# ------------------------------------------------------------------------------------------------ a grouper of your own


def odd_and_even(partitions, broadcast):
    tasks = {"odd": [], "even": []}
    for stream, width in partitions.items():
        for n in range(width):
            for task in tasks if stream in broadcast else ["odd" if n % 2 else "even"]:
                tasks[task].append((stream, n))
    return tasks


def test_a_grouper_of_your_own_is_a_function_and_its_answer_is_made_canonical():
    assert plain(group(odd_and_even, {"orders": 3, "rates": 1}, ["rates"])) == {
        "even": ["orders:0", "orders:2", "rates:0"],
        "odd": ["orders:1", "rates:0"],
    }


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"t": ["a:0"], "u": ["w:0"]}, "makes a task 'u' that owns no partition of its own"),
        ({"t": ["a:0", "w:0"], "u": []}, "makes a task 'u' that owns no partition of its own"),
        ({"": ["a:0"]}, "names a task ''"),
        ({"é" * 125: ["a:0"]}, "a name has 1 to 249 bytes"),
        ({"t": ["a:0", "a:2", "w:0"]}, "gives 't' partition 2 of 'a', which does not exist"),
        ({"t": ["a:0", "b:0", "w:0"]}, "gives 't' partition 0 of 'b', which does not exist"),
        ({"t": ["a:0", "a:0", "a:1", "w:0"]}, "gives partition 0 of 'a' to 't' twice"),
        ({"t": ["a:0", "a:1", "w:0"], "u": ["a:1", "w:0"]}, "gives partition 1 of 'a' to 't' and to 'u'"),
        ({"t": ["a:0", "w:0"]}, "gives partition 1 of 'a' to no task"),
        ({"t": ["a:0", "w:0"], "u": ["a:1"]}, "gives partition 0 of 'w', which is broadcast, to 1 of 2 tasks"),
        ({"t": ["a:0", "a:1"]}, "gives partition 0 of 'w' to no task"),
    ],
)
def test_a_grouper_of_your_own_that_breaks_the_contract_is_refused_by_name(answer, why):
    result = {task: [at(text) for text in owned] for task, owned in answer.items()}
    with pytest.raises(DeclarationError, match=f"the grouper 'mine.group' {why}" if "bytes" not in why else why):
        check_grouping("mine.group", result, {"a": 2, "w": 1}, frozenset({"w"}))


class Lazy(dict):
    def items(self):
        raise SystemExit("not today")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "returned None, which is not a mapping"),
        ([("t", ())], "returned"),
        ({1: []}, "names a task 1, which is not text"),
        ({"t": None}, "raised TypeError"),
        ({"t": ["a"]}, "gives 't' 'a', which is no"),
        ({"t": [("a", 0, 1)]}, "gives 't' ('a', 0, 1), which is no"),
        ({"t": [(0, "a")]}, "gives 't' (0, 'a'), which is no"),
        ({"t": [("a", True), ("a", 0)]}, "gives 't' ('a', True), which is no"),
        ({"t": [("a", float("nan"))]}, "gives 't' ('a', nan), which is no"),
        (Lazy(), "raised SystemExit: not today"),
    ],
)
def test_nonsense_of_a_grouper_is_refused_by_name(answer, why):
    """A TypeError out of the leader's round would have ended the worker."""
    with pytest.raises(DeclarationError) as caught:
        group(lambda partitions, broadcast: answer, {"a": 2}, name="mine.group")
    assert caught.value.what.startswith(f"the grouper 'mine.group' {why}")


def test_a_grouper_cannot_change_what_it_is_given():
    """The counts of the job model are not its own."""

    def greedy(partitions, broadcast):
        partitions["a"] = 9

    with pytest.raises(DeclarationError, match="the grouper 'greedy' raised TypeError"):
        group(greedy, {"a": 2})


def test_a_grouper_without_a_name_is_called_by_what_it_is():
    class Nothing:
        def __call__(self, partitions, broadcast):
            return {}

    with pytest.raises(DeclarationError, match=r"grouper '<.*Nothing object.*' gives partition 0 of 'a' to no task"):
        group(Nothing(), {"a": 1})


# -------------------------------------------------------------------------------------------------------------- growth


def test_with_state_a_new_partition_joins_the_task_that_owned_its_keys():
    before = group(by_partition, {"orders": 2, "users": 2})
    assert plain(regroup(by_partition, before, {"orders": 6, "users": 2}, stateful=True)) == {
        "Partition 0": ["orders:0", "orders:2", "orders:4", "users:0"],
        "Partition 1": ["orders:1", "orders:3", "orders:5", "users:1"],
    }


@given(st.integers(1, 6), st.lists(st.integers(1, 4), max_size=3), st.sampled_from(sorted(GROUPERS)))
@settings(deadline=None, max_examples=80)
def test_growing_twice_is_growing_once_and_every_key_stays_with_its_task(width, factors, which):
    grouping = first = group(GROUPERS[which], {"orders": width})
    for factor in factors:
        width *= factor
        grouping = regroup(GROUPERS[which], grouping, {"orders": width}, stateful=True)
    assert grouping == regroup(GROUPERS[which], first, {"orders": width}, stateful=True)
    then, now = owners_of(first, "orders"), owners_of(grouping, "orders")
    assert all(now[key % width] == then[key % len(then)] for key in range(200))


def test_without_state_new_partitions_make_new_tasks():
    before = group(by_partition, {"orders": 2})
    after = regroup(by_partition, before, {"orders": 3}, stateful=False)
    assert plain(after) == {"Partition 0": ["orders:0"], "Partition 1": ["orders:1"], "Partition 2": ["orders:2"]}


def test_a_broadcast_stream_may_grow_as_it_likes_with_and_without_state():
    before = group(by_partition, {"orders": 2, "rates": 1}, ["rates"])
    for stateful in (True, False):
        after = regroup(by_partition, before, {"orders": 2, "rates": 3}, ["rates"], stateful=stateful)
        assert after["Partition 1"] == tuple(map(at, ["orders:1", "rates:0", "rates:1", "rates:2"]))


def test_a_broadcast_stream_reaches_the_tasks_that_growth_makes():
    before = group(by_partition, {"orders": 1, "rates": 1}, ["rates"])
    after = regroup(by_partition, before, {"orders": 2, "rates": 1}, ["rates"], stateful=False)
    assert plain(after) == {"Partition 0": ["orders:0", "rates:0"], "Partition 1": ["orders:1", "rates:0"]}


def test_nothing_changed_changes_nothing():
    before = group(by_partition, {"orders": 3, "rates": 1}, ["rates"])
    for stateful in (True, False):
        assert regroup(by_partition, before, {"orders": 3, "rates": 1}, ["rates"], stateful=stateful) == before


def test_a_stream_that_is_gone_leaves_its_tasks_standing_where_they_have_state():
    before = group(by_partition, {"orders": 2, "users": 1})
    assert plain(regroup(by_partition, before, {"users": 1}, stateful=True)) == {
        "Partition 0": ["users:0"],
        "Partition 1": [],
    }
    assert plain(regroup(by_partition, before, {"users": 1}, stateful=False)) == {"Partition 0": ["users:0"]}


def test_a_stream_that_is_new_to_a_job_with_state_fits_into_its_tasks():
    before = regroup(by_partition, group(by_partition, {"orders": 2}), {"orders": 4}, stateful=True)
    after = regroup(by_partition, before, {"orders": 4, "few": 1, "same": 2, "many": 4}, stateful=True)
    assert plain(after) == {
        "Partition 0": ["few:0", "many:0", "many:2", "orders:0", "orders:2", "same:0"],
        "Partition 1": ["many:1", "many:3", "orders:1", "orders:3", "same:1"],
    }


@pytest.mark.parametrize(
    ("grouper", "partitions", "stateful", "why"),
    [
        (by_partition, {"orders": 3}, True, "grew from 2 to 3 partitions; a job with state can follow only a multiple"),
        (by_partition, {"orders": 1}, True, "'orders' had 2 partitions and now has 1; a stream cannot shrink"),
        (by_partition, {"orders": 1}, False, "a stream cannot shrink"),
        (by_partition, {"orders": 2, "new": 3}, True, "'new' has 3 partitions, and the job has state in 2 tasks"),
        (by_stream_partition, {"orders": 2, "new": 2}, True, "the job has state in 2 tasks, whose number is fixed"),
        (
            all_in_one,
            {"orders": 2},
            False,
            "partition 0 of 'orders' belongs to 'Partition 0', .* and would go to 'All'",
        ),
    ],
)
def test_every_other_change_is_refused_with_the_reason(grouper, partitions, stateful, why):
    with pytest.raises(DeclarationError, match=why):
        regroup(grouper, group(by_partition, {"orders": 2}), partitions, stateful=stateful)


def test_the_remedy_names_the_next_width_that_would_do():
    with pytest.raises(DeclarationError) as caught:
        regroup(by_partition, group(by_partition, {"orders": 4}), {"orders": 6}, stateful=True)
    assert caught.value.remedy.startswith("grow it to 8 partitions")


def test_an_input_that_is_broadcast_no_more_would_lose_its_positions():
    before = group(by_partition, {"orders": 2, "rates": 1}, ["rates"])
    for stateful in (True, False):
        with pytest.raises(
            DeclarationError, match="partition 0 of 'rates' belongs to 'Partition 0', where its position is kept"
        ):
            regroup(by_partition, before, {"orders": 2, "rates": 1}, stateful=stateful)


def test_an_input_that_becomes_broadcast_would_have_two_positions():
    before = group(by_partition, {"orders": 2, "rates": 1})
    with pytest.raises(DeclarationError, match="partition 0 of 'rates'"):
        regroup(by_partition, before, {"orders": 2, "rates": 1}, ["rates"], stateful=True)
