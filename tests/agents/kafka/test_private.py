"""The contract with aiokafka's private side: this fails when aiokafka changes what the hot path leans on."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import aiokafka
import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.producer.transaction_manager import TransactionManager
from aiokafka.record.memory_records import MemoryRecords

from headgate.agents.kafka import contract as rawcontract
from headgate.agents.kafka import private as rawkafka
from headgate.agents.kafka.record_batch import Builder
from headgate.agents.records.kafka.writable import record_size


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


@pytest.mark.asyncio
async def test_a_partition_that_is_resumed_as_a_fetch_ends_is_fetched_at_once() -> None:
    """Between the end of a fetch and the callback that removes its node, the fetcher took the node for busy, and waited for its timeout."""
    loop = asyncio.get_running_loop()
    asked: list[list[int]] = []
    answers: list[asyncio.Future[Any]] = []

    async def send(node: int, request: Any) -> Any:
        asked.append(sorted(partition for _, partitions in request.topics for partition, *_ in partitions))
        answers.append(loop.create_future())
        return await answers[-1]

    cluster = SimpleNamespace(leader_for_partition=lambda tp: 1, broker_metadata=lambda node: node)
    client: Any = SimpleNamespace(_loop=loop, _metadata_max_age_ms=1000, cluster=cluster, send=send)
    subscriptions = SubscriptionState()
    one, two = TopicPartition("t", 1), TopicPartition("t", 2)
    subscriptions.assign_from_user([one, two])
    for tp in (one, two):
        subscriptions.subscription.assignment.state_value(tp).seek(0)
    subscriptions.pause(two)
    fetcher: Any = Fetcher(client, subscriptions, fetcher_timeout=3600.0)
    consumer: Any = SimpleNamespace(_client=client, _fetcher=fetcher)
    client.force_metadata_update = None
    try:
        rawkafka.observe(consumer, lambda at, answer: None)
        await turns_until(lambda: asked == [[1]])
        loop.call_soon(answers[0].set_result, SimpleNamespace(API_VERSION=4, topics=[]))
        subscriptions.resume(two)
        await turns_until(lambda: any(2 in partitions for partitions in asked))
    finally:
        await fetcher.close()


async def turns_until(condition: Any) -> None:
    for _ in range(100):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come to hold")
