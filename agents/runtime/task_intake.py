"""Between a task's consumer and its actor: what stands in the buffers is told to the machine, and chunks go into the mailbox.

Two coroutines: one keeps the buffers filled, the other hands out. Handing out is one letter at a time: the chooser picks among the
partitions that the machine lets through, the chunk goes into the actor's mailbox, and the next one follows when it is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...core.names import StreamPartition
from ...core.task import protocol as t
from ..cancellation import answered
from ..port.waiting import wait
from ..records.chunks import Chunk
from .intake import Intake, PartitionHead

if TYPE_CHECKING:
    from .chooser import TaskChooser
    from .site import Site

GAP_S = 2.5
"""Answers that are further apart do not say together that there was nothing all the time: whoever was stopped meanwhile has not looked."""
LOOK_S = 1.0
"""How long a fill waits for an answer before it looks who has been given none."""


class TaskIntake:
    """The intake of one task."""

    def __init__(
        self,
        site: Site,
        intake: Intake,
        chooser: TaskChooser,
        positions: Mapping[StreamPartition, int],
        take: Callable[[Chunk], Awaitable[None]],
    ) -> None:
        """`take` gets every chunk that is handed out."""
        self._site = site
        self._hand = take
        self.intake = intake
        self.chooser = chooser
        self.held: dict[StreamPartition, Chunk] = {}
        """Control messages that stand at a head, taken from the buffer and not yet passed."""
        self._said: dict[StreamPartition, int] = {}
        self._ends_told: dict[StreamPartition, int] = {}
        self._answered_s: dict[StreamPartition, float] = {}
        """When the last answer came that was told."""
        self._moved: dict[StreamPartition, int] = dict(positions)
        self._trouble: dict[StreamPartition, str] = {}
        """What keeps a partition from being read, as far as it was logged."""
        self._lost: set[StreamPartition] = set()
        """Paused because records were gone before they were read; going on elsewhere ends that."""
        self.lag = 0
        """Records that wait for this task, in all that it reads."""
        self._own = frozenset(plan.stream for plan in site.plan.inputs if not plan.external)
        self._own_lag = 0
        self._clock = site.runtime.port.clock
        self._silent = site.runtime.port.silent
        self._wake = asyncio.Event()
        self._telling = False
        """The machine is told what stands in the buffers, and whatever follows from that is seen in the same look."""
        self._stopped = asyncio.Event()
        self._jobs: list[asyncio.Task[None]] = []

    # ------------------------------------------------------------------------------------------------------------- control

    def wake(self) -> None:
        """Something changed: look again at what may be taken."""
        self._wake.set()

    def decided(self) -> None:
        """The machine was told something: other partitions may be taken now."""
        if not self._telling:
            self._wake.set()

    def take_settings(self, settings: Mapping[str, Any], watchdog_s: float) -> None:
        """What operators have changed: from the next look and the next choice on."""
        self.intake.watch(watchdog_s)
        self.chooser.apply(settings)
        self.wake()

    def bound(self, order: t.Bounds) -> None:
        """Nothing at or behind these offsets is handed out."""
        reads = self.intake.positions()
        for at, until in order.until.items():
            if at in reads:  # what ended before the intake began is not read at all
                self.intake.bound(at, until)
        self.chooser.bootstrap(order.bootstrap)

    def seek(self, positions: Mapping[StreamPartition, int]) -> None:
        """Go on elsewhere."""
        for at, position in positions.items():
            self.held.pop(at, None)
            self._said.pop(at, None)
            self.intake.seek(at, position)
            if at in self._lost:
                self._lost.discard(at)
                self.intake.resume(at)
            self._moved[at] = position
        self.wake()

    def stop_fetching(self, partitions: Sequence[StreamPartition], *, keep: bool) -> dict[StreamPartition, int]:
        """Fetch no more of these; where each stands behind what is buffered."""
        upto: dict[StreamPartition, int] = {}
        for at in partitions:
            self.intake.pause(at)
            upto[at] = self.intake.buffered_to(at) if keep else self._site.machine.position(at)
            if not keep:
                self.held.pop(at, None)
                self.intake.seek(at, upto[at])
                self.intake.pause(at)
        self.chooser.draining(partitions)
        self.wake()
        return upto

    async def run(self) -> None:
        """Fill and hand out until `stop()`."""
        try:
            await self.intake.start()
            async with asyncio.TaskGroup() as group:
                if not self._stopped.is_set():
                    self._jobs = [group.create_task(self._fill()), group.create_task(self._hand_out())]
        finally:
            await self.intake.stop()  # who was stopped while it connected is connected now, and nobody else would know

    async def stop(self) -> None:
        """End both coroutines, and then the consumer: what they would make of one that is gone is no failure of the task."""
        self._stopped.set()
        for job in self._jobs:
            job.cancel()
        await self.intake.stop()

    async def _fill(self) -> None:
        while True:
            with answered("reading"):
                await self.intake.fill(LOOK_S)
            self._wake.set()

    # -------------------------------------------------------------------------------------------------------------- hand out

    async def _hand_out(self) -> None:
        while True:
            await self._site.idle.wait()
            await self._site.runtime.producers.room()
            self._wake.clear()
            if not await self._one():
                await self._wait()

    async def _wait(self) -> None:
        """Until something changes, or the chooser wants to be asked again."""
        until = self.chooser.until
        await wait(self._clock, self._wake, None if until is None else max(0.0, until - self._clock.now().mono))

    async def _one(self) -> bool:
        """Tell what is to be told, and give one letter; False when there is nothing to give."""
        heads = self.intake.heads()
        self._telling = True
        try:
            self._tell(heads)
        finally:
            self._telling = False
        machine = self._site.machine
        ready = {at: head for at, head in heads.items() if head.count and at not in self.held and machine.may_take(at)}
        if ready and (full := self._full()):
            ready = {at: head for at, head in ready.items() if at.stream not in full}
        if not ready:
            self.chooser.nothing()
            return False
        choice = self.chooser.choose(heads, ready, machine.inputs.closed, self._clock.now())
        if choice is None:
            return False
        chunk = self.intake.take(choice.at, choice.max_records, choice.up_to_ms)
        if chunk is None:
            return False
        self.chooser.taken(choice, len(chunk))
        if chunk.control is not None:
            self.held[chunk.at] = chunk
            self._pass(chunk)
            return True
        self._moved[chunk.at] = chunk.next_position
        await self._hand(chunk)
        return True

    def _pass(self, chunk: Chunk) -> None:
        """A control message stands at the head: said once; held until the position has passed it."""
        offset = chunk.next_position - 1
        if self._said.get(chunk.at) != offset and self._site.machine.may_take(chunk.at) and chunk.control is not None:
            self._said[chunk.at] = offset
            self._site.feed(t.ControlAtHead(chunk.at, offset, chunk.control))
        if self._site.machine.position(chunk.at) > offset:
            self.held.pop(chunk.at, None)
            self._moved[chunk.at] = chunk.next_position

    def _tell(self, heads: Mapping[StreamPartition, PartitionHead]) -> None:
        """What the machine must know of its partitions, when it changed."""
        for chunk in list(self.held.values()):
            self._pass(chunk)
        lag = own = 0
        for at, head in heads.items():
            behind = head.lag or 0
            lag += behind
            if at.stream in self._own:
                own += behind
            if head.lost is not None and not head.paused:
                self.intake.pause(at)
                self._lost.add(at)
                self._site.feed(t.Lost(at, head.lost.position, head.lost.start or 0, head.lost.end))
                continue
            if at in self.held or head.count:
                continue
            if head.position > self._moved.get(at, 0) and self._site.idle.is_set():
                self._moved[at] = head.position
                self._site.feed(t.PositionMoved(at, head.position))
            self._tell_end(at, head)
        self.lag = lag
        if own != self._own_lag:
            self._own_lag = own
            self._site.feed(t.Lag(own))

    def _tell_end(self, at: StreamPartition, head: PartitionHead) -> None:
        if head.degraded != self._trouble.get(at):
            self._tell_trouble(at, head.degraded)
        if head.answered_age_s is None or head.answers == self._ends_told.get(at):
            return
        self._ends_told[at] = head.answers
        answered_s = self._clock.now().mono - head.answered_age_s
        if self._silent and answered_s - self._answered_s.get(at, answered_s) > GAP_S:
            self._site.feed(t.NotAnswered(at))
        self._answered_s[at] = answered_s
        if head.at_end or head.end_reached:
            self._site.feed(t.AtEnd(at, head.position, self._owes(), head.answered_age_s))
        elif head.blocked:
            self._site.feed(t.NotAtEnd(at))
        elif head.degraded:
            self._site.feed(t.NotAnswered(at))

    def _full(self) -> frozenset[str]:
        """Streams of which no more chunks are taken for now: what they lead to is full."""
        pipeline = self._site.pipeline
        return frozenset() if pipeline is None else pipeline.held()

    def _owes(self) -> bool:
        """Whether there is something to do though no further record comes."""
        pipeline = self._site.pipeline
        return pipeline is not None and pipeline.owes()

    def _tell_trouble(self, at: StreamPartition, why: str | None) -> None:
        """Why a partition is not read, or that it is again; once for each reason."""
        if why is None:
            del self._trouble[at]
            self._site.runtime.unread.back(str(at))
        else:
            self._trouble[at] = why
            self._site.runtime.unread.tell(str(at), why)
