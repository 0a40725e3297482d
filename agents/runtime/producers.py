"""The producers of a process: of its present incarnation, and of `at_least_once`.

What tasks write goes through these. An incarnation has one transactional producer, whose id is initialised once; when it dies, every
task drops what was not durable, the member hears which target it was and who wrote to it, and makes another incarnation.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING

import structlog

from ...core.coordination.member import protocol as mw
from ...core.names import StreamPartition
from ...core.task import commit_protocol as ce
from ...core.task import protocol as t
from ..port.errors import OutboxError
from .buffer import TaskBuffer
from .committing import Committing
from .guarantee import SplitBuffer
from .outbox import Outbox

if TYPE_CHECKING:
    from ..port.port import Port
    from .runtime import Runtime
    from .task import TaskActor

log = structlog.get_logger("headgate.worker")


class Producers:
    """The producers of a `Runtime`, with the committer that all their transactions go through."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.committing: Committing | None = None
        self.outbox: Outbox | None = None
        self.direct: Outbox | None = None
        self.incarnation = ""
        self.careful: set[str] = set()
        """Tasks that hold nothing back for a commit any more, until this process ends: one has failed on what they held."""

    # ------------------------------------------------------------------------------------------------- one incarnation

    async def begin(self, incarnation: str, transactional_id: str) -> None:
        """A producer for this incarnation: its id is initialised here, once."""
        runtime, settings = self._runtime, self._runtime.settings
        await self.drop()
        outbox = Outbox(
            runtime.port,
            transactional_id,
            name=runtime.name,
            compression=runtime.codec(),
            transaction_timeout_ms=settings.milliseconds("transaction.timeout"),
        )
        await runtime.targets.learn(outbox)
        await outbox.start()
        direct = await self._start_direct()
        self.incarnation = incarnation
        self.outbox, self.direct = outbox, direct
        self.committing = Committing(
            self,
            incarnation,
            outbox,
            interval_s=settings.seconds("commit.interval"),
            timeout_s=settings.seconds("transaction.timeout"),
            direct=direct,
        )
        for producer in (outbox, direct):
            if producer is not None:
                await runtime.life.serve(f"outbox {incarnation}", partial(self._own, producer, self.committing))

    async def _start_direct(self) -> Outbox | None:
        """The second producer of `at_least_once`."""
        runtime = self._runtime
        if runtime.settings.text("guarantee") != "at_least_once":
            return None
        direct = Outbox(runtime.port, None, name=f"{runtime.name}-direct", compression=runtime.codec())
        await runtime.targets.learn(direct)
        await direct.start()
        return direct

    async def _own(self, outbox: Outbox, committing: Committing) -> None:
        try:
            await outbox.run()
        except OutboxError as error:
            if self.committing is committing:
                committing.failed(error)

    async def close(self, incarnation: str) -> None:
        """This incarnation is over."""
        if incarnation == self.incarnation:
            await self.drop()

    async def drop(self) -> None:
        """No producer any more."""
        producers, committing = (self.outbox, self.direct), self.committing
        self.outbox = self.direct = self.committing = None
        if committing is not None:
            committing.stop()
        for producer in producers:
            if producer is not None:
                await producer.stop()

    async def learn_all(self) -> None:
        """The targets of this job, as they are now."""
        for producer in (self.outbox, self.direct):
            await self._runtime.targets.learn(producer)

    # ------------------------------------------------------------------------------------------------ what committing asks

    @property
    def port(self) -> Port:
        """The world."""
        return self._runtime.port

    def actor(self, task: str) -> TaskActor | None:
        """A running task."""
        return self._runtime.granted.actors.get(task)

    def crash(self, error: BaseException) -> None:
        """What must not happen."""
        self._runtime.life.crash(error)

    def incarnation_over(self, incarnation: str, order: ce.IncarnationOver) -> None:
        """The producer is dead: every task drops what was not durable; a new incarnation follows."""
        log.error("incarnation is over", incarnation=incarnation, why=order.why, kind=order.kind, target=order.target)
        for actor in list(self._runtime.granted.actors.values()):
            actor.feed(t.CommitLost(order.why, blamed=actor.name in order.blamed))
        failed = tuple((task, order.why) for task in sorted(order.blamed))
        lost = mw.ProducerLost(incarnation, order.why, failed, _partition(order.target), order.refused)
        asyncio.get_running_loop().call_soon(self._runtime.job.producer_lost, lost)

    # ------------------------------------------------------------------------------------------------ what tasks ask for

    def buffer(self, task: str) -> TaskBuffer | SplitBuffer:
        """A buffer of the present producer, or of both."""
        if self.outbox is None:
            raise RuntimeError(f"{task} was started without a producer")
        if self.direct is None:
            return self.outbox.buffer(task)
        fenced = self._runtime.declared.graph.intermediates
        return SplitBuffer(self.outbox.buffer(task), self.direct.buffer(task), fenced.__contains__)

    async def room(self) -> None:
        """Wait while too much is unsent: a broker that is away must not fill the memory."""
        for producer in (self.outbox, self.direct):
            if producer is not None and producer.full:
                with contextlib.suppress(OutboxError):  # the incarnation is over, and its tasks hear of it
                    await producer.room()

    async def learn(self, topic: str) -> None:
        """User code writes to a topic that no step has declared, or a target is well again."""
        await self._runtime.targets.learn_one((self.outbox, self.direct), topic)

    def want_commit(self, task: str, urgent: bool) -> None:
        """A task has something to commit."""
        if self.committing is not None:
            self.committing.want(task, urgent)

    def poisoned(self, task: str, why: str) -> None:
        """Outputs of a task stand in the open transaction without its positions: it must not commit."""
        if self.committing is not None:
            self.committing.spoil(task, why)

    def gone(self, task: str) -> None:
        """A task has ended here."""
        if self.committing is not None:
            self.committing.feed(ce.TaskGone(task))


def _partition(target: str) -> StreamPartition | None:
    """The target that failed; None if it was no partition but what a task itself wrote."""
    stream, colon, number = target.rpartition(":")
    return StreamPartition(stream, int(number)) if colon else None
