"""The runtime carries out the instructions of tasks and of their committer. Worker, test driver and simulator run the same code.

    granted     the tasks, each under its grant
    producers   the producer of the current incarnation, its committer, and the buffers that tasks write to
    settings    the current settings
    targets     topics that are written to: their partition counts, and what they accept
    offsets     where logs start and end
    port        Kafka's bytes, the clock, threads
    job         the job that the process takes part in, and that gives it its orders
    life        the process around the runtime, which runs its coroutines

A worker gives it Kafka, RocksDB and the wall clock; a test driver gives it memory and virtual time. It does not depend on Faust,
heartbeats or web pages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from ...core.coordination.member import protocol as mw
from ...core.coordination.messages import LetterMark
from ...core.names import StreamPartition
from ...core.orders import Report, RunView
from ...core.task import protocol as t
from ...core.task.plan import TaskPlan
from ..job.declaration import Declared
from ..live_settings import Settings
from ..measured import Clocks
from ..operators.decode import value_serdes
from ..port.absence import Unread
from ..port.bounds import log_ends, resolved
from ..port.outlasting import outlasted
from ..port.port import Offsets, Port, Process
from ..records.chunks import Chunk
from ..records.columns import LIMIT
from ..state.store import Disk
from .chooser import TaskChooser
from .granted import Granted
from .intake import FETCH_BYTES, Intake, PartitionSource
from .old_reads import OldReads
from .outbox import Outbox, brokers_ms
from .producers import Producers
from .site import Site
from .solitude import Solitude
from .state import TaskStore
from .task_intake import TaskIntake
from .turns import LoopTurns
from .unreadable import Unreadable


class TargetTopics(Protocol):
    """What is known about the topics that are written to."""

    async def check_widths(self, widths: Mapping[str, int]) -> None:
        """Raise if a stream between stages does not have as many partitions as the leader wrote."""
        ...

    def limit(self, topic: str) -> int | None:
        """The topic's max.message.bytes, if known."""
        ...

    def kept_ms(self, topic: str) -> int | None:
        """How long the topic keeps records, if it is known and deletes them by their age."""
        ...

    async def learn(self, outbox: Outbox | None) -> None:
        """Tell an outbox all targets of this job."""
        ...

    async def learn_one(self, producers: Iterable[Outbox | None], topic: str) -> None:
        """Ask about a target that user code names at run time, and tell the producers."""
        ...


class Job(Protocol):
    """The job that the process takes part in, as its tasks see it. It starts and ends incarnations, and gives tasks their orders."""

    def plan(self, task: str) -> TaskPlan:
        """What this task reads in the current run."""
        ...

    def run_view(self) -> RunView | None:
        """The current run."""
        ...

    def report(self, report: Report) -> None:
        """Take a task's report; it is fed once the current event has been handled."""
        ...

    def letters_left(self, task: str, grant: int) -> Sequence[LetterMark]:
        """What the last owner of a task that has said something of its letters has said, before this grant."""
        ...

    async def say_letters(self, task: str, grant: int, marks: Sequence[LetterMark]) -> None:
        """Say this of the task's letters, so that owners at other locations know it. Returns when it is durable."""
        ...

    def producer_lost(self, lost: mw.ProducerLost) -> None:
        """The producer of this incarnation has failed."""
        ...


class RuntimeHost(Process, Protocol):
    """The process around a runtime, which also says where stores lie."""

    def disk(self, task: str) -> Disk:
        """Where the store of a task lies."""
        ...


class Runtime:
    """The tasks of one process, and what they share. It makes those parts of a task that depend on the whole process."""

    def __init__(
        self,
        name: str,
        life: RuntimeHost,
        job: Job,
        port: Port,
        declared: Declared,
        settings: Settings,
        targets: TargetTopics,
        offsets: Offsets,
        *,
        spark: Any = None,
        memory: Any = None,
        compression: str | None = None,
        clocks: Clocks | None = None,
    ) -> None:
        """`name`: the name of its clients. `memory`: what the stores on disk may use. `compression`: used when no setting is given.
        `clocks`: those by which the length of letters is measured; None in virtual time.
        """
        self.name = name
        self.life = life
        self.job = job
        self.port = port
        self.declared = declared
        self.settings = settings
        self.targets = targets
        self.offsets = offsets
        self.spark = spark
        self.memory = memory
        self.old_reads = OldReads(declared.graph, offsets, targets.kept_ms, partial(brokers_ms, port))
        self.unread = Unread()
        self.unreadable = Unreadable()
        self.solitude = Solitude(port.clock)
        self.producers = Producers(self)
        self.turns = LoopTurns(clocks, self.producers.hurried)
        self.granted = Granted(self)
        self._compression = compression

    # ------------------------------------------------------------------------------------------------ parts of tasks

    async def check_streams(self, plan: TaskPlan) -> None:
        """Check that the streams between stages and those for other jobs have as many partitions as the leader wrote, before the task reads
        or writes them."""
        widths = {
            one.stream: one.width for one in (*plan.outputs, *plan.inputs) if one.stream in self.declared.graph.framed
        }
        await outlasted(partial(self.targets.check_widths, widths))

    def open_state(self, task: str, log_partition: int) -> TaskStore:
        """The store and the tables of a task."""
        run = self.job.run_view()
        topics = self.declared.topics
        return TaskStore(
            self.port,
            self.declared,
            task,
            StreamPartition(topics.log, log_partition),
            job_uuid=run.job_uuid if run is not None else "",
            disk=self.life.disk(task),
            decoded=None if self.memory is None else self.memory.decoded,
            clock=lambda: self.port.clock.now().wall,
            ends=lambda at: outlasted(partial(log_ends, self.offsets, at)),
            log_limit=self.targets.limit(topics.log),
            unread=self.unreadable.passed,
        )

    async def ask_offsets(self, order: t.ResolveOffsets) -> t.OffsetsResolved:
        """Ask the broker for the positions of bounds."""
        return await outlasted(partial(resolved, self.offsets, order))

    def make_intake(
        self, site: Site, take: Callable[[Chunk], Awaitable[None]], positions: Mapping[StreamPartition, int]
    ) -> TaskIntake:
        """Make the intake of a task: its consumer, and the chooser of what it hands out next."""
        inputs = {plan.stream: plan for plan in site.plan.inputs}
        chooser = TaskChooser(self.declared, site.plan, self.settings.given)
        serdes = value_serdes(self.declared)
        assert site.pipeline is not None, "a task is prepared before it reads"
        read = site.pipeline.sources
        sources = [
            PartitionSource(
                at,
                position,
                topic=site.machine.inputs.topics.get(at, ""),
                framed=serdes[at.stream] if inputs[at.stream].framed else None,
                times=chooser.times.get(at.stream),
                spanned=at.stream in read and read[at.stream].spanned,
                bulk=at.stream in read and (read[at.stream].bulk or read[at.stream].unread > 0),
                unread=read[at.stream].unread if at.stream in read else 0,
                gathers=not inputs[at.stream].bootstrap,
                most_bytes=self.settings.value(LIMIT),
            )
            for at, position in positions.items()
        ]
        name = f"{self.declared.app.job.slug}-{site.name}".replace(" ", "-")
        room = self.settings.value("buffer.bytes")
        intake = Intake(
            self.port,
            sources,
            name=name,
            buffer_bytes=room,
            fetch_bytes=min(FETCH_BYTES, max(1, room)),
            watchdog_s=self.settings.seconds("fetch.watchdog"),
            gather_until=lambda: self.producers.gather_until() if site.runs_on else None,
            offsets=self.offsets,
        )
        return TaskIntake(site, intake, chooser, positions, take)

    def codec(self) -> str | None:
        """How record batches are compressed."""
        found = self.settings.given_or("compression", self._compression)
        return None if found == "none" else found
