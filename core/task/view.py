"""What a task's machine shows: the edge, heartbeats and pages read this of it, and its own queries, and nothing of its parts.

Promises: reading changes nothing and copies nothing that is large. Each fact is worked out when it is asked for, as of then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from ..names import StreamPartition
from ..progress.frames import NO_TIME, ControlFrame
from ..progress.producers import Holder
from .announcer import Announcer
from .inputs import Inputs
from .time import TaskTime

STEP = "step "
"""Stands before the name of a step where it is a place; a stream is a place by its own name."""


@dataclass(frozen=True, slots=True)
class TaskView:
    """The view of one task."""

    _inputs: Inputs
    _time: TaskTime
    _announcer: Announcer

    # ------------------------------------------------------------------------------------------------------------- inputs

    @property
    def positions(self) -> Mapping[StreamPartition, int]:
        """The next position of each partition."""
        return self._inputs.positions

    @property
    def topics(self) -> Mapping[StreamPartition, str]:
        """The id of the topic that each position belongs to, as far as it is known."""
        return self._inputs.topics

    @property
    def adopted(self) -> Mapping[str, str]:
        """By the id of a topic, that of the one which is taken for the same, newest last."""
        return self._inputs.adopted

    @property
    def closed(self) -> Mapping[StreamPartition, str]:
        """The partitions of which nothing may be taken now, and why."""
        return self._inputs.closed

    @property
    def finished(self) -> bool:
        """Whether something that the task reads has come to its end in this run."""
        return bool(self._inputs.finished)

    @property
    def bootstrap(self) -> Collection[StreamPartition]:
        """The partitions that must be read up to their end at start before anything else is."""
        return self._inputs.bootstrap

    def believed(self, at: StreamPartition, frame: ControlFrame, now_ms: int | None) -> ControlFrame:
        """What the task takes a control message for; see `InputPlan.believed`."""
        return self._inputs.by_stream[at.stream].believed(frame, now_ms)

    # --------------------------------------------------------------------------------------------------------------- time

    @property
    def newest(self) -> Mapping[str, int]:
        """By stream, the greatest event time of its records since this start of the task."""
        return self._inputs.newest

    @property
    def heard(self) -> dict[str, int]:
        """By stream, the time that the steps received of it."""
        return {stream: heard.ts for stream, heard in self._time.heard.items()}

    @property
    def watermarks(self) -> dict[str, int]:
        """The watermark of each stream that the task reads. Only a task whose state is restored knows them."""
        progress = self._inputs.progress
        return {stream: progress.watermark(stream) for stream in self._inputs.by_stream}

    def time_of(self, at: StreamPartition) -> int | None:
        """See `Inputs.time_of`."""
        return self._inputs.time_of(at)

    def times(self) -> Iterator[tuple[str, int]]:
        """The places at which time has not passed to its end: each stream and each step, with its time."""
        progress = self._inputs.progress
        for one in self._inputs.counted:
            if not progress.drained(one.stream):
                yield one.stream, progress.watermark(one.stream)
        passed = self._time.passing()
        for step in self._inputs.plan.steps:
            if self._time.holders(step, passed):
                yield STEP + step.name, self._time.delivered.get(step.name, NO_TIME)

    def holders(self, place: str) -> list[Holder]:
        """Who keeps the time of this place where it is."""
        for step in self._inputs.plan.steps:
            if STEP + step.name == place:
                return self._time.holders(step)
        return self._inputs.progress.holders(place)

    def owes(self) -> list[str]:
        """The streams that wait for the task to have drained or ended."""
        outputs = ((one, self._announcer.said(":said", one.stream)) for one in self._inputs.plan.outputs)
        return [one.stream for one, said in outputs if not (one.crosses or said.ended or said.drained is not None)]
