"""Steps whose rows come from a stream that tasks read: an input, and a shuffle through a stream of the job's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from ....core.columns.schema import BOOL, FLOAT, TEXT
from ....core.graph.graph import Input
from ...records.values.serdes import is_json
from ..types.arguments import returned
from ..types.timestamps import TimeField, text_of
from .keyed import check_numbers
from .row_columns import ColumnsUnknown, of_type
from .step import AS_BEFORE, Names, NeedsValue, Policy, Step, lineage

if TYPE_CHECKING:
    from ....core.columns.schema import ColumnSchema
    from ....core.graph.graph import Stage
    from ...records.values.serdes import Serde
    from .keyed import AggregateStep, WindowStep

MAX_FUTURE_MS = 3_600_000
"""`max_future=` of an input, unless it is declared."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SourceStep(Step):
    """What tasks read a stream for. Only an input declares of its records what has a default here."""

    foreign: ClassVar[bool] = False
    """Whether others than this job's tasks write the stream."""

    serde: Any
    key_serde: Any = None
    key: str | Callable[[Any], Any] | None = None
    timestamp: Any = None
    earliest_ms: int | None = None
    """The least event time that is no bad data; None: any."""
    max_future_ms: int | None = None
    """How far ahead of the broker's time an event time may be; None: any."""
    bootstrap: bool = False
    producers: tuple[str, ...] = ()
    on_bad_data: Policy = None
    named: Any = None
    """The serde that decodes only the fields that later steps name; None if a later step needs the whole value."""
    schema: ColumnSchema | None = None
    """The columns that go through the stream; None for rows."""
    columns: ColumnSchema | None = None
    """The columns that are decoded instead of rows: see `named_fields`. Where they cannot be, a chunk is run as rows."""

    def stream(self, names: Names) -> str:
        """The topic."""
        return names.topic(self)

    @property
    def framed(self) -> bool:
        """Whether its records come in frames, which have their event times."""
        return not self.foreign or bool(self.producers)

    @property
    def on_error_behind(self) -> Policy:
        """The policy of steps behind it that have none of their own."""
        return self.on_error if self.foreign else None

    @property
    def time_field(self) -> Any:
        """The field of the event time, or a function of the value; None for the times of the records."""
        return self.timestamp.name if isinstance(self.timestamp, TimeField) else self.timestamp

    @property
    def values_type(self) -> Any:
        """The type of its values, as its serde declares it."""
        return self.serde.type

    def declaring(self) -> SourceStep:
        return self

    @property
    def key_type(self) -> Any:
        return self.key_serde.type if self.key_serde is not None else None

    @property
    def columns_given(self) -> ColumnSchema | None:
        return self.schema or self.columns

    @property
    def fetched(self) -> SourceStep | None:
        return self


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class InputStep(SourceStep):
    """A topic that the job reads."""

    VERB = "input"
    foreign = True

    topic: str
    max_out_of_order_ms: int = 0
    earliest_ms: int | None = 0
    max_future_ms: int | None = MAX_FUTURE_MS
    start: str | int = "oldest"
    until: Any = None
    priority: int = 0
    broadcast: bool = False
    on_lost: str = "fail"
    partitioner: str | None = None
    pattern: str = ""
    """Stands for all topics that match it, until these are known (`derive.patterns`)."""
    matched: str = ""
    """The pattern that its topic matches."""
    into: Callable[[Any, str], Any] | None = None
    """Of a value and its topic, the value that goes on."""

    def stream(self, names: Names) -> str:
        """The topic that the user names."""
        return self.topic

    def stated(self, *, broadcast: bool, bootstrap: bool, key_serde: Serde[Any]) -> Input:
        """The input in the graph of the job. What steps behind it make of it: `broadcast` and `bootstrap`. `key_serde`: of the app."""
        until = self.until
        return Input(
            stream=self.topic,
            key=self.key if isinstance(self.key, str) else None,
            broadcast=self.broadcast or broadcast,
            bootstrap=self.bootstrap or bootstrap,
            priority=self.priority,
            start=self.start,
            until=tuple(sorted(until.items())) if isinstance(until, Mapping) else until,
            producers=self.producers,
            on_lost=self.on_lost,
            partitioner=self.partitioner,
            key_serde=(self.key_serde or key_serde).name,
            out_of_order_ms=self.max_out_of_order_ms,
            arguments=(
                ("serde", str(self.serde.name)),
                ("timestamp", text_of(self.timestamp)),
                *((("pattern", self.matched),) if self.matched else ()),
            ),
        )

    @property
    def everywhere(self) -> bool:
        return self.broadcast

    def key_columns(self) -> frozenset[str]:
        # with into= the values are others
        return frozenset((self.key,)) if isinstance(self.key, str) and self.into is None else frozenset()

    def row_columns(self, *, encoded: bool) -> ColumnSchema:
        if self.serde.type is None:
            raise ColumnsUnknown(f"the input '{self.topic}' has no type")
        return of_type(self.serde.type, encoded)

    def fields(self) -> frozenset[str]:
        if not isinstance(self.key, str | None) or not isinstance(self.time_field, str | None):
            raise NeedsValue(self, "has a function of the value")
        return frozenset(name for name in (self.key, self.time_field) if name is not None)

    def check_time(self, schema: ColumnSchema) -> None:
        """Raise `NeedsValue` if its time cannot be read of these columns."""
        name, iso = self.time_field, isinstance(self.timestamp, TimeField) and self.timestamp.unit == "iso"
        types = {one.name: one.type for one in schema.columns}
        if name is not None and (types.get(name) == BOOL or (types.get(name) == TEXT) != iso):
            raise NeedsValue(self, f"has the timestamp '{name}', which is {types.get(name, 'no column')}")

    @property
    def takes_columns(self) -> bool:
        return self.columns is not None

    @property
    def gives_columns(self) -> bool:
        return True


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ShuffleStep(SourceStep):
    """Sends rows through an intermediate stream: each key to one task; with `everyone`, every row to every task; with `gathers`, every row
    to one task. What it says as a source is of the receiving side."""

    RUN_BY = "shuffle.shuffles.ShuffleOp"
    wants_reader = True

    by: str | Callable[[Any], Any] | None
    partitions: int | None = None
    everyone: bool = False
    gathers: bool = False
    key_text: str = ""
    """The expression that makes the column `by`, as text; empty if it is decoded."""
    combine: AggregateStep | WindowStep | None = None
    """The aggregate or window behind the shuffle, whose combining begins here, before rows are sent. What fails in it is its failure."""
    firsts: bool = False
    """Of each chunk, only the first row of each key is sent: what stands behind it wants no other."""

    @property
    def operator(self) -> str:
        if self.firsts:
            return "shuffle.first_rows.FirstRowsOp"
        return self.RUN_BY if self.combine is None else self.combine.SENT_BY

    @property
    def verb(self) -> str:
        return "broadcast" if self.everyone else "gather" if self.gathers else "repartition"

    @property
    def by_key(self) -> bool:
        """Whether the key of a row says where it goes."""
        return not (self.everyone or self.gathers)

    def stage(self, names: Names) -> Stage:
        return replace(
            Step.stage(self, names),
            writes=(names.topic(self),),
            by=text_of(self.by) if self.by is not None else None,
            width=self.partitions,
            key_serde=self.key_serde.name,
        )

    @property
    def arguments(self) -> tuple[tuple[str, str], ...]:
        carried = ("carries", "partial states" if self.partial else self.serde.name)
        return (carried, ("key", self.key_text)) if self.key_text else (carried,)

    @property
    def partial(self) -> bool:
        return self.combine is not None

    @property
    def everywhere(self) -> bool:
        return self.everyone

    @property
    def key_type(self) -> Any:
        return AS_BEFORE if self.by is None else self.key_serde.type or returned(self.by)

    def key_columns(self) -> frozenset[str]:
        if self.by is None:
            return self.parents[0].key_columns() if self.by_key else frozenset()
        return frozenset((self.by,)) if isinstance(self.by, str) else frozenset()

    def row_columns(self, *, encoded: bool) -> ColumnSchema:
        if self.schema is not None:
            return self.schema
        if self.serde.type is not None:
            return of_type(self.serde.type, encoded=False)
        if not is_json(self.serde):
            raise ColumnsUnknown(f"{self.said} carries {self.serde.name}")
        return self.parents[0].row_columns(encoded=True)

    def fields(self) -> frozenset[str]:
        if self.by is not None and not isinstance(self.by, str):
            raise NeedsValue(self, "has a function of the value")
        aggregated = frozenset[str]() if self.combine is None else self.combine.fields()
        return aggregated | ({self.by} if self.by is not None else frozenset())

    @property
    def whole(self) -> Serde[Any] | None:
        return None if self.partial else self.serde

    def over(self, schema: ColumnSchema) -> ShuffleStep:
        if self.by is None:
            raise NeedsValue(self, "has no field, but the key of the record")
        if any(one.name == str(self.by) and one.type == FLOAT for one in schema.columns):
            raise NeedsValue(self, "is by a float")
        if self.combine is None:
            return replace(self, columns=schema)
        check_numbers(self.combine.plan, schema, self)
        combine = self.combine.over(schema)
        return self if combine is self.combine else replace(self, combine=combine)

    @property
    def passes_on(self) -> bool:
        return not self.partial

    @property
    def gives_columns(self) -> bool:
        return not self.partial and self.columns_given is not None

    def why_rows(self) -> str | None:
        return None if self.combine is None else replace(self.combine, parents=self.parents).why_rows()

    @property
    def fetched(self) -> ShuffleStep | None:
        return self if self.by_key and self.schema is not None else None


def inputs_of(steps: Iterable[Step]) -> dict[str, InputStep]:
    """The inputs among these steps, by topic."""
    return {step.topic: step for step in steps if isinstance(step, InputStep)}


def shuffles_before(step: Step) -> list[ShuffleStep]:
    """The shuffles that lead to a step, the nearest one last."""
    return [one for one in lineage((step,)) if isinstance(one, ShuffleStep)]
