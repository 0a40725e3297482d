"""The contract with aiokafka's private side: this fails when aiokafka changes what the hot path leans on."""

from __future__ import annotations

import aiokafka
import pytest
from aiokafka.producer.transaction_manager import TransactionManager
from aiokafka.record.memory_records import MemoryRecords

from headgate.agents.kafka import contract as rawcontract
from headgate.agents.kafka import private as rawkafka
from headgate.agents.kafka.record_batch import Builder
from headgate.agents.records.writable import record_size


def test_aiokafka_is_as_the_hot_path_needs_it():
    """Every private name that is leaned on, and what it must say. A change shows here, and the plain paths take over."""
    assert rawcontract.shortcomings() == []
    assert aiokafka.__version__.startswith("0.14.")


def test_a_change_is_noticed(monkeypatch):
    """As if a new version had renamed them."""
    monkeypatch.delattr("aiokafka.consumer.fetcher.FetchResult")
    monkeypatch.setattr(TransactionManager, "increment_sequence_number", lambda self, tp, n: None)
    told = rawcontract.shortcomings()
    assert "aiokafka.consumer.fetcher.FetchResult is gone" in told
    assert any("increment_sequence_number no longer says" in line for line in told)


def records_of(builder):
    """The records of a built batch, read by aiokafka's parser."""
    builder.batch._set_producer_state(1, 0, 0)
    return list(MemoryRecords(bytes(builder.batch._build())).next_batch())


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_both_builders_build_the_same(codec, plain, monkeypatch):
    """Columns in, records out, whichever path and codec."""
    monkeypatch.setattr(rawcontract, "SHORTCOMINGS", ["pretended"] if plain else [])
    builder = Builder(1 << 16, codec, transactional=True)
    assert builder.add([b"k", None], [b"a", None], [5, 6], [[("h", b"1")], []], 0) == 2
    assert builder.add(None, [b"b", b"c", b"d"], 7, None, 1) == 3
    records = records_of(builder)
    assert [(r.key, r.value, r.timestamp) for r in records] == [
        (b"k", b"a", 5),
        (None, None, 6),
        (None, b"c", 7),
        (None, b"d", 7),
    ]
    assert [list(r.headers) for r in records] == [[("h", b"1")], [], [], []]
    assert [r.offset for r in records] == [0, 1, 2, 3]
    assert builder.batch.record_count() == builder.count == 4


@pytest.mark.parametrize("plain", [False, True])
def test_a_full_batch_says_where_it_stopped(plain, monkeypatch):
    """And a single record larger than the batch goes alone."""
    monkeypatch.setattr(rawcontract, "SHORTCOMINGS", ["pretended"] if plain else [])
    builder = Builder(1000, None, transactional=False)
    stopped = builder.add(None, [b"x" * 100] * 20, 1, None, 0)
    assert 0 < stopped < 20
    assert builder.count == stopped
    assert builder.size <= 1000
    assert builder.add([b"k"] * 20, [b"x" * 100] * 20, [1] * 20, None, stopped) == stopped
    alone = Builder(1000, None, transactional=False)
    assert alone.add(None, [b"x" * 5000, b"y"], 1, None, 0) == 1
    assert len(records_of(alone)) == 1


def test_the_size_of_a_record_is_never_underestimated():
    """What is refused before sending must cover what would be sent."""
    for key, value, headers in ((None, b"", ()), (b"k" * 300, b"v" * 70_000, [("name", b"x" * 200), ("n", None)])):
        builder = Builder(1 << 20, None, transactional=True)
        builder.add([key], [value], 2**40, [list(headers)], 0)
        builder.batch._set_producer_state(2**40, 5, 2**30)
        assert len(builder.batch._build()) <= record_size(key, value, headers)


def test_metadata_requests_of_ours_create_nothing():
    """Only within the context that our clients start in."""
    with rawkafka.quiet_metadata():
        assert rawkafka._metadata_request(["t"])._allow_auto_topic_creation is False
    assert rawkafka._metadata_request(["t"])._allow_auto_topic_creation is None
