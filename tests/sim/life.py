"""Runs the coordination and the runtime of production in one simulated process, and watches them.

The code under test is `agents`' own: coordination, heartbeats, tasks, intakes, outbox, committer. This file provides the process around
them (`runtime.RuntimeHost`, `coordination.World`) and watches their machines: each event is a step of the world, and is shown to the
invariants.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from headgate.agents.cancellation import Unasked, answered
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.live_settings import Settings
from headgate.agents.port.port import Background
from headgate.agents.runtime.copies.directory import NoDirectory
from headgate.agents.runtime.task.task import TaskActor
from headgate.agents.runtime.writing.outbox import Outbox
from headgate.agents.testing.port import MemoryMailbox
from headgate.agents.worker.options import WorkerOptions
from headgate.agents.worker.participant import Participant
from headgate.core import orders
from headgate.core.coordination import messages
from headgate.core.coordination.events import Beat
from headgate.core.coordination.leader.leader import Leader
from headgate.core.coordination.member import protocol as member_words
from headgate.core.coordination.member.member import Member
from headgate.core.graph.model import JobModel
from headgate.core.machine import Tick
from headgate.core.names import StreamPartition
from headgate.core.task import protocol as facts
from headgate.core.task.committer.commit import Committer
from headgate.core.task.task import Task

from .disk import TaskDisk
from .port import LeaderOffsets, SimPort
from .stories import recorded

if TYPE_CHECKING:
    from .process import Process

LIMIT = 1 << 20


class Watched:
    """One watched task under one grant."""

    def __init__(self, process: Process, actor: TaskActor) -> None:
        self.process = process
        self.job = process.job
        self.actor = actor
        self.name = actor.name
        self.grant = actor.grant
        self.incarnation = process.runtime.producers.incarnation
        self.log_partition = actor.state.log.partition
        self.since_s = process.world.schedule.moment
        self.run_id = ""
        self.began = False
        self.reported = ""
        self.moves: list[tuple[StreamPartition, int, int]] = []
        """What was processed since the last transaction was sealed."""
        self.sealed: list[tuple[StreamPartition, int, int]] = []
        """What was processed and is in a transaction that is not committed yet."""
        self.sealed_ts: dict[StreamPartition, int] = {}
        self.sealed_times: dict[str, int] = {}
        self.missed: tuple[Any, Mapping[str, Any]] = (None, {})
        """The pipeline, and by window the late rows that it has counted, in the last transaction that became visible."""
        self.sealed_missed = self.missed
        """The same in a transaction that is not committed yet."""
        self.max_ts: dict[StreamPartition, int] = {}
        self.times: set[int] = set()
        self.marks: dict[str, int] = {}
        self.closed: dict[str, str] = {}
        self.failed_at = -1e9
        """When something in it failed last."""
        self.view: orders.RunView | None = None
        """The run as it was told last."""
        self._story = recorded(process, actor.machine, partial(Task, actor.machine.plan), f"{self.name}#{self.grant}")
        self._handle = actor.machine.handle
        actor.machine.handle = self.handle  # type: ignore[method-assign]

    @property
    def gone(self) -> bool:
        """Nothing of it runs any more."""
        return self.actor.site.gone or not self.process.alive

    def fenced(self) -> bool:
        """Whether the broker rejects everything from its incarnation."""
        return self.process.fenced(self.incarnation)

    def sources(self) -> list[StreamPartition]:
        """The partitions with records from outside that it reads, once it reads."""
        if self.actor.reading.intake is None:
            return []
        return [at for plan in self.actor.site.plan.inputs if not plan.framed for at in plan.owned]

    def handle(self, event: Any, now: Any) -> list[Any]:
        """One event of its machine: a step of the world."""
        world = self.process.world
        schedule, invariants = world.schedule, world.invariants
        schedule.steps += 1
        kind = type(event)
        begin = self.actor.machine.position(event.at) if kind is facts.ChunkDone else 0
        if kind is orders.Start and not self.began:
            self.began = True
            self.run_id = event.run.run_id
            invariants.actor_started(self)
        elif kind is facts.ChunkTaken:
            world.reading.taken(self, event.at, self.view)
        elif kind is facts.Restored:
            invariants.restored(self)
        elif kind in (facts.WorkFailed, facts.Broken, facts.ApplyFailed, facts.CommitLost):
            self.failed_at = schedule.moment
        if kind in (orders.Start, orders.RunChanged):
            self.view = event.run
        before = self.actor.machine.state
        try:
            instructions = self._handle(event, now)
        except Exception as error:
            world.broke(error)
            raise
        if self._story is not None:
            self._story.tell(event, now, before, instructions)
        if schedule.trace is not None and (instructions or kind not in (facts.AtEnd, facts.Lag)):
            told = ", ".join(map(str, instructions)) or "-"
            who = f"{self.process.name} {self.name}#{self.grant}"
            schedule.note(who, self.actor.machine.phase, event, "=>", told)
        if kind is facts.ChunkDone:
            self._done(event, begin)
        for one in instructions:
            look = LOOKS.get(type(one))
            if look is not None:
                look(self, one)
        return instructions

    def _done(self, event: facts.ChunkDone, begin: int) -> None:
        self.moves.append((event.at, begin, event.upto))
        if self.job.is_source(event.at.stream):
            if event.max_ts is not None:
                self.max_ts[event.at] = max(event.max_ts, self.max_ts.get(event.at, event.max_ts))
                self.times.add(self.max_ts[event.at] - self.job.lag_ms)
        else:
            self.process.world.invariants.processed(self, event.at, begin, event.upto)

    def _letter(self, order: facts.RunStep) -> None:
        self.process.world.invariants.letter(self, order)

    def _control(self, order: facts.SendControl) -> None:
        self.process.world.invariants.control_sent(self, order)

    def _turn(self, order: facts.SeekConsumer) -> None:
        for at in order.positions:
            self.process.world.reading.turned(self, at)

    def _contribute(self, order: facts.Contribute) -> None:
        self.sealed, self.moves = self.moves, []
        self.sealed_ts = dict(self.max_ts)
        self.sealed_times = dict(self.actor.machine.step_times)
        if (pipeline := self.actor.site.pipeline) is not None:
            self.sealed_missed = pipeline, {name: missed for name, _, missed in pipeline.windows()}
        self.process.contributed.setdefault(self.incarnation, {})[self.name] = self


LOOKS: Mapping[type, Callable[[Watched, Any], None]] = {
    facts.RunStep: Watched._letter,
    facts.SendControl: Watched._control,
    facts.SeekConsumer: Watched._turn,
    facts.Contribute: Watched._contribute,
}


def watch(process: Process, machine: Any, make: Callable[[], Any], who: str) -> None:
    """Watch a machine of a process: each of its events is a step of the world. `make`: makes another one like it."""
    schedule = process.schedule
    original = machine.handle
    story = recorded(process, machine, make, who)

    def handle(event: Any, now: Any) -> list[Any]:
        schedule.steps += 1
        before = machine.state
        try:
            instructions = original(event, now)
        except Exception as error:
            process.world.broke(error)
            raise
        if story is not None:
            story.tell(event, now, before, instructions)
        if schedule.trace is not None and (instructions or type(event) not in (Tick, Beat)):
            if type(event) is messages.Read:
                seen = " ".join(str(one.message or one.key).replace("Set", "", 1)[:90] for one in event.entries[:4])
                event = f"Read({len(event.entries)} to {event.position}: {seen})"
            told = ", ".join(map(str, instructions)) or "-"
            schedule.note(f"{process.name} {who}", machine.state, event, "=>", told)
        return instructions

    machine.handle = handle


class Topics:
    """See `runtime.Targets` and `coordination.LeaderTopics`: the topics of the modelled broker."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def width(self, topic: str) -> int:
        """See `runtime`."""
        await self._process.retried(self._process.kafka.up)
        return len(self._process.kafka.topics[topic])

    async def check_widths(self, widths: Mapping[str, int]) -> None:
        """See `runtime`."""
        await self._process.retried(self._process.kafka.up)

    def limit(self, topic: str) -> int | None:
        """See `runtime`."""
        return LIMIT

    def kept_ms(self, topic: str) -> int | None:
        """See `runtime`. Nothing is deleted by its age."""

    async def learn(self, outbox: Outbox | None) -> None:
        """See `runtime`."""
        await self._process.retried(self._process.kafka.up)
        self._tell(outbox, self._process.job.written)

    async def input_counts(self) -> dict[str, int]:
        """See `coordination.LeaderTopics`."""
        process = self._process

        def effect() -> dict[str, int]:
            process.kafka.up()
            return process.job.counts(process.leader.config.plan)

        return await process.retried(effect)

    async def more_counts(self) -> dict[str, int]:
        """See `coordination.LeaderTopics`."""
        process = self._process

        def effect() -> dict[str, int]:
            process.kafka.up()
            return process.job.more_counts(process.leader.config.plan)

        return await process.retried(effect)

    async def ensure_for(self, model: JobModel | None, tasks: int) -> None:
        """See `coordination.LeaderTopics`."""
        process = self._process

        def effect() -> None:
            process.kafka.up()
            process.job.need_log_partition(tasks - 1)

        await process.retried(effect)

    async def learn_one(self, producers: Iterable[Outbox | None], topic: str) -> None:
        """See `runtime`."""
        await self._process.retried(self._process.kafka.up)
        for producer in producers:
            self._tell(producer, [topic])

    def _tell(self, outbox: Outbox | None, topics: Iterable[str]) -> None:
        if outbox is not None:
            for topic in topics:
                outbox.know(topic, len(self._process.kafka.topics[topic]), LIMIT)


class Life:
    """See `runtime.RuntimeHost`: the process around the participant; it also listens to it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        job, slot = process.job, process.slot
        port = SimPort(process)
        options = WorkerOptions(
            job.declared,
            ClientSettings("nobody:1"),
            processor=slot.processor,
            location=slot.location,
            process=process.name,
            token="",
            settings=job.given,
            host=slot.location,
        )
        nothing = {"upkeep": lambda: None, "log": lambda: None}
        self.participant = Participant(
            options,
            self,
            port,
            port,
            Topics(process),
            Settings(job.given),
            refuse=self.crash,
            more=nothing,
            memory=job.shape.memory(joins=job.joining is not None),
        )
        self.runtime = self.participant.runtime
        self.runtime.turns.patient = process.world.patient
        self.coordination = self.participant.coordination
        self.coordination._offsets = LeaderOffsets(process)
        self._listen(self.participant)

    def _listen(self, participant: Any) -> None:
        """Listen to all calls between coordination and runtime."""
        process, invariants, waiting = self._process, self._process.world.invariants, self._process.world.waiting

        def tell(task: str, order: orders.Order) -> None:
            if isinstance(order, orders.Seek | orders.Unpark):
                waiting.told(process, task, order)
            original.tell(task, order)

        def report(report: orders.Report) -> None:
            watched = process.watched.get(report.task)
            if isinstance(report, orders.SeekApplied):
                waiting.answered(process, report)
            elif watched is not None and watched.grant == report.grant:
                watched.reported = report.state
                invariants.reported(watched, report)
            original.report(report)

        def producer_lost(lost: member_words.ProducerLost) -> None:
            if lost.target is not None:
                invariants.refused(process, lost.target, [task for task, _ in lost.failed])
            original.producer_lost(lost)

        def config_changed(overrides: Mapping[str, Any], offset: int) -> None:
            invariants.config_applied(process, offset)
            process.config_offset = offset
            original.config_changed(overrides, offset)

        async def begin(incarnation: str, transactional_id: str) -> None:
            process.incarnations[transactional_id] = incarnation
            await original.begin(incarnation, transactional_id)
            if self.runtime.producers.committing is not None:
                machine = self.runtime.producers.committing.machine
                again = partial(Committer, interval_s=machine.interval_s, timeout_s=machine.timeout_s)
                watch(process, machine, again, "C")

        def leave(code: int, why: str) -> None:
            process.exit, process.exiting = (code, why), True
            original.exit(code, why)

        def unread(topic: str, partition: int, offset: int, why: str) -> None:
            self.crash(AssertionError(f"{topic}:{partition} at {offset} cannot be read: {why}"))

        heard = {
            (participant.tasks, "tell"): tell,
            (participant, "report"): report,
            (participant, "producer_lost"): producer_lost,
            (participant, "config_changed"): config_changed,
            (participant.producers, "begin"): begin,
            (participant, "exit"): leave,
            (participant, "unread"): unread,
        }
        original = SimpleNamespace(**{name: getattr(part, name) for part, name in heard})

        def while_alive(name: str, told: Any) -> Any:
            """What a killed process still does while its coroutines are closed reaches nobody, and breaks no promise."""
            return lambda *given: (told if process.alive else getattr(original, name))(*given)

        for (part, name), told in heard.items():
            setattr(part, name, while_alive(name, told))

    def start(self) -> None:
        """Join the job like `Participant.start`, but with machines that the world configures; end when it is over."""
        process = self._process
        watch(process, process.member, partial(Member, process.member.config), "M")
        watch(process, process.leader, partial(Leader, process.leader.config), "L")
        self.participant.overrides.tell()
        self.spawn(self._join, "coordination")
        self.spawn(self._over, "its end")

    async def _join(self) -> None:
        """A start that the client calls off ends the process, and its supervisor starts it again, as `agents.worker.worker` does."""
        process = self._process
        try:
            with answered("the start"):
                job = process.job
                await self.coordination.start(
                    process.member, process.leader, beat_s=job.heartbeat_s, look_s=lambda: job.look_s
                )
        except Unasked as error:
            process.world.exited(process, 1, str(error))

    async def _over(self) -> None:
        await self.participant.over.wait()
        for actor in list(self.runtime.actors.values()):
            await actor.kill()  # as `agents.worker.worker` does
        await self.runtime.followers.stop()
        assert self._process.exit is not None
        self._process.world.exited(self._process, *self._process.exit)

    def to_member(self, event: Any) -> None:
        """An event from outside. Before the process follows the job, `Leave` just ends it."""
        if hasattr(self.coordination, "member"):
            self.coordination.feed_member(event)
        elif isinstance(event, member_words.Leave):
            self._process.world.exited(self._process, 0, event.why)

    def to_leader(self, event: Any) -> None:
        """The same for the leader."""
        if hasattr(self.coordination, "member"):
            self.coordination.feed_leader(event)

    # --------------------------------------------------------------------------------------------- what the runtime needs

    def crash(self, error: BaseException) -> None:
        """See `runtime.RuntimeHost`."""
        self._process.world.broke(error)

    def disk(self, task: str) -> TaskDisk:
        """See `runtime.RuntimeHost`."""
        process = self._process
        return TaskDisk(process, process.world.disk(process.slot.location), task)

    def copy_disk(self, table: str) -> NoDirectory:
        """See `runtime.RuntimeHost`. Copies lie in memory."""
        return NoDirectory()

    def spawn(self, work: Background, name: str) -> asyncio.Task[None]:
        """See `runtime.RuntimeHost`."""
        task = self._process.loop.create_task(_awaited(work, name), name=name)
        task.add_done_callback(self._done)
        return task

    async def serve(self, name: str, work: Background) -> Any:
        """See `runtime.RuntimeHost`."""
        return self.spawn(work, name)

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.crash(error)

    def mailbox(
        self,
        name: str,
        on_letter: Callable[[Any], Awaitable[None]],
        on_gone: Callable[[BaseException | None], None],
        on_again: Callable[[], None],
    ) -> MemoryMailbox:
        """See `runtime.RuntimeHost`. A task's mailbox is where watching it begins."""
        actor = getattr(on_again, "__self__", None)
        if isinstance(actor, TaskActor):
            self._process.watched[actor.name] = Watched(self._process, actor)
        return MemoryMailbox(name, on_letter, on_gone)


async def _awaited(work: Background, name: str) -> None:
    with answered(name):
        await work()
