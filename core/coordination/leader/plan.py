"""What a leader is told once, when its process starts: who it is, the job's plan as its code declares it, and how long it waits.

Promises: values, nothing else. Two workers of one deployment have equal plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from ...graph.graph import Graph
from ...graph.grouping import Grouper, by_partition
from ...settings import parse
from ..messages import SetConfig
from ..placement import Placer, place

_EMPTY: Mapping[str, Any] = MappingProxyType({})


def _empty() -> Mapping[str, Any]:
    return _EMPTY


@dataclass(frozen=True, slots=True)
class Plan:
    """The job as this process's code declares it."""

    deployment: str = ""
    fingerprint: Mapping[str, str] = field(default_factory=_empty)
    """What may not differ in a live run, by part: `stage:<name>`, `input:<name>`, `setting:<name>` → its value or digest."""
    graph: Graph = field(default_factory=Graph)
    """Checked. How many partitions its inputs have is what the broker says (`Counts`)."""
    resolve: bool = False
    """Whether a new run must first find out where inputs start and end (`start="newest"`, a time, `until=`)."""
    ends: tuple[str, ...] = ()
    """The external streams whose ends the run waits for; it is bounded when each of them has one."""
    grouper: Grouper = by_partition
    grouper_name: str = ""
    """What its user calls it: the value of the setting."""
    placer: Placer = place
    placer_name: str = "default"
    settings: Mapping[str, Any] = field(default_factory=_empty)
    """The resolved settings of this deployment, without secrets and client settings; they go into `set-run`."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """External streams."""
        return tuple(sorted(self.graph.input))

    @property
    def reads(self) -> dict[str, tuple[str, ...]]:
        """Input that carries other jobs' frames → these jobs."""
        return {one.stream: one.producers for one in self.graph.inputs if one.producers}

    @property
    def stateful(self) -> bool:
        """Whether its tasks are fixed for the job's life."""
        return self.graph.stateful


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a leader waits for what. Seconds on the monotonic clock, unless the name says otherwise."""

    beat_s: float = 1.0
    session_s: float = 6.0
    stall_s: float = 300.0
    debounce_s: float = 1.0
    release_s: float = 30.0
    grace_s: float = 10.0
    fence_retry_s: float = 1.0
    fence_deadline_s: float = 30.0
    stand_again_s: float = 1.0
    """Pause before standing again after the leader's producer failed for another reason than a rival."""
    jitter_s: float = 0.0
    """What this process waits longer than others before it takes over from a silent leader."""
    answer_kept_ms: int = 86_400_000
    gone_kept_ms: int = 600_000
    """How long what is known of a processor that is gone is kept, for people, and for whoever comes back."""


_DYNAMIC = {
    "stall.timeout": "stall_s",
    "release.timeout": "release_s",
    "fence.timeout": "fence_deadline_s",
    "placement.debounce": "debounce_s",
    "placement.rejoin-grace": "grace_s",
}


def overridden(timing: Timing, overrides: Mapping[str, SetConfig], masked: frozenset[str] = frozenset()) -> Timing:
    """The same waits, as operators have changed them while the job runs. `masked`: a flag of this worker wins over the override.

    >>> overridden(Timing(), {"release.timeout": SetConfig("release.timeout", "1m")}).release_s
    60.0
    """
    changed: dict[str, Any] = {
        field: parse(name, overrides[name].value) / 1000
        for name, field in _DYNAMIC.items()
        if name in overrides and name not in masked
    }
    if "answers.keep" in overrides and "answers.keep" not in masked:
        changed["answer_kept_ms"] = parse("answers.keep", overrides["answers.keep"].value)
    return replace(timing, **changed) if changed else timing


@dataclass(frozen=True, slots=True)
class LeaderConfig:
    """Who this process is, and what it would lead."""

    processor: str
    process: str
    """The process start: leadership belongs to it, whatever becomes of its producers."""
    job_uuid: str
    """A fresh one; used if the job has none yet."""
    plan: Plan = field(default_factory=Plan)
    timing: Timing = field(default_factory=Timing)
    job: str = ""
    """Name and id, exactly: every claim says them."""
    masked: frozenset[str] = frozenset()
    """The settings of which this worker's own flags say something; overrides of these mean nothing here."""
