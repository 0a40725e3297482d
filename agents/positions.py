"""Offsets asked of the broker at this moment, and the job's positions published for other tools.

Promises:

- Ends are asked with ListOffsets, never taken from a fetch's high watermark, which may lag after a change of leader.
  `ends()` counts what is written, committed or not; `committed_ends()` what a read-committed reader can reach now.
- Positions are published by a consumer that belongs to the job's group and reads nothing, so that every lag tool works;
  nothing of headgate reads them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, KafkaTimeoutError, UnknownTopicOrPartitionError

from ..core.errors import EnvironmentFault
from ..core.names import StreamPartition
from .clients import ClientSettings
from .connect import started
from .rawkafka import quiet_metadata

Offsets = dict[StreamPartition, int]


def _plain(client: ClientSettings, isolation: str, **more: Any) -> AIOKafkaConsumer:
    given = client.consumer(
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level=isolation,
        client_id="headgate-offsets",
        **more,
    )
    return AIOKafkaConsumer(**given)


class OffsetReader:
    """Asks brokers for offsets. Two small consumers that read nothing, because the isolation is part of the question."""

    def __init__(self, client: ClientSettings, *, timeout_s: float = 30.0) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._written: AIOKafkaConsumer | None = None
        self._committed: AIOKafkaConsumer | None = None

    async def start(self, *, deadline_s: float = 60.0) -> None:
        """Connect; tries again while no broker answers."""
        timeout = {"request_timeout_ms": int(self._timeout_s * 1000)}
        with quiet_metadata():
            self._written = await started(
                lambda: _plain(self._client, "read_uncommitted", **timeout), "offsets", deadline_s=deadline_s
            )
            self._committed = await started(
                lambda: _plain(self._client, "read_committed", **timeout), "offsets", deadline_s=deadline_s
            )

    async def stop(self) -> None:
        """Close the connections."""
        for consumer in (self._written, self._committed):
            if consumer is not None:
                await consumer.stop()
        self._written = self._committed = None

    async def ends(self, at: Iterable[StreamPartition]) -> Offsets:
        """Behind the last record written, in whatever transaction."""
        return await self._ask(self._written, "end_offsets", at)

    async def committed_ends(self, at: Iterable[StreamPartition]) -> Offsets:
        """The last stable offset: behind the last record that a read-committed reader can reach now."""
        return await self._ask(self._committed, "end_offsets", at)

    async def starts(self, at: Iterable[StreamPartition]) -> Offsets:
        """The first offset that is still there."""
        return await self._ask(self._written, "beginning_offsets", at)

    async def at_times(self, at: Mapping[StreamPartition, int]) -> Offsets:
        """The first record at or after each time (ms); the end where there is none."""
        if not at:
            return {}
        consumer = self._opened(self._written)
        try:
            found = await consumer.offsets_for_times({TopicPartition(*one): ms for one, ms in at.items()})
        except KafkaError as error:
            raise self._unanswered(at, error) from error
        out = {StreamPartition(*tp): hit.offset for tp, hit in found.items() if hit is not None}
        missing = [one for one in at if one not in out]
        return {**out, **(await self.ends(missing) if missing else {})}

    def _opened(self, consumer: AIOKafkaConsumer | None) -> AIOKafkaConsumer:
        if consumer is None:
            raise EnvironmentFault("the reader of offsets is not started")
        return consumer

    async def _ask(self, consumer: AIOKafkaConsumer | None, what: str, at: Iterable[StreamPartition]) -> Offsets:
        wanted = [TopicPartition(*one) for one in at]
        if not wanted:
            return {}
        try:
            answered = await getattr(self._opened(consumer), what)(wanted)
        except KafkaError as error:
            raise self._unanswered(at, error) from error
        return {StreamPartition(*tp): offset for tp, offset in answered.items()}

    def _unanswered(self, at: Iterable[StreamPartition], error: KafkaError) -> EnvironmentFault:
        names = ", ".join(sorted({one.stream for one in at}))
        if isinstance(error, KafkaTimeoutError | UnknownTopicOrPartitionError):
            return EnvironmentFault(
                f"no broker told the offsets of {names} within {self._timeout_s:g} s",
                remedy="check that the topics exist and that their partitions have leaders",
            )
        return EnvironmentFault(
            f"the offsets of {names} cannot be asked: {error!r}", remedy="check the rights on the topics"
        )


class PositionPublisher:
    """Commits positions to a group that has no members."""

    def __init__(self, client: ClientSettings, group: str) -> None:
        self._client = client
        self._group = group
        self._consumer: AIOKafkaConsumer | None = None
        self._assigned: frozenset[TopicPartition] = frozenset()

    async def start(self, *, deadline_s: float = 60.0) -> None:
        """Connect."""
        with quiet_metadata():
            self._consumer = await started(
                lambda: _plain(self._client, "read_committed", group_id=self._group), "positions", deadline_s=deadline_s
            )

    async def stop(self) -> None:
        """Close the connection."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop()

    async def publish(self, positions: Mapping[StreamPartition, int]) -> None:
        """Let `kafka-consumer-groups --describe --group …` show them. Raises `EnvironmentFault`; nothing depends on it."""
        consumer = self._consumer
        if consumer is None:
            raise EnvironmentFault("the publisher of positions is not started")
        wanted = {TopicPartition(*at): offset for at, offset in positions.items()}
        if not wanted:
            return
        if not self._assigned.issuperset(wanted):
            self._assigned = self._assigned | frozenset(wanted)
            consumer.assign(list(self._assigned))
            for tp in self._assigned:  # no await in between: it must not fetch, and not ask where to begin
                consumer.seek(tp, 0)
                consumer.pause(tp)
        try:
            await consumer.commit(wanted)
        except KafkaError as error:
            raise EnvironmentFault(
                f"positions are not published to the group {self._group}: {error!r}",
                remedy="grant READ on the group and on its topics",
            ) from error
