"""The configuration of a leader, given when its process starts: its identity, the job's plan as its code declares it, and its waiting
times.

Promise: values only. Two workers of one deployment have equal plans.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from ...graph.graph import Graph
from ...graph.grouping import Grouper, by_partition
from ...settings import parse
from ..messages import SetConfig
from ..placement import Placement, Placer, asked, place
from ..state import JobState

_EMPTY: Mapping[str, Any] = MappingProxyType({})


def _empty() -> Mapping[str, Any]:
    return _EMPTY


DEFAULT = "default"
"""The name of our own placement in the settings."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The job as this process's code declares it."""

    deployment: str = ""
    fingerprint: Mapping[str, str] = field(default_factory=_empty)
    """What must be the same throughout a live run, by part: `stage:<name>`, `input:<name>`, `setting:<name>` → its value or digest."""
    graph: Graph = field(default_factory=Graph)
    """The graph, checked. The broker gives the partition counts of its inputs (`Counts`)."""
    resolve: bool = False
    """Whether a new run must first look up where its inputs start and end (`start="newest"`, a time, `until=`)."""
    ends: tuple[str, ...] = ()
    """The external streams whose ends the run waits for. The run is bounded if each of them has an end."""
    grouper: Grouper = by_partition
    grouper_name: str = ""
    """The name of the grouper in the settings."""
    placer: Placer = place
    placer_name: str = DEFAULT
    settings: Mapping[str, Any] = field(default_factory=_empty)
    """The resolved settings of this deployment, without secrets and client settings. They are written into `set-run`."""
    wider: Callable[[tuple[str, ...]], Graph] | None = None
    """The graph with an input for each of these topics, too, that matches a pattern. None: the job has no patterns."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The external streams."""
        return tuple(sorted(self.graph.input))

    @property
    def reads(self) -> dict[str, tuple[str, ...]]:
        """Input with frames of other jobs → these jobs."""
        return {one.stream: one.producers for one in self.graph.inputs if one.producers}

    @property
    def stateful(self) -> bool:
        """Whether its tasks are fixed for the life of the job."""
        return self.graph.stateful

    def placed(
        self,
        state: JobState | None,
        tasks: Collection[str],
        workers: Mapping[str, str | None],
        previous: Mapping[str, str],
    ) -> Placement:
        """Where the tasks would run. `workers`: with their locations; `previous`: where the tasks are placed now. Raises
        `DeclarationError` if a placement of the user's own fails."""
        stores = {task: None if state is None else state.location(task) for task in tasks}
        placer = self.placer
        if placer is place and state is not None:
            placer = partial(place, former=state.former(previous))
        return asked(self.placer_name, placer, list(tasks), stores, workers, previous)

    def joined(self, topics: tuple[str, ...]) -> Plan:
        """The plan of a run that these topics have joined."""
        return self if self.wider is None or not topics else replace(self, graph=self.wider(topics))


GRACE_S = 10.0
REJOIN = "placement.rejoin-grace"
STANDBY = "standby"


@dataclass(frozen=True, slots=True)
class Timing:
    """The waiting times of a leader, in seconds on the monotonic clock unless the name says otherwise."""

    beat_s: float = 1.0
    session_s: float = 6.0
    stall_s: float = 300.0
    debounce_s: float = 1.0
    release_s: float = 30.0
    grace_s: float = GRACE_S
    grace_auto: bool = False
    """Whether a worker is not waited for where the others can go on with what lies on their disks."""
    prepare_s: float = 300.0
    """How long a task with state stays with its owner while the next one prepares; 0: it moves at once."""
    work_on_s: float = 0.0
    """How long a worker that is dismissed works on while others prepare its tasks; 0: it leaves at once."""
    standby: int = 0
    """How many other workers follow the log of each task with state: 0 or 1."""
    fence_retry_s: float = 1.0
    fence_deadline_s: float = 30.0
    stand_again_s: float = 1.0
    """The pause before standing again after the leader's producer failed for another reason than a rival."""
    jitter_s: float = 0.0
    """How much longer than others this process waits before it takes over from a silent leader."""
    answer_kept_ms: int = 86_400_000
    gone_kept_ms: int = 600_000
    """How long the records of a processor that is gone are kept, for people and for a late return."""


_DYNAMIC = {
    "stall.timeout": "stall_s",
    "release.timeout": "release_s",
    "fence.timeout": "fence_deadline_s",
    "placement.debounce": "debounce_s",
    "placement.prepare": "prepare_s",
    "stop.prepare": "work_on_s",
}


def grace(ms: int | None) -> dict[str, Any]:
    """The fields of `Timing` for the parsed value of `placement.rejoin-grace`; None: auto.

    >>> grace(2000), grace(None)
    ({'grace_s': 2.0, 'grace_auto': False}, {'grace_s': 10.0, 'grace_auto': True})
    """
    return {"grace_s": GRACE_S if ms is None else ms / 1000, "grace_auto": ms is None}


def overridden(timing: Timing, overrides: Mapping[str, SetConfig], masked: frozenset[str] = frozenset()) -> Timing:
    """The waiting times with the operators' overrides. `masked`: settings for which this worker's flags take precedence.

    >>> overridden(Timing(), {"release.timeout": SetConfig("release.timeout", "1m")}).release_s
    60.0
    """
    changed: dict[str, Any] = {
        field: parse(name, overrides[name].value) / 1000
        for name, field in _DYNAMIC.items()
        if name in overrides and name not in masked
    }
    if REJOIN in overrides and REJOIN not in masked:
        changed |= grace(parse(REJOIN, overrides[REJOIN].value))
    if STANDBY in overrides and STANDBY not in masked:
        changed["standby"] = parse(STANDBY, overrides[STANDBY].value)
    if "answers.keep" in overrides and "answers.keep" not in masked:
        changed["answer_kept_ms"] = parse("answers.keep", overrides["answers.keep"].value)
    return replace(timing, **changed) if changed else timing


@dataclass(frozen=True, slots=True)
class LeaderConfig:
    """The identity of this process, and the job that it would lead."""

    processor: str
    process: str
    """The start of the process, to which leadership belongs, whatever happens to its producers."""
    job_uuid: str
    """A new id, used if the job has none yet."""
    plan: Plan = field(default_factory=Plan)
    timing: Timing = field(default_factory=Timing)
    job: str = ""
    """Name and id, exactly as given; every claim contains them."""
    masked: frozenset[str] = frozenset()
    """The settings that this worker's own flags set; overrides of these have no effect here."""
