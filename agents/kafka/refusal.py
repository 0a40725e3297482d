"""Keeps a broker's reasons for rejecting a batch. aiokafka drops which record was meant, and every error code that it does not know.

Promises: the broker's latest error for each partition is kept, whatever the code. If the broker speaks version 8 of the request, the error
names the records. Nothing here can fail a request that would otherwise be answered.
"""

from __future__ import annotations

import contextlib
from typing import Any, cast

from aiokafka import AIOKafkaProducer
from aiokafka.protocol.produce import ProduceRequest, ProduceRequest_v8

from ...core.names import StreamPartition
from ..port.errors import Refusal
from ..records.kafka.plain_records import records_of


def hear_refusals(client: Any) -> None:
    """Make the client keep the broker's latest error for each partition, with the rejected records."""
    send, refusals = client.send, dict[tuple[str, int], Refusal]()

    async def heard(node_id: Any, request: Any, **options: Any) -> Any:
        if type(request) is not ProduceRequest:
            return await send(node_id, request, **options)
        patched: Any = request
        patched._CLASSES = _PRODUCE  # a broker that speaks version 8 names the records
        response = await send(node_id, request, **options)
        for topic, partitions in getattr(response, "topics", ()):
            for partition, code, *rest in partitions:
                if code:
                    refusals[topic, partition] = _refusal(patched, topic, partition, code, rest)
        return response

    client.send, client.headgate_refusals = heard, refusals


_PRODUCE: Any = (*cast("Any", ProduceRequest)._CLASSES, ProduceRequest_v8)


def _refusal(request: Any, topic: str, partition: int, code: int, rest: list[Any]) -> Refusal:
    said, why = (rest[3] or [], rest[4] or "") if len(rest) > 4 else ([], "")
    records = tuple(index for index, _ in said)
    why = next((text for _, text in said if text), "") or why
    if not records:
        return Refusal(code, why)
    sent = dict(dict(request._topics).get(topic, ())).get(partition, b"")
    return Refusal(code, why, records, _shown(bytes(sent), records[0]))


def _shown(batch: bytes, index: int) -> str:
    """Key and timestamp of one record of a batch, for people."""
    with contextlib.suppress(Exception):  # the broker's reason matters more than the record's description
        record = list(records_of(batch, 0, len(batch)))[index]
        key = record.key if record.key is None else bytes(record.key)[:80]
        return f"key {key!r}, timestamp {record.timestamp}"
    return ""


def refusal_of(producer: AIOKafkaProducer, at: StreamPartition) -> Refusal | None:
    """The broker's latest error for this partition, if there was one."""
    any_client: Any = producer.client
    return getattr(any_client, "headgate_refusals", {}).get((at.stream, at.partition))
