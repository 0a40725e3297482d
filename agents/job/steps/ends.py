"""Steps with which a chain of verbs can end: topics, functions, and code of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ....core.columns.schema import BOOL, FLOAT
from ...records.values.serdes import OUTPUT_KEY, Serde, is_json
from ..types.schemas import STORED, TIMERS, TableSpec, schema_of_own
from .step import Names, NeedsValue, Step

if TYPE_CHECKING:
    from ....core.columns.schema import ColumnSchema
    from ....core.graph.graph import Stage


def _bind(step: Step, topic: str, value: str, key: str) -> None:
    """A serde may have to know of which topic it writes what."""
    object.__setattr__(step, value, getattr(step, value).at(topic, "value"))
    object.__setattr__(step, key, getattr(step, key).at(topic, "key"))


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class TopicStep(Step):
    """Writes a topic."""

    effective = True

    topic: str
    serde: Any
    key_serde: Any
    key: str | Callable[[Any], Any] | None = None
    schema: ColumnSchema | None = None
    """The columns that are written; None for rows."""

    def __post_init__(self) -> None:
        _bind(self, self.topic, "serde", "key_serde")

    @property
    def written(self) -> Mapping[str, tuple[Any, Any]]:
        return {self.topic: (self.serde, self.key_serde)}


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ToStep(TopicStep):
    """Writes to an output topic."""

    VERB = "to"
    RUN_BY = "plain.output.ToOp"
    at_once = True

    partition: Callable[[Any], int] | None = None

    @property
    def alone(self) -> bool:
        return self.partition is None

    def fields(self) -> frozenset[str]:
        return frozenset()

    @property
    def whole(self) -> Serde[Any]:
        return self.serde

    def over(self, schema: ColumnSchema) -> ToStep:
        types = {one.name: one.type for one in schema.columns}
        if self.partition is not None or not isinstance(self.key, str | None):
            raise NeedsValue(self, "has a function of the value")
        if self.key is not None and (
            types.get(self.key) == FLOAT or (types.get(self.key) == BOOL and self.key_serde.name != OUTPUT_KEY)
        ):
            raise NeedsValue(self, f"has the key '{self.key}', which is {types[self.key]}")
        return replace(self, schema=schema)

    def why_rows(self) -> str | None:
        return None if is_json(self.serde) else f"it writes {self.serde.name}"


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ShareStep(TopicStep):
    """Writes frames to a stream that other jobs read, with control messages."""

    VERB = "share"
    RUN_BY = "plain.shared.ShareOp"

    retention_ms: int
    partitions: int | None = None

    def stage(self, names: Names) -> Stage:
        return replace(Step.stage(self, names), width=self.partitions, key_serde=self.key_serde.name)

    @property
    def arguments(self) -> tuple[tuple[str, str], ...]:
        return (("carries", self.serde.name),)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SinkStep(Step):
    """Calls a function with each chunk, at least once."""

    VERB = "sink"
    RUN_BY = "actors.asynchronous.SinkOp"
    effective = True
    irrevocable = True

    fn: Callable[..., Any]
    schema: ColumnSchema | None = None
    """The columns that it gets; None for rows."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class AgentStep(Step):
    """A user-defined async generator, one for each task."""

    VERB = "agent"
    RUN_BY = "actors.asynchronous.AgentOp"
    effective = True
    stateful = True
    remembers = True
    irrevocable = True

    fn: Callable[..., Any]
    sink: str | None = None
    sink_serde: Any = None
    sink_key_serde: Any = None

    def __post_init__(self) -> None:
        if self.sink is not None:
            _bind(self, self.sink, "sink_serde", "sink_key_serde")

    @property
    def written(self) -> Mapping[str, tuple[Any, Any]]:
        return {self.sink: (self.sink_serde, self.sink_key_serde)} if self.sink else {}


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ActorStep(Step):
    """A user-defined class, one instance for each task."""

    VERB = "actor"
    RUN_BY = "actors.actor.ActorOp"
    hears_time = True
    effective = True
    stateful = True
    remembers = True
    irrevocable = True

    cls: type[Any]
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def tables(self) -> Sequence[TableSpec]:
        return [TableSpec(timers_table(self), STORED, STORED, schema_of_own(TIMERS, "kind, time"))]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class TimerStep(Step):
    """A function that the clock calls, once in the job. When it was called is state, so the tasks of a job that has one stay what they are,
    and so does the one that calls it."""

    VERB = "timer"
    RUN_BY = "actors.ticking.TimerOp"
    by_clock = True
    effective = True
    stateful = True
    irrevocable = True

    fn: Callable[..., Any]
    period_ms: int

    @property
    def arguments(self) -> tuple[tuple[str, str], ...]:
        return (("every", f"{self.period_ms} ms"),)

    def tables(self) -> Sequence[TableSpec]:
        return [TableSpec(timers_table(self), STORED, STORED, schema_of_own(TIMERS, "number, time"))]


def timers_table(step: ActorStep | TimerStep) -> str:
    """The internal table of its timers."""
    return f"{step.name}.timers"
