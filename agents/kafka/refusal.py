"""What a broker says of a batch that it does not take: aiokafka keeps neither which record it was nor a code that it does not know.

Promises: the broker's last words on each partition are kept, whatever the code; where it speaks version 8 of the request, they name the
records. Nothing of this can fail a request that would have been answered.
"""

from __future__ import annotations

import contextlib
from typing import Any, cast

import aiokafka.consumer.fetcher as fetcher_module
from aiokafka import AIOKafkaProducer
from aiokafka.protocol.produce import ProduceRequest, ProduceRequest_v8

from ...core.names import StreamPartition
from ..port.errors import Refusal

_memory_records: Any = getattr(fetcher_module, "MemoryRecords", None)


def hear_refusals(client: Any) -> None:
    """aiokafka forgets which record it was, and every code that it does not know: keep the broker's last words on each partition."""
    send, refusals = client.send, dict[tuple[str, int], Refusal]()

    async def heard(node_id: Any, request: Any, **options: Any) -> Any:
        if type(request) is not ProduceRequest:
            return await send(node_id, request, **options)
        patched: Any = request
        patched._CLASSES = _PRODUCE  # where the broker speaks version 8, it names the records
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
    """Key and time of one record of a batch, for people."""
    with contextlib.suppress(Exception):  # the words of a refusal are worth more than what it speaks of
        record = list(_memory_records(batch).next_batch())[index]
        key = record.key if record.key is None else bytes(record.key)[:80]
        return f"key {key!r}, timestamp {record.timestamp}"
    return ""


def refusal_of(producer: AIOKafkaProducer, at: StreamPartition) -> Refusal | None:
    """What the broker said of the last batch for this partition that it did not take."""
    any_client: Any = producer.client
    return getattr(any_client, "headgate_refusals", {}).get((at.stream, at.partition))
