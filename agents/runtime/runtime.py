"""The runtime: what carries out the instructions of tasks and of their committer. One piece of code, whatever world it is in.

    granted     the tasks, each under its grant
    producers   the producer of the present incarnation, its committer, the buffers that tasks write into
    settings    as they are now
    targets     topics that are written to: how wide they are, and what they take
    offsets     where logs start and end
    port        Kafka's bytes, the clock, threads
    job         what it takes part in, and is steered by
    life        the process that it lives in: who runs its coroutines

A worker gives it Kafka, RocksDB and the wall clock; a test driver memory and virtual time. It knows nothing of Faust, heartbeats, pages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

from ...core.coordination.member import protocol as mw
from ...core.names import StreamPartition
from ...core.orders import Report, RunView
from ...core.task import protocol as t
from ...core.task.plan import TaskPlan
from ..job.declaration import Declared
from ..live_settings import Settings
from ..operators.decode import value_serdes
from ..port.absence import Unread
from ..port.bounds import log_ends, resolved
from ..port.outlasting import outlasted
from ..port.port import Offsets, Port, Process
from ..records.chunks import Chunk
from ..state.store import Disk
from .chooser import TaskChooser
from .granted import Granted
from .intake import FETCH_BYTES, Intake, PartitionSource
from .outbox import Outbox
from .producers import Producers
from .site import Site
from .state import TaskStore
from .task_intake import TaskIntake
from .unreadable import Unreadable


class TargetTopics(Protocol):
    """What is known of the topics that are written to."""

    async def check_widths(self, widths: Mapping[str, int]) -> None:
        """Raise where a stream between stages is not as wide as the leader wrote."""
        ...

    def limit(self, topic: str) -> int | None:
        """Its max.message.bytes, as far as it is known."""
        ...

    async def learn(self, outbox: Outbox | None) -> None:
        """Tell an outbox all targets of this job."""
        ...

    async def learn_one(self, producers: Iterable[Outbox | None], topic: str) -> None:
        """Ask about a target that user code names while it runs, and tell them."""
        ...


class Job(Protocol):
    """The job that the process takes part in, as its tasks ask for it. It steers: it begins and ends incarnations, and tells tasks their
    orders."""

    def plan(self, task: str) -> TaskPlan:
        """What this task reads in the run that is."""
        ...

    def run_view(self) -> RunView | None:
        """The run that is."""
        ...

    def report(self, report: Report) -> None:
        """A task's report; fed when the present event is through."""
        ...

    def producer_lost(self, lost: mw.ProducerLost) -> None:
        """The producer of this incarnation is dead."""
        ...


class RuntimeHost(Process, Protocol):
    """The process around a runtime, which says besides where stores lie."""

    def disk(self, task: str) -> Disk:
        """Where the store of a task lies."""
        ...


class Runtime:
    """The tasks of one process, and everything that they need of each other. It makes the parts of a task that need the whole."""

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
    ) -> None:
        """`name`: of its clients. `memory`: what the stores on disk may take; `compression`: where no setting says it."""
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
        self.unread = Unread()
        self.unreadable = Unreadable()
        self.producers = Producers(self)
        self.granted = Granted(self)
        self._compression = compression

    # ------------------------------------------------------------------------------------------------ parts of tasks

    async def check_streams(self, plan: TaskPlan) -> None:
        """The streams between stages are as wide as the leader wrote: asked before the task writes to them, or reads them."""
        widths = {
            one.stream: one.width
            for one in (*plan.outputs, *plan.inputs)
            if one.stream in self.declared.graph.intermediates
        }
        await outlasted(partial(self.targets.check_widths, widths))

    def open_state(self, task: str, log_partition: int) -> TaskStore:
        """Store and tables of a task."""
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
        """Positions of bounds, asked of the broker."""
        return await outlasted(partial(resolved, self.offsets, order))

    def make_intake(
        self, site: Site, take: Callable[[Chunk], Awaitable[None]], positions: Mapping[StreamPartition, int]
    ) -> TaskIntake:
        """A consumer for a task, and the chooser of what it has fetched."""
        inputs = {plan.stream: plan for plan in site.plan.inputs}
        chooser = TaskChooser(self.declared, site.plan, self.settings.given)
        serdes = value_serdes(self.declared)
        sources = [
            PartitionSource(
                at,
                position,
                framed=serdes[at.stream] if inputs[at.stream].framed else None,
                times=chooser.times.get(at.stream),
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
        )
        return TaskIntake(site, intake, chooser, positions, take)

    def codec(self) -> str | None:
        """How record batches are compressed."""
        found = self.settings.given_or("compression", self._compression)
        return None if found == "none" else found
