"""Bounded batches, what Spark makes of them, what it writes, and the sinks that get them without Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ....core.batching.batches import FORMAT as BOOK
from ....core.batching.batches import BatchStage, SinkStage, SparkStage
from ....core.settings import shown
from ..types.schemas import STORED, TableSpec, schema_of_batches
from ..types.timestamps import text_of
from .closing import ClosingStep
from .row_columns import of_result
from .step import Names, Step

if TYPE_CHECKING:
    from ....core.batching.publishing import SparkWrite
    from ....core.columns.schema import ColumnSchema, ColumnSpec
    from ....core.graph.graph import Stage
    from ..types.windows import Window


@dataclass(frozen=True, slots=True)
class ByReference:
    """A batch is offset ranges of an input or of an intermediate stream, and what decodes its records."""

    columns: tuple[tuple[Any, ...], ...]
    """As `ColumnSpec.plain` has them."""
    when: Any
    """The column of the event time; None for Kafka's timestamps."""
    on_bad_data: str
    framed: bool = False
    """The records are frames of an intermediate stream. The task reads them, too, for control messages and the time are among them; but it
    keeps only their offsets."""
    earliest_ms: int | None = None
    max_future_ms: int | None = None
    """As of the input."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class BatchStep(ClosingStep):
    """Collects rows into a bounded batch."""

    VERB = "batch"
    RUN_BY = "batches.spark.BatchOp"
    at_once = True
    wants_reader = True

    max_rows: int | None = None
    max_bytes: int | None = None
    max_age_ms: int | None = None
    schema: ColumnSchema | None = None
    """The columns of the batches; None if rows are collected."""
    rows: ColumnSchema | None = None
    """The declared columns of rows that are collected, set when the declaration is finished; None if columns are."""
    reference: ByReference | None = None
    """No rows are collected: executors read them from the input or the intermediate stream."""
    window: Window | None = None
    """Each batch holds the rows of one window; None: the limits close batches."""
    gathered: bool = False
    """Its rows come from all tasks, so that `gather.max-bytes` bounds what is open."""
    for_sink: bool = False
    """A sink gets its batches, and not Spark."""
    limited_by: str = ""
    """The first part of the settings that hold the limits which it has not got itself."""
    key_column: ColumnSpec | None = None
    """The column that is made of the keys of its rows, whose values have no such field."""
    takes_updates: bool = False
    """Each row replaces the row of its key in the target, so that updates may come in."""

    def stage(self, names: Names) -> Stage:
        return replace(ClosingStep.stage(self, names), takes_updates=self.takes_updates)

    @property
    def holds_ms(self) -> int:
        """How long after its end a window closes, as its results have the time of its end."""
        return 0 if self.window is None else self.window.holds_ms

    @property
    def arguments(self) -> tuple[tuple[str, str], ...]:
        if self.reference is not None:
            return (("by", "reference"),)
        window = () if self.window is None else self.closing(self.window.grace_ms)
        if self.key_column is not None:
            window = (*window, ("key", str(self.key_column)))
        return window if self.rows is None else (*window, ("rows", str(self.rows)))

    def tables(self) -> Sequence[TableSpec]:
        book = BOOK if self.reference is None else f"{BOOK}, ranges of offsets"
        schema = schema_of_batches(book, "" if self.window is None else str(self.window))
        return [TableSpec(self.name, STORED, STORED, schema)]

    @property
    def ranges(self) -> ByReference | None:
        return self.reference


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SparkStep(Step):
    """Passes each bounded batch to a PySpark function."""

    VERB = "spark"
    RUN_BY = "batches.spark_results.SparkOp"
    effective = True
    stateful = True
    in_spark = True

    fn: Callable[..., Any]
    schema: Any
    columns: tuple[str, ...] = ()
    """The names of the columns in `schema`."""
    rows: ColumnSchema | None = None
    """The columns of the DataFrame that it gets."""

    def row_columns(self, *, encoded: bool) -> ColumnSchema:
        return of_result(self.said, self.schema)

    def batch_stage(self, *, keeps_going: bool) -> BatchStage:
        """What a batch goes to. `keeps_going`: rows that make it fail are left out."""
        return SparkStage(self.name, self.fn, self.schema, keeps_going=keeps_going)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class DeliverStep(Step):
    """Passes each bounded batch to a sink."""

    VERB = "deliver"
    RUN_BY = "batches.spark_results.SparkOp"
    effective = True
    stateful = True
    delivers = True

    make: Callable[[], Any]
    """Makes the sink of a task."""
    target: str
    """Where it writes, without secrets."""
    transactional: bool = False
    rows: ColumnSchema | None = None
    """The columns of the batches."""
    meets: bool = False
    """The rows of a key must all come through one task, as the later one replaces the earlier one."""

    def stage(self, names: Names) -> Stage:
        return replace(Step.stage(self, names), meets=self.meets)

    @property
    def arguments(self) -> tuple[tuple[str, str], ...]:
        return (("into", self.target), ("delivery", "once in effect" if self.transactional else "at least once"))

    def batch_stage(self, *, keeps_going: bool) -> BatchStage:
        """What a batch goes to. `keeps_going`: rows that make it fail are left out."""
        return SinkStage(self.name, self.make, transactional=self.transactional, keeps_going=keeps_going)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class WriteStep(Step):
    """Writes the result of a stage to files. Nothing else gets that result."""

    VERB = "write"
    RUN_BY = "batches.written.WriteOp"
    effective = True

    write: SparkWrite

    @property
    def arguments(self) -> tuple[tuple[str, str], ...]:
        into = self.write
        found = (("into", shown("into", into.path) or text_of(into.save)), ("format", into.format))
        return (*found, ("partition_by", ", ".join(into.partition_by))) if into.partition_by else found
