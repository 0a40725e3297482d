"""The port on a worker: Kafka through aiokafka, the clocks of this machine, threads."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ...core.machine import Now
from ...core.names import StreamPartition
from ..port.broker_clock import BrokerClock
from ..port.port import Tell, Timer
from ..records.kafka.fetched import FetchAnswer
from .consumer import KafkaConsumer
from .probe import probe
from .producer import KafkaProducer
from .settings import ClientSettings

R = TypeVar("R")


class WallClock:
    """The clocks of this machine."""

    def now(self) -> Now:
        """See `port`."""
        return Now(time.monotonic(), int(time.time() * 1000))

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> Timer:
        """See `port`."""
        return asyncio.get_running_loop().call_later(max(0.0, delay_s), callback, *args)


class OwnThread:
    """Runs a coroutine in a thread with its own event loop. `tell` calls back into the loop in which this object was made."""

    def __init__(self, name: str, work: Callable[[Tell], Awaitable[None]]) -> None:
        self._work = work
        self._caller = asyncio.get_running_loop()
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), name=name, daemon=True)
        self._thread.start()

    async def _live(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        working = self._loop.create_task(self._worked(), name=self._thread.name)
        stopping = self._loop.create_task(self._stopping.wait(), name="stopping")
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        working.cancel()
        stopping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working

    async def _worked(self) -> None:
        await self._work(self._tell)

    def _tell(self, callback: Callable[..., None], *arguments: Any) -> None:
        if not self._caller.is_closed():
            self._caller.call_soon_threadsafe(callback, *arguments)

    async def stop(self) -> None:
        """See `port`. If the thread does not end in time, it is left behind; it is a daemon thread."""
        await asyncio.to_thread(self._ready.wait, 5.0)
        if self._loop is not None and self._stopping is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stopping.set)
        await asyncio.to_thread(self._thread.join, 10.0)


class KafkaPort:
    """The real surroundings: Kafka, clocks, threads."""

    silent = True

    def __init__(self, client: ClientSettings) -> None:
        self.client = client
        self.clock = WallClock()
        self.broker = BrokerClock()

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
        idempotent: bool = False,
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
            idempotent=idempotent,
        )

    def consumer(
        self,
        answered: Callable[[StreamPartition, FetchAnswer], None],
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

    async def probe(self, transactional_id: str, target: StreamPartition, *, narrower: bool) -> str:
        """See `port`."""
        return await probe(self.client, transactional_id, target, narrower=narrower)

    def apart(self, name: str, work: Callable[[Tell], Awaitable[None]]) -> OwnThread:
        """See `port`. Uses a thread with its own event loop."""
        return OwnThread(name, work)

    async def in_thread(self, work: Callable[[], R]) -> R:
        """See `port`."""
        return await asyncio.to_thread(work)
