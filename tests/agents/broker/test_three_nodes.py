"""Three brokers: everything three times, and one may go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from headgate.agents.broker.broker import Broker

from ...conftest import READY_S

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def cluster(guarded: Path) -> Iterator[Broker]:
    """Three nodes for this module."""
    with Broker.start(guarded / "three", nodes=3, timeout_s=240) as broker:
        yield broker


@pytest.mark.asyncio
async def test_one_of_three_may_be_killed(cluster: Broker) -> None:
    """Replication 3, min.isr 2: acknowledged by all, with one node gone, and nothing is lost when it is back."""
    assert len(cluster.pids()) == 3
    assert len(cluster.bootstrap.split(",")) == 3
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic("t", 3, 3)])
    async with asyncio.timeout(240):  # brokers learn of a topic one after the other
        while len((told := (await admin.describe_topics(["t"]))[0])["partitions"]) < 3:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
    assert sorted(len(partition["replicas"]) for partition in told["partitions"]) == [3, 3, 3]
    leader = next(partition["leader"] for partition in told["partitions"] if partition["partition"] == 0)
    await admin.close()
    async with AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap, acks="all", enable_idempotence=True, request_timeout_ms=240_000
    ) as producer:
        assert (await producer.send_and_wait("t", b"before", partition=0)).offset == 0
        cluster.kill(leader)
        assert len(cluster.pids()) == 2
        assert (await producer.send_and_wait("t", b"while", partition=0)).offset == 1
        cluster.restart(leader, timeout_s=READY_S)
        assert (await producer.send_and_wait("t", b"after", partition=0)).offset == 2
    async with AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        await consumer.seek_to_beginning()
        assert [(await consumer.getone()).value for _ in range(3)] == [b"before", b"while", b"after"]


def test_the_settings_say_three_and_two(cluster: Broker) -> None:
    """For the topics of users and for Kafka's own."""
    text = (cluster.data / "node-2/server.properties").read_text()
    wanted = ["default.replication.factor=3", "min.insync.replicas=2", "offsets.topic.replication.factor=3"]
    wanted += ["transaction.state.log.replication.factor=3", "transaction.state.log.min.isr=2"]
    assert [line for line in wanted if line not in text.splitlines()] == []
