"""The producers of a worker: of its present incarnation, of `at_least_once`, and the questions to targets that failed.

What tasks write goes through these. An incarnation has one transactional producer, whose id is initialised once; when it dies, every
task drops what was not durable, the member hears which target it was and who wrote to it, and makes another incarnation.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

import structlog

from ..core import commit_events as ce
from ..core import member_words as mw
from ..core import task_events as t
from ..core.names import JobName, StreamPartition, TransactionalId, worker_id
from .clients import ClientSettings
from .committing import Committing
from .coordination import Coordination
from .declared import Declared
from .guarantee import SplitBuffer
from .job_topics import JobTopics
from .kafka_port import KafkaPort
from .outbox import Outbox, TaskBuffer
from .outbox_errors import OutboxError
from .probing import probe
from .services import Work
from .worker_options import WorkerOptions

if TYPE_CHECKING:
    from .task_actor import TaskActor

log = structlog.get_logger("headgate.worker")


class Producing:
    """A worker's part that owns its producers."""

    options: WorkerOptions
    declared: Declared
    job: JobName
    client: ClientSettings
    port: KafkaPort
    job_topics: JobTopics
    coordination: Coordination
    actors: dict[str, TaskActor]

    def __init__(self) -> None:
        self.committing: Committing | None = None
        self.outbox: Outbox | None = None
        self.direct: Outbox | None = None
        self.incarnation = ""
        self.careful: set[str] = set()
        """Tasks that hold nothing back for a commit any more, until this worker ends: one has failed on what they held."""
        self._probing = asyncio.Lock()
        """Probes share a transactional id, so they come one after the other."""

    if TYPE_CHECKING:  # the rest of the worker

        def actor(self, task: str) -> TaskActor | None: ...
        def crash(self, error: BaseException) -> None: ...
        def text(self, name: str) -> str: ...
        def seconds(self, name: str) -> float: ...
        def milliseconds(self, name: str) -> int: ...
        def _setting_or(self, name: str, otherwise: Any) -> Any: ...
        async def serve(self, name: str, work: Awaitable[None]) -> Work: ...

    # ------------------------------------------------------------------------------------------------- one incarnation

    async def init_producer(self, incarnation: str) -> None:
        """A producer for this incarnation: its id is initialised here, once."""
        await self._drop_producer()
        outbox = Outbox(
            self.port,
            worker_id(self.job, self.options.processor, incarnation),
            name=f"{self.job.slug}-{self.options.processor}",
            compression=self._codec(),
            transaction_timeout_ms=self.milliseconds("transaction.timeout"),
        )
        await self.job_topics.learn(outbox, self.coordination.member.job.model)
        await outbox.start()
        direct = await self._start_direct()
        self.incarnation = incarnation
        self.outbox, self.direct = outbox, direct
        self.committing = Committing(
            self,
            incarnation,
            outbox,
            interval_s=self.seconds("commit.interval"),
            timeout_s=self.seconds("transaction.timeout"),
            direct=direct,
        )
        for producer in (outbox, direct):
            if producer is not None:
                await self.serve(f"outbox {incarnation}", self._own_producer(producer, self.committing))

    async def _start_direct(self) -> Outbox | None:
        """The second producer of `at_least_once`."""
        if self.text("guarantee") != "at_least_once":
            return None
        direct = Outbox(
            self.port,
            None,
            name=f"{self.job.slug}-{self.options.processor}-direct",
            compression=self._codec(),
        )
        await self.job_topics.learn(direct, self.coordination.member.job.model)
        await direct.start()
        return direct

    async def _own_producer(self, outbox: Outbox, committing: Committing) -> None:
        try:
            await outbox.run()
        except OutboxError as error:
            if self.committing is committing:
                committing.failed(error)

    async def close_producer(self, incarnation: str) -> None:
        """This incarnation is over."""
        if incarnation == self.incarnation:
            await self._drop_producer()

    async def _drop_producer(self) -> None:
        producers, committing = (self.outbox, self.direct), self.committing
        self.outbox = self.direct = self.committing = None
        if committing is not None:
            committing.stop()
        for producer in producers:
            if producer is not None:
                await producer.stop()

    def incarnation_over(self, incarnation: str, order: ce.IncarnationOver) -> None:
        """The producer is dead: every task drops what was not durable; a new incarnation follows."""
        log.error("incarnation is over", incarnation=incarnation, why=order.why, kind=order.kind, target=order.target)
        for actor in list(self.actors.values()):
            actor.feed(t.CommitLost(order.why, blamed=actor.name in order.blamed))
        failed = tuple((task, order.why) for task in sorted(order.blamed))
        lost = mw.ProducerLost(incarnation, order.why, failed, _partition(order.target), order.refused)
        asyncio.get_running_loop().call_soon(self.coordination.feed_member, lost)

    async def probe(self, target: StreamPartition) -> str:
        """Why this target cannot be written now; nothing when it can, and then its width and limits are learnt again."""
        graph = self.declared.graph
        names = self.job_topics.names
        ours = target.stream in (names.log, names.dead_letters) or target.stream in graph.intermediates
        transactional_id = str(TransactionalId(self.job, self.options.processor, "probe"))
        async with self._probing:
            why = await probe(self.client, transactional_id, target, narrower=not ours)
        if not why:
            await self.learn(target.stream)
        return why

    # ------------------------------------------------------------------------------------------------ what tasks ask for

    def buffer(self, task: str) -> TaskBuffer | SplitBuffer:
        """A buffer of the present producer, or of both."""
        if self.outbox is None:
            raise RuntimeError(f"{task} was started without a producer")
        if self.direct is None:
            return self.outbox.buffer(task)
        fenced = self.declared.graph.intermediates
        return SplitBuffer(self.outbox.buffer(task), self.direct.buffer(task), fenced.__contains__)

    async def room(self) -> None:
        """Wait while too much is unsent: a broker that is away must not fill the memory."""
        for producer in (self.outbox, self.direct):
            if producer is not None:
                with contextlib.suppress(OutboxError):  # the incarnation is over, and its tasks hear of it
                    await producer.room()

    async def learn(self, topic: str) -> None:
        """User code writes to a topic that no step has declared."""
        await self.job_topics.learn_one((self.outbox, self.direct), topic)

    def want_commit(self, task: str, urgent: bool) -> None:
        """A task has something to commit."""
        if self.committing is not None:
            asyncio.get_running_loop().call_soon(self.committing.feed, ce.Wanted(task, urgent))

    def poisoned(self, task: str, why: str) -> None:
        """Outputs of a task stand in the open transaction without its positions: it must not commit."""
        if self.committing is not None:
            self.committing.spoil(task, why)

    def _codec(self) -> str | None:
        """How record batches are compressed."""
        found = self._setting_or("compression", self.options.compression)
        return None if found == "none" else found


def _partition(target: str) -> StreamPartition | None:
    """The target that failed; None if it was no partition but what a task itself wrote."""
    stream, colon, number = target.rpartition(":")
    return StreamPartition(stream, int(number)) if colon else None
