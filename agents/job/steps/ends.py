"""Steps with which a chain of verbs can end: topics, functions, and code of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .step import Step

if TYPE_CHECKING:
    from ....core.columns.schema import ColumnSchema


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ToStep(Step):
    """Writes to an output topic."""

    VERB = "to"
    effective = True

    topic: str
    serde: Any
    key_serde: Any
    key: str | Callable[[Any], Any] | None = None
    partition: Callable[[Any], int] | None = None
    schema: ColumnSchema | None = None
    """The columns that are written; None for rows."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ShareStep(Step):
    """Writes frames to a stream that other jobs read, with control messages."""

    VERB = "share"
    effective = True

    topic: str
    serde: Any
    key_serde: Any
    retention_ms: int
    key: str | Callable[[Any], Any] | None = None
    partitions: int | None = None
    schema: ColumnSchema | None = None
    """The columns that are written; None for rows."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SinkStep(Step):
    """Calls a function with each chunk, at least once."""

    VERB = "sink"
    effective = True
    irrevocable = True

    fn: Callable[..., Any]
    schema: ColumnSchema | None = None
    """The columns that it gets; None for rows."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class AgentStep(Step):
    """A user-defined async generator, one for each task."""

    VERB = "agent"
    effective = True
    stateful = True
    remembers = True
    irrevocable = True

    fn: Callable[..., Any]
    sink: str | None = None
    sink_serde: Any = None
    sink_key_serde: Any = None


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ActorStep(Step):
    """A user-defined class, one instance for each task."""

    VERB = "actor"
    hears_time = True
    effective = True
    stateful = True
    remembers = True
    irrevocable = True

    cls: type[Any]
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])
