"""The port on a worker: Kafka through aiokafka, the clocks of this machine, threads."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ..core.machine import Now
from ..core.names import StreamPartition
from .clients import ClientSettings
from .fetched import Answer
from .kafka_consumer import KafkaConsumer
from .kafka_producer import KafkaProducer
from .port import Timer

R = TypeVar("R")


class WallClock:
    """The clocks of this machine."""

    def now(self) -> Now:
        """See `port`."""
        return Now(time.monotonic(), int(time.time() * 1000))

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> Timer:
        """See `port`."""
        return asyncio.get_running_loop().call_later(max(0.0, delay_s), callback, *args)

    async def wait(self, event: asyncio.Event, most_s: float | None) -> bool:
        """See `port`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await event.wait()
                return True
        return False


class KafkaPort:
    """Everything real."""

    silent = True

    def __init__(self, client: ClientSettings) -> None:
        self.client = client
        self.clock = WallClock()

    @property
    def where(self) -> str:
        """See `port`."""
        return self.client.bootstrap

    def producer(
        self,
        transactional_id: str | None,
        *,
        name: str,
        compression: str | None,
        batch_bytes: int,
        request_timeout_ms: int,
        transaction_timeout_ms: int,
    ) -> KafkaProducer:
        """See `port`."""
        return KafkaProducer(
            self.client,
            transactional_id,
            name=name,
            compression=compression,
            batch_bytes=batch_bytes,
            request_timeout_ms=request_timeout_ms,
            transaction_timeout_ms=transaction_timeout_ms,
        )

    def consumer(
        self,
        answered: Callable[[StreamPartition, Answer], None],
        *,
        name: str,
        fetch_bytes: int,
        max_wait_ms: int,
        raw: bool,
    ) -> KafkaConsumer:
        """See `port`."""
        return KafkaConsumer(
            self.client, answered, name=name, fetch_bytes=fetch_bytes, max_wait_ms=max_wait_ms, raw=raw
        )

    async def beside(self, work: Callable[[], R]) -> R:
        """See `port`."""
        return await asyncio.to_thread(work)
