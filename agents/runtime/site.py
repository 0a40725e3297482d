"""What the parts of one task share: its names, machine and store, its operators once it is restored, and the process around it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...core.names import StreamPartition
from ...core.orders import Start, TaskState
from ...core.task import protocol as t
from ...core.task.phase import TaskMode
from ...core.task.plan import TaskPlan
from ...core.task.suspects import Suspects
from ...core.task.task import Task
from ..logger import Logger
from ..measured import Meter
from ..operators.pipeline import Pipeline
from ..patience import Patience
from ..state.marks import Marks, NoMarks
from .announced import Announced
from .notes import StatusNotes

if TYPE_CHECKING:
    from .runtime import Runtime


class Site:
    """One task under one grant. `feed` gives an event to its machine and carries out the resulting instructions; see `TaskActor.feed`."""

    def __init__(self, runtime: Runtime, plan: TaskPlan, start: Start, feed: Callable[[Any], bool]) -> None:
        self.runtime = runtime
        self.plan = plan
        self.name = start.task
        self.grant = start.grant
        self.log = Logger("headgate.task").bind(task=start.task, grant=start.grant)
        self.machine = Task(plan)
        self.feed = feed
        self.state = runtime.open_state(start.task, start.log_partition)
        self.buffer = runtime.producers.buffer(start.task)
        """What the current letter emits."""
        self.patience = Patience(runtime.settings.seconds, self._hung)
        self.notes = StatusNotes(lambda: runtime.port.clock.now().wall)
        """What it reports of itself, for its status."""
        self.meter = Meter(runtime.turns.clocks)
        """For how long the current letter has held the loop."""
        self.pipeline: Pipeline | None = None
        """None until the task is restored."""
        self.idle = asyncio.Event()
        """Set while there is no current letter: the intake may hand out the next one."""
        self.idle.set()
        self.marks: Marks = NoMarks()
        """Where its letters are marked while they run; on disk once the store is open."""
        self.suspects = Suspects()
        """Letters that took earlier owners of the task with them."""
        self.announced = Announced(self)
        """Where other locations hear of its letters, if its previous owner has died at one."""
        self._after_death = start.after_death
        self.gone = False
        """The task has ended or is ending: it handles no more events."""

    async def remember(self) -> None:
        """Open the marks on disk: from now on a letter that takes the process with it is known to the next owner."""
        self.marks = await self.state.marks(self.grant)
        self.suspects = Suspects([*self.marks.left, *(self.announced.begin() if self._after_death else ())])
        self.marks.keep(self.suspects.marks)
        for mark in self.suspects.marks:
            self.log.warning("a letter was under way when its process ended", mark=str(mark))

    def topic_of(self, at: StreamPartition) -> str:
        """The id of the topic that this partition belongs to; empty if it is not known."""
        return self.machine.inputs.topics.get(at, "")

    def feed_later(self, event: Any) -> None:
        """Feed an event after the instructions of the current one have been carried out."""
        asyncio.get_running_loop().call_soon(self.feed, event)

    def count(self, what: str, amount: int = 1) -> None:
        """Add to a counter of this task."""
        self.runtime.granted.count(self.name, what, amount)

    @property
    def at_rest(self) -> bool:
        """Whether the task is working and between two letters."""
        return (
            not self.gone
            and self.pipeline is not None
            and self.idle.is_set()
            and self.machine.state == TaskMode.WORKING
        )

    @property
    def runs_on(self) -> bool:
        """Whether the task is working, and nothing that it reads has come to its end: from then on, what is left must not wait."""
        return self.machine.phase == TaskState.RUNNING and not self.machine.inputs.finished

    def _hung(self, why: str) -> None:
        """User code ignores its cancellation in a drain."""
        self.feed(t.Broken(why))

    def drop(self) -> None:
        """Discard what the letter has emitted and changed."""
        if self.pipeline is not None:
            self.pipeline.drop()
        self.state.drop()
