"""Publishes the job's positions for other tools.

A consumer that belongs to the job's group and reads nothing commits the positions, so that all lag tools work. headgate never reads them
back.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from ...core.errors import EnvironmentFault
from ...core.names import StreamPartition
from ..kafka.connect import CONNECT_S, closed, started
from ..kafka.private import quiet_metadata
from ..kafka.settings import ClientSettings


class PositionPublisher:
    """Commits positions to a group without members."""

    def __init__(self, client: ClientSettings, group: str) -> None:
        self._client = client
        self._group = group
        self._consumer: AIOKafkaConsumer | None = None
        self._assigned: frozenset[TopicPartition] = frozenset()

    async def _connected(self) -> AIOKafkaConsumer:
        with quiet_metadata():
            given = self._client.consumer(
                enable_auto_commit=False, auto_offset_reset="none", client_id="headgate-offsets", group_id=self._group
            )
            return await started(lambda: AIOKafkaConsumer(**given), "positions", deadline_s=CONNECT_S)

    async def stop(self) -> None:
        """Close the client."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await closed(consumer.stop)

    async def publish(self, positions: Mapping[StreamPartition, int]) -> None:
        """Make `kafka-consumer-groups --describe --group …` show these positions. Connects at the first call. Raises `EnvironmentFault`;
        nothing depends on it."""
        if self._consumer is None:
            self._consumer = await self._connected()
        consumer = self._consumer
        wanted = {TopicPartition(*at): offset for at, offset in positions.items()}
        if not wanted:
            return
        if not self._assigned.issuperset(wanted):
            self._assigned = self._assigned | frozenset(wanted)
            consumer.assign(list(self._assigned))
            for tp in self._assigned:  # no await after assign: the consumer must not fetch, nor look up where to begin
                consumer.seek(tp, 0)
                consumer.pause(tp)
        try:
            await consumer.commit(wanted)
        except KafkaError as error:
            raise EnvironmentFault(
                f"positions are not published to the group {self._group}: {error!r}",
                remedy="grant READ on the group and on its topics",
            ) from error
