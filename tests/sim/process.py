"""One worker process: its loop, its clocks and its life. Coordination and runtime are those of production (`life`).

A call to the broker takes effect at one moment, and its answer arrives at a later one. Between the two, the process may be killed or
frozen, the broker may go down, or the answer may get lost; the process then gets an unknown outcome, as from a real client.

What outlives a process is in its `Slot` (processor id, location, number of lives) and on the location's disk.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.agents.cancellation import Unasked, answered
from headgate.agents.port.outlasting import BrokerAway
from headgate.core.names import StreamPartition, worker_id

from .life import Life, Watched
from .log import Fenced, NotOngoing, Refused, Unavailable
from .loop import Loop
from .schedule import Host

if TYPE_CHECKING:
    from headgate.core.coordination.leader.leader import Leader
    from headgate.core.coordination.member.member import Member

    from .port import SimConsumer
    from .stories import Story
    from .world import Job, World

R = TypeVar("R")
RETRY_S = 0.15
PATIENCE_S = 20.0
"""How long a client waits for a missing broker before it gives up and asks again."""


class Slot:
    """What remains of a worker when its process is gone."""

    def __init__(self, job: Job, processor: str, location: str) -> None:
        self.job = job
        self.processor = processor
        self.location = location
        self.lives = 0
        self.process: Process | None = None
        self.incarnations = 0
        self.absent = False
        """It is not started again."""
        self.once = False
        """It is started only once."""
        self.started = False


class Process(Host):
    """One life of a worker."""

    def __init__(self, world: World, slot: Slot) -> None:
        slot.lives += 1
        super().__init__(world.schedule, f"{slot.job.name}/{slot.processor}.{slot.lives}")
        self.world = world
        self.stories: list[Story] = []
        """The machines of this life that are recorded."""
        self.slot = slot
        self.job = slot.job
        self.kafka = world.kafka
        self.born = self.schedule.moment
        self.frozen_last = -1e9
        self.freeze_on_record = 0.0
        """How long it is frozen at its next write to the coordinator stream (a fault)."""
        self.holds_writes = False
        """Whether unsent writes go out after it wakes (a zombie's late writes), or went out before."""
        self.guilty_until = 0.0
        """Until then there may be a good reason to fence it."""
        self.exiting = False
        self.exit: tuple[int, str] | None = None
        self.leader: Leader = world.make_leader(self)
        self.member: Member = world.make_member(self)
        self.loop = Loop(self)
        self.consumers: dict[SimConsumer, None] = {}
        self.watched: dict[str, Watched] = {}
        """The last actor of each task here."""
        self.contributed: dict[str, dict[str, Watched]] = {}
        """By incarnation, the tasks whose changes are in the current transaction."""
        self.producers_made = 0
        self.incarnations: dict[str, str] = {}
        """By transactional id."""
        self.fetch_delay_s = 0.0
        """How slow its readers of data are (a fault)."""
        self.life = Life(self)
        self.runtime = self.life.runtime
        self.refused: set[tuple[str, StreamPartition, int]] = set()
        """Which task failed at which target, with the number of the target's failure."""
        self.config_offset = -1
        self.lose_answer = 0
        """How many of the next answers to writes get lost (a fault)."""
        self.lose_commits = 0
        """How many of the next ends of transactions never reach the broker (a fault)."""
        self.cancel_calls = 0
        """How many of the next calls of its client are cancelled, which nobody has asked for (a fault)."""
        self.unclear: set[str] = set()
        """Its transactional ids of which a request got no answer, so that it does not know whether a transaction is open."""
        self.cut_until = 0.0
        """Until then nothing passes between it and the broker (a fault)."""
        self.shown: dict[StreamPartition, deque[tuple[float, int]]] = {}
        """By partition: when the last answers to fetches have come here, by its own clock, and the end that each showed."""
        self.read_delay_s = 0.0
        """How slow its reader of the coordinator stream is (a fault)."""

    # ------------------------------------------------------------------------------------------------------- life

    def start(self) -> None:
        """Schedule the first events of a life."""
        self.job.processes.append(self)
        self.loop.call_soon(self.life.start)

    def to_member(self, event: Any) -> None:
        """An event from outside for the member."""
        self.loop.call_soon(self.life.to_member, event)

    def to_leader(self, event: Any) -> None:
        """The same for the leader."""
        self.loop.call_soon(self.life.to_leader, event)

    def end(self) -> None:
        """End by a kill or an exit; what is on disk and in the logs stays."""
        self.alive = False
        self.loop.end()
        for consumer in list(self.consumers):
            consumer.end()
        if self in self.job.processes:
            self.job.processes.remove(self)
        if self.slot.process is self:
            self.slot.process = None
        stories, self.stories = self.stories, []
        if self.world.found is None:
            self.world.replay(stories)

    def freeze(self, seconds: float) -> None:
        super().freeze(seconds)
        self.frozen_last = max(self.frozen_last, self.schedule.moment + seconds)
        self.holds_writes = self.schedule.rng.random() < 0.6

    def cut(self, seconds: float) -> None:
        """Nothing passes between it and the broker for a while; it lives on, and others may take it for dead."""
        self.cut_until = self.frozen_last = max(self.frozen_last, self.schedule.moment + seconds)

    @property
    def cut_off(self) -> bool:
        """Whether it cannot reach the broker."""
        return self.kafka.down or self.cut_until > self.schedule.moment

    def woke_s_ago(self) -> float:
        """How long ago it was frozen, or cut off, last."""
        return self.schedule.moment - self.frozen_last

    def fenced(self, incarnation: str) -> bool:
        """Whether the broker rejects everything from this incarnation."""
        holder = self.kafka.producers.get(worker_id(self.job.job_name, self.slot.processor, incarnation))
        return holder is not None and holder.owner != (self, incarnation)

    def run_of(self, task: str) -> str:
        """The run in which a task writes."""
        watched = self.watched.get(task)
        return "" if watched is None else watched.run_id

    # ---------------------------------------------------------------------------------------- calls to the broker

    async def asked(self, effect: Callable[[], R], within_s: float | None = None) -> R:
        """Reach the broker and await its answer. Raises what the effect raises, and `BrokerAway` if no answer comes in time."""
        future: asyncio.Future[R] = self.loop.create_future()

        def reach() -> R | None:
            return effect() if not future.done() else None

        def done(result: R) -> None:
            if not future.done():
                future.set_result(result)

        def failed(error: Exception) -> None:
            if not future.done():
                future.set_exception(error)

        if self.cancel_calls > 0:
            self.cancel_calls -= 1
            self.world.took_effect("cancelled-call")
            await asyncio.sleep(self.schedule.latency())
            raise asyncio.CancelledError("a connection was torn down")
        self.schedule.at(self.schedule.latency(), self._reach_asked, reach, done, failed, future)
        try:
            async with asyncio.timeout(within_s if within_s is not None else PATIENCE_S):
                return await future
        except TimeoutError:
            raise BrokerAway("no broker answers") from None

    async def retried(self, effect: Callable[[], R], within_s: float | None = None) -> R:
        """Reach the broker as `kafka.connect` does: what the client cancels is asked again."""
        while True:
            with contextlib.suppress(Unasked), answered("a request"):
                return await self.asked(effect, within_s)

    def _reach_asked(
        self,
        effect: Callable[[], Any],
        done: Callable[[Any], None],
        failed: Callable[[Exception], None],
        future: asyncio.Future[Any],
    ) -> None:
        if not self.alive or future.done():
            return
        try:
            result = self._at_broker(effect)
        except Unavailable:
            self.schedule.post(self, RETRY_S, self._reach_asked, effect, done, failed, future)
        except (Fenced, NotOngoing, Refused) as error:
            self.schedule.post(self, self.schedule.latency(), failed, error)
        else:
            self.schedule.post(self, self.schedule.latency(), done, result)

    def _at_broker(self, effect: Callable[[], R]) -> R:
        if self.cut_off:
            raise Unavailable
        return effect()

    def write(
        self, effect: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[Exception | None], None]
    ) -> None:
        """The same for a write, which may be rejected (`failed(error)`), and whose answer may get lost (`failed(None)`)."""
        self.schedule.at(self.schedule.latency(), self._reach_write, effect, done, failed)

    def _reach_write(
        self, effect: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[Exception | None], None]
    ) -> None:
        if not self.alive:
            return
        if self.holds_writes and self.frozen_until > self.schedule.moment:
            self.schedule.post(self, 0.0, self._reach_write, effect, done, failed)
            return
        try:
            result = self._at_broker(effect)
        except Unavailable:
            self.schedule.post(self, RETRY_S, self.write, effect, done, failed)
            return
        except (Fenced, NotOngoing, Refused) as error:
            self.schedule.post(self, self.schedule.latency(), failed, error)
            return
        if self.lose_answer > 0:
            self.lose_answer -= 1
            self.world.took_effect("lost-ack")
            self.schedule.post(self, 0.05 + self.schedule.latency(), failed, None)
            return
        self.schedule.post(self, self.schedule.latency(), done, result)
