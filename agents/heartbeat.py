"""Heartbeats: said and heard in a thread and event loop of their own, so that a busy actor is not a dead process.

Every second a worker says who it is, and how long ago its main loop last turned; a loop that is stuck shows in that number and
not as silence. What is heard, one's own beats included, goes to the main loop as events. Beats are worth nothing when they are
old: a producer that cannot send drops them, and nothing is ever retried.

Promise: whatever stands in the topic, it is passed. What is no heartbeat of this version is told as such, and the next one is heard.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import CorruptRecordException, KafkaError

from ..core.coordination.events import Beat, Heartbeat
from ..core.coordination.liveness import decode_beat, encode_beat
from ..core.errors import DataError
from .awaiting import passes
from .clients import ClientSettings
from .connect import closed, retried, started
from .rawkafka import reads_no_more

log = structlog.get_logger("headgate.heartbeat")


class Heartbeats:
    """The thread. `say()` is asked for each beat, in the thread: it must only read plain values."""

    def __init__(
        self,
        client: ClientSettings,
        topic: str,
        *,
        say: Callable[[], Heartbeat],
        heard: Callable[[Beat], None],
        unread: Callable[[str, int, int, str], None],
        interval_s: float = 1.0,
    ) -> None:
        self.client = client
        self.topic = topic
        self.say = say
        self.heard = heard
        self.unread = unread
        """Told of each record that is no heartbeat, on the main loop: topic, partition, offset, why."""
        self.interval_s = interval_s
        self._thread: threading.Thread | None = None
        self._own_loop: asyncio.AbstractEventLoop | None = None
        self._main_loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._ready = threading.Event()

    def start(self) -> None:
        """Start the thread; called from the main loop, which is where `heard` will be called."""
        self._main_loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="headgate-heartbeat", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """End the thread and its clients."""
        thread = self._thread
        if thread is None:
            return
        await asyncio.to_thread(self._ready.wait, 5.0)
        if self._own_loop is not None and self._stopping is not None:
            self._own_loop.call_soon_threadsafe(self._stopping.set)
        await asyncio.to_thread(thread.join, 10.0)

    def _run(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        self._own_loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._ready.set()
        async with asyncio.TaskGroup() as group:
            jobs = [group.create_task(self._speak()), group.create_task(self._listen())]
            await self._stopping.wait()
            for job in jobs:
                job.cancel()

    async def _speak(self) -> None:
        while True:
            producer = None
            try:
                options = self.client.producer(acks=1, request_timeout_ms=5_000)
                producer = await started(partial(AIOKafkaProducer, **options), "heartbeats", deadline_s=5.0)
                while True:
                    due = time.monotonic() + self.interval_s
                    await producer.send_and_wait(self.topic, value=encode_beat(self.say()), partition=0)
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
            except BaseException as error:  # a heartbeat thread that ends would look like a death
                if passes(error):
                    raise
                log.debug("heartbeat not sent", error=str(error))
                await asyncio.sleep(self.interval_s)
            finally:
                if producer is not None:
                    await closed(producer.stop)

    async def _listen(self) -> None:
        at = TopicPartition(self.topic, 0)
        position: int | None = None
        while True:
            consumer = None
            try:
                options = self.client.consumer(
                    enable_auto_commit=False, auto_offset_reset="none", fetch_max_wait_ms=500
                )
                consumer = await started(partial(AIOKafkaConsumer, **options), "heartbeats", deadline_s=5.0)
                consumer.assign([at])
                if position is None:
                    position = (await retried(partial(consumer.end_offsets, [at]), "heartbeats", deadline_s=5.0))[at]
                consumer.seek(at, position)
                while not reads_no_more(consumer):
                    answer = await consumer.getmany(at, timeout_ms=500)
                    for record in answer.get(at, []):
                        position = record.offset + 1
                        self._hand_over(record.offset, record.value)
            except KafkaError as error:
                if isinstance(error, CorruptRecordException) and position is not None:
                    self._on_main(self.unread, self.topic, 0, position, str(error))
                # the topic keeps an hour; whoever was away longer goes on from the present
                log.debug("heartbeats not read", error=str(error))
                position = None
                await asyncio.sleep(self.interval_s)
            except BaseException as error:  # see above
                if passes(error):
                    raise
                log.debug("heartbeats not read", error=str(error))
                await asyncio.sleep(self.interval_s)
            finally:
                if consumer is not None:
                    await closed(consumer.stop)

    def _hand_over(self, offset: int, value: bytes | None) -> None:
        try:
            beat = decode_beat(value)
        except DataError as error:
            self._on_main(self.unread, self.topic, 0, offset, str(error))
        else:
            self._on_main(self.heard, Beat(beat))

    def _on_main(self, tell: Callable[..., None], *said: object) -> None:
        if self._main_loop is not None and not self._main_loop.is_closed():
            self._main_loop.call_soon_threadsafe(partial(tell, *said))
