"""Steps that keep something by key: aggregates, windows, tables and joins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from ....core.columns.schema import INT, TEXT, ColumnSchema, ColumnSpec
from ....core.windows.joins import held_back, preserves
from ....core.windows.results import CLOSED_FIELD, END_FIELD, START_FIELD
from ...records.columns.selecting import needs_value
from ...records.values.serdes import msgpack
from ..types.aggregates import AggregatePlan, before_of
from ..types.schemas import (
    SLOT_KEY,
    STORED,
    TableSpec,
    schema_of_aggregate,
    schema_of_join,
    schema_of_rows,
    schema_of_table,
    schema_of_window,
)
from ..types.timestamps import text_of
from ..types.windows import distance_said
from .closing import ClosingStep
from .row_columns import of_aggregates, of_function
from .step import AS_BEFORE, Names, NeedsValue, Step

SEEN = msgpack()
"""The serde of what a dedupe stores for each key: that it has been seen."""

if TYPE_CHECKING:
    from ....core.graph.graph import Stage
    from ....core.windows.joins import Distance
    from ...records.values.serdes import Serde
    from ..types.schemas import Migrate
    from ..types.windows import Window


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class KeptStep(Step):
    """Keeps a value for each key, as long as it lives."""

    effective = True
    stateful = True
    remembers = True
    tabled = True
    answers_for_rows = True

    key_serde: Any
    migrate: Migrate | None = None


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class AggregateStep(KeptStep):
    """A running aggregate for each key. It passes updates on."""

    VERB = "agg"
    RUN_BY = "plain.aggregating.AggregateOp"
    SENT_BY = "shuffle.shuffles.CombineOp"

    plan: AggregatePlan
    combine: bool | None = None
    """Whether rows are combined before the shuffle in front of it; None: where that costs less."""
    before: bool = False
    """Whether each update also says what it replaces."""

    @property
    def updates(self) -> bool:
        return True

    @property
    def results(self) -> tuple[str, ...]:
        return (*self.plan.names, *map(before_of, self.plan.names)) if self.before else self.plan.names

    def tables(self) -> Sequence[TableSpec]:
        schema = schema_of_aggregate(self.plan, self.key_serde)
        return [TableSpec(self.name, self.key_serde, STORED, schema, None, self.migrate, self.plan)]

    @property
    def key_type(self) -> Any:
        return AS_BEFORE

    def combines(self, *, columns: bool) -> bool:
        if self.combine is not None:
            return self.combine and self.plan.merges
        # states of objects are dearer to make and to send than columns
        return self.plan.merges and (self.plan.numeric or not columns)

    def key_columns(self) -> frozenset[str]:
        return self.plan.named_by(self.parents[0].key_columns())

    def row_columns(self, *, encoded: bool) -> ColumnSchema:
        rows = self.parents[0].row_columns
        found = of_aggregates(self.said, self.plan, lambda: rows(encoded=False))
        former = tuple(replace(one, name=before_of(one.name)) for one in found) if self.before else ()
        return ColumnSchema((*found, *former))

    def fields(self) -> frozenset[str]:
        return _fields(self, self.plan)

    def over(self, schema: ColumnSchema) -> AggregateStep:
        check_numbers(self.plan, schema, self)
        return self

    def why_rows(self) -> str | None:
        return self.plan.why_no_arrays(self.parents[0].columns_given)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class DedupeStep(KeptStep):
    """Keeps the first row of each key, for good or as long as a key is remembered."""

    VERB = "dedupe"
    RUN_BY = "plain.deduping.DedupeOp"
    effective = False
    keeps_values = True
    keeps_columns = True

    ttl_ms: int | None = None

    def tables(self) -> Sequence[TableSpec]:
        schema = schema_of_table(self.key_serde, SEEN)
        return [TableSpec(self.name, self.key_serde, SEEN, schema, self.ttl_ms)]

    @property
    def key_type(self) -> Any:
        return AS_BEFORE

    @property
    def columns_given(self) -> ColumnSchema | None:
        return self.parents[0].columns_given

    def fields(self) -> frozenset[str]:
        return frozenset()


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class WindowStep(ClosingStep):
    """Aggregates, or the rows themselves, for each key and window. It passes them on when the window closes."""

    VERB = "window"
    RUN_BY = "windows.windowed.WindowOp"
    SENT_BY = "windows.combined_windows.WindowCombineOp"
    effective = True
    remembers = True
    answers_for_rows = True

    window: Window
    plan: AggregatePlan
    key_serde: Any
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
    def arguments(self) -> tuple[tuple[str, str], ...]:
        early = (("early", f"{self.early_ms} ms, {self.early_rows} rows"),) if self.updates else ()
        return self.closing(self.window.grace_ms) + early

    @property
    def results(self) -> tuple[str, ...] | None:
        return None if self.rows is not None else (*self.plan.names, START_FIELD, END_FIELD, CLOSED_FIELD)

    def tables(self) -> Sequence[TableSpec]:
        of = str(self.window)
        schema = (
            schema_of_window(of, self.plan, self.key_serde)
            if self.rows is None
            else schema_of_rows(of, self.key_serde, self.rows)
        )
        own, keys = self.plan, self.key_serde
        return [TableSpec(self.name, SLOT_KEY, STORED, schema, None, self.migrate, own, blocks=True, keys=keys)]

    def combines(self, *, columns: bool) -> bool:
        spans = self.window.spans
        plain = spans is not None and spans.panes is not None and not self.window.by_clock
        return plain and self.plan.merges and self.late is None and self.early_rows is None and self.rows is None

    @property
    def holds_ms(self) -> int:
        """How long after its end a window closes, as its results have the time of its end. Early results may be as old as its first row."""
        return self.window.holds_ms + (self.window.size_ms if self.updates else 0)

    @property
    def updates(self) -> bool:
        return self.early_ms is not None or self.early_rows is not None

    @property
    def key_type(self) -> Any:
        return AS_BEFORE

    def key_columns(self) -> frozenset[str]:
        return frozenset() if self.rows is not None else self.plan.named_by(self.parents[0].key_columns())

    def row_columns(self, *, encoded: bool) -> ColumnSchema:
        if self.rows is not None:
            return Step.row_columns(self, encoded=encoded)
        rows = self.parents[0].row_columns
        found = of_aggregates(self.said, self.plan, lambda: rows(encoded=False))
        own = (ColumnSpec(START_FIELD, INT), ColumnSpec(END_FIELD, INT), ColumnSpec(CLOSED_FIELD, TEXT))
        return ColumnSchema((*found, *own))

    def fields(self) -> frozenset[str]:
        return _fields(self, self.plan) if self.rows is None else Step.fields(self)

    @property
    def whole(self) -> Serde[Any] | None:
        return self.late_serde if self.late is not None else None

    def over(self, schema: ColumnSchema) -> WindowStep:
        check_numbers(self.plan, schema, self)
        return replace(self, schema=schema)

    @property
    def in_arrays(self) -> bool:
        """Whether its windows, or sessions, begin with their states in arrays. The same columns give the same results either way; rows
        cost an object for each record."""
        return self.schema is not None and self.why_rows() is None

    def why_rows(self) -> str | None:
        return "a sliding window is of rows" if self.window.sliding else self.plan.why_no_arrays(self.schema)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class TableStep(KeptStep):
    """Keeps the last value of each key in a table. `broadcast`: a copy on every worker; otherwise partitioned like its stream."""

    VERB = "table"
    RUN_BY = "plain.keyed.TableOp"

    serde: Any
    broadcast: bool = False
    ttl_ms: int | None = None

    def stage_name(self, name: str) -> str:
        return f"table:{name}"  # it may have the same name as the input that it follows

    def tables(self) -> Sequence[TableSpec]:
        schema = schema_of_table(self.key_serde, self.serde)
        return [TableSpec(self.name, self.key_serde, self.serde, schema, self.ttl_ms, self.migrate)]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class WithTableStep(Step):
    """Looks each row up in a table."""

    VERB = "join"
    by_row = True

    table: TableStep
    on: str | Callable[[Any], Any] | None
    how: str = "inner"

    @property
    def behind(self) -> tuple[Step, ...]:
        return (*self.parents, self.table)

    def relinked(self, replaced: Mapping[int, Step]) -> WithTableStep:
        linked = cast("WithTableStep", Step.relinked(self, replaced))
        found = cast("TableStep", replaced.get(id(self.table), self.table))
        return linked if found is self.table else replace(linked, table=found)

    def stage(self, names: Names) -> Stage:
        return replace(Step.stage(self, names), on=(text_of(self.on) if self.on is not None else None, None))

    @property
    def key_type(self) -> Any:
        return AS_BEFORE


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class JoinTableStep(WithTableStep):
    """Makes one of each row and its row of a table."""

    RUN_BY = "plain.keyed.JoinTableOp"

    into: Callable[[Any, Any], Any]

    def row_columns(self, *, encoded: bool) -> ColumnSchema:
        return of_function(self.said, self.into, encoded)

    @property
    def alone(self) -> bool:
        return True


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class JoinTableColumnsStep(WithTableStep):
    """Adds fields of its row of a table to each row, as columns."""

    RUN_BY = "plain.keyed.JoinTableColumnsOp"
    keeps_columns = True

    schema: ColumnSchema
    """The columns that come in."""
    taken: Mapping[str, ColumnSpec]
    """By the name of a column that is added: the field of the table's row."""

    @property
    def columns_given(self) -> ColumnSchema:
        left = self.how == "left"
        added = (ColumnSpec(name, of.type, of.optional or left, logical=of.logical) for name, of in self.taken.items())
        return self.schema.extended(added)

    def fields(self) -> frozenset[str]:
        return frozenset() if self.on is None else frozenset((str(self.on),))

    def key_columns(self) -> frozenset[str]:
        return self.parents[0].key_columns().difference(self.taken)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class JoinStreamsStep(ClosingStep):
    """Pairs the records of two streams within a distance of time; the left stream is the first parent."""

    VERB = "join"
    RUN_BY = "joins.joined.JoinOp"
    remembers = True

    distance: Distance
    how: str
    on: tuple[str, str] | None
    """The fields by which the sides are keyed, if the user names them."""
    grace_ms: int
    key_serde: Any

    @property
    def formats(self) -> tuple[str, ...]:
        """How the records of each side are kept."""
        raise NotImplementedError

    @property
    def holds_ms(self) -> int:
        """By how much pairs, and rows without a partner, may be older than the time that the join has been told."""
        return held_back(self.how, self.distance, self.grace_ms)

    def stage(self, names: Names) -> Stage:
        return replace(Step.stage(self, names), on=self.on or ())

    @property
    def arguments(self) -> tuple[tuple[str, str], ...]:
        return self.closing(self.grace_ms)

    def tables(self) -> Sequence[TableSpec]:
        # rows that were kept for another kind of join are no use to this one
        schema = schema_of_join(f"{self.how} {distance_said(self.distance)}", self.key_serde, self.formats)
        return [TableSpec(self.name, SLOT_KEY, STORED, schema, keys=self.key_serde)]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class JoinStep(JoinStreamsStep):
    """The value of a pair is what a function makes of both."""

    by_row = True

    into: Callable[[Any, Any], Any]
    serdes: tuple[Any, Any]
    """The serdes for the kept values of both sides."""

    @property
    def formats(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.serdes)

    def row_columns(self, *, encoded: bool) -> ColumnSchema:
        return of_function(self.said, self.into, encoded)

    @property
    def alone(self) -> bool:
        return True


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class JoinColumnsStep(JoinStreamsStep):
    """A pair has the columns of the left record, and some of the right one."""

    schemas: tuple[ColumnSchema, ColumnSchema]
    """The columns that come in on both sides."""
    taken: Mapping[str, str]
    """By the name of a column of a pair, the column of the right record."""

    @property
    def kept(self) -> tuple[ColumnSchema, ColumnSchema]:
        """The columns that are kept of both sides."""
        left, right = self.schemas
        return left, right.only(self.taken.values())

    @property
    def formats(self) -> tuple[str, ...]:
        return tuple(f"columns ({one})" for one in self.kept)

    @property
    def gives_columns(self) -> bool:
        return True

    @property
    def columns_given(self) -> ColumnSchema:
        left, right = self.schemas
        alone = [preserves(self.how, 1 - side) for side in (0, 1)]
        named = [(one.name, one) for one in left.columns], [(name, right[of]) for name, of in self.taken.items()]
        return ColumnSchema(
            tuple(
                ColumnSpec(name, one.type, one.optional or may_lack, logical=one.logical)
                for columns, may_lack in zip(named, alone, strict=True)
                for name, one in columns
            )
        )

    def key_columns(self) -> frozenset[str]:
        left, right = (one.key_columns() for one in self.parents)
        found = left.difference(self.taken) if not preserves(self.how, 1) else frozenset[str]()
        if preserves(self.how, 0):
            return found
        return found.union(name for name, of in self.taken.items() if of in right)

    def row_columns(self, *, encoded: bool) -> ColumnSchema:
        return self.columns_given


def _fields(step: Step, plan: AggregatePlan) -> frozenset[str]:
    if any(needs_value(one) for part in plan.parts for one in (part.of, part.by, part.where)):
        raise NeedsValue(step, "has a function of the value")
    return plan.reads


def check_numbers(plan: AggregatePlan, schema: ColumnSchema, asks: Step) -> None:
    """Raise `NeedsValue` of the step that asks if a sum or mean of these columns is of no number."""
    if (odd := plan.of_no_number(schema)) is not None:
        raise NeedsValue(asks, f"has hg.{odd.name}('{odd.of}'), which is no number")
