"""Writes single records for a command: acknowledged by all replicas, idempotent, one after the other, without a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from ...core.errors import EnvironmentFault
from .connect import closed, started
from .settings import ClientSettings

SEND_S = 30.0


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
    options = client.producer(acks="all", enable_idempotence=True)
    producer = await started(partial(AIOKafkaProducer, **options), "producer", deadline_s=20.0)
    try:
        offsets: list[int] = []
        for one in records:
            sent = producer.send_and_wait(
                one.topic,
                key=one.key,
                value=one.value,
                partition=one.partition,
                timestamp_ms=one.timestamp_ms,
                headers=list(one.headers),
            )
            try:
                offsets.append((await asyncio.wait_for(sent, SEND_S)).offset)
            except (KafkaError, TimeoutError) as error:
                raise EnvironmentFault(
                    f"'{one.topic}' accepts no record: {error or f'nothing was answered for {SEND_S:g} s'}; "
                    f"{len(offsets)} earlier records remain written",
                    remedy="check that the topic exists and that this user may write to it, then write the rest again",
                ) from error
        return offsets
    finally:
        await closed(producer.stop)
