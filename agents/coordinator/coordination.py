"""Feeds the coordinator stream and the heartbeats to the `Member` and the `Leader` of a process, and drives both.

    reader ─ mailbox ─ member_edge, leader_edge ─ orders, records, transactions, fences
    heartbeats ──────────┘

Both machines are fed on one loop, one event at a time. Nothing is decided here. This code uses the port, and the process around it.

Promises: the stream is read in order, without gaps: a damaged batch is fetched again until it can be read. A reader that has died is
replaced and continues at the same position.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...core.coordination import events as ce
from ...core.coordination import messages as c
from ...core.coordination.leader import protocol as lw
from ...core.coordination.leader.leader import Leader
from ...core.coordination.member.member import Member
from ...core.graph.graph import Graph
from ...core.machine import Tick
from ...core.names import Topics
from ..cancellation import passes
from ..logger import Logger
from ..port.outlasting import outlasted
from ..port.port import Mailbox, Offsets, Port, Process
from ..port.waiting import pause, wait
from ..records.kafka.columns import DamagedBatch
from .coordinator_stream import CoordinatorReader
from .heard import HeardBeats
from .heartbeat import Heartbeats, HeartbeatSource
from .leader_edge import RESIGN_S, LeaderEdge, LeaderTopics
from .member_edge import MemberEdge, World
from .passed import PassedEntries

log = Logger("headgate.coordination")
AGAIN_S = 2.0
"""The pause before a failed read of the coordinator stream is repeated."""


class Coordination:
    """Both machines with their edges, the reader and the heartbeats. The machines exist once `start` was called."""

    def __init__(
        self,
        world: World,
        process: Process,
        port: Port,
        offsets: Offsets,
        topics: LeaderTopics,
        graph: Graph,
        names: Topics,
        stamp: c.Stamp,
    ) -> None:
        self.reader = CoordinatorReader(port, offsets, names.coordinator)
        self.blocked = ""
        """Why this process cannot follow the job; empty if it can."""
        self.stopped = False
        self.member: Member
        self.leader: Leader
        self.member_edge: MemberEdge
        self.leader_edge: LeaderEdge
        self.heartbeat = HeartbeatSource(port, world.load, world.under_way)
        self.heard: HeardBeats | None = None
        """What it hears of all processes; None before it has started."""
        self.passed = PassedEntries()
        self._heard_ms = 0
        self._world = world
        self._process = process
        self._port = port
        self._offsets = offsets
        self._topics = topics
        self._graph = graph
        self._names = names
        self._stamp = stamp

    async def start(self, member: Member, leader: Leader, *, beat_s: float, look_s: Callable[[], float]) -> None:
        """Connect, start the machines, and follow the job. `look_s`: how often the inputs are looked at."""
        process, port, names = self._process, self._port, self._names
        mailbox = process.mailbox("coordinator", self._letter, self._gone, lambda: None)
        await mailbox.start()
        await self.reader.start()
        shared = process, port, self._graph, names, self._stamp, self.reader
        self.member_edge = MemberEdge(member, self._world, *shared)
        self.leader_edge = LeaderEdge(leader, self._world.refuse, self._offsets, self._topics, *shared)
        self.member, self.leader = member, leader
        self.heard = HeardBeats(member.view.process)
        self.feed_member(Tick())
        self.feed_leader(Tick())
        await process.serve("steering", partial(self._follow, mailbox))
        process.spawn(partial(self.leader_edge.count, look_s), "partition counts")
        process.spawn(self.heartbeat.turn, "age of the main loop")
        self.heartbeat.begin(
            member,
            leader,
            Heartbeats(
                port,
                names.heartbeat,
                say=self.heartbeat.say,
                heard=lambda event: self.beat(event),
                unread=self._world.unread,
                interval_s=beat_s,
            ),
        )

    @property
    def heard_ms(self) -> int:
        """Until when (wall clock) this process knows what was decided; 0 before it knows anything."""
        reader, member = self.reader, getattr(self, "member", None)
        if member is not None and member.view.job.position >= reader.entries_to:
            self._heard_ms = reader.known_ms
        return self._heard_ms

    # ------------------------------------------------------------------------------------------------- following the job

    async def _follow(self, mailbox: Mailbox) -> None:
        clock = self._port.clock
        while True:
            try:
                event = await self.reader.read()
            except DamagedBatch as error:
                # the batch may contain grants: it is read again, never skipped
                self.blocked = f"the coordinator stream cannot be read after offset {self.reader.position}: {error}"
                log.error("the coordinator stream is damaged", why=self.blocked)
                await pause(clock, AGAIN_S)
                continue
            except BaseException as error:
                if passes(error):
                    raise
                self.blocked = f"the coordinator stream is not read: {type(error).__name__}: {error}"
                log.error("reading the coordinator stream again", why=self.blocked)
                await pause(clock, AGAIN_S)
                await outlasted(self.reader.again)
                continue
            if event is not None:
                self.blocked = ""
                await mailbox.put(event)

    async def _letter(self, letter: c.Read) -> None:
        for entry in letter.entries:
            if entry.problem:
                self._world.unread(self._names.coordinator, 0, entry.offset, entry.problem)
        self.passed.take(letter.entries)
        self.feed_member(letter)
        self.feed_leader(letter)

    def _gone(self, why: BaseException | None) -> None:
        if not self.stopped:
            self._process.crash(why or RuntimeError("the coordinator agent was stopped"))

    # ------------------------------------------------------------------------------------------------------------- events

    def beat(self, event: ce.Beat) -> None:
        """Feed a received heartbeat to both machines."""
        if self.heard is not None:
            self.heard.hear(event.heartbeat, self._port.clock.now().mono)
        self.feed_member(event)
        self.feed_leader(event)

    def feed_member(self, event: Any) -> None:
        """Feed one event to the member."""
        if not self.stopped:
            self.member_edge.driven.feed(event)

    def feed_leader(self, event: Any) -> None:
        """Feed one event to the leader."""
        if not self.stopped:
            self.leader_edge.driven.feed(event)

    # ------------------------------------------------------------------------------------------------------------ its end

    async def resign(self) -> None:
        """Hand back the leadership, if this process has it, and wait until that is written, for at most `RESIGN_S`."""
        self.feed_leader(lw.Resign())
        if not await wait(self._port.clock, self.leader_edge.resigned, RESIGN_S):
            log.warning("left without handing back the leadership")

    def stop(self) -> None:
        """Feed the machines nothing more."""
        self.stopped = True
        for edge in self._edges():
            edge.driven.stop()

    def look(self) -> None:
        """How often the inputs are looked at has changed."""
        if hasattr(self, "leader_edge"):
            self.leader_edge.look()

    def _edges(self) -> list[MemberEdge | LeaderEdge]:
        return [self.member_edge, self.leader_edge] if hasattr(self, "leader_edge") else []

    @property
    def resigned(self) -> bool:
        """Whether the leadership was handed back."""
        return any(edge.resigned.is_set() for edge in self._edges() if isinstance(edge, LeaderEdge))

    async def stop_heartbeats(self) -> None:
        """Stop sending and receiving heartbeats."""
        await self.heartbeat.stop()

    async def close(self) -> None:
        """Close the clients."""
        self.stop()
        await self.reader.stop()
        for edge in self._edges():
            await edge.close()
