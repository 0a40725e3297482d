"""What the parts of one task share: its names, machine and store, and its operators once it is restored.

It knows no other part, and no other task.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from ....core.names import StreamPartition
from ....core.orders import Start, TaskState
from ....core.task import protocol as t
from ....core.task.phase import TaskMode
from ....core.task.plan import TaskPlan
from ....core.task.task import Task
from ...live_settings import Settings
from ...logger import Logger
from ...measured import Meter
from ...operators.pipeline.pipeline import Pipeline
from ...patience import Patience
from ...port.port import Port
from ...tracing.traces import Traces
from ..store.state import TaskStore
from .notes import StatusNotes


class SiteNeeds(Protocol):
    """What a site is made of."""

    port: Port
    settings: Settings
    counters: dict[str, Counter[str]]
    traces: Traces

    def open_state(self, task: str, log_partition: int) -> TaskStore: ...


class Site:
    """One task under one grant. `feed` gives an event to its machine and carries out the resulting instructions; see `TaskActor.feed`."""

    def __init__(
        self, needs: SiteNeeds, meter: Meter, plan: TaskPlan, start: Start, feed: Callable[[Any], bool]
    ) -> None:
        self.clock = needs.port.clock
        self.settings = needs.settings
        self.traces = needs.traces
        self.plan = plan
        self.name = start.task
        self.grant = start.grant
        self.log = Logger("headgate.task").bind(task=start.task, grant=start.grant)
        self.machine = Task(plan)
        self.view = self.machine.view
        self.feed = feed
        self.counts = needs.counters.setdefault(start.task, Counter())
        """They outlive the task's actor."""
        self.state = needs.open_state(start.task, start.log_partition)
        self.patience = Patience(self.settings.seconds, lambda why: feed(t.Broken(why)))
        self.notes = StatusNotes(self.wall_ms)
        """What it reports of itself, for its status."""
        self.meter = meter
        """For how long the current letter has held the loop."""
        self.waits: Callable[[], str] = str
        """What it waits for before it is restored, besides its log; empty for nothing."""
        self.pipeline: Pipeline | None = None
        """None until the task is restored."""
        self.idle = asyncio.Event()
        """Set while there is no current letter: the intake may hand out the next one."""
        self.idle.set()
        self.behind = False
        """Whether more of what it may read is there already, as far as it knows."""
        self.took_part_s = float("-inf")
        """When it took part in a commit last."""
        self.gone = False
        """The task has ended or is ending: it handles no more events."""

    def wall_ms(self) -> int:
        """The time."""
        return self.clock.now().wall

    def topic_of(self, at: StreamPartition) -> str:
        """The id of the topic that this partition belongs to; empty if it is not known."""
        return self.view.topics.get(at, "")

    def feed_later(self, event: Any) -> None:
        """Feed an event after the instructions of the current one have been carried out."""
        asyncio.get_running_loop().call_soon(self.feed, event)

    def count(self, what: str, amount: int = 1) -> None:
        """Add to a counter of this task."""
        self.counts[what] += amount

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
        return self.machine.phase == TaskState.RUNNING and not self.view.finished

    def rests(self, rest_s: float) -> float | None:
        """Until when it rests after it took part in a commit, if that is for so long; None: not now."""
        until = self.took_part_s + rest_s
        return until if rest_s and until > self.clock.now().mono and self.runs_on else None

    def drop(self) -> None:
        """Discard what the letter has emitted and changed."""
        if self.pipeline is not None:
            self.pipeline.drop()
        self.state.drop()
