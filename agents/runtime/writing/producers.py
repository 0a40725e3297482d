"""The producers of a process: the transactional one of its current incarnation, and the second one of `at_least_once`.

Everything that tasks write goes through them. An incarnation has one transactional producer, whose id is initialised once. When it fails,
every task drops what was not durable; the member is told which target failed and which tasks wrote to it, and starts another incarnation.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Protocol

from ....core.coordination.member import protocol as mw
from ....core.names import StreamPartition
from ....core.task import protocol as t
from ....core.task.committer import commit_protocol as ce
from ...durations import Durations
from ...job.derive.declaration import Declared
from ...live_settings import Settings
from ...logger import Logger
from ...port.errors import OutboxError
from ...port.port import Port, Process
from ...stories.follow import COMMITTER, NoStories, Stories
from ...tracing.traces import Traces
from .buffer import TaskBuffer
from .committing import Committing, Writer
from .outbox import Outbox

log = Logger("headgate.worker")

REST_S = 0.03
"""While a task of the worker has a backlog, each task without one rests for so long, times their number, after it took part in a commit. To
take part takes 2 to 3 ms of the main loop, also of a task that has little to commit: all of them together take a tenth of it.
"""


class Learning(Protocol):
    """What is known about the topics that are written to."""

    async def learn(self, outbox: Outbox | None) -> None:
        """Tell an outbox all targets of this job."""
        ...

    async def learn_one(self, producers: Iterable[Outbox | None], topic: str) -> None:
        """Ask about a target that user code names at run time, and tell the producers."""
        ...


class ProducerJob(Protocol):
    """The job, as far as it hears of producers."""

    def producer_lost(self, lost: mw.ProducerLost) -> None:
        """The producer of this incarnation has failed."""
        ...


class ProducerNeeds(Protocol):
    """What the producers need of the process."""

    name: str
    declared: Declared
    port: Port
    settings: Settings

    @property
    def job(self) -> ProducerJob: ...
    @property
    def process(self) -> Process: ...
    @property
    def targets(self) -> Learning: ...


class Producers:
    """The producers of a process, with the committer that all their transactions go through."""

    def __init__(
        self,
        needs: ProducerNeeds,
        writers: Mapping[str, Writer],
        *,
        compression: str | None,
        stories: Stories | None = None,
        traces: Traces | None = None,
    ) -> None:
        """`writers`: the tasks that run in this process. `compression`: used when no setting is given. `stories`: where the committers are
        recorded. `traces`: where transactions have spans.
        """
        self._traces = traces
        self._stories = stories or NoStories()
        self._job = needs.job
        self._process = needs.process
        self._name = needs.name
        self._settings = needs.settings
        self._targets = needs.targets
        self._fenced = needs.declared.graph.framed
        self._writers = writers
        self._compression = compression
        self.port = needs.port
        self.committing: Committing | None = None
        self.commits = Durations()
        """How long the transactions of all incarnations have taken."""
        self.outbox: Outbox | None = None
        self.direct: Outbox | None = None
        self.incarnation = ""
        self.careful: set[str] = set()
        """Tasks that hold nothing back for a commit until this process ends: completing a letter, or what they held back, has failed."""
        self.rest_s = 0.0
        """For how long a task without a backlog rests, as of the last commit: counted at each fetch, it would cost tasks times tasks."""

    # ------------------------------------------------------------------------------------------------- one incarnation

    async def begin(self, incarnation: str, transactional_id: str) -> None:
        """Start a producer for this incarnation; its transactional id is initialised here, once."""
        settings = self._settings
        await self.drop()
        outbox = Outbox(
            self.port,
            transactional_id,
            name=self._name,
            compression=self._codec(),
            transaction_timeout_ms=settings.milliseconds("transaction.timeout"),
        )
        await self._targets.learn(outbox)
        await outbox.start()
        direct = await self._start_direct()
        self.incarnation = incarnation
        self.outbox, self.direct = outbox, direct
        interval_s, timeout_s = settings.seconds("commit.interval"), settings.seconds("transaction.timeout")
        self.committing = Committing(
            self,
            incarnation,
            outbox,
            interval_s=interval_s,
            timeout_s=timeout_s,
            direct=direct,
            took=self.commits,
            traces=self._traces,
        )
        made = interval_s, timeout_s
        self._stories.follow(self.committing.machine, COMMITTER, incarnation, made)
        for producer in (outbox, direct):
            if producer is not None:
                await self._process.serve(f"outbox {incarnation}", partial(self._own, producer, self.committing))

    async def _start_direct(self) -> Outbox | None:
        """The second producer of `at_least_once`."""
        if self._settings.text("guarantee") != "at_least_once":
            return None
        direct = Outbox(self.port, None, name=f"{self._name}-direct", compression=self._codec())
        await self._targets.learn(direct)
        await direct.start()
        return direct

    def _codec(self) -> str | None:
        """How record batches are compressed."""
        found = self._settings.given_or("compression", self._compression)
        return None if found == "none" else found

    async def _own(self, outbox: Outbox, committing: Committing) -> None:
        try:
            await outbox.run()
        except OutboxError as error:
            if self.committing is committing:
                committing.failed(error)

    async def close(self, incarnation: str) -> None:
        """This incarnation is over: stop its producers."""
        if incarnation == self.incarnation:
            await self.drop()

    async def drop(self) -> None:
        """Stop the committer and the producers."""
        producers, committing = (self.outbox, self.direct), self.committing
        self.outbox = self.direct = self.committing = None
        if committing is not None:
            committing.stop()
        for producer in producers:
            if producer is not None:
                await producer.stop()

    async def learn_all(self) -> None:
        """Tell the producers all targets of this job, as they are now."""
        for producer in (self.outbox, self.direct):
            await self._targets.learn(producer)

    # ------------------------------------------------------------------------------------------------ what committing asks

    def writer(self, task: str) -> Writer | None:
        """A task, if it runs in this process."""
        return self._writers.get(task)

    def crash(self, error: BaseException) -> None:
        """An unexpected error: end the worker."""
        self._process.crash(error)

    def incarnation_over(self, incarnation: str, order: ce.IncarnationOver) -> None:
        """The producer has failed: every task drops what was not durable, and a new incarnation follows."""
        log.error("incarnation is over", incarnation=incarnation, why=order.why, kind=order.kind, target=order.target)
        for writer in list(self._writers.values()):
            writer.feed(t.CommitLost(order.why, blamed=writer.name in order.blamed))
        failed = tuple((task, order.why) for task in sorted(order.blamed))
        lost = mw.ProducerLost(incarnation, order.why, failed, _partition(order.target), order.refused)
        asyncio.get_running_loop().call_soon(self._job.producer_lost, lost)

    # ------------------------------------------------------------------------------------------------ what tasks ask for

    def buffer(self, task: str) -> TaskBuffer:
        """A task's buffer of the current producer, or of both producers."""
        if self.outbox is None:
            raise RuntimeError(f"{task} was started without a producer")
        return self.outbox.buffer(task, self.direct, self._fenced)

    async def room(self) -> None:
        """Wait while too much is unsent: an unreachable broker must not fill the memory."""
        for producer in (self.outbox, self.direct):
            if producer is not None and producer.full:
                with contextlib.suppress(OutboxError):  # the incarnation is over, and its tasks are told elsewhere
                    await producer.room()

    async def learn(self, topic: str) -> None:
        """Ask about a topic that user code writes to and no step declares, or about a target that has recovered."""
        await self._targets.learn_one((self.outbox, self.direct), topic)

    def want_commit(self, task: str, urgent: bool) -> None:
        """A task has something to commit."""
        if self.committing is not None:
            self.committing.want(task, urgent)

    @property
    def gathers(self) -> bool:
        """Whether fetches may be held back. Under `at_least_once` outputs do not wait for a commit, so nothing is."""
        return self.committing is not None and self.direct is None and self.port.silent

    def gather_until(self) -> float | None:
        """Until when a fetch is held back, so that it brings all that can join the next commit; None: not at all."""
        return self.committing.gather_until() if self.committing is not None and self.gathers else None

    def arrived(self, took_s: float) -> None:
        """What a gathered fetch of a task brought is processed, this long after it was sent."""
        if self.committing is not None:
            self.committing.arrived(took_s)

    def arriving(self) -> bool:
        """Whether a task still processes what it gathered for the commit that is due."""
        return any(writer.arriving for writer in self._writers.values())

    def patient(self) -> frozenset[str]:
        """The tasks that have worked on little since they took part last, with a backlog behind it, or while another task has one."""
        behind = sum(writer.behind for writer in self._writers.values())
        rested, self.rest_s = self.rest_s, REST_S * (len(self._writers) - behind) if behind else 0.0
        if rested and not self.rest_s:
            for writer in self._writers.values():
                writer.go_on()
        return frozenset(name for name, writer in self._writers.items() if writer.patient(self.rest_s))

    def hurried(self) -> bool:
        """Whether a transaction is under way: its own steps go before letters."""
        return self.committing is not None and self.committing.machine.view.open

    def poisoned(self, task: str, why: str) -> None:
        """The open transaction holds outputs of a task without its positions: it must not commit."""
        if self.committing is not None:
            self.committing.spoil(task, why)

    def gone(self, task: str) -> None:
        """A task has ended in this process."""
        if self.committing is not None:
            self.committing.feed(ce.TaskGone(task))


def _partition(target: str) -> StreamPartition | None:
    """The partition that failed; None if the failure was not that of a partition."""
    stream, colon, number = target.rpartition(":")
    return StreamPartition(stream, int(number)) if colon else None
