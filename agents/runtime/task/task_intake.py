"""Connects a task's consumer with its actor: tells the machine the state of the buffers, and puts chunks into the actor's mailbox.

It runs two coroutines: one fills the buffers, the other hands out chunks, one letter at a time. The chooser picks among the partitions
that the machine allows, the chunk goes into the actor's mailbox, and the next one follows when it is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Mapping
from typing import Any, Protocol

from ....core.names import StreamPartition
from ....core.task import protocol as t
from ...cancellation import answered
from ...operators.pipeline.letter_bounds import NO_BOUNDS
from ...port.absence import Unread
from ...port.port import Port
from ...port.waiting import wait
from ...records.frames.chunks import Chunk
from ..reading.chooser import OVER, Taking, TaskChooser
from ..reading.intake import Intake, PartitionHead
from ..reading.skips import Skips
from .notes import DEGRADED
from .site import Site
from .turns import LoopTurns

GAP_S = 2.5
"""Two answers further apart do not prove that there was nothing between them: a process that was suspended meanwhile has not looked."""
LOOK_S = 1.0
"""How long a fill waits for an answer before it checks which partitions have none."""


class Room(Protocol):
    """The transactions that what is read will join; see `Producers`."""

    async def room(self) -> None: ...
    @property
    def gathers(self) -> bool: ...
    @property
    def rest_s(self) -> float: ...
    def gather_until(self) -> float | None: ...
    def arrived(self, took_s: float) -> None: ...


class IntakeNeeds(Protocol):
    """What the intake of a task needs of the process."""

    port: Port
    turns: LoopTurns
    unread: Unread

    @property
    def producers(self) -> Room: ...


class TaskIntake:
    """The intake of one task."""

    def __init__(
        self,
        site: Site,
        needs: IntakeNeeds,
        intake: Intake,
        chooser: TaskChooser,
        positions: Mapping[StreamPartition, int],
        take: Callable[[Chunk], Awaitable[None]],
    ) -> None:
        """`take` receives every chunk that is handed out."""
        self._site = site
        self._hand = take
        self.intake = intake
        self.chooser = chooser
        self.held: dict[StreamPartition, Chunk] = {}
        """By partition: the control message at its head, taken from the buffer but not yet passed by the machine."""
        self.skips = Skips()
        self._said: dict[StreamPartition, int] = {}
        self._ends_reported: dict[StreamPartition, int] = {}
        self._answered_s: dict[StreamPartition, float] = {}
        """When the last answer that the machine was told of arrived."""
        self._moved: dict[StreamPartition, int] = dict(positions)
        self._trouble: dict[StreamPartition, str] = {}
        """By partition: the reason, already reported, why it cannot be read."""
        self._unanswered: set[StreamPartition] = set()
        """Of which the machine was told that nothing answers."""
        self._identified: dict[StreamPartition, str] = {}
        """Which topics the machine was told."""
        self._lost: set[StreamPartition] = set()
        """Paused because records were deleted before they were read; a seek resumes them."""
        self._own = frozenset(plan.stream for plan in site.plan.inputs if not plan.external)
        self._own_lag = 0
        self._producers = needs.producers
        self._turns = needs.turns
        self._unread = needs.unread
        self._clock = needs.port.clock
        self._broker = needs.port.broker
        self._silent = needs.port.silent
        self._waits = ""
        """Why nothing was handed out although records were buffered, if that was so at the last look."""
        self._wake = asyncio.Event()
        self._telling = False
        """The machine is being told the state of the buffers; what it decides takes effect in the same look."""
        self._stopped = asyncio.Event()
        self._jobs: list[asyncio.Task[None]] = []

    # ------------------------------------------------------------------------------------------------------------- control

    def wake(self) -> None:
        """Something has changed: check again what may be taken."""
        self._wake.set()

    def decided(self) -> None:
        """The machine has handled an event: it may allow other partitions now."""
        if not self._telling:
            self._wake.set()

    def take_settings(self, settings: Mapping[str, Any], watchdog_s: float) -> None:
        """Apply changed settings from the next look and the next choice on."""
        self.intake.watch(watchdog_s)
        self.chooser.apply(settings)
        self.wake()

    def bound(self, order: t.Bounds) -> None:
        """Hand out no records at or behind these offsets."""
        reads = self.intake.positions()
        for at, until in order.until.items():
            if at in reads:  # a partition that ended before the intake was made is not read
                self.intake.bound(at, until)
        self.chooser.bootstrap(order.bootstrap)

    def seek(self, positions: Mapping[StreamPartition, int]) -> None:
        """Continue reading at these positions."""
        for at, position in positions.items():
            self.held.pop(at, None)
            self._said.pop(at, None)
            self._identified.pop(at, None)
            self.skips.forget(at)
            self.intake.seek(at, position, self._site.topic_of(at))
            if at in self._lost:
                self._lost.discard(at)
                self.chooser.anew(at)
                self.intake.resume(at)
            self._moved[at] = position
        self.wake()

    def stop_fetching(self, order: t.StopFetching) -> dict[StreamPartition, int]:
        """Stop fetching these partitions. Returns up to where each is still handed out: what is kept, to the end of its buffer."""
        upto: dict[StreamPartition, int] = {}
        for at in order.keep:
            self.intake.pause(at)
            upto[at] = self.intake.drains_to(at)
        for at in order.drop:
            self.intake.pause(at)
            upto[at] = self._site.machine.position(at)
            self.held.pop(at, None)
            self.intake.seek(at, upto[at], self._site.topic_of(at))
            self.intake.pause(at)
        self.chooser.draining((*order.keep, *order.drop))
        self.intake.go_on()
        self.wake()
        return upto

    async def run(self) -> None:
        """Fill buffers and hand out chunks until `stop()`."""
        try:
            await self.intake.start()
            async with asyncio.TaskGroup() as group:
                if not self._stopped.is_set():
                    self._jobs = [group.create_task(self._fill()), group.create_task(self._hand_out())]
        finally:
            await self.intake.stop()  # if `stop()` came while it connected, only this closes the consumer

    async def stop(self) -> None:
        """End both coroutines before the consumer: an error from a stopped consumer must not count as a failure of the task."""
        self._stopped.set()
        for job in self._jobs:
            job.cancel()
        for at in list(self._trouble):
            del self._trouble[at]
            self._unread.left(str(at))
        for at in list(self._unanswered):
            self._answers(at)
        await self.intake.stop()

    async def _fill(self) -> None:
        while True:
            with answered("reading"):
                await self.intake.fill(LOOK_S)
            self._tell_troubles()
            self._wake.set()

    # -------------------------------------------------------------------------------------------------------------- hand out

    async def _hand_out(self) -> None:
        while True:
            await self._site.idle.wait()
            self.intake.let_go()
            await self._producers.room()
            self._wake.clear()
            if not await self._one():
                await self._wait()

    async def _wait(self) -> None:
        """Wait until something changes, or the chooser wants to be asked again."""
        until = self.chooser.until
        await wait(self._clock, self._wake, None if until is None else max(0.0, until - self._clock.now().mono))

    async def _one(self) -> bool:
        """Tell the machine what has changed, and hand out one letter; False if there is nothing to hand out."""
        clocks = self._turns.clocks
        began_ns = 0 if clocks is None else clocks.cpu_ns()
        heads = self.intake.heads()
        self._telling = True
        try:
            self._tell(heads)
        finally:
            self._telling = False
        machine, view = self._site.machine, self._site.view
        ready = {at: head for at, head in heads.items() if head.count and at not in self.held and machine.may_take(at)}
        full = self._full() if ready else frozenset[str]()
        if full:
            ready = {at: head for at, head in ready.items() if at.stream not in full}
        if not ready:
            self._now_behind(self._behind(heads, full))
            self.chooser.nothing(self.held_why() if full else "")
            self._nothing("full" if full else self._closed(heads))
            return False
        choice = self.chooser.choose(heads, ready, view.closed, self._clock.now())
        if choice is None:
            self._now_behind(False)
            self._nothing(self.chooser.reason)
            return False
        chunk = self._cut(choice, bulk=ready[choice.at].bulk)
        if chunk is None:
            return False
        self.chooser.taken(choice, len(chunk))
        chunk.now_ms = self._broker.ms(self._clock.now())
        chunk.so_far_ms = view.time_of(choice.at)
        chunk.followed = len(ready) > 1 or ready[choice.at].count > len(chunk)
        self._now_behind(self._behind(heads, full, chunk))
        self._waits = ""
        self._site.count(f"chosen.{self.chooser.tier(choice.at.stream)}")
        if chunk.control is not None:
            self._pass_run(chunk)
            return True
        self._moved[chunk.at] = chunk.next_position
        self.skips.mark(chunk)
        if clocks is not None:
            chunk.taken_ns = clocks.cpu_ns() - began_ns
        await self._hand(chunk)
        return True

    def _behind(
        self, heads: Mapping[StreamPartition, PartitionHead], full: Container[str], taken: Chunk | None = None
    ) -> bool:
        """Whether more can be read at once, behind what is taken now; never in virtual time."""
        may_take = self._site.machine.may_take
        return self._turns.patient and any(
            head.more(head.position if taken is None or at != taken.at else taken.next_position)
            and at.stream not in full
            and may_take(at)
            for at, head in heads.items()
        )

    def _now_behind(self, behind: bool) -> None:
        """Whether the task has a backlog now. At the end of one, whatever was held back because of it is fetched."""
        before, self._site.behind = self._site.behind, behind
        if before and not behind:
            self.intake.go_on()

    def _cut(self, choice: Taking, *, bulk: bool) -> Chunk | None:
        """Take the next letter from its buffer: as many rows as a turn of the loop permits."""
        turns, at = self._turns, choice.at
        most, rows = choice.max_records, self.chooser.rows(bulk=bulk)
        bounds = NO_BOUNDS if self._site.pipeline is None else self._site.pipeline.bounds
        if (bound := bounds.most.get(at.stream)) is not None:
            most, rows = min(most, bound), min(rows, bound)
        if turns.clocks is None or self.intake.unread(at):
            return self.intake.take(at, most, choice.up_to_ms, self.chooser.room, rows)
        length = turns.rows(at.stream, max(most, rows), bounds.least.get(at.stream, 1))
        return self.intake.take(at, min(most, length), choice.up_to_ms, self.chooser.room, min(rows, length))

    def _nothing(self, why: str) -> None:
        """Nothing is handed out now. A wait is counted once, however often it is looked at."""
        if why and why != self._waits:
            self._site.count(f"waited.{why}")
        self._waits = why
        self._arrived()

    def _closed(self, heads: Mapping[StreamPartition, PartitionHead]) -> str:
        """Why the machine lets nothing of what is buffered be taken; empty if nothing is buffered."""
        closed = self._site.view.closed
        whys = (closed.get(at, "") for at, head in heads.items() if head.count)
        return next((why for why in whys if why and why not in OVER), "")

    def _arrived(self) -> None:
        """Nothing may be handed out now: a commit may have waited for that."""
        if self.intake.arriving and self._site.idle.is_set() and (took_s := self.intake.arrived()) is not None:
            self._producers.arrived(took_s)

    def _pass_run(self, chunk: Chunk) -> None:
        """Pass this control message, and those that follow it: the producers of a stream announce one after the other."""
        at, run = chunk.at, chunk
        while run is not None:
            self.held[at] = run
            self._pass(run)
            more = at not in self.held and self.intake.control(at) is not None and self._site.machine.may_take(at)
            run = self.intake.take(at, 1) if more else None

    def _pass(self, chunk: Chunk) -> None:
        """Tell the machine once of a control message at the head; hold it until the machine's position has passed it."""
        offset = chunk.next_position - 1
        machine = self._site.machine
        if self._said.get(chunk.at) != offset and machine.may_take(chunk.at) and chunk.control is not None:
            self._said[chunk.at] = offset
            now_ms = self._broker.ms(self._clock.now())
            frame = self._site.view.believed(chunk.at, chunk.control, now_ms)
            self._site.feed(t.ControlAtHead(chunk.at, offset, frame))
        if machine.position(chunk.at) > offset:
            self.held.pop(chunk.at, None)
            self._moved[chunk.at] = chunk.next_position

    def _tell(self, heads: Mapping[StreamPartition, PartitionHead]) -> None:
        """Tell the machine what has changed in its partitions."""
        for chunk in list(self.held.values()):
            self._pass(chunk)
        own = 0
        for at, head in heads.items():
            if at.stream in self._own:
                own += head.lag or 0
            if head.topic and self._identified.get(at) != head.topic:
                self._identified[at] = head.topic
                self._site.feed(t.Identified(at, head.topic))
            if head.lost is not None and not head.paused:
                self.intake.pause(at)
                self._lost.add(at)
                lost = head.lost
                self._site.feed(t.Lost(at, lost.position, lost.start or 0, lost.end, lost.topic))
                continue
            if at in self.held or head.count:
                continue
            if head.position > self._moved.get(at, 0) and self._site.idle.is_set():
                self._moved[at] = head.position
                self._site.feed(t.PositionMoved(at, head.position))
            self._tell_end(at, head)
        if own != self._own_lag:
            self._own_lag = own
            self._site.feed(t.Lag(own))

    def _tell_end(self, at: StreamPartition, head: PartitionHead) -> None:
        if head.answered_age_s is None or head.answers == self._ends_reported.get(at):
            return
        self._ends_reported[at] = head.answers
        answered_s = self._clock.now().mono - head.answered_age_s
        if self._silent and answered_s - self._answered_s.get(at, answered_s) > GAP_S:
            self._not_answered(at)
        self._answered_s[at] = answered_s
        if head.at_end or head.end_reached:
            self._site.feed(t.AtEnd(at, head.position, self._owes(), head.answered_age_s))
        elif head.blocked:
            self._site.feed(t.NotAtEnd(at))
        elif head.degraded:
            self._not_answered(at)

    def _not_answered(self, at: StreamPartition) -> None:
        self._unanswered.add(at)
        self._site.feed(t.NotAnswered(at))

    def _answers(self, at: StreamPartition) -> None:
        """This partition is read again, or by no one here: once that is so of all, nothing is degraded."""
        self._unanswered.discard(at)
        if not self._unanswered:
            self._site.notes.withdraw(DEGRADED)

    def _full(self) -> frozenset[str]:
        """Streams from which no chunks are taken for now, because an operator behind them is full."""
        pipeline = self._site.pipeline
        return frozenset() if pipeline is None else pipeline.held()

    def held_why(self) -> str:
        """Why chunks of some streams are not taken for now, in words; empty if there are none."""
        return "" if self._site.pipeline is None else self._site.pipeline.held_why()

    def _owes(self) -> bool:
        """Whether operators still have work to do even if no more records arrive."""
        pipeline = self._site.pipeline
        return pipeline is not None and pipeline.owes()

    def _tell_troubles(self) -> None:
        """Report which partitions cannot be read, and which can be read again; once per reason. A letter under way does not delay this."""
        for at, why in self.intake.troubles():
            if why is None and at in self._unanswered:
                self._answers(at)
            if why == self._trouble.get(at):
                continue
            if why is None:
                del self._trouble[at]
                self._unread.back(str(at))
            else:
                self._trouble[at] = why
                self._unread.tell(str(at), why)
