"""Rows of vectors, spans as vectors, vectors joined, keys by partition: both ways give the same, and refuse what makes no sense."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.agents.records.kafka.partitioner import Partitioner
from headgate.agents.records.layout import longs
from headgate.agents.records.memory.record_spans import RecordSpans, packed, pieces
from headgate.agents.records.memory.taking import join, spans_of, take, take_spans
from headgate.agents.records.memory.vectors import Vector
from headgate.agents.records.native import chosen

needs_compiler = pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")
VALUES = {
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "text": st.text(max_size=5),
}
ANY = st.sampled_from(sorted(VALUES)).flatmap(
    lambda kind: st.tuples(st.just(kind), st.lists(st.lists(st.none() | VALUES[kind], max_size=20), min_size=1))
)


@pytest.fixture(params=[pytest.param(True, marks=needs_compiler), False], ids=["compiled", "plain"])
def way(request, monkeypatch):
    """Each test runs with both."""
    if not request.param:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)


def q(*numbers):
    return array("q", numbers)


@pytest.mark.usefixtures("way")
@given(ANY, st.data())
def test_rows_and_whole_vectors(drawn, data):
    """Rows in any order and as often as wanted; parts of any length one behind the other."""
    kind, parts = drawn
    vectors = [Vector.of(kind, part) for part in parts]
    whole = [value for part in parts for value in part]
    joined = join(vectors)
    assert (joined.values(), joined.nulls, joined.length) == (whole, whole.count(None), len(whole))
    wanted = data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=20)) if whole else []
    taken = take(joined, q(*wanted))
    assert (taken.values(), taken.nulls, taken.length) == (
        [whole[row] for row in wanted],
        [whole[row] for row in wanted].count(None),
        len(wanted),
    )
    assert (taken.validity is None) == (taken.nulls == 0)
    assert take(joined, None) is joined


BYTES = st.lists(st.none() | st.binary(max_size=5), max_size=20)


@pytest.mark.usefixtures("way")
@given(BYTES, st.data(), st.integers(1, 9))
def test_bytes_and_their_partitions(parts, data, partitions):
    """Bytes become vectors and spans again; keys are split as lists of keys are."""
    spans = packed(parts)
    assert pieces(spans_of(take_spans(spans))) == parts
    rows = data.draw(st.lists(st.integers(0, len(parts) - 1), max_size=20, unique=True)) if parts else []
    assert pieces(spans_of(take_spans(spans, q(*rows)))) == [parts[row] for row in rows]
    for picked, keys in ((None, parts), (q(*rows), [parts[row] for row in rows])):
        one, other = Partitioner(partitions), Partitioner(partitions)
        for _ in range(2):  # keys that are null take the next partition each time
            found = [longs(part).tolist() for part in one.split_spans(spans, picked)]
            own = list(range(len(parts))) if picked is None else rows
            assert found == [[own[at] for at in part] for part in other.split(list(keys))]


TEXT = Vector.of("text", ["a", "bc"])
REFUSED = {
    "a row behind the end": lambda: take(Vector.of("int64", [1]), q(1)),
    "a row before the start": lambda: take(TEXT, q(-1)),
    "a text behind its data": lambda: take(Vector("text", 2, b"a", TEXT.offsets), q(1)),
    "texts that go back": lambda: spans_of(Vector("text", 2, b"abc", array("i", [0, 2, 1]))),
    "a text before its data": lambda: spans_of(Vector("text", 1, b"abc", array("i", [-1, 1]))),
    "a vector that is too short": lambda: take(Vector("int64", 2, b"12345678"), q(1)),
    "a span behind the end": lambda: take_spans(RecordSpans(b"abc", q(1), q(3))),
    "a span before the start": lambda: take_spans(RecordSpans(b"abc", q(-1), q(1))),
    "a row of no span": lambda: take_spans(RecordSpans(b"abc", q(1), q(1)), q(1)),
    "a key of no sense": lambda: Partitioner(3).split_spans(RecordSpans(b"abc", q(9), q(1))),
    "a row without a key": lambda: Partitioner(3).split_spans(RecordSpans(b"abc", q(0), q(1)), q(0, 1)),
    "several kinds": lambda: join([TEXT, Vector.of("bool", [True])]),
    "nothing": lambda: join([]),
}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused(case):
    with pytest.raises((ValueError, IndexError)):
        REFUSED[case]()
