"""What every step of a declared job is: one frozen value, linked to the steps before it.

A step runs nothing. It says itself what the rules must know of it; a verb creates it while the user declares, and `operators/` has what a
task runs for it. The kinds of steps stand in the other files of this room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from ....core.graph.graph import Stage
from ..types.parking import Park
from .row_columns import ColumnsUnknown

if TYPE_CHECKING:
    from ....core.columns.expressions import Node
    from ....core.columns.schema import ColumnSchema
    from ...records.values.serdes import Serde
    from ..types.schemas import TableSpec

Policy = str | Park | Callable[..., Any] | None
"""`"fail"`, `"skip"`, `"dead_letter"`, `hg.park(…)`, a function `(record, exception)` that returns one of these, or None: the policy one
level up."""


AS_BEFORE = object()


class Names(Protocol):
    """The names that a declaration gives to its steps."""

    def name(self, step: Step) -> str:
        """The stage name of a step; of an input, its topic."""
        ...

    def topic(self, step: Step) -> str:
        """The intermediate stream of a shuffle."""
        ...


class NeedsValue(Exception):
    """A step needs whole values, or no columns can be made for it."""

    def __init__(self, step: Step, why: str) -> None:
        super().__init__(f"{step.said} {why}")


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Step:
    """Base class of all steps. `name` is empty for steps that keep no state and shuffle nothing."""

    VERB: ClassVar[str] = ""
    """The verb of this step's stage in the graph; the rules of `core.graph` depend on it, and messages show it."""
    RUN_BY: ClassVar[str] = ""
    """The operator that runs it: its file below `agents/operators`, and its class there. A job imports the operators that it has."""
    SENT_BY: ClassVar[str] = ""
    """The same of the operator that combines rows for it on the sending side of a shuffle."""
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
    at_once: ClassVar[bool] = False
    """Whether it does nothing with any of its rows before all have passed the user's function."""
    tabled: ClassVar[bool] = False
    """Whether it keeps a table under its own name."""
    answers_for_rows: ClassVar[bool] = False
    """Whether its policy decides about rows that its table cannot store."""
    closes: ClassVar[bool] = False
    """Whether its table says up to which time it is closed, of which a run that reads records again knows nothing."""
    in_spark: ClassVar[bool] = False
    """Whether Spark runs it."""
    delivers: ClassVar[bool] = False
    """Whether a sink runs it."""
    by_clock: ClassVar[bool] = False
    """Whether the clock calls it, in one task of the job; no rows reach it."""
    wants_reader: ClassVar[bool] = False
    """Whether it is of no use unless a step stands behind it."""
    keeps_values: ClassVar[bool] = False
    """Whether its rows are all or some of those that came in, with their values."""
    keeps_columns: ClassVar[bool] = False
    """Whether its rows are all or some of those that came in, perhaps with further columns; see `passes_on`."""

    parents: tuple[Step, ...] = field(default=(), repr=False)
    name: str = ""
    on_error: Policy = None
    where: str = ""
    """File and line of the declaration, for messages."""

    @property
    def results(self) -> tuple[str, ...] | None:
        """The fields of the results of aggregates that it makes; None if it makes none."""
        return None

    @property
    def staged(self) -> bool:
        """Whether it is a stage of the graph; an input is none."""
        return bool(self.parents) or self.by_clock

    @property
    def behind(self) -> tuple[Step, ...]:
        """The steps that it needs: those whose rows it gets, and others that it reads."""
        return self.parents

    def relinked(self, replaced: Mapping[int, Step]) -> Self:
        """The step, behind those that replace others, by the ids of these."""
        parents = tuple(replaced.get(id(parent), parent) for parent in self.parents)
        return self if parents == self.parents else replace(self, parents=parents)

    @property
    def verb(self) -> str:
        """The verb of this step."""
        return self.VERB

    @property
    def place(self) -> str:
        """Its name, or else its verb and the line of its declaration."""
        return self.name or self.said

    @property
    def said(self) -> str:
        """Its verb and the line of its declaration."""
        return f"{self.verb} ({self.where})"

    @property
    def updates(self) -> bool:
        """Whether each output row replaces the earlier one of its key; otherwise the output rows are events."""
        return False

    @property
    def holds_ms(self) -> int:
        """By how much output rows may be older than the time that the step was told. Only for steps that are told the event time."""
        return 0

    def stage(self, names: Names) -> Stage:
        """Its stage in the graph of the job."""
        return Stage(
            name=names.name(self),
            verb=self.verb,
            reads=tuple(map(names.name, self.behind)),
            writes=self.writes,
            stateful=self.stateful,
            updates=self.updates,
            arguments=self.arguments,
        )

    def stage_name(self, name: str) -> str:
        """The name of its stage, if it is called this."""
        return name

    @property
    def written(self) -> Mapping[str, tuple[Any, Any]]:
        """The topics to which it writes what it is given, each with the serdes of values and keys."""
        return {}

    @property
    def writes(self) -> tuple[str, ...]:
        """All topics that it writes to, besides an intermediate stream."""
        return tuple(self.written)

    @property
    def arguments(self) -> tuple[tuple[str, str], ...]:
        """What else must be the same in all workers of a run: part → its value as text."""
        return ()

    def tables(self) -> Sequence[TableSpec]:
        """The tables that it keeps."""
        return ()

    @property
    def everywhere(self) -> bool | None:
        """Whether every task gets each of its rows; None: that is so if it is so before it."""
        return None

    @property
    def key_type(self) -> Any:
        """The type of its rows' keys; None if that is not known, and `AS_BEFORE` if they are those of the rows that came in."""
        return None

    def declaring(self) -> Any:
        """The step that declares the type of its rows' values, by a `serde` and as `values_type`; None if it is not known."""
        if not self.keeps_values:
            return None
        first, *others = self.parents
        kind = type_behind(first)
        return first.declaring() if all(type_behind(one) == kind for one in others) else None

    def key_columns(self) -> frozenset[str]:
        """The fields of its rows that have the value by which the rows were partitioned. Rows with equal values there are in one task."""
        if not self.keeps_values:
            return frozenset()
        first, *others = (one.key_columns() for one in self.parents)
        return first.intersection(*others)

    @property
    def keeps_keys(self) -> bool:
        """Whether its rows have the keys of the rows that came in."""
        return self.key_type is AS_BEFORE or self.keeps_columns or self.keeps_values

    def row_columns(self, *, encoded: bool) -> ColumnSchema:
        """The columns of its rows, as they are declared. `encoded`: they have been written and read since, without their type. Raises
        `ColumnsUnknown`."""
        if not self.keeps_values:
            given = self.columns_given
            if given is None or given.nested:
                raise ColumnsUnknown(f"{self.said} passes on whatever its code gives")
            return given
        first, *others = (one.row_columns(encoded=encoded) for one in self.parents)
        if any(one != first for one in others):
            raise ColumnsUnknown(f"the streams that {self.said} makes one of have different fields")
        return first

    def fields(self) -> frozenset[str]:
        """The fields that it names of the values of its rows. Raises `NeedsValue` if it needs the values themselves."""
        raise NeedsValue(self, "needs the whole value")

    @property
    def whole(self) -> Serde[Any] | None:
        """The serde with which it writes all fields of its rows; None if it does not."""
        return None

    def over(self, schema: ColumnSchema) -> Step:
        """The step, if these columns come in instead of rows. Raises `NeedsValue` if it does not work on them as on rows."""
        return self

    @property
    def operator(self) -> str:
        """The operator that runs it in this job: see `RUN_BY`."""
        return self.RUN_BY

    @property
    def takes_columns(self) -> bool | None:
        """Whether columns come in; None: that is so if one of the steps before it gives columns."""
        return None

    @property
    def passes_on(self) -> bool:
        """Whether its rows are all or some of those that came in, perhaps with further columns."""
        return self.keeps_columns

    @property
    def gives_columns(self) -> bool:
        """Whether columns go out if columns come in."""
        return self.passes_on

    @property
    def columns_given(self) -> ColumnSchema | None:
        """The columns that go out; None if they are not known."""
        return None

    @property
    def computed(self) -> Mapping[str, Node] | None:
        """The columns that it adds or replaces by expressions; None if it does anything else."""
        return None

    def why_rows(self) -> str | None:
        """Why it makes rows of the columns that come in; None if it makes none."""
        return None

    @property
    def partial(self) -> bool:
        """Whether it passes on partial states of the step behind it."""
        return False

    @property
    def takes_partials(self) -> bool:
        """Whether partial states come in."""
        return any(parent.partial for parent in self.parents)

    def combines(self, *, columns: bool) -> bool:
        """Whether partial states are sent to it instead of rows, or of columns: nothing needs the single rows, or counts them."""
        return False

    @property
    def fetched(self) -> Any:
        """The source whose records its rows are, each as it was fetched; None if it may have changed one or left it out."""
        return None

    @property
    def ranges(self) -> Any:
        """What is known of the records, if its rows are ranges of offsets and no one here reads them; None: rows are rows."""
        return None

    @property
    def alone(self) -> bool:
        """Whether a row that no chunk has can be left out alone, if it fails on it."""
        return self.at_once


def type_behind(step: Step) -> Any:
    """The type of the values behind a step, or their columns; None if it is not known."""
    found = step.declaring()
    return None if found is None else found.values_type


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
        changed = change(step).relinked(replaced)
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
            stack.append((step, True))
            stack += [(one, False) for one in reversed(step.behind)]
    return list(seen.values())
