"""The embedded broker through real clients: started, killed, stopped, in the way of others."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import UnknownTopicOrPartitionError

from headgate.agents.broker import broker as module
from headgate.agents.broker.broker import Broker, telling
from headgate.core.errors import EnvironmentFault

from ...conftest import READY_S

pytestmark = pytest.mark.kafka


async def produce(bootstrap: str, topic: str, values: list[bytes], **settings: Any) -> list[int]:
    """The offsets of acknowledged records."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", **settings) as producer:
        return [(await producer.send_and_wait(topic, value, partition=0)).offset for value in values]


async def values(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """What partition 0 holds from its beginning."""
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        return [(await consumer.getone()).value for _ in range(count)]


async def create(bootstrap: str, topic: str) -> None:
    """A topic of one partition."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1)])
    await admin.close()


@pytest.mark.asyncio
async def test_a_client_produces_to_a_topic_of_its_own(kafka: Broker, topic: Callable[..., str]) -> None:
    """The first thing that anybody does."""
    name = topic("orders", partitions=2)
    assert await produce(kafka.bootstrap, name, [b"hello"]) == [0]
    assert await values(kafka.bootstrap, name, 1) == [b"hello"]


@pytest.mark.asyncio
async def test_nothing_is_made_because_someone_asked_for_it(kafka: Broker) -> None:
    """A misspelt topic is an error, not a topic."""
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, request_timeout_ms=4000) as producer:
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.partitions_for("odrers")


@pytest.mark.asyncio
async def test_transactions_and_large_messages_work_on_one_node(kafka: Broker, topic: Callable[..., str]) -> None:
    """Aborted records are there, and are not read; seven megabytes pass."""
    name = topic()
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap, transactional_id=f"{name}-id", max_request_size=8_000_000
    )
    async with producer:
        await producer.begin_transaction()
        await producer.send_and_wait(name, b"aborted")
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait(name, b"x" * 7_000_000)
    async with AIOKafkaConsumer(
        name, bootstrap_servers=kafka.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        assert len((await consumer.getone()).value) == 7_000_000


def test_it_listens_on_loopback_only(kafka: Broker) -> None:
    """Nobody on the network reaches it."""
    listeners = [
        line
        for line in (kafka.data / "node-1/server.properties").read_text().splitlines()
        if line.startswith("listeners=")
    ]
    port = kafka.identity.ports[0]
    assert listeners == [f"listeners=PLAINTEXT://127.0.0.1:{port.client},CONTROLLER://127.0.0.1:{port.controller}"]


@pytest.mark.asyncio
async def test_what_was_acknowledged_survives_kill_nine(private_kafka: Broker) -> None:
    """The same port, the same records, and writing goes on."""
    await create(private_kafka.bootstrap, "t")
    assert await produce(private_kafka.bootstrap, "t", [b"a", b"b"]) == [0, 1]
    before = private_kafka.bootstrap
    private_kafka.kill()
    assert private_kafka.pids() == []
    private_kafka.restart(timeout_s=READY_S)
    assert await produce(private_kafka.bootstrap, "t", [b"c"]) == [2]
    assert private_kafka.bootstrap == before
    assert await values(private_kafka.bootstrap, "t", 3) == [b"a", b"b", b"c"]


@pytest.mark.asyncio
async def test_a_paused_broker_answers_no_one_until_it_is_resumed(private_kafka: Broker) -> None:
    """SIGSTOP: connections open, answers none."""
    private_kafka.pause()
    assert module.ask_cluster("127.0.0.1", private_kafka.identity.ports[0].client, timeout_s=0.3) is None
    private_kafka.resume()
    private_kafka._wait_ready([1], READY_S)


def test_a_directory_in_use_is_refused_and_the_user_of_it_lives(private_kafka: Broker) -> None:
    """The second `up`."""
    with pytest.raises(
        EnvironmentFault, match=f"a broker is already running in {private_kafka.data} .* at {private_kafka.bootstrap}"
    ):
        Broker.start(private_kafka.data)
    assert private_kafka.is_running()


def test_a_taken_port_is_an_error_before_anything_is_made(tmp_path: Path) -> None:
    """Somebody else serves there."""
    with socket.socket() as somebody:
        somebody.bind(("127.0.0.1", 0))
        somebody.listen()
        port = somebody.getsockname()[1]
        with pytest.raises(EnvironmentFault, match=rf"port {port} on 127\.0\.0\.1 is taken"):
            Broker.start(tmp_path / "new", port=port)
    assert list(tmp_path.iterdir()) == []


def test_a_start_that_does_not_become_ready_shows_its_log_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting that Kafka does not take."""
    right = module.server_properties
    monkeypatch.setattr(module, "server_properties", lambda *args: right(*args) + "node.id=minus one\n")
    with pytest.raises(EnvironmentFault) as caught:
        Broker.start(tmp_path / "new")
    assert "Kafka (node 1) exited during its start. From the end of its log" in caught.value.what
    assert "Invalid value minus one for configuration" in caught.value.what
    assert list(tmp_path.iterdir()) == []


def test_a_start_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """A deadline that no Java can hold; the directory was there before, and stays, empty."""
    with pytest.raises(EnvironmentFault, match=r"did not become ready within 0\.01 s"):
        Broker.start(tmp_path, timeout_s=0.01)
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_lost_between_choice_and_start_is_chosen_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody takes the free port in that moment."""
    right = module.choose_ports
    with socket.socket() as somebody:
        somebody.bind(("127.0.0.1", 0))
        somebody.listen()
        first = module.BrokerIdentity.new(1, False)
        lost = [module.replace(right(first, None)[0], client=somebody.getsockname()[1])]
        answers = [lost]
        monkeypatch.setattr(module, "choose_ports", lambda *args: answers.pop() if answers else right(*args))
        with Broker.start(tmp_path / "new") as broker:
            assert broker.is_running()
            assert broker.identity.ports != tuple(lost)
            ports = broker.identity.ports
    assert answers == []
    with (
        socket.socket() as asks,
        pytest.raises(ConnectionRefusedError),
    ):  # a connection of others may have the number by now
        asks.connect(("127.0.0.1", ports[0].client))


def test_the_end_of_a_log_says_first_what_went_wrong_first() -> None:
    """The error stands far above the end; stack traces are left out."""
    log = [
        "1 INFO  start",
        "2 ERROR broken",
        "java.lang.E: why",
        "\tat x.y(Z.java:1)",
        *(f"{n} INFO  down" for n in range(3, 30)),
    ]
    assert telling(log, keep=2) == ["2 ERROR broken", "…", "28 INFO  down", "29 INFO  down"]
    assert telling(["1 INFO  start"]) == ["1 INFO  start"]
