"""The network of the tests does what its rules say, for requests of any client."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiokafka import AIOKafkaProducer

from .proxy import METADATA, PRODUCE, Proxy

pytestmark = pytest.mark.kafka


@pytest.mark.asyncio
async def test_clients_find_no_way_around_the_network_and_each_rule_disturbs_what_it_names(kafka, topic):
    """Cut requests and lost answers are repeated by the client, a delayed one is late, and the rest passes."""
    name = topic()
    with Proxy(kafka.bootstrap) as network:
        producer = AIOKafkaProducer(bootstrap_servers=network.bootstrap, enable_idempotence=True)
        await producer.start()
        try:
            assert {node.port for node in producer.client.cluster.brokers()} == {int(network.bootstrap.split(":")[1])}
            assert (await producer.send_and_wait(name, b"a", partition=0)).offset == 0
            cut = network.cut(PRODUCE)
            assert (await producer.send_and_wait(name, b"b", partition=0)).offset == 1
            lost = network.lose(PRODUCE)
            await producer.send_and_wait(name, b"c", partition=0)  # the broker knows the repetition
            assert cut.caught(0)
            assert lost.caught(0)
            network.delay(PRODUCE, 0.2, times=1)
            began = time.monotonic()
            assert (await producer.send_and_wait(name, b"d", partition=0)).offset == 3
            assert time.monotonic() - began >= 0.2
            network.away()
            late = asyncio.ensure_future(producer.send_and_wait(name, b"e", partition=0))  # noqa: TID251 - awaited below
            assert await asyncio.to_thread(network.refused.wait, 60)
            assert not late.done()
            network.back()
            assert (await late).offset == 4
            assert METADATA in network.seen
        finally:
            await producer.stop()
