"""The partitioner agrees with Kafka's Java client."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import murmur2 as slow_murmur2
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.agents.records.kafka.partitioner import Partitioner, partition_of
from headgate.agents.records.native.plain.spans import murmur2

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
    assert murmur2(key) == slow_murmur2(key)
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
