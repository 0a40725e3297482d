"""Reads the records of a topic for commands.

The ends are looked up once, at the start, so a scan ends even while others write. It joins no group, commits nothing, and does not create a
topic that does not exist. A batch that is too large once it is decompressed ends it, or is left out and named, if the command wants that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from ...core.errors import NotFound
from ...core.settings import offer
from ..records.kafka.columns import OversizedBatch
from .connect import CONNECT_S, closed, retried, started
from .settings import ClientSettings
from .topics import TopicsAdmin


async def width_of(client: ClientSettings, topic: str) -> int:
    """The number of partitions of a topic. Raises `NotFound` if the topic does not exist."""
    admin = TopicsAdmin(client)
    await admin.start(deadline_s=CONNECT_S)
    try:
        if (found := (await admin.find([topic])).get(topic)) is not None:
            return found.partitions
        internal = topic.startswith("__")
        there = [name for name in await admin.names() if internal or not name.startswith("__")]
    finally:
        await admin.stop()
    raise NotFound(
        f"there is no topic '{topic}' at {client.bootstrap}", remedy=offer(topic, there) or "it has no topics at all"
    )


async def scan_topic(
    client: ClientSettings,
    topic: str,
    *,
    partition: int | None = None,
    first: int | None = None,
    last: int | None = None,
    since_ms: int | None = None,
    committed: bool = True,
    follow: bool = False,
    left_out: Callable[[str], None] | None = None,
) -> AsyncIterator[Any]:
    """The records of a topic, in the order of each partition. `first`: the offset to start at; `last`: only so many records from the end of
    each partition; `since_ms`: from the first record of this time on; `follow`: continue behind the end without limit. `left_out` is called
    with of each batch that is left out because it is too large; without it, such a batch raises.
    """
    width = await width_of(client, topic)
    wanted = [TopicPartition(topic, n) for n in range(width) if partition in (None, n)]
    if not wanted:
        raise NotFound(f"'{topic}' has no partition {partition}", remedy=f"it has {width}, counted from 0")
    options = client.consumer(
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed" if committed else "read_uncommitted",
    )
    consumer = await started(partial_of(options), topic, deadline_s=CONNECT_S)
    try:
        consumer.assign(wanted)
        reads = _Reads(consumer, left_out)
        starts = await retried(lambda: consumer.beginning_offsets(wanted), topic, deadline_s=CONNECT_S)
        ends = await retried(lambda: consumer.end_offsets(wanted), topic, deadline_s=CONNECT_S)
        found: dict[TopicPartition, Any] = {}
        if since_ms is not None:
            times = dict.fromkeys(wanted, since_ms)
            found = await retried(lambda: consumer.offsets_for_times(times), topic, deadline_s=CONNECT_S)
        for at in wanted:
            start = starts[at] if first is None else max(starts[at], first)
            if since_ms is not None:
                start = ends[at] if found[at] is None else max(start, found[at].offset)
            consumer.seek(at, start)
            for record in [] if last is None else await _last(reads, at, start, ends[at], last):
                yield record
        left = {at for at in wanted if await consumer.position(at) < ends[at]}
        while left or follow:
            answer = await reads.more(*(wanted if follow else left))
            for at, records in answer.items():
                for record in records:
                    if follow or record.offset < ends[at]:
                        yield record
            if not follow:
                left = {at for at in left if await consumer.position(at) < ends[at]}
    finally:
        await closed(consumer.stop)


class _Reads:
    """The fetches of one scan."""

    def __init__(self, consumer: AIOKafkaConsumer, left_out: Callable[[str], None] | None) -> None:
        self.consumer = consumer
        self._left_out = left_out
        self._reported: set[str] = set()

    async def more(self, *wanted: TopicPartition) -> dict[TopicPartition, Any]:
        """The next records of these partitions; nothing, where a batch was left out."""
        before = {at: await self.consumer.position(at) for at in wanted}
        try:
            return await self.consumer.getmany(*wanted, timeout_ms=500)
        except OversizedBatch as error:
            if self._left_out is None or error.at is None:
                raise
            for at, position in before.items():  # what was taken of the others with it is lost
                self.consumer.seek(at, error.following if at == error.at else position)
            text = str(error.as_data(str(error.at), error.base))
            if text not in self._reported:
                self._reported.add(text)
                self._left_out(text)
            return {}


async def _last(reads: _Reads, at: TopicPartition, start: int, end: int, count: int) -> list[Any]:
    """The last records of a partition below its end. Offsets without records (the markers of transactions, what was compacted) do not
    count, so it looks back further until there are enough."""
    consumer = reads.consumer
    span, found = max(count, 1), list[Any]()
    while True:
        begin = max(start, end - span)
        consumer.seek(at, begin)
        found.clear()
        while await consumer.position(at) < end:
            for record in (await reads.more(at)).get(at, ()):
                if record.offset < end:
                    found.append(record)
        if len(found) >= count or begin == start:
            return found[-count:] if count else []
        span *= 4


def partial_of(options: dict[str, Any]) -> Any:
    """A function that makes consumers."""
    return partial(AIOKafkaConsumer, **options)
