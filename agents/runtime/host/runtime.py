"""The runtime carries out the instructions of tasks and of their committer. Worker, test driver and simulator run the same code.

    actors      the tasks that run, each under its grant
    granted     starts them, gives them their orders, and restarts them
    followers   the logs of tasks that other workers run, and that may start here
    copies      the tables of which this worker keeps one copy for all of its tasks
    producers   the producer of the current incarnation, its committer, and the buffers that tasks write to
    settings    the current settings
    targets     topics that are written to: their partition counts, and what they accept
    offsets     where logs start and end
    port        Kafka's bytes, the clock, threads
    job         the job that the process takes part in, and that gives it its orders
    process     the process around the runtime, which runs its coroutines

It only puts them together: each part says in a protocol of its own, `…Needs`, what it takes from here, and none knows the runtime.
A worker gives it Kafka, RocksDB and the wall clock; a test driver gives it memory and virtual time. It does not depend on Faust,
heartbeats or web pages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from ....core.names import StreamPartition
from ....core.orders import Start
from ....core.task.plan import TaskPlan
from ...job.derive.declaration import Declared
from ...live_settings import Settings
from ...measured import Clocks
from ...port.absence import Unread
from ...port.bounds import log_ends
from ...port.outlasting import outlasted
from ...port.port import Offsets, Port, Process
from ...state.store import Disk
from ...step_work import StepTotals
from ...stories.follow import TASK, NoStories, Stories
from ...tracing.traces import NoTraces, Traces
from ..copies.copies import Copies
from ..copies.copy import CopyDisk
from ..reading.old_reads import OldReads
from ..reading.read_ahead import ReadAhead
from ..store.followers import Followers
from ..store.state import TaskStore, tables_of
from ..task.past import Past
from ..task.solitude import Solitude
from ..task.task import TaskActor
from ..task.turns import LoopTurns
from ..writing.outbox import brokers_ms
from ..writing.producers import Learning, ProducerJob, Producers
from .granted import Granted, JobOfTasks
from .unreadable import Unreadable


class TargetTopics(Learning, Protocol):
    """What is known about the topics that are written to."""

    async def width(self, topic: str) -> int:
        """How many partitions a topic has; 0 if there is no such topic."""
        ...

    async def check_widths(self, widths: Mapping[str, int]) -> None:
        """Raise if a stream between stages does not have as many partitions as the leader wrote."""
        ...

    def limit(self, topic: str) -> int | None:
        """The topic's max.message.bytes, if known."""
        ...

    def kept_ms(self, topic: str) -> int | None:
        """How long the topic keeps records, if it is known and deletes them by their age."""
        ...


class Job(JobOfTasks, ProducerJob, Protocol):
    """The job that the process takes part in, as its tasks and producers see it. It starts and ends incarnations, and gives tasks their
    orders."""


class RuntimeHost(Process, Protocol):
    """The process around a runtime, which also says where stores lie."""

    def disk(self, task: str) -> Disk:
        """Where the store of a task lies."""
        ...

    def copy_disk(self, table: str) -> CopyDisk:
        """Where the store of a table's copy lies."""
        ...


class Runtime:
    """The tasks of one process, and what they share."""

    def __init__(
        self,
        name: str,
        process: RuntimeHost,
        job: Job,
        port: Port,
        declared: Declared,
        settings: Settings,
        targets: TargetTopics,
        offsets: Offsets,
        *,
        spark: Any = None,
        sinks: Any = None,
        memory: Any = None,
        compression: str | None = None,
        clocks: Clocks | None = None,
        stories: Stories | None = None,
        traces: Traces | None = None,
    ) -> None:
        """`name`: the name of its clients. `memory`: what the stores on disk may use. `compression`: used when no setting is given.
        `clocks`: those by which the length of letters is measured; None in virtual time. `stories`: where the machines are recorded.
        `traces`: the spans of the process.
        """
        self.name = name
        self.process = process
        self.job = job
        self.port = port
        self.declared = declared
        self.settings = settings
        self.targets = targets
        self.offsets = offsets
        self.spark = spark
        self.sinks = sinks
        self.memory = memory
        self.old_reads = OldReads(declared.graph, offsets, targets.kept_ms, partial(brokers_ms, port))
        self.read_ahead = ReadAhead(port.clock)
        self.unread = Unread()
        self.unreadable = Unreadable()
        self.solitude = Solitude(port.clock)
        self.counters: dict[str, Counter[str]] = {}
        """By task; the counters outlive the task's actor."""
        self.steps = StepTotals()
        """What the steps of all tasks have taken."""
        self.actors: dict[str, TaskActor] = {}
        self.stories = stories or NoStories()
        self.traces = traces or NoTraces()
        self.producers = Producers(self, self.actors, compression=compression, stories=self.stories, traces=self.traces)
        self.turns = LoopTurns(clocks, self.producers.hurried)
        self.followers = Followers(
            port,
            process,
            process.disk,
            declared.topics.log,
            tables_of(declared),
            ends=lambda at: outlasted(partial(log_ends, offsets, at)),
        )
        self.copies = Copies(
            self, declared, process.copy_disk, None if memory is None else memory.decoded, self._job_uuid
        )
        self.past = Past()
        self.granted = Granted(
            self.actors,
            process,
            job,
            self.producers,
            self._made,
            self.past,
        )

    def _made(self, plan: TaskPlan, start: Start) -> TaskActor:
        actor = TaskActor(self, self.granted, plan, start)
        self.stories.follow(actor.machine, TASK, plan.task, plan, start.grant)
        return actor

    def goes_by(self, declared: Declared) -> None:
        """Tasks that start from now on are of this declaration: that of before, and inputs that have joined the run."""
        if declared is not self.declared:
            self.declared = declared
            self.old_reads.goes_by(declared.graph)

    async def check_streams(self, plan: TaskPlan) -> None:
        """Check that the streams between stages and those for other jobs have as many partitions as the leader wrote, before the task reads
        or writes them."""
        widths = {
            one.stream: one.width for one in (*plan.outputs, *plan.inputs) if one.stream in self.declared.graph.framed
        }
        await outlasted(partial(self.targets.check_widths, widths))

    async def width(self, topic: str) -> int:
        """How many partitions a topic has; 0 if there is no such topic."""
        return await outlasted(partial(self.targets.width, topic))

    def _job_uuid(self) -> str:
        run = self.job.run_view()
        return "" if run is None else run.job_uuid

    def open_state(self, task: str, log_partition: int) -> TaskStore:
        """The store and the tables of a task."""
        topics = self.declared.topics
        return TaskStore(
            self.port,
            self.declared,
            task,
            StreamPartition(topics.log, log_partition),
            job_uuid=self._job_uuid(),
            disk=self.process.disk(task),
            decoded=None if self.memory is None else self.memory.decoded,
            clock=lambda: self.port.clock.now().wall,
            ends=lambda at: outlasted(partial(log_ends, self.offsets, at)),
            take=self.followers.take,
            log_limit=self.targets.limit(topics.log),
            unread=self.unreadable.passed,
        )
