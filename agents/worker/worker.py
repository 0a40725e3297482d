"""One worker process, from its start to its exit code.

    participant  its part in the job: the machines, the tasks, the producers (`participant`)
    life         Faust, which runs everything here: agents (the coordinator and one for each task) and services, without a consumer
    upkeep       what is done once a second, alongside the work
    leftovers    what is removed of the disk when tasks have moved elsewhere
    ending       how it ends in the time that it has

The worker gives them Kafka, RocksDB and the wall clock, starts them, and stops them. It exits with the code that its member decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Any

from ...core.batching.batches import Bridge
from ...core.choosing.checked import CheckedChooser
from ...core.coordination.member import protocol as mw
from ...core.coordination.state import JobState
from ...core.errors import DeclarationError, HeadgateError
from ...core.settings import of_spark
from ..cancellation import Unasked, answered, asked_for
from ..job.derive.declaration import Declared
from ..kafka.offsets import KafkaOffsets
from ..kafka.port import KafkaPort
from ..kafka.range_client import RANGE_CLIENT
from ..live_settings import Settings
from ..logger import Logger
from ..measured import clocks_of_thread
from ..registry.client import HttpRegistry, RegistryAccess
from ..registry.serde import connect
from ..runtime.copies.copy import CopyDisk
from ..runtime.copies.directory import CopyDirectory, NoDirectory
from ..runtime.reading.chooser import own_chooser
from ..runtime.writing.committing import Committing
from ..sinks.delivery import delivery_for
from ..state.directory import Directory
from ..state.rocks import StoreMemory
from ..state.store import Disk, NoDisk
from ..stories.blocks import Who
from ..stories.files import StoryFiles, folder_of
from ..stories.recorder import Recorder
from .ending import Ending
from .faust_app import new_app
from .faust_host import FaustHost
from .housekeeping import Upkeep
from .job_topics import JobTopics
from .leftovers import Leftovers
from .load.lags import look_up
from .logs import set_level
from .options import WorkerOptions
from .participant import Participant
from .sensors import Counting
from .tracing import traces_of

log = Logger("headgate.worker")
DEADLINE_PASSED = 3
"""The exit code of a worker that could not leave in time."""


class Worker:
    """Runs the tasks that it is granted, until its member tells it to exit."""

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self.participant: Participant
        self.job = self.declared.app.job
        self.settings = Settings(options.settings)
        own, name = own_chooser(self.declared.app.chooser, self.settings.given)
        if own is not None:
            CheckedChooser(
                own, name
            )  # a chooser that does not exist or cannot choose is reported before anything starts
        self.port = KafkaPort(options.client)
        self.app = new_app(f"{self.job.slug}.{options.processor}")
        self.sensor = Counting()
        self.app.sensors.add(self.sensor)
        alone = Settings({**options.settings, **options.alone})
        connect(self.declared.steps, lambda: _registry(alone, options))
        self.topics = JobTopics.of(options.client, self.declared, alone.value)
        self.offsets = KafkaOffsets(options.client)
        graph = self.declared.graph
        self.upkeep = Upkeep(
            options.client,
            self.job.slug,
            self.topics.topics,
            graph.intermediates - graph.broadcast,
            ahead_ms=lambda: self.port.broker.ahead_ms(self.port.clock.now()),
            known_ms=lambda: self.coordination.heard_ms,
        )
        self.host = FaustHost(self.app, crash=self.crash, disk=self._disk, copy_disk=self._copy_disk)
        self.memory = StoreMemory(alone.given_or("state.memory", options.state_memory))
        self.leftovers = self._leftovers()
        self.spark = _spark(self.declared, alone, options)
        self.sinks = delivery_for(self.declared.steps)
        self.recorder = self._recorder(alone)
        self.traces = traces_of(options)
        self._loud = False
        """Whether an override has set the log level."""
        self.participant = Participant(
            options,
            self.host,
            self.port,
            self.offsets,
            self.topics,
            self.settings,
            refuse=self._refuse,
            more={"upkeep": self._upkeep, "log": self._log_level},
            spark=self.spark,
            sinks=self.sinks,
            memory=self.memory,
            clocks=clocks_of_thread(),
            stories=self.recorder,
            traces=self.traces,
        )
        self.coordination = self.participant.coordination
        self.runtime = self.participant.runtime
        self.actors, self.counters = self.runtime.actors, self.runtime.counters
        self.started_ms = self.port.clock.now().wall
        self.ending = Ending()
        self._cut: asyncio.TimerHandle | None = None
        """Fires when leaving takes too long."""
        self._crash: BaseException | None = None

    @property
    def declared(self) -> Declared:
        """The job, with the topics that have joined its run."""
        part = getattr(self, "participant", None)
        return self.options.declared if part is None else part.declared

    @property
    def unread(self) -> list[str]:
        """The topics that match a pattern of the job and are not read in its run."""
        return [topic for topic in self.topics.more if topic not in self.declared.inputs]

    # ----------------------------------------------------------------------------------------------------------- its life

    async def run(self) -> int:
        """Run from start to exit. Returns the exit code."""
        try:
            with answered("the start of the worker"):
                await self._start()
            await self.participant.over.wait()
        except Unasked as error:
            log.error("the worker could not start", error=str(error), exc_info=error)
            raise
        except HeadgateError:
            raise  # the caller prints it with its remedy
        except Exception as error:
            log.error("the worker could not start", error=repr(error), exc_info=error)
            raise
        finally:
            await self._shut_down()
        if self._crash is not None:
            raise self._crash
        return 1 if self.participant.exit_code is None else self.participant.exit_code

    async def _start(self) -> None:
        if self.recorder is not None:
            self.recorder.start()
        if self.spark is not None:
            self.host.spawn(self.spark.warm, "Spark")  # it takes the longest, and needs nothing else
        for start in (
            self.topics.start,
            self.topics.ensure_fixed,
            self.offsets.start,
            self.app.start,
            self.participant.start,
            self._start_services,
        ):
            await start()
            if asked_for():  # a library has dropped the cancellation, as `asyncio.wait_for` does before Python 3.12
                raise asyncio.CancelledError
        options = self.options
        log.info("worker started", job=str(self.job), processor=options.processor, location=options.location)

    async def _start_services(self) -> None:
        await self.host.serve("upkeep", partial(self.upkeep.run, self.actors))
        if self.leftovers is not None:
            await self.host.serve("leftovers", partial(self.leftovers.run, self._state))
        one = self.participant
        await self.host.serve("lags", partial(look_up, one.lags, one.lags_now, self.offsets, self.port.clock))

    async def _shut_down(self) -> None:
        """Stop completely. A cancellation meanwhile shortens this, but leaves no running agents behind."""
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
        """Stop all parts, in order. `ending` names a step that does not end in time and leaves it behind, so nothing can hang here."""
        self.participant.over.set()
        self.ending.begin(0, self.settings.seconds("stop.timeout"))
        if self._cut is not None:
            self._cut.cancel()
        self.coordination.stop()
        first: dict[str, Awaitable[Any]] = {actor.name: actor.kill() for actor in list(self.actors.values())}
        first["followed stores"] = self.runtime.followers.stop()
        first["copies"] = self.runtime.copies.stop()
        first["heartbeats"] = self.coordination.stop_heartbeats()
        await self.ending.steps(first, self.settings.seconds("release.timeout"))
        await self.ending.step("producer", self.runtime.producers.drop())
        await self.host.end(self.ending)
        last: dict[str, Awaitable[Any]] = {
            "coordinator stream": self.coordination.close(),
            "offsets": self.offsets.stop(),
            "topics": self.topics.stop(),
        }
        if self.spark is not None:
            last["Spark"] = self.spark.close()
        if self.sinks is not None:
            last["sinks"] = self.sinks.close()
        await self.ending.steps(last)
        await self.ending.step("Faust", self.app.stop())
        if self.recorder is not None:
            await self.ending.step("story", self.recorder.stop())
        await self.ending.step("traces", asyncio.to_thread(self.traces.stop))

    # ------------------------------------------------------------------------------------------------------- how it ends

    def leave(self, why: str, *, prepared: bool = False) -> None:
        """React to SIGTERM or the like: commit, release, report and exit with 0, within `stop.timeout` whatever does not answer. If it does
        not finish in that time, it logs what is unfinished and exits with 3. `prepared`: before that it works on for `stop.prepare`, while
        others prepare its tasks.
        """
        prepare_s = self.settings.seconds("stop.prepare") if prepared else 0.0
        log.info("leaving", why=why, works_on_s=prepare_s or None)
        patience = self.ending.begin(prepare_s, self.settings.seconds("stop.timeout"))
        if self._cut is None:
            self._cut = asyncio.get_running_loop().call_later(patience, self._cut_short)
        self.coordination.feed_member(mw.Leave(why, prepare_s))

    def _cut_short(self) -> None:
        """End although leaving is not finished. Committed work is not lost; the next owner of the tasks repeats the rest."""
        participant = self.participant
        if participant.over.is_set():
            return
        tasks = [f"{name} ({actor.machine.phase})" for name, actor in sorted(self.actors.items())]
        unfinished = [
            *([f"not released: {', '.join(tasks)}"] if tasks else []),
            *([] if participant.exit_code is not None else ["its departure could not be announced"]),
            *([] if self.coordination.resigned else ["the leadership is not handed back"]),
        ]
        patience = self.settings.seconds("stop.timeout")
        participant.exit_code = DEADLINE_PASSED
        participant.exit_why = f"it could not stop within stop.timeout ({patience:g} s): {'; '.join(unfinished)}"
        log.error("cannot stop in time", unfinished=unfinished)
        participant.over.set()

    def _refuse(self, error: DeclarationError) -> None:
        """Leave and end with this error, because the declared job cannot run on these topics."""
        log.error("the job cannot run", error=str(error))
        if self._crash is None:
            self._crash = error
        self.leave(error.what)

    def crash(self, error: BaseException) -> None:
        """End the worker because of an error that must not happen, and log it."""
        if self._crash is None:
            self._crash = error
            log.error("worker crashed", error=repr(error), exc_info=error)
        self.participant.over.set()

    # -------------------------------------------------------------------------------------------------- what it gives them

    def _disk(self, task: str) -> Disk:
        if self.options.state_dir is None:
            return NoDisk()
        return Directory(self.options.state_dir / self.job.directory, task, self.memory)

    def _copy_disk(self, table: str) -> CopyDisk:
        if self.options.state_dir is None:
            return NoDirectory()
        return CopyDirectory(self.options.state_dir / self.job.directory, table, self.memory)

    def _recorder(self, alone: Settings) -> Recorder | None:
        """What writes the story of this worker; None without a disk."""
        options, most = self.options, int(alone.value("story.max-bytes"))
        if options.state_dir is None or not most:
            return None
        files = StoryFiles(folder_of(options.state_dir / self.job.directory, options.processor), options.process, most)
        return Recorder(
            files, Who(options.processor, options.process, options.version), self.port.clock, options.secrets
        )

    def _leftovers(self) -> Leftovers | None:
        """What tasks leave on the disk; None without one."""
        options = self.options
        if options.state_dir is None:
            return None
        delay_s = self.settings.seconds("state.cleanup-delay")
        return Leftovers(options.state_dir / self.job.directory, options.processor, self.memory, self.port, delay_s)

    def _state(self) -> JobState | None:
        """The job, as far as this worker has read."""
        member = getattr(self.coordination, "member", None)
        return None if member is None else member.view.job

    def _upkeep(self) -> None:
        self.upkeep.trim = self.settings.value("intermediate.trim")
        if self.leftovers is not None:
            self.leftovers.keep_for(self.settings.seconds("state.cleanup-delay"))

    def _log_level(self) -> None:
        """Only an override changes the level, and its removal restores it. Without overrides, the level with which the process was started
        stays.
        """
        overridden = "log.level" in self.participant.overrides.given
        if overridden or self._loud:
            self._loud = overridden
            set_level(self.settings.text("log.level"))

    # ------------------------------------------------------------------------------------------------- what pages look at

    @property
    def committing(self) -> Committing | None:
        """The transactions of the current incarnation."""
        return self.runtime.producers.committing

    @property
    def incarnation(self) -> str:
        """The current incarnation, or the last one."""
        return self.runtime.producers.incarnation


def _registry(settings: Settings, options: WorkerOptions) -> HttpRegistry:
    """The schema registry that serdes ask: that of the settings, or the one beside an embedded broker."""
    from ..broker.schema_server import registry_url_of

    return HttpRegistry(RegistryAccess.of(settings, registry_url_of(options.client.bootstrap)))


def _spark(declared: Declared, settings: Settings, options: WorkerOptions) -> Bridge | None:
    """The worker's Spark session. It is imported and started only if the job has a Spark step."""
    if not any(step.in_spark for step in declared.steps):
        return None
    from ...spark_bridge.data.spool import Spool, path_of
    from ...spark_bridge.data.tables import Carrier
    from ...spark_bridge.data.terms import Terms
    from ...spark_bridge.process.package import paths_of
    from ...spark_bridge.session.session import Spark
    from .spark_jvm import java_home

    master, remote, shared = (settings.text(name) for name in ("spark.master", "spark.remote", "spark.spool"))
    own = None if options.state_dir is None else options.state_dir / "spark-spool"
    reached = bool(shared) or (master.startswith("local") and not remote)
    spool = Spool(path_of(shared), shared=True) if shared else Spool(own)
    spool.take()
    kafka = (RANGE_CLIENT, options.client.plain())
    reads = any(step.ranges for step in declared.steps)
    terms = Terms(
        package=paths_of(settings.text("spark.package")),
        kafka=kafka if reads else None,
        spool=spool if shared else None,
        probe_s=settings.seconds("spark.probe-timeout"),
        executors_s=settings.seconds("spark.executors-timeout"),
    )
    return Spark(
        master,
        remote=remote,
        conf={name: settings.text(name) for name in settings.given if of_spark(name)},
        terms=terms,
        java_home=java_home,
        carrier=Carrier(settings.value("spark.batch-memory"), spool, shared=reached),
        kafka=kafka,
    )
