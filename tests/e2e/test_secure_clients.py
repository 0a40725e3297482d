"""TLS, SASL and permissions: the settings that a user types, on a secure broker, and what a revoked permission looks like."""

from __future__ import annotations

import asyncio
import time
import uuid

import pytest

from headgate.agents.broker.acls import Acl
from headgate.agents.kafka.port import KafkaPort
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.kafka.topics import TopicsAdmin, TopicSpec
from headgate.agents.port.errors import TargetFailed
from headgate.agents.runtime.reading.intake import Intake, PartitionSource
from headgate.core.errors import EnvironmentFault
from headgate.core.names import StreamPartition

from .commits import committed
from .scenes import client_of, outbox_on

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio, pytest.mark.slow]


async def made(client):
    """A topic of this test."""
    name = f"safe-{uuid.uuid4().hex[:8]}"
    topics = TopicsAdmin(client)
    await topics.start()
    await topics.ensure([TopicSpec(name, 1)])
    await topics.stop()
    return name


def emit(outbox, topic, value, task="t"):
    buffer = outbox.buffer(task)
    buffer.emit(topic, 0, None, [value], 1)
    buffer.complete()


async def test_records_go_in_and_out_over_tls_and_sasl(secure_kafka):
    """Admin client, producer and consumer, with the settings that `kafka up --secure` writes."""
    client = client_of(secure_kafka)
    assert client.given["security.protocol"] == "SASL_SSL"
    assert all(
        value not in repr(client) for name, value in client.given.items() if "password" in name or "jaas" in name
    )
    name = await made(client)
    async with outbox_on(client, name, name) as outbox:
        emit(outbox, name, b"secret")
        await committed(outbox)
    at = StreamPartition(name, 0)
    intake = Intake(KafkaPort(client), [PartitionSource(at, 0)], name="t", max_wait_ms=50)
    await intake.start()
    give_up = time.monotonic() + 240
    while (chunk := intake.take(at, 1)) is None and time.monotonic() < give_up:
        await intake.fill(0.2)
    await intake.stop()
    assert chunk is not None
    assert chunk.values == [b"secret"]


async def test_a_revoked_right_is_said_with_its_remedy(secure_kafka):
    """Writing is forbidden while the worker runs: the target and its tasks are named; reading is forbidden: the partition says so."""
    client = client_of(secure_kafka)
    name, other = await made(client), await made(client)
    at = StreamPartition(name, 0)
    deny = [Acl("app", "topic", name, operation, allow=False) for operation in ("write", "read")]
    intake = Intake(KafkaPort(client), [PartitionSource(at, 0)], name="t", max_wait_ms=50)
    await intake.start()
    try:
        async with outbox_on(client, name, name, other) as outbox:
            emit(outbox, name, b"1")
            await committed(outbox)
            await asyncio.to_thread(secure_kafka.allow, *deny)
            emit(outbox, other, b"1", task="innocent")
            emit(outbox, name, b"2", task="guilty")
            with pytest.raises(TargetFailed) as failed:
                await asyncio.wait_for(committed(outbox), 240)
            assert (failed.value.target, failed.value.tasks) == (at, {"guilty", "t"})  # t wrote to it before
            assert f"grant WRITE on the topic {name}" in failed.value.remedy
        give_up = time.monotonic() + 240
        while "READ" not in (intake.head(at).degraded or "") and time.monotonic() < give_up:
            await intake.fill(0.2)
            intake.take(at, 10)
        assert "grant READ on the topic" in (intake.head(at).degraded or "")
    finally:
        await intake.stop()
        await asyncio.to_thread(secure_kafka.disallow, *deny)


async def test_a_client_certificate_lets_in_and_nothing_else_does(secure_kafka):
    """mTLS: the listener of the owner asks for a certificate. With it a topic is made; without it the connection is closed."""
    at = f"127.0.0.1:{secure_kafka.identity.ports[0].admin}"
    trusted = ["security.protocol=SSL", f"ssl.truststore.location={secure_kafka.secrets}/ca.pem"]
    name = await made(ClientSettings.parse(at, [*trusted, f"ssl.keystore.location={secure_kafka.secrets}/admin.pem"]))
    assert name.startswith("safe-")
    topics = TopicsAdmin(ClientSettings.parse(at, trusted))
    with pytest.raises(EnvironmentFault, match="no broker accepted the connection"):
        await topics.start(deadline_s=8)
