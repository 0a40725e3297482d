"""Which of a job's rights this user lacks, as the brokers say it, before anything needs them.

Topics say what may be done with them; whether the transactional ids may be used is tried with one that no worker has. Promises:
nothing is created but the entry of that id, which the broker forgets by itself; one question for all topics, so that every missing right is
learned at once.

A topic that does not exist has no rights of its own yet. Whether it may be created is known only to who tries. Of the group it is only
known whether it is visible.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.errors import GroupAuthorizationFailedError, TransactionalIdAuthorizationFailed, for_code
from aiokafka.protocol.transaction import InitProducerIdRequest

from ...core.graph.rights import GROUP, TOPIC, Right
from .connect import CONNECT_S, closed, retried, started
from .settings import ClientSettings
from .topic_ids import ask_operations

BITS = {"Read": 3, "Write": 4, "Create": 5, "Delete": 6, "Alter": 7, "Describe": 8, "DescribeConfigs": 10}
"""Kafka's codes of operations."""
UNKNOWN_TOPIC = 3
PROBE_MS = 10_000


async def lacking(client: ClientSettings, wanted: Iterable[Right], *, deadline_s: float = CONNECT_S) -> list[Right]:
    """The rights that are missing, each for one name."""
    rights = [replace(right, names=(name,)) for right in wanted for name in right.names]
    producer = await started(
        lambda: AIOKafkaProducer(**client.producer(enable_idempotence=False)), "rights", deadline_s=deadline_s
    )
    try:
        of_topics = [one for one in rights if one.resource == TOPIC]
        found = await _of_topics(producer.client, of_topics)
        for one in rights:
            if one.resource == GROUP:
                found += await _of_group(client, one, deadline_s)
            elif one.resource != TOPIC and not await _may_write_in_transactions(producer.client, one.names[0]):
                found.append(one)
        return found
    finally:
        await closed(producer.stop)


async def _of_topics(client: AIOKafkaClient, rights: list[Right]) -> list[Right]:
    bits, errors = await ask_operations(client, {one.names[0] for one in rights})
    if bits is None:
        return []
    found: list[Right] = []
    for one in rights:
        (name,) = one.names
        if errors.get(name) == UNKNOWN_TOPIC:
            continue
        allowed = bits.get(name, 0)
        lacks = tuple(each for each in one.operations if not allowed >> BITS[each] & 1)
        if name in bits:
            lacks = tuple(each for each in lacks if each != "Create")  # it is there
        if lacks:
            found.append(replace(one, operations=lacks))
    return found


async def _of_group(client: ClientSettings, right: Right, deadline_s: float) -> list[Right]:
    admin = await started(
        lambda: AIOKafkaAdminClient(**client.admin()), "rights of the group", deadline_s=deadline_s, close="close"
    )
    try:
        names = list(right.names)
        (answer,) = await retried(lambda: admin.describe_consumer_groups(names), "the group", deadline_s=deadline_s)
    except GroupAuthorizationFailedError:
        return [right]
    finally:
        await closed(admin.close)
    return [right] if any(for_code(group[0]) is GroupAuthorizationFailedError for group in answer.groups) else []


async def _may_write_in_transactions(client: AIOKafkaClient, prefix: str) -> bool:
    identity = f"{prefix}worker.doctor.probe"
    try:
        node = await retried(
            lambda: client.coordinator_lookup(CoordinationType.TRANSACTION, identity),
            "transactional ids",
            deadline_s=CONNECT_S,
        )
        request = InitProducerIdRequest(identity, PROBE_MS)
        answer: Any = await client.send(node, request, group=ConnectionGroup.COORDINATION)
    except TransactionalIdAuthorizationFailed:
        return False
    return for_code(answer.error_code) is not TransactionalIdAuthorizationFailed
