"""Drives a process's `Member` and `Leader`: events in, instructions carried out, answers back as events.

    reader ─ mailbox ─ Member, Leader ─ orders, records, transactions, fences
    heartbeats ────────┘

The machines are fed on one loop, one event at a time. What they want of the world that takes time (fencing, a commit, the end of the
stream) runs beside, and its answer is the next event. Nothing is decided here. It speaks to the port, and to the process that it steers.

Promises: the stream is read in its order, and nothing in it is passed: what is damaged is fetched again until it can be read; a reader
that has died is replaced where it stood.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Protocol

import structlog

from ...core.coordination import events as ce
from ...core.coordination import messages as c
from ...core.coordination.events import Heartbeat
from ...core.coordination.leader import protocol as lw
from ...core.coordination.leader.leader import Leader
from ...core.coordination.member import protocol as mw
from ...core.coordination.member.member import Member
from ...core.errors import DeclarationError, EnvironmentFault
from ...core.graph.graph import Graph
from ...core.graph.model import JobModel
from ...core.machine import Machine, Tick
from ...core.names import StreamPartition, Topics, TransactionalId
from ...core.orders import Order
from ..awaiting import answered, passes
from ..port.alarm import Alarm
from ..port.bounds import run_bounds
from ..port.outlasting import outlasted
from ..port.port import Mailbox, Offsets, Port, pause
from ..records.columns import DamagedBatch
from .heartbeat import Heartbeats
from .stream import CoordinatorReader, LeaderLost, LeaderWriter, OwnWriter, WriteUnknown, fence

log = structlog.get_logger("headgate.coordination")
AGAIN_S = 2.0
"""How often what could not be read of the coordinator stream is fetched again."""
COUNT_S = 30.0
"""How often the partitions of inputs are counted."""
TURN_S = 0.5
"""How often the main loop says that it turns."""
RESIGN_S = 5.0


class Process(Protocol):
    """Who runs coroutines, and hears of what must not happen."""

    def crash(self, error: BaseException) -> None: ...
    def spawn(self, work: Awaitable[None], name: str) -> asyncio.Task[None]: ...
    async def serve(self, name: str, work: Awaitable[None]) -> Any: ...
    def mailbox(
        self,
        name: str,
        on_letter: Callable[[Any], Awaitable[None]],
        on_gone: Callable[[BaseException | None], None],
        on_again: Callable[[], None],
    ) -> Mailbox: ...


class World(Protocol):
    """What is steered."""

    def tell(self, task: str, order: Order) -> None: ...
    def config_changed(self, overrides: Mapping[str, Any], offset: int) -> None: ...
    def standing(self, ready: bool, why: str) -> None: ...
    def load(self) -> Mapping[str, float]:
        """What heartbeats say of it, beside that it lives."""
        ...

    def unread(self, topic: str, partition: int, offset: int, why: str) -> None:
        """A record of the job's own topics is none that anybody understands; it was passed."""
        ...

    async def init_producer(self, incarnation: str) -> None: ...
    async def close_producer(self, incarnation: str) -> None: ...
    async def learn(self, topic: str) -> None:
        """A target is well again: its width and limits may be others."""
        ...

    def exit(self, code: int, why: str) -> None:
        """The member says that it is over."""
        ...

    @property
    def refuse(self) -> Callable[[DeclarationError], None]:
        """What was declared cannot run: leave, and end with this."""
        ...


class JobTopics(Protocol):
    """The topics of the job, as far as its leader makes and counts them."""

    async def input_counts(self) -> dict[str, int]:
        """How many partitions each input has, now. Raises `EnvironmentFault` for one that does not exist; `BrokerAway` for no answer."""
        ...

    async def ensure_for(self, model: JobModel | None, tasks: int) -> None:
        """Make task log and intermediate streams as wide as the model says."""
        ...


class Coordination:
    """The two machines, the reader and the writers of the coordinator stream, and the heartbeats."""

    def __init__(
        self,
        world: World,
        process: Process,
        port: Port,
        offsets: Offsets,
        topics: JobTopics,
        graph: Graph,
        names: Topics,
        processor: str,
        stamp: c.Stamp,
    ) -> None:
        self.world = world
        self._process = process
        self.reader = CoordinatorReader(port, offsets, names.coordinator)
        self.own = OwnWriter(port, names.coordinator, stamp)
        self.blocked = ""
        """What keeps this process from following the job."""
        self.member: Member
        self.leader: Leader
        self.resigned = asyncio.Event()
        self.stopped = False
        self._port = port
        self._offsets = offsets
        self._topics = topics
        self._graph = graph
        self._names = names
        self._processor = processor
        self._stamp = stamp
        self._writer: LeaderWriter | None = None
        self._alarms: dict[str, Alarm] = {}
        self.heartbeats: Heartbeats | None = None
        self._turned = port.clock.now().mono
        self._load: Mapping[str, float] = {}
        self._probing = asyncio.Lock()
        """Probes share a transactional id, so they come one after the other."""

    async def start(self, member: Member, leader: Leader, *, beat_s: float) -> None:
        """Connect, wake the machines, and follow the job."""
        letters = self._process.mailbox("coordinator", self._letter, self._gone, lambda: None)
        await letters.start()
        await self.reader.start()
        self.member, self.leader = member, leader
        clock = self._port.clock
        self._alarms = {
            "member": Alarm(member.deadline, clock, lambda: self.feed_member(Tick())),
            "leader": Alarm(leader.deadline, clock, lambda: self.feed_leader(Tick())),
        }
        self.feed_member(Tick())
        self.feed_leader(Tick())
        await self._process.serve("steering", self._follow(letters))
        self._process.spawn(self._count_partitions(), "partition counts")
        self._process.spawn(self._turn(), "main loop's turn")
        self.heartbeats = Heartbeats(
            self._port,
            self._names.heartbeat,
            say=self.say,
            heard=lambda event: self.beat(event),
            unread=self.world.unread,
            interval_s=beat_s,
        )
        self.heartbeats.start()

    # ------------------------------------------------------------------------------------------------- following the job

    async def _follow(self, letters: Mailbox) -> None:
        clock = self._port.clock
        while True:
            try:
                event = await self.reader.read()
            except DamagedBatch as error:
                # grants may stand in it: it is read again, and never passed
                self.blocked = f"the coordinator stream cannot be read behind {self.reader.position}: {error}"
                log.error("the coordinator stream is damaged", why=self.blocked)
                await pause(clock, AGAIN_S)
                continue
            except BaseException as error:
                if passes(error):
                    raise
                self.blocked = f"the coordinator stream is not read: {type(error).__name__}: {error}"
                log.error("the coordinator stream is read anew", why=self.blocked)
                await pause(clock, AGAIN_S)
                await outlasted(self.reader.again)
                continue
            if event is not None:
                self.blocked = ""
                await letters.put(event)

    async def _letter(self, letter: c.Read) -> None:
        for entry in letter.entries:
            if entry.problem:
                self.world.unread(self._names.coordinator, 0, entry.offset, entry.problem)
        self.feed_member(letter)
        self.feed_leader(letter)

    def _gone(self, why: BaseException | None) -> None:
        if not self.stopped:
            self._process.crash(why or RuntimeError("the coordinator agent was stopped"))

    async def _count_partitions(self) -> None:
        known = False
        while True:
            try:
                counts = await outlasted(self._topics.input_counts)
            except EnvironmentFault as error:
                if not known:
                    raise
                # an input that vanishes under a running job is its tasks' business: they say so, with their own policy
                log.warning("inputs cannot be counted", why=str(error))
            else:
                known = True
                self.feed_leader(lw.Counts(counts))
            await pause(self._port.clock, COUNT_S)

    # --------------------------------------------------------------------------------------------------------- heartbeats

    async def _turn(self) -> None:
        while True:
            self._turned = self._port.clock.now().mono
            self._load = self.world.load()
            await pause(self._port.clock, TURN_S)

    def turn_age(self) -> float:
        """How long ago the main loop turned; may be asked in any thread."""
        return self._port.clock.now().mono - self._turned

    def say(self) -> Heartbeat:
        """The next heartbeat; asked in another thread."""
        return Heartbeat(
            processor=self._processor,
            process=self.member.config.process,
            incarnation=self.member.incarnation,
            sent_s=self._port.clock.now().mono,
            turn_age_s=self.turn_age(),
            term=self.leader.term,
            load=self._load,
        )

    # ------------------------------------------------------------------------------------------------------------- events

    def beat(self, event: ce.Beat) -> None:
        """A heartbeat was heard."""
        self.feed_member(event)
        self.feed_leader(event)

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
        for instruction in machine.handle(event, self._port.clock.now()):
            handlers[type(instruction)](self, instruction)
        self._alarms[name].see()

    def stop(self) -> None:
        """Feed nothing any more."""
        self.stopped = True
        for alarm in self._alarms.values():
            alarm.stop()

    async def resign(self) -> None:
        """Give the leadership back, if it has it, and wait until that is said; not for long."""
        self.feed_leader(lw.Resign())
        if not await self._port.clock.wait(self.resigned, RESIGN_S):
            log.warning("left without giving the leadership back")

    async def hush(self) -> None:
        """No heartbeats any more."""
        if self.heartbeats is not None:
            await self.heartbeats.stop()

    async def close(self) -> None:
        """Close the clients."""
        self.stop()
        await self.reader.stop()
        await self.own.stop()
        if self._writer is not None:
            await self._writer.stop()

    def _beside(self, work: Awaitable[None], name: str) -> None:
        self._process.spawn(work, name)

    # --------------------------------------------------------------------------------------------------- instructions of both

    def _ask_end(self, order: c.AskEnd, feed: Callable[[Any], None]) -> None:
        async def work() -> None:
            feed(c.End(await outlasted(self.reader.end), order.ticket))

        self._beside(work(), "end of the coordinator stream")

    def _fence(self, order: ce.Fence, feed: Callable[[Any], None]) -> None:
        async def work() -> None:
            try:
                with answered("the fence"):
                    await fence(self._port, self._names.job, order.processor, order.incarnation)
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
            names = self._names
            writer = self._writer = LeaderWriter(self._port, names.job, names.coordinator, self._stamp)
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
                    await self._make_topics(order.writes)
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
            self.feed_leader(await outlasted(lambda: self._bounds(order.run_id)))

        self._beside(work(), "resolve")

    async def _make_topics(self, writes: tuple[c.Write, ...]) -> None:
        """Those that the leader's writes speak of."""
        models = [write.model for write in writes if isinstance(write, c.SetJobModel)]
        logs = {write.task: write.partition for write in writes if isinstance(write, c.SetChangelog)}
        if not models and not logs:
            return
        known = {**self.leader.job.changelogs, **logs}
        model = models[-1] if models else self.leader.job.model
        await self._topics.ensure_for(model, max(known.values(), default=-1) + 1)

    async def _bounds(self, run_id: str) -> lw.Resolved:
        """Where a new run starts and ends."""
        starts, untils = await run_bounds(self._offsets, self._graph, await self._topics.input_counts())
        return lw.Resolved(run_id, starts, untils)

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
                    why = await self.probe(order.target)
            except Exception as error:  # noqa: BLE001 - the machine asks again, with growing pauses
                why = f"{type(error).__name__}: {error}"
            log.info("target was asked", target=str(order.target), well=not why, why=why)
            self.feed_member(mw.Probed(order.target, why))

        self._beside(work(), f"probe of {order.target}")

    async def probe(self, target: StreamPartition) -> str:
        """Why this target cannot be written now; nothing when it can, and then its width and limits are learnt again."""
        names = self._names
        ours = target.stream in (names.log, names.dead_letters) or target.stream in self._graph.intermediates
        transactional_id = str(TransactionalId(names.job, self._processor, "probe"))
        async with self._probing:
            why = await self._port.probe(transactional_id, target, narrower=not ours)
        if not why:
            await self.world.learn(target.stream)
        return why

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
