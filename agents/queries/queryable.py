"""Which tables of a job others can ask, and in which task a key of each is.

    app.table(…)        any task may have the key: all are asked
    stream.table(…)     behind a shuffle: the task of the key's partition; of an input: all are asked; with broadcast=True: any one will do
    stream.agg(…)       the same as stream.table; the answer is the result, as it goes to outputs

Windows, joins and batches keep their state in blocks that only they can read: they are refused, with what to do instead. So are headgate's
own tables.

Promise: the task of a key is computed only where headgate itself has put the key into its partition, with these bytes; everywhere else all
tasks are asked, whoever has placed the keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...core.columns.schema import BOOL, FLOAT, INT, TEXT
from ...core.errors import DataError, HeadgateError, NotFound
from ...core.settings import offer
from ..job.derive.declaration import Declared
from ..job.steps.keyed import AggregateStep, TableStep
from ..job.steps.sources import ShuffleStep, SourceStep
from ..job.steps.step import AS_BEFORE, Step
from ..records.values.column_types import is_arrow_schema, named_fields, type_of_arrow
from ..records.values.serdes import Serde, is_json
from ..state.scan import OWN
from . import kinds

KINDS = {INT: kinds.INT, FLOAT: kinds.FLOAT, BOOL: kinds.BOOL, TEXT: kinds.TEXT}
"""What a column is called in an export; anything else is JSON there."""
TABLE, FOLLOWS, AGGREGATE_OF = "table", "stream table", "aggregate"


class NotQueryable(DataError):
    """The table is not one that others can ask."""


@dataclass(frozen=True, slots=True)
class Queryable:
    """A table that others can ask."""

    name: str
    kind: str
    key: Serde[Any]
    value: Serde[Any]
    finish: Callable[[list[Any]], list[Any]] | None = None
    """What makes results of stored values; None: those are the results."""
    stream: str = ""
    """The stream whose partitions say in which task a key is; empty: that is not known."""
    broadcast: bool = False
    """Whether every task has all of it."""
    copied: bool = False
    """Whether a worker has one copy for all of its tasks."""

    @property
    def fields(self) -> dict[str, str] | None:
        """The kind of each field of its values, as they stand in JSON, if the table declares a type; None if the values must be looked at.

        >>> kind = TypedDict("Order", {"user": str, "n": int | None, "tags": list[str]})
        >>> Queryable("t", TABLE, text(), json(kind)).fields
        {'user': 'text', 'n': 'int', 'tags': 'json'}
        """
        if self.finish is not None or not self.value.type:
            return None
        kind = type_of_arrow(self.value.type) if is_arrow_schema(self.value.type) else self.value.type
        return {name: KINDS.get(type_, kinds.JSON) for name, type_ in named_fields(kind).items()} or None

    @property
    def spliced(self) -> bool:
        """Whether stored values are JSON that can be given as it is."""
        return self.finish is None and is_json(self.value)


def queryables(declared: Declared) -> dict[str, Queryable]:
    """The tables of a job that others can ask."""
    found = {one.name: Queryable(one.name, TABLE, one.key_serde, one.serde) for one in declared.app.tables.values()}
    for step in declared.steps:
        if isinstance(step, TableStep):
            found[step.name] = Queryable(
                step.name,
                FOLLOWS,
                step.key_serde,
                step.serde,
                stream=_stream(declared, step, step.key_serde),
                broadcast=step.broadcast,
                copied=step.name in declared.copied,
            )
        elif isinstance(step, AggregateStep):
            (spec,) = step.tables()
            stream = _stream(declared, step, spec.key)
            found[step.name] = Queryable(step.name, AGGREGATE_OF, spec.key, spec.value, _results(step), stream)
    return dict(sorted(found.items()))


def refused(declared: Declared, table: str) -> HeadgateError:
    """Why this table, which is none of `queryables`, cannot be asked."""
    if table in OWN:
        return NotQueryable(
            f"the table '{table}' is headgate's own", remedy=f"`headgate tables JOB {table}` shows what is in it"
        )
    for step in declared.steps:
        if any(spec.name == table for spec in step.tables()):
            return NotQueryable(
                f"the table '{table}' is the state of {step.said}, which keeps it in blocks that others cannot ask",
                remedy=f'keep its results: .table("name") behind it; `headgate tables JOB {table}` shows the state',
            )
    known = list(queryables(declared))
    return NotFound(f"the job has no table '{table}'", remedy=offer(table, known) or "it has none that can be asked")


def _results(step: AggregateStep) -> Callable[[list[Any]], list[Any]]:
    return lambda states: step.plan.results(states)


def _stream(declared: Declared, step: Step, key: Serde[Any]) -> str:
    """The intermediate stream whose partitions say in which task a key of this step is; empty if none does."""
    found: set[str] = set()
    waiting = list(step.parents)
    while waiting:
        one = waiting.pop()
        if isinstance(one, SourceStep):
            if not (isinstance(one, ShuffleStep) and one.by_key and one.key_serde.name == key.name):
                return ""
            found.add(declared.topic(one))
        elif one.keeps_values or one.keeps_columns or one.key_type is AS_BEFORE:
            waiting += one.parents
        else:
            return ""
    return found.pop() if len(found) == 1 else ""
