"""A task's chooser at work: the intake's heads become the chooser's, and its choice becomes a take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..core.chooser import Choice, Head
from ..core.chooser_stack import RULES, Stack, settings_of
from ..core.frames import NO_TIME
from ..core.machine import Now
from ..core.names import StreamPartition
from ..core.settings import find, parse
from ..core.task_plan import TaskPlan
from . import intake as i
from .by_name import imported
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
        self._declared = {one.stream: one.priority for one in declared.graph.inputs}
        own, name = own_chooser(declared.app.chooser, settings)
        self.stack = Stack(
            settings_of(settings, self._declared),
            intermediates=declared.graph.intermediates,
            own=own,
            own_name=name,
        )
        self._heads: dict[StreamPartition, Head] = {}
        self._ends: dict[StreamPartition, int] = {}
        self._draining: set[StreamPartition] = set()
        self._bootstrap = frozenset(one.stream for one in plan.inputs if one.bootstrap)
        self._external = frozenset(one.stream for one in plan.inputs if one.external)
        self.until: float | None = None
        """When to ask again although nothing has changed."""
        self.apply(settings)

    def apply(self, settings: Mapping[str, Any]) -> None:
        """New settings, from the next choice on."""
        self.limit: int = parse(
            "chunk.max-records", settings.get("chunk.max-records", find("chunk.max-records").default)
        )
        self.stack.apply(settings_of(settings, self._declared))

    def bootstrap(self, ends: Mapping[StreamPartition, int]) -> None:
        """Where the bootstrap partitions ended at start."""
        self._ends |= ends

    def draining(self, partitions: Iterable[StreamPartition]) -> None:
        """Nothing more is fetched of these: what is buffered is all that they have."""
        self._draining |= set(partitions)

    def choose(
        self, heads: Mapping[StreamPartition, i.Head], ready: Mapping[StreamPartition, i.Head], now: Now
    ) -> Taking | None:
        """The next take, or None; then `until` says when to ask again without a change."""
        for at, seen in heads.items():
            head = self._heads.get(at)
            if head is None:
                head = self._heads[at] = Head(at, bootstrap=at.stream in self._bootstrap)
            if at not in self._ends and at.stream in self._external and seen.high_watermark is not None:
                self._ends[at] = seen.high_watermark
            head.ready = min(seen.count, self.limit) if at in ready else 0
            head.offset = seen.offset
            head.timestamp = NO_TIME if seen.timestamp is None else seen.timestamp
            head.end = seen.high_watermark
            head.start_end = self._ends.get(at)
            head.paused = at not in ready and bool(seen.count)
            head.ended = seen.end_reached
            head.draining = at in self._draining
            head.value = seen.value
        answer = self.stack.choose(list(self._heads.values()), now.mono)
        if not isinstance(answer, Choice):
            self.until = answer.until
            return None
        self.until = None
        most = min(answer.max_records, self.limit)
        if answer.up_to_offset is not None:
            # offsets may have gaps, so this may take less than is allowed, and never more
            most = max(1, min(most, answer.up_to_offset - heads[answer.at].offset))
        return Taking(answer.at, most, answer.up_to_timestamp, answer)

    def taken(self, taking: Taking, records: int) -> None:
        """So many records were taken of it."""
        self.stack.taken(taking.choice, max(1, records))


def own_chooser(given: Any, settings: Mapping[str, Any]) -> tuple[Any, str]:
    """A chooser of the user's: given to the app, or named by import path in the settings. Raises if there is none under that path."""
    if given is not None and not isinstance(given, str):
        return given, getattr(given, "__name__", type(given).__name__)
    name = given or settings.get("chooser", "")
    if not name or name in RULES:
        return None, ""
    return imported("chooser", str(name), RULES), str(name)
