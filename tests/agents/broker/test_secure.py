"""TLS, SCRAM and permissions, with certificates that are good for one data directory only."""

from __future__ import annotations

import ssl
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, SaslAuthenticationFailed, TopicAuthorizationFailedError

from headgate.agents.broker import acls
from headgate.agents.broker.acls import Acl
from headgate.agents.broker.broker import Broker
from headgate.agents.broker.secrets import USERS, passwords

from ...conftest import READY_S

pytestmark = pytest.mark.kafka


def settings(
    broker: Broker, user: str, password: str | None = None, mechanism: str = "SCRAM-SHA-512"
) -> dict[str, Any]:
    """What aiokafka wants of this user."""
    assert broker.secrets is not None
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password or passwords(broker.secrets)[user],
        "ssl_context": ssl.create_default_context(cafile=str(broker.secrets / "ca.pem")),
    }


@pytest.fixture(scope="module")
def secure_kafka(guarded: Path) -> Iterator[Broker]:
    """One for this file, which kills it."""
    with Broker.start(guarded / "secure", secure=True, timeout_s=READY_S) as broker:
        yield broker


@pytest.fixture(scope="module")
def orders(secure_kafka: Broker) -> str:
    """A topic that `app` has made."""
    import asyncio

    async def make() -> None:
        admin = AIOKafkaAdminClient(**settings(secure_kafka, "app"))
        await admin.start()
        answer = await admin.create_topics([NewTopic("orders", 1, 1)])
        assert [error[1] for error in answer.topic_errors] == [0]
        await admin.close()

    asyncio.run(make())
    return "orders"


async def send(broker: Broker, topic: str, user: str, **more: Any) -> int:
    """One record, and its offset."""
    async with AIOKafkaProducer(**settings(broker, user), **more) as producer:
        return (await producer.send_and_wait(topic, b"x")).offset


@pytest.mark.asyncio
async def test_app_writes_in_transactions_and_reader_reads(secure_kafka: Broker, orders: str) -> None:
    """The two everyday users; one of them by the other mechanism."""
    async with AIOKafkaProducer(
        **settings(secure_kafka, "app", mechanism="SCRAM-SHA-256"), transactional_id="t"
    ) as producer:
        async with producer.transaction():
            await producer.send_and_wait(orders, b"x")
    async with AIOKafkaConsumer(**settings(secure_kafka, "reader"), isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition(orders, 0)])
        await consumer.seek_to_beginning()
        assert (await consumer.getone()).value == b"x"


@pytest.mark.asyncio
@pytest.mark.parametrize("user", ["reader", "stranger"])
async def test_who_may_not_write_is_refused(secure_kafka: Broker, orders: str, user: str) -> None:
    """Known, but without the permission."""
    with pytest.raises(TopicAuthorizationFailedError):
        await send(secure_kafka, orders, user)


@pytest.mark.asyncio
async def test_a_right_can_be_taken_away_and_given_back(secure_kafka: Broker, orders: str) -> None:
    """What a revoked permission does to a running job can be tried here."""
    ban = Acl("app", "topic", orders, "write", allow=False)
    assert await send(secure_kafka, orders, "app") >= 0
    secure_kafka.allow(ban)
    with pytest.raises(TopicAuthorizationFailedError):
        await send(secure_kafka, orders, "app")
    secure_kafka.disallow(ban)
    assert await send(secure_kafka, orders, "app") >= 0


def test_a_right_is_given_when_every_node_goes_by_it(
    secure_kafka: Broker, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer comes from the controller, and brokers read what it has written a moment later."""
    told = acls.applied
    looks: list[list[bool]] = []

    def behind(*asked: Any) -> list[bool]:
        looks.append(told(*asked))
        return [not looks[-1][0]] if len(looks) < 3 else looks[-1]

    monkeypatch.setattr(acls, "applied", behind)
    secure_kafka.allow(right := Acl("stranger", "topic", orders, "describe"))
    assert looks == [[True]] * 3
    looks.clear()
    secure_kafka.disallow(right)
    assert looks == [[False]] * 3


@pytest.mark.asyncio
async def test_a_wrong_password_is_refused(secure_kafka: Broker) -> None:
    """By its proper name."""
    with pytest.raises((SaslAuthenticationFailed, KafkaError)):
        async with AIOKafkaProducer(**settings(secure_kafka, "app", password="guess")):
            pytest.fail("came in")


@pytest.mark.asyncio
async def test_without_tls_no_one_comes_in(secure_kafka: Broker) -> None:
    """Plaintext against a TLS listener."""
    with pytest.raises(KafkaError):
        async with AIOKafkaProducer(bootstrap_servers=secure_kafka.bootstrap, request_timeout_ms=2000):
            pytest.fail("came in")


def test_secrets_are_for_their_owner_only(secure_kafka: Broker) -> None:
    """Certificates, keys, passwords, client settings."""
    assert secure_kafka.secrets is not None
    assert stat.S_IMODE(secure_kafka.secrets.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in secure_kafka.secrets.iterdir()}
    assert set(modes) == {"ca.pem", "broker.pem", "admin.pem", "users.json", *(f"{user}.properties" for user in USERS)}
    assert set(modes.values()) == {0o600}


def test_client_settings_are_written_for_every_user(secure_kafka: Broker) -> None:
    """A file to hand to any Kafka tool."""
    assert secure_kafka.secrets is not None
    lines = dict(line.split("=", 1) for line in (secure_kafka.secrets / "reader.properties").read_text().splitlines())
    assert lines == secure_kafka.client_settings("reader")
    assert (lines["bootstrap.servers"], lines["security.protocol"]) == (secure_kafka.bootstrap, "SASL_SSL")
    assert 'username="reader"' in lines["sasl.jaas.config"]


@pytest.mark.asyncio
async def test_users_and_rights_survive_kill_nine(secure_kafka: Broker, orders: str) -> None:
    """The last test of this file: the broker comes back with the same users."""
    secure_kafka.kill()
    secure_kafka.restart(timeout_s=READY_S)
    assert await send(secure_kafka, orders, "app") >= 0
    with pytest.raises(TopicAuthorizationFailedError):
        await send(secure_kafka, orders, "stranger")
