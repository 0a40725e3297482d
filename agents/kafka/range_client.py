"""Fetches offset ranges outside of any task: for Spark's executors, and for what must be known of a range before it is read.

Promises:

- It reads committed records, from the leader, and never makes a broker create a topic.
- While no broker answers, or a partition has no leader, it retries until `PATIENCE_S`.
- Records that are gone are an error, `RangeGone`; every error is one of `core.batching.ranges`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    KafkaError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest

from ...core.batching.ranges import RangeAway, RangeBroken, gone
from ...core.names import StreamPartition
from ..port.outlasting import BrokerAway
from .connect import AWAY, CHECK, closed, plain, retried, started
from .private import quiet_metadata
from .settings import ClientSettings
from .topic_ids import ask_ids

RANGE_CLIENT = f"{__name__}:RangeClient"
"""The import path of the client, for executors."""
PATIENCE_S = 60.0
PAUSE_S = 0.1
WAIT_MS = 500
FETCH_BYTES = 8 << 20
"""The most bytes of a fetch answer; a record batch always comes whole."""
COMMITTED = 1
EARLIEST = -2


class RangeAnswer(NamedTuple):
    """A fetch answer for one partition."""

    raw: bytes
    aborted: tuple[tuple[int, int], ...]
    """Producer and first offset of each aborted transaction that the bytes may contain."""
    log_start: int


class _Client(AIOKafkaClient):
    """An aiokafka client with the methods that `started` uses."""

    async def start(self) -> None:
        """Connect."""
        await self.bootstrap()

    async def stop(self) -> None:
        """Close all connections."""
        await self.close()


class RangeClient:
    """Reads from the leaders of some partitions."""

    def __init__(self, bootstrap: str, given: Iterable[tuple[str, str]]) -> None:
        """The broker's address and the user's client settings, as plain data: they travel to executors."""
        self._settings = ClientSettings(bootstrap, dict(given))
        self._client: Any = None

    async def start(self) -> None:
        """Connect. Raises `RangeAway` if no broker answers."""
        try:
            self._client = await started(
                lambda: _Client(**self._settings.admin()), "the reader of ranges", deadline_s=PATIENCE_S
            )
        except BrokerAway as error:
            raise RangeAway(error.what, remedy=error.remedy) from error

    async def stop(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await closed(client.stop)

    async def brokers(self) -> list[str]:
        """The address of every broker, as the brokers advertise them."""
        with quiet_metadata():
            await self._client.force_metadata_update()
        return [f"{one.host}:{one.port}" for one in self._client.cluster.brokers()]

    async def fetch(self, topic: str, partition: int, offset: int) -> RangeAnswer:
        """What follows this offset: at least one batch. Raises `RangeGone` if the log does not contain the offset."""
        at = StreamPartition(topic, partition)

        def request() -> FetchRequest:
            return FetchRequest(WAIT_MS, 1, FETCH_BYTES, COMMITTED, [(topic, [(partition, offset, FETCH_BYTES)])])

        def read(version: int, found: Any) -> RangeAnswer | None:
            start, aborted = (found[4], found[5]) if version >= 5 else (-1, found[4])
            raw = bytes(found[-1] or b"")
            return RangeAnswer(raw, tuple((one[0], one[1]) for one in aborted or ()), start) if raw else None

        try:
            return await self._asked(at, request, read, f"records of {at} from offset {offset} on")
        except OffsetOutOfRangeError:
            raise gone(topic, partition, offset, await self.log_start(topic, partition)) from None

    async def log_start(self, topic: str, partition: int) -> int:
        """The first offset of the log."""
        at = StreamPartition(topic, partition)
        return await self._asked(
            at,
            lambda: OffsetRequest(-1, COMMITTED, [(topic, [(partition, EARLIEST)])]),
            lambda version, found: found[-1] if version else found[2][0],
            f"the start of {at}",
        )

    async def topic_id(self, topic: str) -> str:
        """The id of the topic as of now; empty if it is not known."""
        try:
            return (await retried(partial(ask_ids, self._client, [topic]), f"the id of {topic}")).get(topic, "")
        except BrokerAway as error:
            raise RangeAway(error.what, remedy=error.remedy) from error

    async def _asked(
        self, at: StreamPartition, request: Callable[[], Any], read: Callable[[int, Any], Any], what: str
    ) -> Any:
        """Ask the partition's leader until there is an answer. An error that no retry changes is raised."""
        loop = asyncio.get_running_loop()
        give_up, why = loop.time() + PATIENCE_S, "no answer yet"
        while loop.time() < give_up:
            try:
                response = await self._client.send(await self._leader(at), request())
                found = response.topics[0][1][0]
                error = for_code(found[1])
                if error is not None and found[1]:
                    raise error(str(at))
                if (answer := read(response.API_VERSION, found)) is not None:
                    return answer
                continue  # the broker has waited
            except TopicAuthorizationFailedError:
                raise RangeBroken(f"no permission to read {at.stream}; grant READ on the topic") from None
            except (*AWAY, KafkaError) as error:
                retriable = isinstance(error, (*AWAY, UnknownTopicOrPartitionError)) or getattr(error, "retriable", 0)
                if isinstance(error, OffsetOutOfRangeError):
                    raise
                if not retriable:
                    raise RangeBroken(f"{what}: {plain(error)}") from error
                why = plain(error)
            await asyncio.sleep(PAUSE_S)
            with quiet_metadata():
                await self._client.force_metadata_update()
        raise RangeAway(f"{what}: no broker returned them for {PATIENCE_S:g} s ({why})", remedy=CHECK)

    async def _leader(self, at: StreamPartition) -> int:
        """The node to ask. Raises `UnknownTopicOrPartitionError` while there is none."""
        tp = TopicPartition(*at)
        node = self._client.cluster.leader_for_partition(tp)
        if node in (None, -1):
            with quiet_metadata():
                await self._client.add_topic(at.stream)
            node = self._client.cluster.leader_for_partition(tp)
        if node in (None, -1):
            raise UnknownTopicOrPartitionError(f"{at} has no leader")
        return node
