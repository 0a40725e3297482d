"""Asking whether a target would take something now, without writing anything to it.

A partition is well when it has a leader and a broker takes it into a transaction, for that is where the permission to write is checked.
The transaction is one of the probe's own, and is aborted at once: no reader sees anything of it, and no producer of data is touched.

Promises: the answer is a reason, or nothing; it comes within `PATIENCE_S`; nothing is created by asking.
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
from ..port.outlasting import BrokerAway
from .connect import closed, started
from .private import leaderless, quiet_metadata
from .settings import ClientSettings

PATIENCE_S = 20.0
PAUSE_S = 0.1
TIMEOUT_MS = 10_000
"""How long a broker keeps a probe's transaction open, if the one who asks dies in the middle."""
_WAIT = (
    ConcurrentTransactions,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NodeNotReadyError,
    NotCoordinatorError,
)


async def probe(client: ClientSettings, transactional_id: str, target: StreamPartition, *, narrower: bool) -> str:
    """Why this partition cannot be written; nothing when it can.

    `narrower`: whether the topic may have come back with fewer partitions; then it is well when its first one is.
    """
    try:
        async with asyncio.timeout(PATIENCE_S):
            options = client.producer(enable_idempotence=False)
            producer = await started(
                lambda: AIOKafkaProducer(**options), f"probe of {target}", deadline_s=PATIENCE_S / 2
            )
            try:
                return await _asked(producer.client, transactional_id, target, narrower)
            finally:
                await closed(producer.stop)
    except TimeoutError:
        return f"no answer for {PATIENCE_S:g} s"
    except BrokerAway as error:
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
    """Take the partition into a transaction, and abort that."""
    begun = await _said(client, transactional_id, InitProducerIdRequest(transactional_id, TIMEOUT_MS))
    who = (transactional_id, begun.producer_id, begun.producer_epoch)
    try:
        await _said(client, transactional_id, AddPartitionsToTxnRequest(*who, [(target.stream, [target.partition])]))
    except TopicAuthorizationFailedError:
        return f"no permission to write to the topic {target.stream}"
    await _said(client, transactional_id, EndTxnRequest(*who, False))
    return ""


async def _said(client: AIOKafkaClient, transactional_id: str, request: Any) -> Any:
    """What the transaction's coordinator answers; asked again while it is only not ready. Raises what it refuses with."""
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
