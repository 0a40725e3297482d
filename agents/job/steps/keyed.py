"""Steps that keep something by key: aggregates, windows, tables and joins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from ....core.windows.joins import held_back
from .step import Step

if TYPE_CHECKING:
    from ....core.columns.schema import ColumnSchema
    from ....core.windows.joins import Distance
    from ..types.aggregates import AggregatePlan
    from ..types.schemas import Migrate
    from ..types.windows import Window


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class AggregateStep(Step):
    """A running aggregate for each key. It passes updates on."""

    VERB = "agg"
    effective = True
    stateful = True
    remembers = True

    plan: AggregatePlan
    key_serde: Any
    migrate: Migrate | None = None

    @property
    def updates(self) -> bool:
        """Each output row is the newest result of its key."""
        return True


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class WindowStep(Step):
    """Aggregates, or the rows themselves, for each key and window. It passes them on when the window closes."""

    VERB = "window"
    hears_time = True
    effective = True
    stateful = True
    remembers = True

    window: Window
    plan: AggregatePlan
    key_serde: Any
    late: str | None = None
    """The topic for late rows."""
    late_serde: Any = None
    keeps_open: bool = False
    """An end of stream or a drain closes no window."""
    end_said: bool = False
    """The declaration says what becomes of open windows at an end."""
    early_ms: int | None = None
    """The interval between early results."""
    early_rows: int | None = None
    """The number of rows after which early results are emitted."""
    rows: Any = None
    """The serde for rows that are kept for an actor; None if the window keeps aggregates."""
    migrate: Migrate | None = None
    schema: ColumnSchema | None = None
    """The columns that come in; None for rows."""

    @property
    def combines(self) -> bool:
        """Whether partial states may be sent instead of rows: nothing needs the single rows, or counts them as they arrive."""
        spans = self.window.spans
        plain = spans is not None and spans.panes is not None and not self.window.by_clock
        return plain and self.plan.merges and self.late is None and self.early_rows is None and self.rows is None

    @property
    def holds_ms(self) -> int:
        """How long after its end a window closes, as its results have the time of its end. Early results may be as old as its first row."""
        return self.window.holds_ms + (self.window.size_ms if self.updates else 0)

    @property
    def updates(self) -> bool:
        """Early results are updates."""
        return self.early_ms is not None or self.early_rows is not None


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class TableStep(Step):
    """Keeps the last value of each key in a table. `broadcast`: a copy on every worker; otherwise partitioned like its stream."""

    VERB = "table"
    effective = True
    stateful = True
    remembers = True

    key_serde: Any
    serde: Any
    broadcast: bool = False
    ttl_ms: int | None = None
    migrate: Migrate | None = None


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class JoinTableStep(Step):
    """Looks each row up in a table."""

    VERB = "join"
    by_row = True

    table: TableStep
    on: str | Callable[[Any], Any] | None
    into: Callable[[Any, Any], Any]
    how: str = "inner"

    @property
    def behind(self) -> tuple[Step, ...]:
        """It looks rows up in the table."""
        return (*self.parents, self.table)

    def relinked(self, replaced: Mapping[int, Step]) -> JoinTableStep:
        """With the table that replaces its own, too."""
        linked = cast("JoinTableStep", Step.relinked(self, replaced))
        found = cast("TableStep", replaced.get(id(self.table), self.table))
        return linked if found is self.table else replace(linked, table=found)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class JoinStep(Step):
    """Pairs the rows of two streams within a distance of time; the left stream is the first parent."""

    VERB = "join"
    hears_time = True
    stateful = True
    remembers = True
    by_row = True

    distance: Distance
    how: str
    on: tuple[str, str] | None
    """The fields by which the sides are keyed, if the user names them."""
    grace_ms: int
    into: Callable[[Any, Any], Any]
    key_serde: Any
    serdes: tuple[Any, Any]
    """The serdes for the kept values of both sides."""
    late: str | None = None
    """The topic for late rows."""
    late_serde: Any = None
    keeps_open: bool = False
    """An end of stream or a drain ends the wait of no row."""

    @property
    def holds_ms(self) -> int:
        """By how much pairs, and rows without a partner, may be older than the time that the join has been told."""
        return held_back(self.how, self.distance, self.grace_ms)
