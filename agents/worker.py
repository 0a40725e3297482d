"""One worker process: a Faust app, the two machines that steer it, its tasks, its producer.

    reader ─ coordinator agent ─ Member, Leader ─ orders ─ task agents ─ ready buffers ─ outbox ─ Kafka

Faust is the runtime of everything that lives here: agents (the coordinator and one for each task) and services; it has no consumer of
its own. The worker decides nothing: it starts, connects, carries out, and ends with the code that its member says.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import structlog

from ..core.batches import Bridge
from ..core.choosing.checked import CheckedChooser
from ..core.coordination import messages as c
from ..core.coordination.leader.leader import Leader
from ..core.coordination.member import protocol as mw
from ..core.coordination.member.member import Member
from ..core.errors import DeclarationError, HeadgateError, SettingError
from ..core.names import worker_id
from ..core.orders import Order, Report, RunView, TaskReported, TaskState
from ..core.settings import parse
from ..core.task.plan import TaskPlan
from .awaiting import answered
from .clients import ClientSettings
from .committing import Committing
from .coordination import Coordination
from .ending import Ending
from .faust_app import ActorApp, new_app
from .job_topics import JobTopics
from .kafka_port import KafkaPort
from .live_settings import Settings
from .load import load_of
from .mailbox import Mailbox
from .offsets import Offsets
from .plans import task_settings
from .runtime import Runtime
from .sensors import Counting
from .services import Work, run_service
from .settings_taken import take
from .steps import SparkStep
from .store import Disk, NoDisk
from .store_rocks import StoreMemory
from .task_actor import TaskActor
from .task_chooser import own_chooser
from .task_directory import Directory
from .unreadable import Unreadable
from .upkeep import Upkeep
from .worker_machines import leader_config, member_config
from .worker_options import WorkerOptions

log = structlog.get_logger("headgate.worker")
DEADLINE_PASSED = 3
"""The exit code of a worker that could not leave in time."""


class Worker:
    """Runs the tasks that it is granted, until its member says exit."""

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self.declared = options.declared
        self.job = self.declared.app.job
        self.client: ClientSettings = options.client
        self.port = KafkaPort(self.client)
        self.live = Settings(options.settings)
        self.topics = self.declared.topics
        own, name = own_chooser(self.declared.app.chooser, self.settings)
        if own is not None:
            CheckedChooser(own, name)  # one that is not there, or cannot choose, is said before anything begins
        self.app: ActorApp = new_app(f"{self.job.slug}.{options.processor}")
        self.sensor = Counting()
        self.app.sensors.add(self.sensor)
        self.job_topics = JobTopics(self.client, self.declared)
        self.offsets = Offsets(self.client)
        graph = self.declared.graph
        self.upkeep = Upkeep(self.client, self.job.slug, self.job_topics.topics, graph.intermediates - graph.broadcast)
        stamp = c.Stamp(options.host, options.user, f"worker {options.processor}", 0)
        self.coordination = Coordination(
            self, self.port, self.offsets, self.job_topics, graph, self.topics, options.processor, stamp
        )
        self.runtime = Runtime(
            f"{self.job.slug}-{options.processor}",
            self,
            self.port,
            self.declared,
            self.live,
            self.job_topics,
            self.offsets,
            spark=self._make_spark(),
            memory=StoreMemory(self.live.given_or("state.memory", options.state_memory)),
            compression=options.compression,
        )
        self.exit_code: int | None = None
        self.exit_why = ""
        self.ready = False
        self.why = "starting"
        self.applied_config = -1
        self.on_waiting: Callable[[str, str, str], None] | None = None
        """Told when it waits because its run is closed: why, the run's state, and why that has failed."""
        self.overrides: dict[str, Any] = {}
        self.loud = False
        """An override says how much is logged."""
        self.exits_on_failure = False
        """What `failure.policy` says."""
        take(self)
        self.started_ms = self.port.clock.now().wall
        self._exiting = asyncio.Event()
        self._spawned: set[asyncio.Task[None]] = set()
        self.ending = Ending()
        self._cut: asyncio.TimerHandle | None = None
        """Rings when leaving takes too long."""
        self._crash: BaseException | None = None

    # ----------------------------------------------------------------------------------------------------------- its life

    async def run(self) -> int:
        """From start to exit; the exit code."""
        try:
            await self._start()
            await self._exiting.wait()
        except HeadgateError:
            raise  # whoever started this worker says it, with its remedy
        except Exception as error:
            log.error("the worker could not start", error=repr(error), exc_info=error)
            raise
        finally:
            await self._put_down()
        if self._crash is not None:
            raise self._crash
        return self.exit_code if self.exit_code is not None else 1

    async def _start(self) -> None:
        await self.job_topics.start()
        await self.job_topics.ensure_fixed()
        await self.offsets.start()
        await self.app.start()
        options = self.options
        if self.spark is not None:
            self.spawn(self.spark.warm(), "Spark")
        await self.coordination.start(
            Member(member_config(options, self.settings)),
            Leader(leader_config(options, self.settings)),
            beat_s=parse("heartbeat.interval", self.settings.get("heartbeat.interval", "1s")) / 1000,
        )
        await self.serve("upkeep", self.upkeep.run(self.actors))
        log.info("worker started", job=str(self.job), processor=options.processor, location=options.location)

    async def _put_down(self) -> None:
        """Stop, whole: who cancels this meanwhile makes it short, and cannot leave agents behind that nobody stops."""
        stopping = asyncio.get_running_loop().create_task(self._stop(), name="the worker stops")
        cancelled: asyncio.CancelledError | None = None
        while not stopping.done():
            try:
                await asyncio.shield(stopping)
            except asyncio.CancelledError as error:
                cancelled = error
                self.ending.hurry()
        if cancelled is not None:
            raise cancelled

    async def _stop(self) -> None:
        """Put everything down, in order. A step that does not end in time is named by `ending`, and left behind: nothing may hang here."""
        self._exiting.set()
        self.ending.begin(self.seconds("stop.timeout"))
        if self._cut is not None:
            self._cut.cancel()
        self.coordination.stop()
        first: dict[str, Awaitable[Any]] = {actor.name: actor.kill() for actor in list(self.actors.values())}
        first["heartbeats"] = self.coordination.hush()
        await self.ending.steps(first, self.seconds("release.timeout"))
        await self.ending.step("producer", self.runtime.producers.drop())
        for task in list(self._spawned):
            task.cancel()
        await self.ending.steps({task.get_name(): asyncio.wait([task]) for task in list(self._spawned)})
        services = [one for one in self.app._children if isinstance(one, Work)]
        await self.ending.steps({str(service.name): service.stop() for service in services})
        last: dict[str, Awaitable[Any]] = {
            "coordinator stream": self.coordination.close(),
            "offsets": self.offsets.stop(),
            "topics": self.job_topics.stop(),
        }
        if self.spark is not None:
            last["Spark"] = self.spark.close()
        await self.ending.steps(last)
        await self.ending.step("Faust", self.app.stop())

    def _make_spark(self) -> Bridge | None:
        """One session for the worker, imported and begun only if the job has a Spark step."""
        if not any(isinstance(step, SparkStep) for step in self.declared.steps):
            return None
        if self.text("spark.remote"):
            raise SettingError("spark.remote is not built yet", remedy="use spark.master")
        from ..spark_bridge.session import Spark
        from .broker.java import find_java

        return Spark(self.text("spark.master"), java_home=lambda: str(find_java().home))

    def leave(self, why: str) -> None:
        """SIGTERM or the like: commit, release, say so, end with 0. Within `stop.timeout`, whatever is away: what is not done by then is
        said, and the exit code is 3."""
        log.info("leaving", why=why)
        patience = self.ending.begin(self.seconds("stop.timeout"))
        if self._cut is None:
            self._cut = asyncio.get_running_loop().call_later(patience, self._cut_short)
        self.coordination.feed_member(mw.Leave(why))

    def _cut_short(self) -> None:
        """It cannot leave in the time that it has. What was committed is not lost, and what was not is done again by whoever comes next."""
        if self._exiting.is_set():
            return
        tasks = [f"{name} ({actor.machine.state})" for name, actor in sorted(self.actors.items())]
        unfinished = [
            *([f"not released: {', '.join(tasks)}"] if tasks else []),
            *([] if self.exit_code is not None else ["`left` is not said"]),
            *([] if self.coordination.resigned.is_set() else ["the leadership is not given back"]),
        ]
        self.exit_code = DEADLINE_PASSED
        self.exit_why = (
            f"it could not leave within stop.timeout ({self.seconds('stop.timeout'):g} s): {'; '.join(unfinished)}"
        )
        log.error("cannot leave in time", unfinished=unfinished)
        self._exiting.set()

    def refuse(self, error: DeclarationError) -> None:
        """What was declared cannot run on these topics: leave, and end with this error."""
        log.error("the job cannot run", error=str(error))
        if self._crash is None:
            self._crash = error
        self.leave(error.what)

    def exit(self, code: int, why: str) -> None:
        """The member says that it is over."""
        self.exit_code, self.exit_why = code, why
        log.info("exit", code=code, why=why)
        self.spawn(self._resign(), "resign")

    async def _resign(self) -> None:
        await self.coordination.resign()
        self._exiting.set()

    def crash(self, error: BaseException) -> None:
        """Something that must not happen did: the worker ends, and says what."""
        if self._crash is None:
            self._crash = error
            log.error("worker crashed", error=repr(error), exc_info=error)
        self._exiting.set()

    def spawn(self, work: Awaitable[None], name: str) -> asyncio.Task[None]:
        """Run something beside; what it raises ends the worker."""

        async def guarded() -> None:
            with answered(name):
                await work

        task = asyncio.get_running_loop().create_task(guarded(), name=name)
        self._spawned.add(task)
        task.add_done_callback(self._spawn_done)
        return task

    async def serve(self, name: str, work: Awaitable[None]) -> Work:
        """A service of the Faust app; what it raises ends the worker."""
        return await run_service(self.app, name, work, self.crash)

    def _spawn_done(self, task: asyncio.Task[None]) -> None:
        self._spawned.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.crash(error)

    # -------------------------------------------------------------------------------------------------------- coordination

    def tell(self, task: str, order: Order) -> None:
        """An order of the member for one task."""
        self.runtime.granted.tell(task, order)

    def plan(self, task: str) -> TaskPlan:
        """What a task reads, with the bounds that its run has resolved: every task, whenever it begins, has the same."""
        model = self.coordination.member.job.model
        if model is None or task not in model.tasks:
            raise RuntimeError(f"{task} was granted, but the job model does not know it")
        plan = self.declared.task_plan(task, model, task_settings(self.settings))
        run = self.coordination.member.job.run
        if run is None:
            return plan
        inputs = [
            replace(
                one,
                start_of=dict(enumerate(run.starts.get(one.stream, ()))),
                until_of=dict(enumerate(run.untils.get(one.stream, ()))) or one.until_of,
            )
            for one in plan.inputs
        ]
        return replace(plan, inputs=tuple(inputs))

    def run_view(self) -> RunView | None:
        """The run as it is now."""
        return self.coordination.member.job.run_view()

    def config_changed(self, overrides: Mapping[str, Any], offset: int) -> None:
        """Operator's overrides: each part takes what is dynamic, and then the offset is acknowledged."""
        self.overrides = dict(overrides)
        self.live.given = {**self.options.settings, **overrides, **self.options.flags}
        take(self)
        self.applied_config = offset

    def standing(self, ready: bool, why: str) -> None:
        """How this worker stands."""
        self.ready, self.why = ready, why
        log.info("standing", ready=ready, why=why)
        run = self.coordination.member.job.run
        if self.on_waiting is not None and not ready and run is not None and why.startswith(f"run {run.run_id} is "):
            self.on_waiting(why, run.state, run.failed)

    # -------------------------------------------------------------------------------------------------- the producer's lives

    async def init_producer(self, incarnation: str) -> None:
        """A producer for this incarnation: its id is initialised here, once."""
        transactional_id = worker_id(self.job, self.options.processor, incarnation)
        await self.runtime.producers.begin(incarnation, transactional_id)

    async def close_producer(self, incarnation: str) -> None:
        """This incarnation is over."""
        await self.runtime.producers.close(incarnation)

    def producer_lost(self, lost: mw.ProducerLost) -> None:
        """The member decides what follows."""
        self.coordination.feed_member(lost)

    async def learn(self, topic: str) -> None:
        """A target is well again."""
        await self.runtime.learn(topic)

    def unread(self, topic: str, partition: int, offset: int, why: str) -> None:
        """A record of the job's own topics that nobody understands."""
        self.unreadable.passed(topic, partition, offset, why)

    def load(self) -> Mapping[str, float]:
        """What heartbeats say."""
        return load_of(self)

    # -------------------------------------------------------------------------------------------- what the runtime asks for

    def report(self, report: Report) -> None:
        """A task's report, for the member; fed when the present event is through."""
        loop = asyncio.get_running_loop()
        loop.call_soon(self.coordination.report, report)
        if isinstance(report, TaskReported) and report.state == TaskState.FAILED and self.exits_on_failure:
            loop.call_soon(self.exit, 1, f"{report.task} failed: {report.why}")

    def mailbox(
        self,
        name: str,
        on_letter: Callable[[Any], Awaitable[None]],
        on_gone: Callable[[BaseException | None], None],
        on_again: Callable[[], None],
    ) -> Mailbox:
        """A Faust agent as an actor."""
        return Mailbox(self.app, name, on_letter, on_gone, on_again=on_again)

    def disk(self, task: str) -> Disk:
        """Where the store of a task lies."""
        if self.options.state_dir is None:
            return NoDisk()
        path = self.options.state_dir / self.job.slug / task.replace(" ", "-")
        return Directory(path, self.runtime.memory)

    # ------------------------------------------------------------------------------------------------- what pages look at

    @property
    def actors(self) -> dict[str, TaskActor]:
        """The tasks that live here."""
        return self.runtime.granted.actors

    @property
    def counters(self) -> dict[str, Counter[str]]:
        """What was counted of each task."""
        return self.runtime.granted.counters

    @property
    def committing(self) -> Committing | None:
        """The transactions of the present incarnation."""
        return self.runtime.producers.committing

    @property
    def incarnation(self) -> str:
        """The present one, or the last."""
        return self.runtime.producers.incarnation

    @property
    def unreadable(self) -> Unreadable:
        """What of the job's own topics could not be read."""
        return self.runtime.unreadable

    @property
    def spark(self) -> Bridge | None:
        """The session, for jobs that use it."""
        return self.runtime.spark

    @property
    def settings(self) -> dict[str, Any]:
        """The settings as they are now."""
        return self.live.given

    def value(self, name: str) -> Any:
        """A setting as it is now, parsed."""
        return self.live.value(name)

    def seconds(self, name: str) -> float:
        """A duration setting."""
        return self.live.seconds(name)

    def text(self, name: str) -> str:
        """A setting that is text."""
        return self.live.text(name)
