"""With real partition counts a graph becomes widths, tasks and producers, or is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.errors import DeclarationError
from headgate.core.graph.graph import Graph, Input, Stage
from headgate.core.graph.grouping import all_in_one, by_partition, by_stream_partition, counts, frozen, owners_of
from headgate.core.graph.model import producer_sets
from headgate.core.graph.resolve import check_together, resolve, widths_of
from headgate.core.names import StreamPartition


def by(name, reads, **more):
    return Stage(name, "repartition", (reads,), by="k", writes=(name.upper(),), **more)


def window(reads, name="w"):
    return Stage(name, "window", (reads,), stateful=True)


def join(left, right):
    return Stage("j", "join", (left, right), stateful=True)


def widths(graph, tasks):
    return {stream: width for stream, width in counts(tasks).items() if stream in graph.writer}


def producers(graph, tasks):
    return {stream: one.tasks for stream, one in producer_sets(graph.fed, tasks, {}).items()}


def test_a_shuffle_is_as_wide_as_the_widest_input_behind_it():
    graph = Graph(
        (Input("a"), Input("b"), Input("r", broadcast=True)),
        (Stage("m", "merge", ("a", "b", "r")), by("x", "m"), by("y", "x")),
    )
    resolved = resolve(graph, {"a": 2, "b": 5, "r": 9, "unrelated": 7})
    assert counts(resolved) == {"X": 5, "Y": 5, "a": 2, "b": 5, "r": 9}


def test_a_width_that_was_given_counts_and_gather_and_broadcast_are_one_wide():
    graph = Graph(
        (Input("a"),),
        (
            by("x", "a", width=7),
            Stage("g", "gather", ("a",), writes=("G",)),
            Stage("n", "broadcast", ("a",), writes=("N",)),
        ),
    )
    resolved = resolve(graph, {"a": 2})
    assert widths(graph, resolved) == {"G": 1, "N": 1, "X": 7}
    assert [str(at) for at in resolved["Partition 6"]] == ["N:0", "X:6"]
    assert owners_of(resolved, "G") == {0: ("Partition 0",)}  # crc32(b"g") mod 7


def test_what_gathers_all_rows_is_no_business_of_a_grouper_and_stays_where_it_is():
    """Otherwise every gather of a job would be in its first task; and what it holds must not change its task when the job grows."""
    graph = Graph(
        (Input("a"),),
        (
            Stage("g", "gather", ("a",), writes=("G",)),
            Stage("h", "gather", ("a",), writes=("H",)),
            Stage("b", "batch", ("g", "h"), stateful=True),
        ),
    )
    seen: list[set[str]] = []

    def own(partitions, broadcast):
        seen.append(set(partitions))
        return by_stream_partition(partitions, broadcast)

    resolved = resolve(graph, {"a": 3}, grouper=own)
    assert seen == [{"a"}]
    assert (owners_of(resolved, "G"), owners_of(resolved, "H")) == ({0: ("a 1",)}, {0: ("a 0",)})
    elsewhere = dict(resolved)
    elsewhere["a 1"], elsewhere["a 2"] = resolved["a 1"][1:], (*resolved["a 2"], StreamPartition("G", 0))
    grown = resolve(graph, {"a": 6}, grouper=own, before=frozen(elsewhere))
    assert (owners_of(grown, "G"), owners_of(grown, "H")) == ({0: ("a 2",)}, {0: ("a 0",)})


def test_a_shuffle_takes_the_width_of_what_it_meets():
    graph = Graph((Input("a"), Input("b")), (by("x", "a"), join("x", "b")))
    assert widths(graph, resolve(graph, {"a": 2, "b": 6})) == {"X": 6}


def test_shuffles_that_meet_each_other_agree_on_the_widest():
    graph = Graph(
        (Input("a"), Input("b"), Input("c")), (by("x", "a"), by("y", "b"), by("z", "c"), join("x", "y"), window("z"))
    )
    assert widths(graph, resolve(graph, {"a": 2, "b": 6, "c": 3})) == {"X": 6, "Y": 6, "Z": 3}


def test_meetings_that_share_a_stream_are_one():
    graph = Graph(
        (Input("a"), Input("b"), Input("c")),
        (by("x", "a"), by("y", "b"), join("x", "y"), Stage("k", "join", ("y", "c"), stateful=True)),
    )
    assert widths(graph, resolve(graph, {"a": 1, "b": 1, "c": 4})) == {"X": 4, "Y": 4}


def test_producers_are_the_tasks_that_own_a_partition_upstream():
    graph = Graph(
        (Input("a"), Input("r", broadcast=True)),
        (Stage("t", "table", ("r",), stateful=True), by("x", "a", width=4), by("y", "x")),
    )
    resolved = resolve(graph, {"a": 2, "r": 1})
    assert producers(graph, resolved) == {
        "X": {"Partition 0", "Partition 1"},
        "Y": {f"Partition {n}" for n in range(4)},
    }


@given(
    st.integers(1, 8),
    st.integers(1, 8),
    st.booleans(),
    st.sampled_from([by_partition, by_stream_partition, all_in_one]),
)
@settings(deadline=None, max_examples=80)
def test_every_partition_upstream_has_a_producer(a, b, wide, grouper):
    """A stream that lacks a producer would end, or let time pass, before all that feeds it has been heard."""
    graph = Graph(
        (Input("a"), Input("b", broadcast=wide)),
        (Stage("m", "merge", ("a", "b")), by("x", "m"), by("y", "x"), Stage("g", "gather", ("y",), writes=("G",))),
    )
    resolved = resolve(graph, {"a": a, "b": b}, grouper=grouper)
    for stream, found in producers(graph, resolved).items():
        feeding = graph.upstreams(stream)
        assert found == {task for task, owned in resolved.items() if {at.stream for at in owned} & feeding}
    assert resolve(graph, {"b": b, "a": a}, grouper=grouper) == resolved


# -------------------------------------------------------------------------------------------------------- refusals


def test_a_join_of_different_widths_is_refused_and_in_one_task_it_is_not():
    graph = Graph((Input("a"), Input("b")), (join("a", "b"),))
    with pytest.raises(DeclarationError) as caught:
        resolve(graph, {"a": 2, "b": 4})
    assert caught.value.what == "'j' (join) needs 'a' and 'b' partitioned alike, but 'a' has 2 partitions and 'b' has 4"
    assert caught.value.remedy == (
        "put .repartition(…, partitions=4) after app.input('a'), "
        "or keep a copy of the table in every task: .table(…, broadcast=True)"
    )
    assert list(resolve(graph, {"a": 2, "b": 4}, grouper=all_in_one)) == ["All"]


@pytest.mark.parametrize(("x", "b", "wanted"), [(2, 6, 6), (6, 2, 2)])
def test_where_one_side_is_a_shuffle_its_own_width_is_the_remedy(x, b, wanted):
    graph = Graph((Input("a"), Input("b")), (by("x", "a", width=x), join("x", "b")))
    with pytest.raises(DeclarationError) as caught:
        resolve(graph, {"a": 2, "b": b})
    assert caught.value.remedy.startswith(f"say .repartition(…, partitions={wanted}) where 'x' is declared")


def test_a_merge_before_keyed_state_must_be_partitioned_alike_and_before_an_output_need_not():
    merge = Stage("m", "merge", ("a", "b"))
    counts = {"a": 2, "b": 3}
    assert resolve(Graph((Input("a"), Input("b")), (merge, Stage("to", "to", ("m",), writes=("o",)))), counts)
    with pytest.raises(DeclarationError, match=r"'w' \(window\) needs 'a' and 'b' partitioned alike"):
        resolve(Graph((Input("a"), Input("b")), (merge, window("m"))), counts)


def test_a_broadcast_table_needs_no_partitions_like_the_stream():
    graph = Graph(
        (Input("a"), Input("r", broadcast=True)), (Stage("t", "table", ("r",), stateful=True), join("a", "t"))
    )
    assert resolve(graph, {"a": 4, "r": 3})


def test_a_grouper_that_keeps_streams_apart_cannot_join_them():
    graph = Graph((Input("a"), Input("b")), (join("a", "b"),))
    with pytest.raises(DeclarationError, match="the grouper puts equal partitions of 'a' and 'b' into different tasks"):
        resolve(graph, {"a": 2, "b": 2}, grouper=by_stream_partition)
    merged = Graph((Input("a"), Input("b")), (Stage("m", "merge", ("a", "b")), window("m")))
    with pytest.raises(DeclarationError) as caught:
        resolve(merged, {"a": 2, "b": 2}, grouper=by_stream_partition)
    assert caught.value.remedy == "set grouper to 'partition' or 'all'"


def test_an_input_that_does_not_exist_is_named():
    with pytest.raises(DeclarationError, match="the input 'a' does not exist"):
        resolve(Graph((Input("a"),)), {"b": 1})


@pytest.mark.parametrize(
    ("until", "width", "what", "remedy"),
    [
        ({0: 5}, 3, "until= gives no end for partitions 1, 2; the topic has 3 partitions", "until='newest'"),
        ({1: 5}, 2, "until= gives no end for partition 0; the topic has 2 partitions", "0 to read nothing"),
        ({0: 5, 1: 5, 3: 5}, 2, "until= gives an end for partition 3; the topic has 2 partitions", "partitions 0 to 1"),
        ({0: 5, 1: 5, 2: 5}, 1, "until= gives an end for partitions 1, 2; the topic has 1 partition", "partition 0"),
        ({0: 5}, 50, "partitions 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, …;", "offset"),
    ],
)
def test_offsets_end_exactly_the_partitions_of_an_input(until, width, what, remedy):
    """A partition that was forgotten would be read without an end, or not at all, and nobody would know."""
    with pytest.raises(DeclarationError) as caught:
        resolve(Graph((Input("a", until=tuple(until.items())),)), {"a": width})
    assert caught.value.what.startswith("input('a'): ")
    assert what in caught.value.what
    assert remedy in caught.value.remedy


def test_offsets_for_every_partition_and_other_ends_are_taken():
    graph = Graph((Input("a", until=((0, 5), (1, 0))), Input("b", until="newest"), Input("c", until=17)))
    assert counts(resolve(graph, {"a": 2, "b": 3, "c": 4})) == {"a": 2, "b": 3, "c": 4}


# ---------------------------------------------------------------------------------------------------------- growth


def test_an_input_that_has_grown_still_meets_one_that_has_not():
    graph = Graph((Input("a"), Input("b")), (by("x", "a"), join("x", "b")))
    first = resolve(graph, {"a": 2, "b": 2})
    grown = resolve(graph, {"a": 6, "b": 4}, before=first)
    assert widths(graph, grown) == {"X": 2}
    assert list(grown) == list(first)
    assert owners_of(grown, "b")[3] == owners_of(grown, "X")[1]
    assert producers(graph, grown) == producers(graph, first)


def test_without_state_growth_makes_tasks_and_producers_but_widens_no_stream():
    graph = Graph((Input("a"),), (by("x", "a"),))
    first = resolve(graph, {"a": 2})
    grown = resolve(graph, {"a": 3}, before=first)
    assert widths(graph, grown) == {"X": 2}
    assert producers(graph, grown)["X"] == {"Partition 0", "Partition 1", "Partition 2"}


def test_a_width_cannot_be_changed_after_the_first_run():
    first = resolve(Graph((Input("a"),), (by("x", "a"), window("x"))), {"a": 2})
    with pytest.raises(DeclarationError, match="'x' has 2 partitions since the job's first run, and would now have 4"):
        resolve(Graph((Input("a"),), (by("x", "a", width=4), window("x"))), {"a": 2}, before=first)
    assert resolve(Graph((Input("a"),), (by("x", "a", width=2), window("x"))), {"a": 2}, before=first) == resolve(
        Graph((Input("a"),), (by("x", "a", width=2), window("x"))), {"a": 2}
    )


def test_widths_and_meetings_can_be_asked_for_without_resolving():
    graph = Graph((Input("a"), Input("b")), (by("x", "a"), join("x", "b")))
    assert widths_of(graph, {"a": 2, "b": 6}) == {"X": 6}
    check_together(graph, by_partition({"a": 2, "b": 6, "X": 6}, frozenset()))
    with pytest.raises(DeclarationError, match="'X' has 2 partitions and 'b' has 6"):
        check_together(graph, by_partition({"a": 2, "b": 6, "X": 2}, frozenset()))


def test_who_shares_a_stream_with_another_job_is_its_producer():
    graph = Graph((Input("a"),), (Stage("s", "share", ("a",), writes=("clean",)),))
    resolved = resolve(graph, {"a": 2})
    assert producers(graph, resolved) == {"clean": {"Partition 0", "Partition 1"}}


def test_a_topic_of_copies_may_be_made_again_with_fewer_partitions_and_every_task_still_names_it():
    """No position of a task depends on it; versions that read it in their tasks find it in the model."""
    stages = (Stage("t", "table", ("r",), stateful=True), Stage("j", "join", ("a", "t")))
    before = resolve(Graph((Input("a"), Input("r", broadcast=True)), stages), {"a": 2, "r": 3})
    copied = Graph((Input("a"), Input("r", broadcast=True, copied=True)), stages)
    assert resolve(copied, {"a": 2, "r": 3}, before=before) == before
    assert counts(resolve(copied, {"a": 2, "r": 1}, before=before)) == {"a": 2, "r": 1}
    assert counts(resolve(copied, {"a": 2, "r": 5}, before=before)) == {"a": 2, "r": 5}
    with pytest.raises(DeclarationError, match="cannot shrink"):
        resolve(Graph((Input("a"), Input("r", broadcast=True)), stages), {"a": 2, "r": 1}, before=before)


def test_a_sink_that_replaces_rows_needs_the_streams_that_meet_in_it_partitioned_alike():
    """Otherwise rows of one key go through two tasks. It may not matter, which the declaration can say."""
    graph = Graph(
        (Input("a", key="k"), Input("b", key="k")),
        (Stage("m", "merge", ("a", "b")), Stage("s", "deliver", ("m",), meets=True)),
    )
    resolve(graph, {"a": 2, "b": 2})
    with pytest.raises(DeclarationError, match=r"'s' \(deliver\) needs 'a' and 'b' partitioned alike") as caught:
        resolve(graph, {"a": 2, "b": 3})
    assert 'order="any"' in caught.value.remedy
