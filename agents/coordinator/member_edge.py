"""Carries out the instructions of a process's `Member`: its records, its producers, probes, and orders to its tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from ...core.coordination import messages as c
from ...core.coordination.member import protocol as mw
from ...core.coordination.member.member import Member
from ...core.errors import DeclarationError
from ...core.graph.graph import Graph
from ...core.names import StreamPartition, Topics, TransactionalId, worker_id
from ...core.orders import Order
from ..cancellation import answered
from ..logger import Logger
from ..port.port import Port, Process
from .coordinator_stream import CoordinatorReader, OwnWriter, WriteUnknown
from .machine_edge import Driven

log = Logger("headgate.coordination")


class TaskOrders(Protocol):
    """The tasks of the process."""

    def tell(self, task: str, order: Order) -> None: ...


class Incarnations(Protocol):
    """The producers of the process."""

    async def begin(self, incarnation: str, transactional_id: str) -> None:
        """Start a producer for this incarnation, and initialise its transactional id, exactly once."""
        ...

    async def close(self, incarnation: str) -> None: ...
    async def learn(self, topic: str) -> None:
        """Look up the width and the limits of a target again, after it has recovered."""
        ...


class World(Protocol):
    """The process that the member steers."""

    @property
    def tasks(self) -> TaskOrders: ...
    @property
    def producers(self) -> Incarnations: ...
    @property
    def config_changed(self) -> Callable[[Mapping[str, Any], int], None]:
        """Called with the settings that operators have changed, and the offset of the change."""
        ...

    @property
    def unread(self) -> Callable[[str, int, int, str], None]:
        """Called for a record of the job's own topics that could not be understood: with topic, partition, offset and the reason."""
        ...

    def standing(self, ready: bool, why: str) -> None: ...
    def load(self) -> Mapping[str, float]:
        """The load values that a heartbeat contains."""
        ...

    def under_way(self) -> Mapping[str, float]:
        """What takes long now, for a heartbeat. Called in the thread of the heartbeats, also while the main loop is blocked."""
        ...

    def follow(self, order: mw.Follow) -> None:
        """Follow the logs of these tasks, and of no others."""
        ...

    def write_out(self, order: mw.WriteOut) -> None:
        """These tasks are about to be released."""
        ...

    def exit(self, code: int, why: str) -> None:
        """The member has decided that the process must exit."""
        ...

    @property
    def refuse(self) -> Callable[[DeclarationError], None]:
        """Called with the error if the declared job cannot run: the process leaves, and ends with this error."""
        ...


class MemberEdge:
    """The member, with the clients that it needs."""

    def __init__(
        self,
        member: Member,
        world: World,
        process: Process,
        port: Port,
        graph: Graph,
        names: Topics,
        stamp: c.Stamp,
        reader: CoordinatorReader,
    ) -> None:
        self.member = member
        self.own = OwnWriter(port, names.coordinator, stamp)
        self._writer = OwnWriter(port, names.coordinator, stamp)
        self._saying = asyncio.Lock()
        self.driven = Driven(
            member,
            process,
            port,
            names.job,
            reader,
            {
                mw.WriteMessages: self._record,
                mw.InitProducer: self._init_producer,
                mw.CloseProducer: self._close_producer,
                mw.Probe: self._probe,
                mw.SendOrder: lambda order: world.tasks.tell(order.task, order.order),
                mw.Follow: world.follow,
                mw.WriteOut: world.write_out,
                mw.ConfigChanged: lambda order: world.config_changed(order.overrides, order.offset),
                mw.Readiness: lambda order: world.standing(order.ready, order.why),
                mw.Exit: lambda order: world.exit(order.code, order.why),
            },
        )
        self._producers = world.producers
        self._process = process
        self._port = port
        self._graph = graph
        self._names = names
        self._probing = asyncio.Lock()
        """All probes use the same transactional id, so they run one at a time."""

    def _record(self, order: mw.WriteMessages) -> None:
        async def work() -> None:
            try:
                last = await self.own.write(order.messages)
            except WriteUnknown as error:
                self.driven.feed(mw.MessagesUnknown(str(error)))
            else:
                self.driven.feed(mw.MessagesWritten(last))

        self._process.spawn(work, "record")

    def _init_producer(self, order: mw.InitProducer) -> None:
        transactional_id = worker_id(self._names.job, self.member.view.processor, order.incarnation)

        async def work() -> None:
            try:
                with answered("the producer's start"):
                    await self._producers.begin(order.incarnation, transactional_id)
            except Exception as error:  # noqa: BLE001 - logged here; the machine decides what follows
                self.driven.feed(mw.ProducerLost(order.incarnation, f"{type(error).__name__}: {error}"))
            else:
                self.driven.feed(mw.ProducerReady(order.incarnation))

        self._process.spawn(work, f"producer {order.incarnation}")

    def _close_producer(self, order: mw.CloseProducer) -> None:
        work = partial(self._producers.close, order.incarnation)
        self._process.spawn(work, f"close producer {order.incarnation}")

    def _probe(self, order: mw.Probe) -> None:
        async def work() -> None:
            try:
                with answered("the probe"):
                    why = await self.probe(order.target)
            except Exception as error:  # noqa: BLE001 - the machine probes again, with growing pauses
                why = f"{type(error).__name__}: {error}"
            log.info("target was asked", target=str(order.target), well=not why, why=why)
            self.driven.feed(mw.Probed(order.target, why))

        self._process.spawn(work, f"probe of {order.target}")

    async def probe(self, target: StreamPartition) -> str:
        """Why this target cannot be written now; empty if it can. In that case its width and its limits are looked up again."""
        names = self._names
        ours = target.stream in (names.log, names.dead_letters) or target.stream in self._graph.framed
        transactional_id = str(TransactionalId(names.job, self.member.view.processor, "probe"))
        async with self._probing:
            why = await self._port.probe(transactional_id, target, narrower=not ours)
        if not why:
            await self._producers.learn(target.stream)
        return why

    async def say(self, message: c.SetLetters) -> None:
        """Write what a task says of its letters. This does not wait for the member's own messages. Raises `WriteUnknown`."""
        async with self._saying:
            await self._writer.write([message])

    async def close(self) -> None:
        """Close the producers."""
        await self.own.stop()
        await self._writer.stop()
