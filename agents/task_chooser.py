"""A task's chooser at work: the intake's heads become the chooser's, and its choice becomes a take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..core.chooser import Choice, Head
from ..core.chooser_stack import ChooserSettings, Stack
from ..core.machine import Now
from ..core.names import StreamPartition
from ..core.settings import find, parse
from ..core.task_plan import TaskPlan
from . import intake as i
from .declared import Declared


class Taking(NamedTuple):
    """What to take: where, how much, up to which time."""

    at: StreamPartition
    max_records: int
    up_to_ms: int | None
    choice: Choice


class TaskChooser:
    """Keeps one `Head` for each partition, and the stack of choosers."""

    def __init__(self, declared: Declared, plan: TaskPlan, settings: Mapping[str, Any]) -> None:
        graph = declared.graph
        self.priorities = {one.stream: one.priority for one in graph.inputs}
        self.limit = parse("chunk.max-records", settings.get("chunk.max-records", find("chunk.max-records").default))
        self.stack = Stack(ChooserSettings())
        self._heads: dict[StreamPartition, Head] = {}
        self._ends: dict[StreamPartition, int] = {}
        self._bootstrap: frozenset[str] = frozenset(one.stream for one in plan.inputs if one.bootstrap)
        self.until: float | None = None

    def bootstrap(self, ends: Mapping[StreamPartition, int]) -> None:
        """Where the bootstrap partitions ended at start."""
        self._ends |= ends

    def choose(
        self, heads: Mapping[StreamPartition, i.Head], ready: Mapping[StreamPartition, i.Head], now: Now
    ) -> Taking | None:
        """The next take, or None; then `until` says when to ask again without a change."""
        for at, seen in heads.items():
            head = self._heads.get(at)
            if head is None:
                head = self._heads[at] = Head(at, bootstrap=at.stream in self._bootstrap)
            head.ready = min(seen.count, self.limit) if at in ready else 0
            head.offset = seen.offset
            head.timestamp = seen.timestamp or 0
            head.end = seen.high_watermark
            head.start_end = self._ends.get(at)
            head.paused = at not in ready and bool(seen.count)
            head.ended = seen.end_reached
        answer = self.stack.choose(list(self._heads.values()), now.mono)
        self.until = None
        if isinstance(answer, Choice):
            return Taking(answer.at, min(answer.max_records, self.limit), answer.up_to_timestamp, answer)
        self.until = getattr(answer, "until", None)
        return None

    def taken(self, taking: Taking, records: int) -> None:
        """So many records were taken of it."""
        self.stack.taken(taking.choice, max(1, records))
