"""The partitioner agrees with Kafka's Java client."""

from __future__ import annotations

from array import array

import pytest
from aiokafka.partitioner import murmur2 as slow_murmur2
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.agents.records.frames.framing import rows_in
from headgate.agents.records.kafka.partitioner import Partitioner, partition_of
from headgate.agents.records.native import chosen
from headgate.agents.records.native.plain.spans import murmur2
from headgate.core.progress import frames

needs_compiler = pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")

# from org.apache.kafka.common.utils.UtilsTest.testMurmur2
GOLDEN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_the_hashes_are_those_of_javas_own_test():
    """Golden vectors of Kafka's UtilsTest."""
    assert {key: (murmur2(key) + 2**31) % 2**32 - 2**31 for key in GOLDEN} == GOLDEN


@settings(deadline=None)
@given(st.binary(max_size=64), st.integers(1, 50))
def test_any_key_as_aiokafka(key, partitions):
    """aiokafka's slow loop is the reference for any length."""
    assert murmur2(key) == chosen.part.murmur2(key) == slow_murmur2(key)
    assert partition_of(key, partitions) == (slow_murmur2(key) & 0x7FFFFFFF) % partitions


@settings(deadline=None, max_examples=50)
@given(st.lists(st.one_of(st.none(), st.binary(max_size=4)), max_size=40), st.integers(1, 7))
def test_columns_as_one_by_one(keys, partitions):
    """A column gives what its keys give alone; records without a key stay together."""
    chooser = Partitioner(partitions)
    many = chooser.many(keys)
    assert [p for k, p in zip(keys, many, strict=True) if k is not None] == [
        partition_of(k, partitions) for k in keys if k is not None
    ]
    assert len({p for k, p in zip(keys, many, strict=True) if k is None}) <= 1
    assert chooser.many([k for k in keys if k is not None]) == [
        partition_of(k, partitions) for k in keys if k is not None
    ]
    split = Partitioner(partitions).split(keys)
    assert sorted(i for part in split for i in part) == list(range(len(keys)))


def test_what_is_remembered_is_bounded(monkeypatch):
    """A topic with endless keys must not fill the memory."""
    monkeypatch.setattr("headgate.agents.records.kafka.partitioner.REMEMBERED", 100)
    chooser = Partitioner(4)
    for n in range(1000):
        chooser.one(b"%d" % n)
    assert len(chooser._seen) <= 100
    assert chooser.one(None) in range(4)


def test_no_partitions_is_a_mistake():
    """Of the caller."""
    with pytest.raises(ValueError, match="at least one"):
        Partitioner(0)


TIMES = st.one_of(
    st.sampled_from([-(2**63), -(2**31), -(2**15), -128, -32, -1, 0, 127, 128, 255, 256, 2**16, 2**32, 2**63 - 1]),
    st.integers(-(2**63), 2**63 - 1),
)
BYTES = st.one_of(st.none(), st.binary(max_size=6), st.integers(250, 260).map(bytes), st.just(bytes(70_000)))


@needs_compiler
@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(BYTES, TIMES, BYTES), max_size=40),
    st.integers(1, 5),
    st.integers(1, 30),
    st.integers(1, 700),
    st.booleans(),
)
def test_frames_of_rows(rows, partitions, most_rows, most_bytes, known):
    """Both parts write the same frames, as `frames.encode` does: whole, within their bounds, and in the order of each partition."""
    keys, times, values = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    offsets = array("q", range(len(rows))) if known else None
    given_ = (keys, times, values, offsets, partitions, 0, most_rows, most_bytes, *frames.batch_ends(7))
    found, some_null = chosen.COMPILED.spread(*given_)
    assert (found, some_null) == chosen.PLAIN.spread(*given_)
    assert some_null == (None in keys)
    parts = Partitioner(partitions).split(keys) if None not in keys else None
    read = [[] for _ in range(partitions)]
    for partition, first_ms, body, own in found:
        frame = frames.decode(body)
        assert isinstance(frame, frames.BatchFrame)
        assert frames.encode(frame) == body
        assert rows_in(body) == frame
        assert (frame.plan, first_ms) == (7, frame.timestamps[0])
        sizes = [len(key or b"") + len(value or b"") for key, value in zip(frame.keys, frame.values, strict=True)]
        assert len(sizes) <= most_rows
        assert sum(sizes) <= most_bytes or len(sizes) == 1
        assert (own is None) == (not known)
        numbers = range(len(sizes)) if own is None else array("q", own)
        read[partition] += zip(frame.keys, frame.timestamps, frame.values, numbers, strict=True)
    assert sum(map(len, read)) == len(rows)
    if parts is not None and known:
        assert read == [[(*rows[at], at) for at in part] for part in parts]


@needs_compiler
@pytest.mark.parametrize(
    "column",
    [
        {"keys": ["a"]},
        {"values": [bytearray(b"v")]},
        {"times": [1.5]},
        {"times": [True]},
        {"times": [2**63]},
        {"times": []},
    ],
)
def test_rows_that_are_none_are_refused_by_both(column):
    """Whatever would be no frame for its readers."""
    columns = {"keys": [b"k"], "times": [1], "values": [b"v"], **column}
    for part in (chosen.COMPILED, chosen.PLAIN):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            part.spread(*columns.values(), None, 2, 0, 9, 99, b"", b"")


@needs_compiler
@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.tuples(BYTES, TIMES, BYTES), max_size=5), st.binary(max_size=9), st.integers(0, 99), st.integers(0, 40)
)
def test_whatever_is_read_as_rows_is_what_decode_reads(rows, damage, at, cut):
    """Bytes that are changed, cut or added are read by both parts as by `decode`, or left to it."""
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], []]
    body = frames.encode(frames.BatchFrame(*columns, None, 7))
    for data in (
        body[:at] + damage + body[at + len(damage) :],
        body[:at] + damage + body[at:],
        body[: max(0, len(body) - cut)],
        body + damage,
    ):
        found = []
        for part in (chosen.COMPILED, chosen.PLAIN):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(chosen, "part", part)
                found.append(rows_in(data))
        assert found[0] == found[1]
        if found[0] is not None:
            assert frames.decode(data) == found[0]
