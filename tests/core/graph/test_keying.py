"""How the keys of an input were spread, judged by a sample, and which streams can meet by key."""

from __future__ import annotations

import pytest

from headgate.core.errors import DeclarationError
from headgate.core.graph.graph import Graph, Input, Stage
from headgate.core.graph.keying import MOST, Sample, check_stated, disagreement, to_test

TABLE = Stage("t", "table", ("b",), stateful=True)
JOIN = Stage("j", "join", ("a", "t"), stateful=True)
JOINED = Graph((Input("a"), Input("b")), (TABLE, JOIN))


def sample(keys, *, murmur2=0, crc32=0, width=4, first=0):
    """So many distinct keys, of which so many are where each partitioner puts them."""
    made = Sample(width, (1,))
    names = [f"k{n}" for n in range(first, first + keys)]
    made.add(names, {"murmur2": [1] * murmur2 + [0] * (keys - murmur2), "crc32": [1] * crc32 + [0] * (keys - crc32)})
    return made


@pytest.mark.parametrize(
    ("keys", "murmur2", "crc32", "verdict"),
    [
        (0, 0, 0, "unknown"),
        (49, 49, 12, "unknown"),
        (50, 50, 12, "murmur2"),
        (50, 12, 50, "crc32"),
        (50, 49, 12, "unknown"),
        (100, 99, 25, "murmur2"),
        (199, 190, 50, "unknown"),
        (200, 197, 50, "other"),
        (50, 12, 13, "other"),
    ],
)
def test_fifty_keys_and_99_percent_of_them(keys, murmur2, crc32, verdict):
    """One stray among fifty waits for more keys; a spread that neither explains is known at once."""
    found = sample(keys, murmur2=murmur2, crc32=crc32)
    assert found.verdict == verdict
    assert found.decided == (verdict != "unknown")


def test_each_key_counts_once_and_no_more_are_taken_than_are_needed():
    found = sample(2, murmur2=2)
    assert found.new(["k1", "x", None, "x", "y"]) == ["x", "y"]
    assert len(found.new([f"n{n}" for n in range(1000)])) == MOST - 2
    assert found.elsewhere() == 0
    assert found.elsewhere("crc32") == 2


def test_a_key_belongs_here_if_it_belongs_to_any_partition_that_the_task_owns():
    """A task of a job whose input has grown owns several."""
    made = Sample(4, (1, 3))
    made.add(["a", "b", "c"], {"murmur2": [1, 3, 0], "crc32": [0, 0, 0]})
    assert made.agree == {"murmur2": 2, "crc32": 0}


def test_two_known_and_different_ones_do_not_meet():
    """22 of 40 keys of a join found nothing, and nothing said so."""
    error = disagreement(JOINED, {"a": sample(60, murmur2=60, crc32=15), "b": sample(60, murmur2=15, crc32=60)})
    assert error.what == (
        "'j' (join) combines streams that are partitioned differently: 'a' by murmur2 and 'b' by crc32; most equal keys would not meet"
    )
    assert error.remedy.startswith("put .repartition(…) after app.input('b'), write the topics with one partitioner")
    assert "app.input(…, partitioner=)" in error.remedy
    assert disagreement(JOINED, {"a": sample(60, murmur2=60), "b": sample(60, murmur2=60)}) is None


def test_what_is_spread_by_neither_meets_nothing_unless_its_user_says_how():
    samples = {"b": sample(60, murmur2=15, crc32=15)}
    error = disagreement(JOINED, samples)
    assert "'b' has keys in partitions that match neither murmur2 nor CRC32 for them" in error.what
    keyed = Graph((Input("a"), Input("b", key="id")), JOINED.stages)
    assert "neither murmur2 nor CRC32 for those of 'id'" in disagreement(keyed, samples).what
    both = {"a": sample(60), "b": sample(60)}
    assert disagreement(JOINED, both) is not None
    said = Graph((Input("a", partitioner="murmur2"), Input("b", partitioner="murmur2")), JOINED.stages)
    assert disagreement(said, both) is None


@pytest.mark.parametrize(
    ("a", "b", "apart"),
    [
        (sample(0), sample(0), False),
        (sample(60, murmur2=60), sample(0), False),
        (sample(60, murmur2=60), sample(2), False),
        (sample(60, murmur2=60), sample(10, murmur2=2, crc32=10), True),
        (sample(60, murmur2=60), sample(40, murmur2=37), False),
        (sample(10, murmur2=10, crc32=2), sample(10, murmur2=3, crc32=10), True),
        (sample(9, murmur2=9, crc32=2), sample(9, murmur2=3, crc32=9), False),
        (sample(10, murmur2=3, crc32=3), sample(10, murmur2=3, crc32=3), False),
    ],
)
def test_few_keys_go_on_until_they_contradict_plainly(a, b, apart):
    """Small topics of tests can be joined; what a handful of keys proves is not waited for."""
    assert (disagreement(JOINED, {"a": a, "b": b}) is not None) == apart


def test_our_own_streams_are_murmur2_and_a_single_input_needs_no_partner():
    shuffled = Graph((Input("a"), Input("b")), (Stage("x", "repartition", ("a",), by="k", writes=("X",)), TABLE, JOIN))
    shuffled = Graph(shuffled.inputs, (*shuffled.stages[:2], Stage("j", "join", ("x", "t"), stateful=True)))
    assert "'X' by murmur2" in disagreement(shuffled, {"b": sample(60, crc32=60)}).what
    alone = Graph((Input("a"),), (Stage("n", "agg", ("a",), stateful=True),))
    assert disagreement(alone, {"a": sample(60)}) is None


def test_what_is_said_to_be_different_is_refused_when_it_is_declared():
    said = Graph((Input("a", partitioner="crc32"), Input("b", partitioner="murmur2")), JOINED.stages)
    with pytest.raises(DeclarationError, match="'a' by crc32 and 'b' by murmur2"):
        check_stated(said)
    check_stated(JOINED)


def test_only_keys_that_matter_are_tested():
    assert to_test(JOINED) == {"a", "b"}
    assert to_test(Graph((Input("a"), Input("b", broadcast=True)), JOINED.stages)) == set()
    assert to_test(Graph((Input("a", key="k"),), (Stage("o", "to", ("a",), writes=("out",)),))) == {"a"}
