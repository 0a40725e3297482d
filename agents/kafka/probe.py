"""Tests whether a partition can be written now, without writing to it.

A partition is healthy if it has a leader and a broker adds it to a transaction, because that is when the broker checks the permission to
write. The probe uses a transaction of its own and aborts it at once, so readers see nothing and no other producer is affected.

Promises: it returns a reason, or an empty text if the partition can be written; it answers within `PATIENCE_S`; it creates nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    KafkaError,
    NodeNotReadyError,
    NoError,
    NotCoordinatorError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.protocol.transaction import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from ...core.names import StreamPartition
from ..cancellation import Unasked, answered
from ..port.outlasting import BrokerAway
from .connect import closed, started
from .private import leaderless, quiet_metadata
from .settings import ClientSettings

PATIENCE_S = 20.0
PAUSE_S = 0.1
TIMEOUT_MS = 10_000
"""How long a broker keeps a probe's transaction open if the prober dies."""
_WAIT = (
    ConcurrentTransactions,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NodeNotReadyError,
    NotCoordinatorError,
)


async def probe(client: ClientSettings, transactional_id: str, target: StreamPartition, *, narrower: bool) -> str:
    """Why this partition cannot be written; empty if it can.

    `narrower`: the topic may have been created again with fewer partitions. If this partition does not exist, the first one is tested.
    """
    try:
        async with asyncio.timeout(PATIENCE_S):
            options = client.producer(enable_idempotence=False)
            producer = await started(
                lambda: AIOKafkaProducer(**options), f"probe of {target}", deadline_s=PATIENCE_S / 2
            )
            try:
                with answered("the probe"):
                    return await _asked(producer.client, transactional_id, target, narrower)
            finally:
                await closed(producer.stop)
    except TimeoutError:
        return f"no answer for {PATIENCE_S:g} s"
    except (BrokerAway, Unasked) as error:
        return error.what
    except KafkaError as error:
        return repr(error)


async def _asked(client: AIOKafkaClient, transactional_id: str, target: StreamPartition, narrower: bool) -> str:
    with quiet_metadata():
        await client.add_topic(target.stream)
    known = client.cluster.partitions_for_topic(target.stream)
    if target.stream in client.cluster.unauthorized_topics:
        return f"no permission to see the topic {target.stream}"
    if not known:
        return f"the topic {target.stream} does not exist"
    partition = target.partition
    if partition not in known:
        if not narrower:
            return f"{target.stream} has {len(known)} partitions, but no partition {partition}"
        partition = 0
    at = StreamPartition(target.stream, partition)
    if leaderless(client, at):
        return f"{at} has no leader"
    return await _taken(client, transactional_id, at)


async def _taken(client: AIOKafkaClient, transactional_id: str, target: StreamPartition) -> str:
    """Add the partition to a transaction, and abort it."""
    begun = await _said(client, transactional_id, InitProducerIdRequest(transactional_id, TIMEOUT_MS))
    who = (transactional_id, begun.producer_id, begun.producer_epoch)
    try:
        await _said(client, transactional_id, AddPartitionsToTxnRequest(*who, [(target.stream, [target.partition])]))
    except TopicAuthorizationFailedError:
        return f"no permission to write to the topic {target.stream}"
    await _said(client, transactional_id, EndTxnRequest(*who, False))
    return ""


async def _said(client: AIOKafkaClient, transactional_id: str, request: Any) -> Any:
    """The answer of the transaction coordinator. Retries while the coordinator is not ready; raises any other error."""
    while True:
        try:
            node = await client.coordinator_lookup(CoordinationType.TRANSACTION, transactional_id)
            answer = await client.send(node, request, group=ConnectionGroup.COORDINATION)
            for code in _codes(answer):
                error = for_code(code)
                if error is not NoError:
                    raise error()
            return answer
        except _WAIT:
            await asyncio.sleep(PAUSE_S)


def _codes(answer: Any) -> list[int]:
    if hasattr(answer, "errors"):
        return [code for _, partitions in answer.errors for _, code in partitions]
    return [answer.error_code]
