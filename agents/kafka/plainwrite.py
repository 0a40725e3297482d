"""Writes single records for a command: acknowledged by all replicas, idempotent, in order, without a transaction."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.structs import RecordMetadata

from ...core.errors import EnvironmentFault
from .connect import closed, started
from .settings import ClientSettings

SEND_S = 30.0
IN_FLIGHT = 1000
"""How many records of a stream may wait for their acknowledgement."""


@dataclass(frozen=True, slots=True)
class Plain:
    """One record. If `partition` is None, the key decides."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str, bytes]] = ()


async def put(client: ClientSettings, records: Iterable[Plain]) -> list[int]:
    """Write the records in order and return their offsets. Records acknowledged before an error remain written."""
    offsets: list[int] = []
    await _put(client, _each(records), offsets, 1)
    return offsets


async def put_all(client: ClientSettings, records: AsyncIterator[Plain]) -> int:
    """Write many records, in order within each partition, and return their number. Records acknowledged before an error remain written."""
    offsets: list[int] = []
    await _put(client, records, offsets, IN_FLIGHT)
    return len(offsets)


async def _each(records: Iterable[Plain]) -> AsyncIterator[Plain]:
    for one in records:
        yield one


async def _put(client: ClientSettings, records: AsyncIterator[Plain], offsets: list[int], in_flight: int) -> None:
    options = client.producer(acks="all", enable_idempotence=True)
    producer = await started(partial(AIOKafkaProducer, **options), "producer", deadline_s=20.0)
    sent: deque[tuple[str, asyncio.Future[RecordMetadata]]] = deque()

    async def acknowledged(topic: str, future: asyncio.Future[RecordMetadata]) -> None:
        try:
            async with asyncio.timeout(SEND_S):
                offsets.append((await future).offset)
        except (KafkaError, TimeoutError) as error:
            raise _refused(topic, error, len(offsets)) from error

    try:
        try:
            async for one in records:
                try:
                    future = await producer.send(
                        one.topic,
                        key=one.key,
                        value=one.value,
                        partition=one.partition,
                        timestamp_ms=one.timestamp_ms,
                        headers=list(one.headers),
                    )
                except (KafkaError, TimeoutError) as error:
                    raise _refused(one.topic, error, len(offsets)) from error
                sent.append((one.topic, future))
                while len(sent) >= in_flight:
                    await acknowledged(*sent.popleft())
        finally:  # what was taken before a line that is wrong is written, too
            while sent:
                await acknowledged(*sent.popleft())
    finally:
        await closed(producer.stop)


def _refused(topic: str, error: Exception, written: int) -> EnvironmentFault:
    return EnvironmentFault(
        f"'{topic}' accepts no record: {error or f'nothing was answered for {SEND_S:g} s'}; "
        f"{written} earlier records remain written",
        remedy="check that the topic exists and that this user may write to it, then write the rest again",
    )
