"""The port over Kafka tells headgate's own errors, also where aiokafka cancels a request by itself: nobody above would see it end."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from headgate.agents.cancellation import Unasked
from headgate.agents.kafka import probe as probing
from headgate.agents.kafka.consumer import KafkaConsumer
from headgate.agents.kafka.producer import GROWN_LOOKS, KafkaProducer
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.port.errors import NotSent, OutcomeUnknown, ProducerBroken
from headgate.core.errors import EnvironmentFault
from headgate.core.names import StreamPartition

pytestmark = pytest.mark.asyncio
AT = StreamPartition("in", 0)
CLIENT = ClientSettings("localhost:9")


async def torn_down(*_: Any, **__: Any) -> Any:
    """aiokafka cancels what waits for a connection that it closes."""
    raise asyncio.CancelledError


def made(client: ClientSettings, *, request_ms: int = 1000, transaction_ms: int = 1000) -> KafkaProducer:
    return KafkaProducer(
        client,
        "id",
        name="p",
        compression=None,
        batch_bytes=1000,
        request_timeout_ms=request_ms,
        transaction_timeout_ms=transaction_ms,
        idempotent=True,
    )


def producer(**calls: Any) -> KafkaProducer:
    one = made(CLIENT)
    names = ("begin_transaction", "send_batch", "commit_transaction", "abort_transaction")
    state: Any = SimpleNamespace(**dict.fromkeys(names, torn_down), _sender=None, _txn_manager=None, **calls)
    state.client = SimpleNamespace(cluster=SimpleNamespace(partitions_for_topic=lambda _: {AT.partition}))
    one.producer = state
    return one


async def test_what_a_producer_cancels_by_itself_is_an_error_of_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.agents.kafka.producer.cause_of_death", lambda _: None)
    monkeypatch.setattr("headgate.agents.kafka.producer.is_dead", lambda _: False)
    one = producer()
    with pytest.raises(ProducerBroken, match="cannot begin"):
        await one.begin()
    batch: Any = SimpleNamespace(batch=SimpleNamespace(close=lambda: None))
    with pytest.raises(NotSent):
        await one.send(AT, batch)
    with pytest.raises(OutcomeUnknown):
        await one.commit()
    with pytest.raises(ProducerBroken, match="not aborted"):
        await one.abort()


async def test_a_partition_that_is_new_is_looked_for_before_a_send_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has not heard of it yet is asked again, a few times."""
    monkeypatch.setattr("headgate.agents.kafka.producer.GROWN_S", 0.0)
    one: Any = producer()
    known, asked, more_at = [{7}], [0], [3]

    async def metadata() -> None:
        asked[0] += 1
        if asked[0] == more_at[0]:
            known[0] = {7, AT.partition}

    one.producer.client = SimpleNamespace(
        cluster=SimpleNamespace(partitions_for_topic=lambda _: known[0]), force_metadata_update=metadata
    )
    batch: Any = SimpleNamespace(batch=SimpleNamespace(close=lambda: None))
    with pytest.raises(NotSent):
        await one.send(AT, batch)
    assert asked[0] == 3
    known[0], asked[0], more_at[0] = {7}, 0, 0
    with pytest.raises(NotSent):
        await one.send(AT, batch)
    assert asked[0] == GROWN_LOOKS


async def test_an_error_is_asked_for_although_the_caller_has_given_up() -> None:
    """A clean stop logged "Future exception was never retrieved", of the heartbeat that was under way."""
    sent: list[asyncio.Future[Any]] = [asyncio.get_running_loop().create_future()]

    async def sends(*_: Any, **__: Any) -> Any:
        return sent[0]

    one: Any = producer()
    one.producer.send_batch = sends
    batch: Any = SimpleNamespace(batch=SimpleNamespace(close=lambda: None))
    (await one.send(AT, batch)).cancel()
    sent[0].set_exception(KafkaError("the producer is discarded"))
    await asyncio.sleep(0)
    logged: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
    sent.clear()
    gc.collect()
    assert logged == []


@pytest.mark.parametrize("where", ["bootstrap", "start"])
async def test_a_start_that_a_producer_cancels_by_itself_has_failed(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The id of a leader could not be initialised, and its worker ended."""
    one = KafkaProducer(
        CLIENT,
        "id",
        name="p",
        compression=None,
        batch_bytes=1000,
        request_timeout_ms=1000,
        transaction_timeout_ms=1000,
        idempotent=True,
    )

    async def nothing() -> None: ...

    def make() -> AIOKafkaProducer:
        made = AIOKafkaProducer(bootstrap_servers="localhost:9")
        monkeypatch.setattr(made.client, "bootstrap", torn_down if where == "bootstrap" else nothing)
        monkeypatch.setattr(made, "start", torn_down)
        return made

    monkeypatch.setattr(one, "_make", make)
    with pytest.raises(EnvironmentFault if where == "bootstrap" else ProducerBroken):
        await one.start(deadline_s=0.3 if where == "bootstrap" else 60)
    assert one.producer is None


@pytest.mark.kafka
async def test_a_transaction_timeout_that_brokers_do_not_allow_is_named(kafka: Any) -> None:
    """How large the setting may be only the brokers know. A worker that they refused tried again and again, without a word
    about the setting."""
    one = made(ClientSettings(kafka.bootstrap), request_ms=60_000, transaction_ms=3_600_000)
    with pytest.raises(ProducerBroken, match=r"InvalidTransactionTimeout.*lower transaction.timeout, or raise"):
        await one.start(deadline_s=60)
    assert one.producer is None


async def test_what_a_consumer_cancels_by_itself_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    one = KafkaConsumer(CLIENT, lambda *_: None, name="c", fetch_bytes=1, max_wait_ms=1, raw=False)
    client: Any = SimpleNamespace(beginning_offsets=torn_down, end_offsets=torn_down)
    one.consumer, one._take = client, torn_down
    monkeypatch.setattr("headgate.agents.kafka.consumer.client_of", lambda _: None)
    monkeypatch.setattr("headgate.agents.kafka.consumer.ask_ids", torn_down)
    assert await one.bounds(AT, within_s=5.0) is None
    assert await one.topic_id_now("in", within_s=5.0) == ""
    with pytest.raises(Unasked, match="reading"):
        await one.take()


async def test_what_a_probe_cancels_by_itself_is_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def started(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(client=None, stop=torn_down)

    monkeypatch.setattr(probing, "started", started)
    monkeypatch.setattr(probing, "_asked", torn_down)
    assert "was cancelled" in await probing.probe(CLIENT, "id", AT, narrower=False)
