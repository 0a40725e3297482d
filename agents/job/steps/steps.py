"""The steps of a declared job: one frozen value per step, linked to the steps before it.

Steps decide nothing and run nothing. `stream.py` creates them while the user declares, `declaration.py` turns them into the graph that
`core` checks, and `operators/` turns them into what a task runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from ....core.windows.joins import held_back

if TYPE_CHECKING:
    from ....core.batching.publishing import SparkWrite
    from ....core.columns.expressions import Node
    from ....core.columns.schema import ColumnSchema
    from ....core.windows.joins import Distance
    from ..types.aggregates import AggregatePlan
    from ..types.schemas import Migrate
    from ..types.windows import Window

Policy = str | Callable[..., Any] | None
"""`"fail"`, `"skip"`, `"dead_letter"`, a function `(record, exception)` that returns one of these, or None: the policy one level up."""


MAX_FUTURE_MS = 3_600_000
"""`max_future=` of an input, unless it is declared."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Step:
    """Base class of all steps. `name` is empty for steps that keep no state and shuffle nothing."""

    VERB: ClassVar[str] = ""
    """The verb of this step's stage in the graph; the rules of `core.graph` depend on it, and messages show it."""
    stateful: ClassVar[bool] = False
    """Whether the step keeps state under its name."""
    passing: ClassVar[bool] = False
    """Whether the step only passes rows on. An input whose rows all go through such steps into tables is read to its end first."""
    effective: ClassVar[bool] = False
    """Whether a job that ends with this step has an effect."""
    hears_time: ClassVar[bool] = False
    """Whether its operator is told the event time; the operator's `letters` is then true."""
    remembers: ClassVar[bool] = False
    """Whether what the step does with a row may depend on earlier rows."""
    irrevocable: ClassVar[bool] = False
    """Whether the user's function has effects that cannot be undone. It runs again to find a failed row only if a policy may leave that row
    out."""
    by_row: ClassVar[bool] = False
    """Whether the user's function gets rows and nothing else. A policy may leave one out, so the function runs with its chunk."""

    parents: tuple[Step, ...] = field(default=(), repr=False)
    name: str = ""
    on_error: Policy = None
    where: str = ""
    """File and line of the declaration, for messages."""

    @property
    def verb(self) -> str:
        """The verb of this step."""
        return self.VERB

    @property
    def place(self) -> str:
        """Its name, or else its verb and the line of its declaration."""
        return self.name or f"{self.verb} ({self.where})"

    @property
    def updates(self) -> bool:
        """Whether each output row replaces the earlier one of its key; otherwise the output rows are events."""
        return False

    @property
    def holds_ms(self) -> int:
        """By how much output rows may be older than the time that the step was told. Only for steps that are told the event time."""
        return 0


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class InputStep(Step):
    """A topic that the job reads."""

    VERB = "input"

    topic: str
    serde: Any
    key_serde: Any = None
    key: str | Callable[[Any], Any] | None = None
    timestamp: Any = None
    max_out_of_order_ms: int = 0
    earliest_ms: int | None = 0
    """The least event time that is no bad data; None: any."""
    max_future_ms: int | None = MAX_FUTURE_MS
    """How far ahead of the broker's time an event time may be; None: any."""
    start: str | int = "oldest"
    until: Any = None
    priority: int = 0
    bootstrap: bool = False
    broadcast: bool = False
    producers: tuple[str, ...] = ()
    on_lost: str = "fail"
    partitioner: str | None = None
    on_bad_data: Policy = None
    columns: ColumnSchema | None = None
    """The columns that are decoded instead of rows: see `named_fields`. Where they cannot be, a chunk is run as rows."""
    named: Any = None
    """The serde that decodes only the fields that later steps name; None if a later step needs the whole value."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class MapStep(Step):
    """One value in, one out."""

    VERB = "map"
    passing = True
    by_row = True

    fn: Callable[[Any], Any]
    with_record: bool = False


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ColumnsStep(Step):
    """Rows become columns of this schema."""

    VERB = "columns"
    passing = True
    by_row = True

    schema: ColumnSchema
    direct: bool = False
    """The columns are decoded from the bytes of the input before this step."""
    keeps: bool = False
    """An output has the fields of its record that are no columns, too."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class FilterColumnsStep(Step):
    """Keeps the rows for which the expression is true."""

    VERB = "filter"
    passing = True
    by_row = True

    keep: Node
    schema: ColumnSchema
    """What the expression reads."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class WithColumnsStep(Step):
    """Adds columns, or replaces them, by expressions."""

    VERB = "with-columns"
    passing = True
    by_row = True

    made: Mapping[str, Node]
    schema: ColumnSchema
    """What the expressions read."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class FrameStep(Step):
    """A function of a frame of each chunk's columns, which returns a frame."""

    VERB = "frame"
    passing = True
    by_row = True

    fn: Callable[[Any], Any]
    like: str | None
    """The library of the frame; None: the columns as they are, which speak the Arrow capsule interface."""
    schema: ColumnSchema
    """What the function gets."""
    gives: ColumnSchema
    """What it returns."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class RowsStep(Step):
    """Columns become rows."""

    VERB = "rows"
    passing = True
    by_row = True

    schema: ColumnSchema
    kind: Any = None
    """The type of the values; None for dicts."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class FlatMapStep(Step):
    """One value in, any number out."""

    VERB = "flat-map"
    passing = True
    by_row = True

    fn: Callable[[Any], Any]
    with_record: bool = False


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class FilterStep(Step):
    """Keeps the rows for which the function is true."""

    VERB = "filter"
    passing = True
    by_row = True

    fn: Callable[[Any], Any]
    with_record: bool = False


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class PeekStep(FilterStep):
    """Keeps every row, and shows it to the function."""

    VERB = "peek"


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class MapAsyncStep(Step):
    """Awaits a coroutine per row, `concurrency` at a time; results keep the order of their input."""

    VERB = "map-async"

    fn: Callable[[Any], Any]
    concurrency: int = 16
    with_record: bool = False


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class MergeStep(Step):
    """Merges several streams into one."""

    VERB = "merge"
    passing = True


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class EventsStep(Step):
    """From here on, each update counts as an event of its own."""

    VERB = "as-events"
    passing = True


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class RekeyStep(Step):
    """Sets another key, on the same partition. Of the steps that use this key, only a shuffle or an output may follow."""

    VERB = "rekey"
    passing = True
    by_row = True

    by: str | Callable[[Any], Any]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ShuffleStep(Step):
    """Sends rows through an intermediate stream: each key to one task; with `everyone`, every row to every task; with `gathers`, every row
    to one task."""

    by: str | Callable[[Any], Any] | None
    serde: Any
    key_serde: Any
    partitions: int | None = None
    everyone: bool = False
    gathers: bool = False
    schema: ColumnSchema | None = None
    """The columns that go through the stream; None for rows."""
    columns: ColumnSchema | None = None
    """The columns of which rows are made, where they may go through the stream as columns; None if all steps take rows."""
    key_text: str = ""
    """The expression that makes the column `by`, as text; empty if it is decoded."""
    combine: AggregateStep | WindowStep | None = None
    """The aggregate or window behind the shuffle, whose combining begins here, before rows are sent. What fails in it is its failure."""

    @property
    def verb(self) -> str:
        """`broadcast`, `gather` or `repartition`."""
        return "broadcast" if self.everyone else "gather" if self.gathers else "repartition"

    @property
    def by_key(self) -> bool:
        """Whether the key of a row says where it goes."""
        return not (self.everyone or self.gathers)


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


@dataclass(frozen=True, slots=True)
class ByReference:
    """A batch is offset ranges of an input or of an intermediate stream, and what decodes its records."""

    columns: tuple[tuple[str, str, bool], ...]
    """Name, type and whether it may be null."""
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
class BatchStep(Step):
    """Collects rows into a bounded batch."""

    VERB = "batch"
    hears_time = True
    stateful = True

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
    late: str | None = None
    """The topic for rows whose window is closed."""
    late_serde: Any = None
    keeps_open: bool = False
    """An end of stream or a drain closes no window."""
    gathered: bool = False
    """Its rows come from all tasks, so that `gather.max-bytes` bounds what is open."""

    @property
    def holds_ms(self) -> int:
        """How long after its end a window closes, as its results have the time of its end."""
        return 0 if self.window is None else self.window.holds_ms


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SparkStep(Step):
    """Passes each bounded batch to a PySpark function."""

    VERB = "spark"
    effective = True
    stateful = True

    fn: Callable[..., Any]
    schema: Any
    columns: tuple[str, ...] = ()
    """The names of the columns in `schema`."""
    rows: ColumnSchema | None = None
    """The columns of the DataFrame that it gets."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class WriteStep(Step):
    """Lets Spark write the result of a stage. Nothing else gets that result."""

    VERB = "write"
    effective = True

    write: SparkWrite


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


def readers_of(steps: Sequence[Step]) -> dict[int, list[Step]]:
    """The steps that read what a step gives, by its id."""
    readers: dict[int, list[Step]] = {}
    for step in steps:
        for parent in step.parents:
            readers.setdefault(id(parent), []).append(step)
    return readers


def rebuilt(steps: Sequence[Step], change: Callable[[Step], Step]) -> list[Step]:
    """The steps as `change` returns them, linked with each other as before."""
    replaced: dict[int, Step] = {}
    result: list[Step] = []
    for step in steps:
        changed = change(step)
        parents = tuple(replaced.get(id(parent), parent) for parent in step.parents)
        if parents != step.parents:
            changed = replace(changed, parents=parents)
        if isinstance(changed, JoinTableStep) and id(changed.table) in replaced:
            table = replaced[id(changed.table)]
            assert isinstance(table, TableStep)
            changed = replace(changed, table=table)
        if changed is not step:
            replaced[id(step)] = changed
        result.append(changed)
    return result


def lineage(steps: tuple[Step, ...]) -> list[Step]:
    """These steps and all that lead to them, parents before children, each once."""
    seen: dict[int, Step] = {}
    stack = [(step, False) for step in reversed(steps)]
    while stack:
        step, through = stack.pop()
        if through:
            seen.setdefault(id(step), step)
        elif id(step) not in seen:
            behind = (*step.parents, step.table) if isinstance(step, JoinTableStep) else step.parents
            stack.append((step, True))
            stack += [(one, False) for one in reversed(behind)]
    return list(seen.values())
