"""The embedded broker through real clients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaProducer

from headgate.agents.broker.broker import Broker

pytestmark = pytest.mark.kafka


@pytest.mark.asyncio
async def test_a_client_produces_to_a_topic_of_its_own(kafka: Broker, topic: Callable[..., str]) -> None:
    """The first thing that anybody does."""
    name = topic("orders", partitions=2)
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap)
    await producer.start()
    try:
        sent = await producer.send_and_wait(name, b"hello", partition=1)
    finally:
        await producer.stop()
    assert (sent.topic, sent.partition, sent.offset) == (name, 1, 0)
