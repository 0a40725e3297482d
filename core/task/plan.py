"""What a task reads and writes, as its machine sees it: values that stay the same for all restarts of the task in one run.

It decides only what follows from the declaration: which inputs count for watermark, end and drain, and which inputs flow into which output,
through which steps. It knows no topic, record or operator; `graph` and the job model provide the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ..names import StreamPartition
from ..progress.frames import MAX_TIME, ControlFrame, Watermark

SOURCE = "source"
"""Plain records from outside, without frames. Watermarks are derived here from the records' timestamps."""
INTERMEDIATE = "intermediate"
"""Frames of this job; the graph tells who produces them."""
FOREIGN = "foreign"
"""Frames of other jobs; their own messages tell who produces them."""

Bound = str | int | tuple[str, int]
"""`"oldest"`, `"newest"`, an offset, or a time as `("time", ms)`."""

_NO_BOUNDS: Mapping[int, Bound] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class InputPlan:
    """One input stream, as far as this task owns it."""

    stream: str
    partitions: tuple[int, ...]
    """The partitions that this task owns."""
    width: int
    """The number of partitions of the stream."""
    kind: str = SOURCE
    bootstrap: bool = False
    """Whether it is read to its end first. It never holds up watermark, end or drain of the others."""
    lag_ms: int = 0
    """`max_out_of_order`: how far a source's watermark stays behind its greatest timestamp."""
    start: Bound = "oldest"
    start_of: Mapping[int, Bound] = field(default_factory=lambda: _NO_BOUNDS)
    """The start of each partition, as the run has resolved it. A partition that is not named was added later, and is read from its
    beginning.
    """
    until: Bound | None = None
    """The end of a bounded source; the same for each partition, unless `until_of` differs."""
    until_of: Mapping[int, Bound] = field(default_factory=lambda: _NO_BOUNDS)
    on_lost: str = "fail"
    """`fail`, `oldest` or `newest`: what to do if the log no longer contains the position."""
    jobs: tuple[str, ...] = ()
    """The jobs that a foreign stream expects as producers."""
    ahead_ms: int | None = None
    """How far ahead of the broker's time a watermark in its frames may be; None: any."""
    ends: bool = True
    """Whether a foreign stream ends with its producers' end of stream; otherwise their next run continues it."""

    @property
    def external(self) -> bool:
        """Whether others write it. A pause stops it, and a drain reads it no further."""
        return self.kind != INTERMEDIATE

    @property
    def framed(self) -> bool:
        """Whether its records are frames, so that it contains control messages."""
        return self.kind != SOURCE

    @property
    def owned(self) -> tuple[StreamPartition, ...]:
        """The partitions that this task reads."""
        return tuple(StreamPartition(self.stream, partition) for partition in self.partitions)

    def believed(self, frame: ControlFrame, now_ms: int | None) -> ControlFrame:
        """The frame as it counts at this time of the broker (None: unknown): no producer moves time further ahead than the records behind
        it may be. The maximal time is that of a drain, and counts as it is."""
        if not isinstance(frame, Watermark) or self.ahead_ms is None or now_ms is None or frame.ts == MAX_TIME:
            return frame
        return replace(frame, ts=min(frame.ts, now_ms + self.ahead_ms))

    def begin(self, partition: int) -> Bound:
        """Where this partition starts without a checkpoint."""
        return self.start_of.get(partition, "oldest") if self.start_of else self.start

    def bound(self, partition: int) -> Bound | None:
        """The declared end of this partition."""
        return self.until_of.get(partition, self.until)


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """One stream to which this task sends control messages: an intermediate one, or one that another job reads as frames."""

    stream: str
    width: int
    parents: frozenset[str]
    """The origin of its records: input streams, and steps with time. They may include streams that this task does not own, which count as
    ended.
    """
    crosses: bool = False
    """Whether it leads to another job. Such a stream gets no maximal watermark before a drain."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A step that hears of time: an actor, a window, a batch."""

    name: str
    parents: frozenset[str]
    """The origin of its records, through steps that do not hear of time: input streams, and steps that do."""
    holds_ms: int = 0
    """How much older than the time delivered to it its results may be: a window's grace, a join's distance and grace."""


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """The settings that the machine itself needs. Durations are in seconds of the monotonic clock unless the name says ms."""

    watermark_interval_s: float = 0.2
    """The commit interval. Each commit announces newer times; in between, operators receive newer times at most `time.OFTEN` times."""
    idle_timeout_s: float = 60.0
    idle_confirm_s: float = 1.0
    """How often an idle task confirms that it is, while others may go on."""
    aggregate_above: int = 1024
    """If producers times partitions exceeds this, control messages go through one partition."""
    restore_deadline_s: float = 60.0
    """How long an open transaction may delay restoring."""
    error_retries: int = 3
    error_backoff_s: float = 1.0
    """Doubled with each attempt, up to `error_backoff_max_s`."""
    error_backoff_max_s: float = 30.0
    restate_s: float = 60.0
    """How often a task announces its state again to streams that other jobs read."""
    intermediate_max_lag: int | None = None
    """If more records of intermediate streams wait for this task, it takes nothing from its external inputs."""


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """Everything that a task reads and writes."""

    job: str
    """Name and id, as in control messages: `sales/1`."""
    task: str
    inputs: tuple[InputPlan, ...]
    outputs: tuple[OutputPlan, ...] = ()
    settings: TaskSettings = field(default_factory=TaskSettings)
    steps: tuple[StepPlan, ...] = ()
    """The steps that hear of time, parents first."""
    bounded: bool = False
    """Whether every input of the job ends in this run. Then a part that has ended keeps its last time until the others have ended, too, for
    its next run continues there; otherwise the others go on without it.
    """

    timers: frozenset[str] = frozenset()
    """The periodic functions of the job that are called by this task, and by no other, by the names of their steps."""

    def streams_behind(self, parents: Iterable[str]) -> frozenset[str]:
        """The streams from which these streams and steps derive.

        >>> plan = TaskPlan("sales/1", "Partition 0", (), steps=(StepPlan("w", frozenset({"a"})),))
        >>> sorted(plan.streams_behind({"w", "b"}))
        ['a', 'b']
        """
        behind: dict[str, frozenset[str]] = {}
        for step in self.steps:
            behind[step.name] = frozenset[str]().union(*(behind.get(one, {one}) for one in step.parents))
        return frozenset[str]().union(*(behind.get(one, {one}) for one in parents))
