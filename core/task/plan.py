"""What a task reads and writes, as its machine must know it: values that are the same for every life of the task in one run.

Decides nothing but what follows from the declaration: which inputs count for watermark, end and drain, and which inputs flow
into which output, through which steps. It knows no topic, no record and no operator; `graph` and the job model fill it in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ..names import StreamPartition

SOURCE = "source"
"""Plain records from outside: no frames. Watermarks are made here, from the records' timestamps."""
INTERMEDIATE = "intermediate"
"""Frames of this job: who produces it is known from the graph."""
FOREIGN = "foreign"
"""Frames of other jobs: who produces it is what their messages say."""

Bound = str | int | tuple[str, int]
"""`"oldest"`, `"newest"`, an offset, or a time as `("time", ms)`."""

_NO_BOUNDS: Mapping[int, Bound] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class InputPlan:
    """One input stream, as far as this task owns it."""

    stream: str
    partitions: tuple[int, ...]
    """Owned by this task."""
    width: int
    """Partitions that the stream has."""
    kind: str = SOURCE
    bootstrap: bool = False
    """Read to its end first. It never holds up watermark, end or drain of the others."""
    lag_ms: int = 0
    """`max_out_of_order`: what a source's watermark stays behind its greatest timestamp."""
    start: Bound = "oldest"
    start_of: Mapping[int, Bound] = field(default_factory=lambda: _NO_BOUNDS)
    """Where partitions start, as the run has resolved it; one that is not named grew later, and is read from its beginning."""
    until: Bound | None = None
    """Where a bounded source ends; the same for each partition, unless `until_of` says otherwise."""
    until_of: Mapping[int, Bound] = field(default_factory=lambda: _NO_BOUNDS)
    on_lost: str = "fail"
    """`fail`, `oldest` or `newest`: what to do when the log no longer has the position."""
    jobs: tuple[str, ...] = ()
    """The jobs that a foreign stream expects as producers."""
    ends: bool = True
    """Whether a foreign stream ends with its producers' end of stream; else the next run of theirs goes on with it."""

    @property
    def external(self) -> bool:
        """Written by somebody else: what a pause stops and a drain no longer reads."""
        return self.kind != INTERMEDIATE

    @property
    def framed(self) -> bool:
        """Its records are frames, so control messages come in it."""
        return self.kind != SOURCE

    @property
    def owned(self) -> tuple[StreamPartition, ...]:
        """The partitions of it that this task reads."""
        return tuple(StreamPartition(self.stream, partition) for partition in self.partitions)

    def begin(self, partition: int) -> Bound:
        """Where this partition starts when no checkpoint knows it."""
        return self.start_of.get(partition, "oldest") if self.start_of else self.start

    def bound(self, partition: int) -> Bound | None:
        """Where this partition ends, as it was declared."""
        return self.until_of.get(partition, self.until)


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """One stream that takes control messages of this task: an intermediate one, or one that another job reads as frames."""

    stream: str
    width: int
    parents: frozenset[str]
    """What its records come from: input streams, and steps that hear of time. Streams of the whole job may stand here; those that this
    task does not own count as ended."""
    crosses: bool = False
    """It leads into another job: neither drain nor its maximal watermark goes there."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A step that hears of time: an actor, a window, a batch."""

    name: str
    parents: frozenset[str]
    """What its records come from, through steps that do not hear of time: input streams, and steps that do."""
    holds_ms: int = 0
    """By how much what it emits may be older than the time that it was told: a window's grace, a join's distance and grace."""


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """The settings that the machine itself needs; durations in seconds of the monotonic clock unless the name says ms."""

    watermark_interval_s: float = 0.2
    """At most one watermark letter and one watermark frame per stream and interval."""
    idle_timeout_s: float = 60.0
    watermark_quorum: float = 0.5
    """The part of a stream's producers that must be active for the idle ones to be left out of the minimum."""
    aggregate_above: int = 1024
    """Producers times partitions, above which control messages go through one partition."""
    restore_deadline_s: float = 60.0
    """How long an open transaction may hold up restoring."""
    error_retries: int = 3
    error_backoff_s: float = 1.0
    """Doubled with each attempt, up to `error_backoff_max_s`."""
    error_backoff_max_s: float = 30.0
    intermediate_max_lag: int | None = None
    """Records of intermediate streams waiting for this task, above which it takes nothing from its external inputs."""


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """Everything that a task reads and writes."""

    job: str
    """Name and id, as control messages carry it: `sales/1`."""
    task: str
    inputs: tuple[InputPlan, ...]
    outputs: tuple[OutputPlan, ...] = ()
    settings: TaskSettings = field(default_factory=TaskSettings)
    steps: tuple[StepPlan, ...] = ()
    """Those that hear of time, parents first."""

    def streams_behind(self, parents: Iterable[str]) -> frozenset[str]:
        """The streams that lead to these streams and steps.

        >>> plan = TaskPlan("sales/1", "Partition 0", (), steps=(StepPlan("w", frozenset({"a"})),))
        >>> sorted(plan.streams_behind({"w", "b"}))
        ['a', 'b']
        """
        behind: dict[str, frozenset[str]] = {}
        for step in self.steps:
            behind[step.name] = frozenset[str]().union(*(behind.get(one, {one}) for one in step.parents))
        return frozenset[str]().union(*(behind.get(one, {one}) for one in parents))
