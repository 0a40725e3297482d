"""The job model: which tasks exist, what each owns, which processor should run it, and which tasks produce the intermediate streams.

It is the leader's target, not the current state: a grant says which processor *may* run a task. So a newer model can supersede one at any
moment, and nothing waits for the old one to be reached.

Promises:

- a model is an immutable value, and survives a round trip through `to_value` and `from_value`;
- the epoch of a producer set rises exactly when the set changes, never when a task moves;
- partition counts are those of the model, never those of a client's metadata;
- a task that is prepared elsewhere stays with its owner until the leader writes a model in which it is wanted there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, cast

from ..names import StreamPartition
from ..orders import ProducerSet
from .grouping import counts

_EMPTY: Mapping[str, Any] = MappingProxyType({})
PUT_OFF = 0
"""Stands for the grant of a preparation while the run is stopped, until the task works again. Grants count from 1."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """A task that is about to move: `processor` follows its log while the holder of `grant` still runs it. Of no effect under another
    grant. A preparation that is put off is of no grant: the task is still to move there, and no one follows its log.

    >>> Preparation("p1", 3).under_way, Preparation("p1", PUT_OFF).under_way
    (True, False)
    """

    processor: str
    grant: int

    @property
    def under_way(self) -> bool:
        """Whether the next owner follows the log now."""
        return self.grant != PUT_OFF


@dataclass(frozen=True, slots=True)
class JobModel:
    """The leader's target.

    >>> m = JobModel(tasks={"Partition 0": (StreamPartition("orders", 0),)}, wanted={"Partition 0": "p1"}, processors=("p1",))
    >>> m.streams, m.owners_of(StreamPartition("orders", 0)), m.tasks_of("p1")
    ({'orders': 1}, ('Partition 0',), ('Partition 0',))
    """

    term: int = 0
    version: int = 0
    run_id: str = ""
    deployment: str = ""
    """Its tasks were made for this run and this deployment: growth and additions take effect when one of the two changes."""
    tasks: Mapping[str, tuple[StreamPartition, ...]] = field(default_factory=lambda: _EMPTY)
    """Task → the stream partitions that it owns."""
    wanted: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    """Task → the processor that should run it. A task that no one can run is absent."""
    processors: tuple[str, ...] = ()
    """The processors that were known when tasks were placed, so that a later leader knows when it must place them again."""
    producers: Mapping[str, ProducerSet] = field(default_factory=lambda: _EMPTY)
    """Intermediate or shared stream → the tasks that produce it."""
    shared: Mapping[str, int] = field(default_factory=lambda: _EMPTY)
    """Stream that the job shares with other jobs → its number of partitions. (`streams` are those that the job reads.)"""
    former: tuple[str, ...] = ()
    """Streams that earlier versions of the job wrote between their stages, and this one does not. They are the job's own, too."""
    preparing: Mapping[str, Preparation] = field(default_factory=lambda: _EMPTY)
    """Task → where it will move once its next owner has prepared. Older versions ignore it, and lose it when they write a model."""
    standby: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    """Task → the processor that follows its log all the time (`standby=1`). Older versions ignore it, and lose it like `preparing`."""
    placer: str = ""
    """The placement of the user's own that has placed the tasks, by its name; empty for ours. Older versions ignore it, and lose it."""

    @property
    def target(self) -> dict[str, str]:
        """Task → the processor that should run it in the end: that where it is prepared, if there is one."""
        return {**self.wanted, **{task: one.processor for task, one in self.preparing.items()}}

    @property
    def widths(self) -> dict[str, int]:
        """How many partitions each stream has that the job reads or shares."""
        return {**self.streams, **self.shared}

    def is_of(self, run_id: str, deployment: str) -> bool:
        """Whether its tasks were made for this run of this deployment."""
        return self.run_id == run_id and self.deployment == deployment

    @property
    def streams(self) -> dict[str, int]:
        """How many partitions each stream has."""
        return counts(self.tasks)

    def owners_of(self, at: StreamPartition) -> tuple[str, ...]:
        """Every task that owns this partition."""
        return tuple(task for task, owned in self.tasks.items() if at in owned)

    def tasks_of(self, processor: str) -> tuple[str, ...]:
        """The tasks that this processor should run."""
        return tuple(task for task, wanted in self.wanted.items() if wanted == processor)

    def streams_before(self, written: Collection[str]) -> tuple[str, ...]:
        """The `former` streams of the next model, whose job writes these streams."""
        own = {stream for stream in self.producers if stream not in self.shared}
        return tuple(sorted({*self.former, *own} - {*written}))

    def placement(self) -> dict[str, tuple[str, ...]]:
        """Processor → the tasks that it should run in the end, in the form that a placement returns."""
        target = self.target
        return {one: tuple(task for task in self.wanted if target[task] == one) for one in self.processors}


def producer_sets(
    feeds: Mapping[str, frozenset[str]],
    tasks: Mapping[str, tuple[StreamPartition, ...]],
    before: Mapping[str, ProducerSet],
) -> dict[str, ProducerSet]:
    """The producers of each intermediate stream: every task that owns a partition of a stream that feeds it.

    `feeds`: for each intermediate stream, the streams of the job that feed it. A set that did not change keeps its epoch.

    >>> tasks = {"Partition 0": (StreamPartition("orders", 0),)}
    >>> producer_sets({"by-country": frozenset({"orders"})}, tasks, {})["by-country"].epoch
    1
    """
    made: dict[str, ProducerSet] = {}
    for stream, sources in sorted(feeds.items()):
        names = frozenset(task for task, owned in tasks.items() if any(at.stream in sources for at in owned))
        old = before.get(stream)
        if old is None:
            made[stream] = ProducerSet(stream, 1, names)
        else:
            made[stream] = old if old.tasks == names else replace(old, epoch=old.epoch + 1, tasks=names)
    return made


def to_value(model: JobModel) -> dict[str, Any]:
    """The model as plain lists and maps, for a message. Streams are numbered, because nearly every task names each of them."""
    names = list(model.streams)
    number = {stream: n for n, stream in enumerate(names)}
    return {
        "version": model.version,
        "run_id": model.run_id,
        "deployment": model.deployment,
        "streams": names,
        "tasks": {task: [[number[s], n] for s, n in owned] for task, owned in model.tasks.items()},
        "wanted": dict(model.wanted),
        "processors": list(model.processors),
        "producers": {s: [p.epoch, sorted(p.tasks)] for s, p in sorted(model.producers.items())},
        "shared": dict(model.shared),
        **({"former": list(model.former)} if model.former else {}),
        **(
            {"preparing": {task: [one.processor, one.grant] for task, one in sorted(model.preparing.items())}}
            if model.preparing
            else {}
        ),
        **({"standby": {task: model.standby[task] for task in sorted(model.standby)}} if model.standby else {}),
        **({"placer": model.placer} if model.placer else {}),
    }


def from_value(term: int, value: Mapping[str, Any]) -> JobModel:
    """The model from the result of `to_value`; raises ValueError, TypeError, KeyError or IndexError for anything else."""
    names = [_text(name) for name in value["streams"]]
    tasks = {
        _text(task): tuple(StreamPartition(names[_count(s)], _count(n)) for s, n in owned)
        for task, owned in _map(value["tasks"]).items()
    }
    return JobModel(
        term=term,
        version=_count(value["version"]),
        run_id=_text(value["run_id"]),
        deployment=_text(value["deployment"]),
        tasks=MappingProxyType(tasks),
        wanted=MappingProxyType({_text(task): _text(p) for task, p in _map(value["wanted"]).items()}),
        processors=tuple(_text(p) for p in value["processors"]),
        producers=MappingProxyType(
            {
                _text(stream): ProducerSet(stream, _count(epoch), frozenset(_text(task) for task in tasks))
                for stream, (epoch, tasks) in _map(value["producers"]).items()
            }
        ),
        shared=MappingProxyType({_text(stream): _count(width) for stream, width in _map(value["shared"]).items()}),
        former=tuple(_text(stream) for stream in value.get("former", ())),
        preparing=MappingProxyType(
            {
                _text(task): Preparation(_text(processor), _count(grant))
                for task, (processor, grant) in _map(value.get("preparing", {})).items()
            }
        ),
        standby=MappingProxyType({_text(task): _text(p) for task, p in _map(value.get("standby", {})).items()}),
        placer=_text(value.get("placer", "")),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a name")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"{value!r} is not a count")
    return value


def _map(value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r} is not a map")
    return cast("Mapping[Any, Any]", value)
