"""Carries out the instructions of a process's `Leader`: its transactions, the topics that they refer to, the bounds of a new run.

Promises: the leader is told of every transaction that failed or may have failed, and the producer that failed is not used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from ...core.coordination import messages as c
from ...core.coordination.leader import protocol as lw
from ...core.coordination.leader.leader import Leader
from ...core.errors import DeclarationError, EnvironmentFault, TopicsDiffer
from ...core.graph.graph import Graph
from ...core.graph.model import JobModel
from ...core.names import Topics
from ..cancellation import answered
from ..logger import Logger
from ..port.bounds import run_bounds
from ..port.outlasting import outlasted
from ..port.port import Offsets, Port, Process
from ..port.waiting import pause, wait
from .coordinator_stream import CoordinatorReader, LeaderLost, LeaderWriter
from .machine_edge import Driven

log = Logger("headgate.coordination")
DIFFER_S = (1.0, 30.0)
"""The first and the longest pause before topics that were not as they must be are looked at again."""
RESIGN_S = 5.0


class LeaderTopics(Protocol):
    """The topics of the job, as far as the leader creates and counts them."""

    async def input_counts(self) -> dict[str, int]:
        """The current number of partitions of each input. Raises `EnvironmentFault` if one does not exist, and `BrokerAway` if no broker
        answers.
        """
        ...

    async def more_counts(self) -> dict[str, int]:
        """The same of the topics that match a pattern of the job and are no inputs of its code yet."""
        ...

    async def ensure_for(self, model: JobModel | None, tasks: int) -> None:
        """Create the task log and the intermediate streams with the widths of the model."""
        ...


class LeaderEdge:
    """The leader, with the clients that it needs."""

    def __init__(
        self,
        leader: Leader,
        refuse: Callable[[DeclarationError], None],
        offsets: Offsets,
        topics: LeaderTopics,
        process: Process,
        port: Port,
        graph: Graph,
        names: Topics,
        stamp: c.Stamp,
        reader: CoordinatorReader,
    ) -> None:
        """`refuse` is called if no run of this code can begin."""
        self.leader = leader
        self.resigned = asyncio.Event()
        self.driven = Driven(
            leader,
            process,
            port,
            names.job,
            reader,
            {
                lw.InitLeaderId: self._init_leader,
                lw.WriteTransaction: self._commit,
                lw.ResolveBounds: self._resolve,
                lw.Resigned: self._resigned,
                lw.Refuse: self._refuse,
                lw.CountInputs: self._count_now,
            },
        )
        self._process = process
        self._port = port
        self._offsets = offsets
        self._topics = topics
        self._graph = graph
        self._names = names
        self._stamp = stamp
        self._refused = refuse
        self._writer: LeaderWriter | None = None
        self._differ_s = DIFFER_S[0]
        self._looks = asyncio.Event()
        """The inputs are to be looked at now."""
        self._asked = 0
        """The number of the last count that the leader has asked for."""

    def _init_leader(self, order: lw.InitLeaderId) -> None:
        async def work() -> None:
            if self._writer is not None:
                await self._writer.stop()
            names = self._names
            writer = self._writer = LeaderWriter(self._port, names.job, names.coordinator, self._stamp)
            try:
                await writer.start()
            except LeaderLost as error:
                self.driven.feed(lw.LeaderIdLost(error.fenced, str(error)))
            else:
                self.driven.feed(lw.LeaderIdReady())

        self._process.spawn(work, f"leader's id for term {order.term}")

    def _commit(self, order: lw.WriteTransaction) -> None:
        async def work() -> None:
            try:
                with answered("making topics"):
                    await self._make_topics(order.writes)
                if self._writer is None:
                    raise LeaderLost("the leader has no producer", fenced=False)
                last = await self._writer.commit(order.writes)
            except LeaderLost as error:
                self.driven.feed(lw.LeaderIdLost(error.fenced, str(error)))
            except TopicsDiffer as error:
                await self._differ(error)
                self.driven.feed(lw.LeaderIdLost(False, str(error)))
            except Exception as error:  # noqa: BLE001 - a topic cannot be created: logged here, and tried again in a new term
                log.error("the leader could not write", error=str(error))
                self.driven.feed(lw.LeaderIdLost(False, str(error)))
            else:
                self._differ_s = DIFFER_S[0]
                self.driven.feed(lw.TransactionWritten(last))

        self._process.spawn(work, "leader's commit")

    async def _differ(self, error: TopicsDiffer) -> None:
        """The job's topics are not as it needs them. No worker can begin then, so this one ends. While tasks run, they go on, and the
        leader looks again, with growing pauses.
        """
        job = self.leader.view.job
        if not any(job.held(grant.task) for grant in job.grants()):
            self._refused(DeclarationError(error.what, remedy=error.remedy))
            return
        log.error("the leader could not write", error=str(error), again_in_s=self._differ_s)
        await pause(self._port.clock, self._differ_s)
        self._differ_s = min(DIFFER_S[1], 2 * self._differ_s)

    async def _make_topics(self, writes: tuple[c.Write, ...]) -> None:
        """Create the topics that these writes refer to."""
        models = [write.model for write in writes if isinstance(write, c.SetJobModel)]
        logs = {write.task: write.partition for write in writes if isinstance(write, c.SetChangelog)}
        if not models and not logs:
            return
        known = {**self.leader.view.job.changelogs, **logs}
        model = models[-1] if models else self.leader.view.job.model
        await self._topics.ensure_for(model, max(known.values(), default=-1) + 1)

    def _resolve(self, order: lw.ResolveBounds) -> None:
        async def work() -> None:
            self.driven.feed(await outlasted(lambda: self._bounds(order.run_id)))

        self._process.spawn(work, "resolve")

    async def _bounds(self, run_id: str) -> lw.BoundsResolved:
        """The offsets where the inputs of a new run start and end."""
        starts, untils = await run_bounds(self._offsets, self._graph, await self._topics.input_counts())
        return lw.BoundsResolved(run_id, starts, untils)

    def _refuse(self, order: lw.Refuse) -> None:
        self._refused(DeclarationError(order.what, remedy=order.remedy))

    def _resigned(self, _: lw.Resigned) -> None:
        self.resigned.set()

    async def count(self, look_s: Callable[[], float]) -> None:
        """Count the partitions of the inputs, and look for topics that match a pattern, again and again, until cancelled."""
        known = False
        while True:
            asked = self._asked
            try:
                counts = await outlasted(self._topics.input_counts)
                more = await outlasted(self._topics.more_counts)
            except EnvironmentFault as error:
                if not known:
                    raise
                # if an input disappears while the job runs, its tasks report it, under their own policy
                log.warning("the partitions of the inputs cannot be counted", why=str(error))
            else:
                known = True
                self.driven.feed(lw.Counts(counts, more, asked))
            await wait(self._port.clock, self._looks, look_s())
            self._looks.clear()

    def _count_now(self, order: lw.CountInputs) -> None:
        self._asked = order.number
        self.look()

    def look(self) -> None:
        """Look at the inputs now, and from then on as often as is wanted by now."""
        self._looks.set()

    async def close(self) -> None:
        """Close the producer."""
        if self._writer is not None:
            await self._writer.stop()
