"""Drives a worker's `Member` and `Leader`: events in, instructions carried out, answers back as events.

The machines are fed on the worker's loop, one event at a time. What they want of the world that takes time (fencing, a commit, the
end of the stream) runs beside, and its answer is the next event. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Protocol

import structlog

from ..core.coordination import events as ce
from ..core.coordination import messages as c
from ..core.coordination.leader import protocol as lw
from ..core.coordination.leader.leader import Leader
from ..core.coordination.member import protocol as mw
from ..core.coordination.member.member import Member
from ..core.errors import DeclarationError
from ..core.machine import Machine, Now, Tick
from ..core.names import JobName, StreamPartition
from ..core.orders import Order, Report
from .alarm import Alarm
from .awaiting import answered
from .clients import ClientSettings
from .outlasting import outlasted
from .port import Port
from .steering import CoordinatorReader, LeaderLost, LeaderWriter, OwnWriter, WriteUnknown, fence

log = structlog.get_logger("headgate.coordination")


class World(Protocol):
    """What the machines' instructions need of the worker."""

    @property
    def port(self) -> Port: ...
    def now(self) -> Now: ...
    def spawn(self, work: Awaitable[None], name: str) -> asyncio.Task[None]: ...
    def tell(self, task: str, order: Order) -> None: ...
    def config_changed(self, overrides: Mapping[str, Any], offset: int) -> None: ...
    def standing(self, ready: bool, why: str) -> None: ...
    def exit(self, code: int, why: str) -> None: ...
    def refuse(self, error: DeclarationError) -> None:
        """What was declared cannot run: leave, and end with this."""
        ...

    async def init_producer(self, incarnation: str) -> None: ...
    async def close_producer(self, incarnation: str) -> None: ...
    async def probe(self, target: StreamPartition) -> str:
        """Why this target cannot be written now; nothing when it can."""
        ...

    async def before_commit(self, writes: tuple[c.Write, ...]) -> None:
        """Make the topics that these writes speak of."""
        ...

    async def resolve_run(self, run_id: str) -> lw.Resolved: ...


class Coordination:
    """The two machines, the reader and the writers of the coordinator stream."""

    def __init__(self, world: World, client: ClientSettings, job: JobName, topic: str, stamp: c.Stamp) -> None:
        self.world = world
        self.client = client
        self.job = job
        self.reader = CoordinatorReader(client, topic)
        self.own = OwnWriter(client, topic, stamp)
        self._topic = topic
        self._stamp = stamp
        self._writer: LeaderWriter | None = None
        self.member: Member
        self.leader: Leader
        self._alarms: dict[str, Alarm] = {}
        self.resigned = asyncio.Event()
        self.stopped = False

    def begin(self, member: Member, leader: Leader) -> None:
        """Take the machines, and wake them."""
        self.member, self.leader = member, leader
        self._alarms = {
            "member": Alarm(member.deadline, self.world.port.clock, lambda: self.feed_member(Tick())),
            "leader": Alarm(leader.deadline, self.world.port.clock, lambda: self.feed_leader(Tick())),
        }
        self.feed_member(Tick())
        self.feed_leader(Tick())

    # ------------------------------------------------------------------------------------------------------------- events

    def read(self, event: c.Read) -> None:
        """The next records of the stream, for both."""
        self.feed_member(event)
        self.feed_leader(event)

    def beat(self, event: ce.Beat) -> None:
        """A heartbeat was heard."""
        self.feed_member(event)
        self.feed_leader(event)

    def report(self, report: Report) -> None:
        """What a task says."""
        self.feed_member(report)

    def feed_member(self, event: Any) -> None:
        """One event for the member."""
        self._feed(self.member, "member", event)

    def feed_leader(self, event: Any) -> None:
        """One event for the leader."""
        self._feed(self.leader, "leader", event)

    def _feed(self, machine: Machine[Any, Any], name: str, event: Any) -> None:
        if self.stopped:
            return
        handlers = self._MEMBER if name == "member" else self._LEADER
        for instruction in machine.handle(event, self.world.now()):
            handlers[type(instruction)](self, instruction)
        self._alarms[name].see()

    def stop(self) -> None:
        """Feed nothing any more."""
        self.stopped = True
        for alarm in self._alarms.values():
            alarm.stop()

    async def close(self) -> None:
        """Close the clients."""
        self.stop()
        await self.reader.stop()
        await self.own.stop()
        if self._writer is not None:
            await self._writer.stop()

    def _beside(self, work: Awaitable[None], name: str) -> None:
        self.world.spawn(work, name)

    # --------------------------------------------------------------------------------------------------- instructions of both

    def _ask_end(self, order: c.AskEnd, feed: Callable[[Any], None]) -> None:
        async def work() -> None:
            feed(c.End(await outlasted(self.reader.end), order.ticket))

        self._beside(work(), "end of the coordinator stream")

    def _fence(self, order: ce.Fence, feed: Callable[[Any], None]) -> None:
        async def work() -> None:
            try:
                with answered("the fence"):
                    await fence(self.client, self.job, order.processor, order.incarnation)
            except Exception as error:  # noqa: BLE001 - the machine asks again, and says so
                feed(ce.FenceFailed(order.processor, order.incarnation, str(error)))
            else:
                feed(ce.FenceReturned(order.processor, order.incarnation))

        self._beside(work(), f"fence {order.processor} {order.incarnation}")

    def _note(self, order: ce.Note) -> None:
        getattr(log, order.level)(order.text, **order.fields)

    # ------------------------------------------------------------------------------------------------------------ leader's

    def _init_leader(self, order: lw.InitLeaderId) -> None:
        async def work() -> None:
            if self._writer is not None:
                await self._writer.stop()
            writer = self._writer = LeaderWriter(self.client, self.job, self._topic, self._stamp)
            try:
                await writer.start()
            except LeaderLost as error:
                self.feed_leader(lw.LeaderIdLost(error.fenced, str(error)))
            else:
                self.feed_leader(lw.LeaderIdReady())

        self._beside(work(), f"leader's id for term {order.term}")

    def _commit(self, order: lw.Commit) -> None:
        async def work() -> None:
            try:
                with answered("making topics"):
                    await self.world.before_commit(order.writes)
                if self._writer is None:
                    raise LeaderLost("the leader has no producer", fenced=False)
                last = await self._writer.commit(order.writes)
            except LeaderLost as error:
                self.feed_leader(lw.LeaderIdLost(error.fenced, str(error)))
            except Exception as error:  # noqa: BLE001 - a topic that cannot be made: said, and tried again by a new term
                log.error("the leader could not write", error=str(error))
                self.feed_leader(lw.LeaderIdLost(False, str(error)))
            else:
                self.feed_leader(lw.Committed(last))

        self._beside(work(), "leader's commit")

    def _resolve(self, order: lw.Resolve) -> None:
        async def work() -> None:
            self.feed_leader(await outlasted(lambda: self.world.resolve_run(order.run_id)))

        self._beside(work(), "resolve")

    def _refuse(self, order: lw.Refuse) -> None:
        self.world.refuse(DeclarationError(order.what, remedy=order.remedy))

    def _resigned(self, _: lw.Resigned) -> None:
        self.resigned.set()

    # ------------------------------------------------------------------------------------------------------------ member's

    def _record(self, order: mw.Record) -> None:
        async def work() -> None:
            try:
                last = await self.own.write(order.messages)
            except WriteUnknown as error:
                self.feed_member(mw.RecordUnknown(str(error)))
            else:
                self.feed_member(mw.Recorded(last))

        self._beside(work(), "record")

    def _init_producer(self, order: mw.InitProducer) -> None:
        async def work() -> None:
            try:
                with answered("the producer's start"):
                    await self.world.init_producer(order.incarnation)
            except Exception as error:  # noqa: BLE001 - the machine decides what follows, and it is logged there
                self.feed_member(mw.ProducerLost(order.incarnation, f"{type(error).__name__}: {error}"))
            else:
                self.feed_member(mw.ProducerReady(order.incarnation))

        self._beside(work(), f"producer {order.incarnation}")

    def _close_producer(self, order: mw.CloseProducer) -> None:
        self._beside(self.world.close_producer(order.incarnation), f"close producer {order.incarnation}")

    def _probe(self, order: mw.Probe) -> None:
        async def work() -> None:
            try:
                with answered("the probe"):
                    why = await self.world.probe(order.target)
            except Exception as error:  # noqa: BLE001 - the machine asks again, with growing pauses
                why = f"{type(error).__name__}: {error}"
            log.info("target was asked", target=str(order.target), well=not why, why=why)
            self.feed_member(mw.Probed(order.target, why))

        self._beside(work(), f"probe of {order.target}")

    def _tell(self, order: mw.Tell) -> None:
        self.world.tell(order.task, order.order)

    def _config(self, order: mw.ConfigChanged) -> None:
        self.world.config_changed(order.overrides, order.offset)

    def _standing(self, order: mw.Standing) -> None:
        self.world.standing(order.ready, order.why)

    def _exit(self, order: mw.Exit) -> None:
        self.world.exit(order.code, order.why)

    _LEADER: ClassVar[Mapping[type[Any], Any]] = {
        c.AskEnd: lambda self, order: self._ask_end(order, self.feed_leader),
        ce.Fence: lambda self, order: self._fence(order, self.feed_leader),
        ce.Note: _note,
        lw.InitLeaderId: _init_leader,
        lw.Commit: _commit,
        lw.Resolve: _resolve,
        lw.Resigned: _resigned,
        lw.Refuse: _refuse,
    }
    _MEMBER: ClassVar[Mapping[type[Any], Any]] = {
        c.AskEnd: lambda self, order: self._ask_end(order, self.feed_member),
        ce.Fence: lambda self, order: self._fence(order, self.feed_member),
        ce.Note: _note,
        mw.Record: _record,
        mw.InitProducer: _init_producer,
        mw.CloseProducer: _close_producer,
        mw.Probe: _probe,
        mw.Tell: _tell,
        mw.ConfigChanged: _config,
        mw.Standing: _standing,
        mw.Exit: _exit,
    }
