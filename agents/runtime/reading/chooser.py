"""Runs a task's chooser: turns the intake's heads into the chooser's heads, and its choice into a take.

An external input is `start_unknown` until a fetch answer has told its end at start; until then it does not count as caught up. The machine
sets the ends of bootstrap partitions; a bootstrap partition that it does not name has reached its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ....core.choosing.chooser import Choice, Head
from ....core.choosing.stack import RULES, Stack, settings_of
from ....core.machine import Now
from ....core.names import StreamPartition
from ....core.progress.frames import NO_TIME
from ....core.settings import find, parse
from ....core.task.plan import TaskPlan
from ...by_name import imported
from ...job.derive.declaration import Declared
from . import intake as i
from .head_readers import ReadTimes, Time, Value, event_times, head_times, head_values

TIME_ALIGNED = "time-aligned"
BULK = 8
"""How many records in columns cost as much as one row: a row takes microseconds, a record in columns a fraction of one."""
INTERMEDIATE = "intermediate"
REASONS = {"bootstrapping": "bootstrap", "aligning": "alignment", "catching up": "priority"}
"""How the chooser's reasons begin → what they are called in metrics; a user's own chooser may give any reason."""
OVER = ("ended", "draining")
"""The reasons for which the machine closes a partition for the rest of this run."""


class Taking(NamedTuple):
    """What to take: from which partition, how many records, up to which time."""

    at: StreamPartition
    max_records: int
    up_to_ms: int | None
    choice: Choice


class TaskChooser:
    """Keeps one `Head` for each partition, and the stack of choosers."""

    def __init__(self, declared: Declared, plan: TaskPlan, settings: Mapping[str, Any]) -> None:
        self._declared = {one.stream: one.priority for one in declared.graph.inputs}
        own, name = own_chooser(declared.app.chooser, settings)
        self._rule: dict[str, Any] = {"chooser": declared.app.chooser} if declared.app.chooser in RULES else {}
        """A built-in rule that the app names takes precedence over the setting, as a chooser of the app's own does."""
        self.stack = Stack(
            settings_of({**settings, **self._rule}, self._declared),
            intermediates=declared.graph.intermediates,
            meeting=declared.graph.meeting,
            own=own,
            own_name=name,
        )
        self.times: dict[str, ReadTimes] = {}
        """By stream; filled when the chooser uses the event times that inputs declare."""
        if own is not None or self.stack.settings.rule == TIME_ALIGNED:
            self.times = event_times(declared)
        self._times: dict[str, Time] = {}
        """By stream, the event time of the record at the head, if neither Kafka's timestamp nor `times` says it."""
        if declared.graph.meeting and not self.times:
            self._times = head_times(declared, frozenset[str]().union(*declared.graph.meeting))
        self._values: dict[str, Value] = head_values(declared) if "value" in self.stack.needs else {}
        self._heads: dict[StreamPartition, Head] = {}
        self._ends: dict[StreamPartition, int] = {}
        self._anew: set[StreamPartition] = set()
        """The partitions whose position was lost, and whose end was taken from the log that is there now."""
        self._draining: set[StreamPartition] = set()
        self._bootstrap = frozenset(one.stream for one in plan.inputs if one.bootstrap)
        self._external = frozenset(one.stream for one in plan.inputs if one.external)
        self.until: float | None = None
        """When to ask the chooser again even if nothing has changed."""
        self.why = ""
        """What the chooser waits for when it waits although records could be taken."""
        self.apply(settings)

    def apply(self, settings: Mapping[str, Any]) -> None:
        """Apply new settings from the next choice on."""

        def value(name: str) -> int:
            return parse(name, settings.get(name, find(name).default))

        self.limit = value("chunk.max-records")
        self.room = value("chunk.max-bytes")
        """How many bytes of records a chunk that is read in spans may have."""
        self.stack.apply(settings_of({**settings, **self._rule}, self._declared))

    def rows(self, *, bulk: bool) -> int:
        """How many rows the frames of a chunk may have: a choice counts frames."""
        return min(self.limit, self.stack.settings.batch_size or self.limit) * (BULK if bulk else 1)

    def bootstrap(self, ends: Mapping[StreamPartition, int]) -> None:
        """Set the ends at start of bootstrap partitions."""
        self._ends |= ends

    def anew(self, at: StreamPartition) -> None:
        """The position of this partition was lost: its log may be another one, which may never reach the end of the one before."""
        self._ends.pop(at, None)
        self._anew.add(at)

    def draining(self, partitions: Iterable[StreamPartition]) -> None:
        """These partitions are fetched no further: only what is buffered is left of them."""
        self._draining |= set(partitions)

    def nothing(self, why: str = "") -> None:
        """Nothing can be taken: the chooser is not asked, and need not be asked again at a certain time."""
        self.until, self.why = None, why

    def choose(
        self,
        heads: Mapping[StreamPartition, i.PartitionHead],
        ready: Mapping[StreamPartition, i.PartitionHead],
        closed: Mapping[StreamPartition, str],
        now: Now,
    ) -> Taking | None:
        """The next take, or None; `until` then says when to ask again if nothing changes. `closed`: what the machine closed, and why."""
        for at, seen in heads.items():
            head = self._heads.get(at)
            if head is None:
                head = self._heads[at] = Head(at, bootstrap=at.stream in self._bootstrap)
            self._see(head, seen, able=at in ready, closed=closed.get(at, ""))
        answer = self.stack.choose(list(self._heads.values()), now.mono)
        if not isinstance(answer, Choice):
            self.until, self.why = answer.until, answer.why
            return None
        self.until, self.why = None, ""
        most = answer.max_records if heads[answer.at].bulk else min(answer.max_records, self.limit)
        if answer.up_to_offset is not None:
            # offsets may have gaps, so this may take fewer records than allowed, but never more
            most = max(1, min(most, answer.up_to_offset - heads[answer.at].offset))
        return Taking(answer.at, most, answer.up_to_timestamp, answer)

    def _see(self, head: Head, seen: i.PartitionHead, *, able: bool, closed: str) -> None:
        at = head.at
        asked = at in self._anew or (at.stream in self._external and not head.bootstrap)
        if asked and at not in self._ends and seen.stable is not None:
            self._ends[at] = seen.stable
        if head.offset != seen.offset or head.ready == 0:
            head.value = self._value(at.stream, seen)
            head.timestamp = self._own_time(at.stream, seen)
        if at.stream not in self._times:
            head.timestamp = NO_TIME if seen.timestamp is None else seen.timestamp
        head.bulk = BULK if seen.bulk else 1
        head.ready = (seen.count if seen.bulk else min(seen.count, self.limit)) if able else 0
        head.offset = seen.offset
        head.end = seen.high_watermark
        head.start_end = self._ends.get(at)
        head.start_unknown = asked and at not in self._ends
        head.ended = seen.end_reached or closed in OVER
        head.paused = not able and (bool(seen.count) or bool(closed))
        head.draining = at in self._draining

    def _value(self, stream: str, seen: i.PartitionHead) -> object:
        read = self._values.get(stream)
        return None if read is None or not seen.count else read(seen.value)

    def tier(self, stream: str) -> str:
        """The name of the tier of a stream in metrics: its priority, or `intermediate`."""
        return (
            INTERMEDIATE if stream in self.stack.intermediates else str(self.stack.settings.priorities.get(stream, 0))
        )

    @property
    def reason(self) -> str:
        """The kind of what the chooser waits for, in metrics."""
        return next((kind for front, kind in REASONS.items() if self.why.startswith(front)), "chooser")

    def _own_time(self, stream: str, seen: i.PartitionHead) -> int:
        read = self._times.get(stream)
        return NO_TIME if read is None or seen.timestamp is None else read(seen.value, seen.timestamp)

    def taken(self, taking: Taking, records: int) -> None:
        """Tell the chooser how many records were taken."""
        self.stack.taken(taking.choice, max(1, records))


def own_chooser(given: Any, settings: Mapping[str, Any]) -> tuple[Any, str]:
    """The user's own chooser: given to the app, or named by import path in the settings. Raises if that path cannot be imported."""
    if given is not None and not isinstance(given, str):
        return given, getattr(given, "__name__", type(given).__name__)
    name = given or settings.get("chooser", "")
    if not name or name in RULES:
        return None, ""
    return imported("chooser", str(name), RULES), str(name)
