"""What the broker says of offsets: ends of logs, and what `newest`, `oldest` or a time mean in a partition, now."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from ..core import task_events as t
from ..core.graph import Graph
from ..core.names import StreamPartition
from .clients import ClientSettings
from .connect import closed, retried, started

DAY_MS = 86_400_000
LOG_DELETE_RETENTION_MS = 7 * DAY_MS
Bound = Any


class Offsets:
    """Two consumers that never fetch: one sees committed ends, the other all."""

    def __init__(self, client: ClientSettings) -> None:
        self.client = client
        self._committed: Any = None
        self._all: Any = None

    async def start(self) -> None:
        """Connect."""
        for attribute, level in (("_committed", "read_committed"), ("_all", "read_uncommitted")):
            options = self.client.consumer(isolation_level=level, enable_auto_commit=False, auto_offset_reset="none")
            setattr(self, attribute, await started(partial(AIOKafkaConsumer, **options), "offsets"))

    async def stop(self) -> None:
        """Close."""
        for consumer in (self._committed, self._all):
            if consumer is not None:
                await closed(consumer.stop)

    async def log_ends(self, at: StreamPartition) -> tuple[int, int, int]:
        """Start, end (open transactions included) and tombstone retention of a task log's partition."""
        tp = TopicPartition(*at)
        start = await retried(partial(self._all.beginning_offsets, [tp]), f"start of {at}")
        end = await retried(partial(self._all.end_offsets, [tp]), f"end of {at}")
        return start[tp], end[tp], LOG_DELETE_RETENTION_MS

    async def bound(self, at: StreamPartition, bound: Bound) -> int:
        """The offset that a bound means now. A time beyond the last record is the end."""
        tp = TopicPartition(*at)
        if isinstance(bound, int):
            return bound
        if bound == "oldest":
            return (await retried(partial(self._all.beginning_offsets, [tp]), f"start of {at}"))[tp]
        if bound == "newest":
            return (await retried(partial(self._committed.end_offsets, [tp]), f"end of {at}"))[tp]
        kind, ms = bound
        assert kind == "time"
        found = (await retried(partial(self._all.offsets_for_times, {tp: ms}), f"time in {at}"))[tp]
        return found.offset if found is not None else await self.bound(at, "newest")

    async def resolve(self, order: t.Resolve) -> t.Resolved:
        """All that a task asked for."""
        positions = {at: await self.bound(at, bound) for at, bound in order.positions.items()}
        until = {at: await self.bound(at, bound) for at, bound in order.until.items()}
        ends = {at: await self.bound(at, "newest") for at in sorted(order.ends)}
        return t.Resolved(order.request, positions, until, ends)

    async def run_bounds(
        self, graph: Graph, counts: Mapping[str, int]
    ) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
        """Where the inputs of a new run start and end, for those whose bounds must be asked."""
        starts: dict[str, tuple[int, ...]] = {}
        untils: dict[str, tuple[int, ...]] = {}
        for one in graph.inputs:
            partitions = [StreamPartition(one.stream, n) for n in range(counts.get(one.stream, 0))]
            if one.start != "oldest":
                bound: Bound = one.start if isinstance(one.start, str) else ("time", one.start)
                starts[one.stream] = tuple([await self.bound(at, bound) for at in partitions])
            if one.until is not None and one.until != "producers":
                untils[one.stream] = tuple([await self._until(at, one.until) for at in partitions])
        return starts, untils

    async def _until(self, at: StreamPartition, until: Any) -> int:
        if isinstance(until, tuple):
            return dict(until).get(at.partition, 0)
        return await self.bound(at, ("time", until) if isinstance(until, int) else until)
