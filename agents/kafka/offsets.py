"""Looks up offsets: where logs start and end, and which offset a time has."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from ...core.names import StreamPartition
from .connect import closed, retried, started
from .private import client_of
from .settings import ClientSettings
from .topic_ids import ask_ids


class KafkaOffsets:
    """Two consumers that never fetch: one sees the committed ends, the other all."""

    def __init__(self, client: ClientSettings) -> None:
        self.client = client
        self._committed: Any = None
        self._all: Any = None

    async def start(self, *, deadline_s: float = 60.0) -> None:
        """Connect."""
        for attribute, level in (("_committed", "read_committed"), ("_all", "read_uncommitted")):
            options = self.client.consumer(isolation_level=level, enable_auto_commit=False, auto_offset_reset="none")
            setattr(
                self, attribute, await started(partial(AIOKafkaConsumer, **options), "offsets", deadline_s=deadline_s)
            )

    async def stop(self) -> None:
        """Close both."""
        for consumer in (self._committed, self._all):
            if consumer is not None:
                await closed(consumer.stop)

    async def start_of(self, at: StreamPartition) -> int:
        """See `port`."""
        tp = TopicPartition(*at)
        _ask_about(self._all, [at])
        return (await retried(partial(self._all.beginning_offsets, [tp]), f"start of {at}"))[tp]

    async def end_of(self, at: StreamPartition, *, committed: bool) -> int:
        """See `port`."""
        tp, asked = TopicPartition(*at), self._committed if committed else self._all
        _ask_about(asked, [at])
        return (await retried(partial(asked.end_offsets, [tp]), f"end of {at}"))[tp]

    async def committed_ends(self, of: Collection[StreamPartition]) -> dict[StreamPartition, int]:
        """`end_of` with `committed` for many partitions, with one request to each of their leaders."""
        _ask_about(self._committed, of)
        ask = partial(self._committed.end_offsets, [TopicPartition(*at) for at in of])
        return {StreamPartition(*tp): end for tp, end in (await retried(ask, f"ends of {len(of)} partitions")).items()}

    async def of_time(self, at: StreamPartition, ms: int) -> int | None:
        """See `port`."""
        tp = TopicPartition(*at)
        _ask_about(self._all, [at])
        found = (await retried(partial(self._all.offsets_for_times, {tp: ms}), f"time in {at}"))[tp]
        return None if found is None else found.offset

    async def topic_id(self, topic: str) -> str:
        """See `port`."""
        return (await retried(partial(ask_ids, client_of(self._all), [topic]), f"id of {topic}")).get(topic, "")


def _ask_about(consumer: AIOKafkaConsumer, of: Collection[StreamPartition]) -> None:
    """Have metadata of these topics requested. A lookup waits for what was requested, but for a topic that no one named it first sleeps."""
    client = client_of(consumer)
    for at in of:
        client.add_topic(at.stream)
