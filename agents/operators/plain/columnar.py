"""The operators of column streams that keep no state: from rows to columns, expressions, and back to rows.

Each works on a chunk at a time: an expression is computed by one call for all of its records. A record for which an expression has no value
is an error of that step, with the index of the record; the policy of the step decides about it, as about a function that raises.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from types import NoneType
from typing import Any

from ....core.columns.evaluate import NotComputable, compiled
from ....core.columns.expressions import columns_in
from ....core.columns.schema import FLOAT, ColumnSchema
from ...job.steps.columns import (
    ColumnsStep,
    ExplodeStep,
    FilterColumnsStep,
    RowsStep,
    SelectColumnsStep,
    WithColumnsStep,
)
from ...job.steps.step import Step
from ...records.columns.expressions import Computation
from ...records.columns.fitting import columns_of_values
from ...records.columns.records import Records
from ...records.columns.selecting import column_of, lacking
from ...records.logical.elements import ElementReader
from ...records.logical.logical_columns import shown_maker
from ...records.memory.taking import take
from ...records.memory.vectors import Vector, VectorBatch
from ..base.stateless import Env, Operator, blaming, failing


class ColumnsOp(Operator):
    """Rows become columns. If it is `direct`, its source decodes the columns, and no rows come."""

    of_letter = ("tombstones",)

    def __init__(self, step: ColumnsStep, env: Env) -> None:
        super().__init__(step, env)
        self.direct = step.direct
        self.keeps = step.keeps
        self.schema = step.schema
        self.tombstones = 0
        """How many null values of the running letter were dropped."""

    def push(self, rows: Records) -> None:
        if rows.vectors is not None:
            self.forward(rows)
            return
        if (results := rows.results) is not None and (columns := _as_declared(results, self.schema)) is not None:
            self.forward(rows.only(columns))
            return
        values = rows.values
        if NoneType in map(type, values):  # by type: a value's own == may do anything
            kept = [i for i, value in enumerate(values) if value is not None]
            self.tombstones += len(values) - len(kept)
            rows = rows.at(kept)
        columns, bad = columns_of_values(rows.values, self.schema)
        if bad:
            raise failing(self.step, bad, rows)
        schema = self.schema
        self.forward(rows.with_vectors({one.name: Vector.of(one.type, columns[one.name]) for one in schema.columns}))

    def complete(self) -> None:
        if self.tombstones:
            self.env.count("tombstones_dropped", self.tombstones)
        self.drop()

    def drop(self) -> None:
        self.tombstones = 0


def _as_declared(results: VectorBatch, schema: ColumnSchema) -> dict[str, Vector] | None:
    """Results as these columns; None if they are others. Whole numbers become floats where the schema says so, as a sum is 0 at first."""
    found: dict[str, Vector] = {}
    for name, one, of in zip(results.names, results.vectors, schema.columns, strict=False):
        if one.kind != of.type and of.type == FLOAT:
            one = Vector.of(FLOAT, [None if value is None else float(value) for value in one.values()])
        if (name, one.kind) != (of.name, of.type) or (one.nulls and not of.optional):
            return None
        found[name] = one
    return found if len(found) == len(schema.columns) else None


class FilterColumnsOp(Operator):
    """Keeps the rows for which an expression is true."""

    def __init__(self, step: FilterColumnsStep, env: Env) -> None:
        super().__init__(step, env)
        self.keep = Computation(step.keep, step.schema)
        self.needs = frozenset(columns_in(step.keep))
        self.compute = compiled(step.keep, step.schema)
        self.fields = {name: column_of(name) for name in sorted(self.needs)}

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        return behind | self.needs

    def push(self, rows: Records) -> None:
        if rows.vectors is not None:
            with blaming_rows(self.step, rows):
                kept = rows.kept(self.keep.picked(rows))
        else:
            kept = self._filtered(rows)
        self.forward(kept)

    def _filtered(self, rows: Records) -> Records:
        with blaming(self.step, lacking(list(self.fields), rows.values)):
            columns = {name: field(rows.values) for name, field in self.fields.items()}
            try:
                return rows.filtered(self.compute(columns, len(rows)))
            except NotComputable as error:
                bad = {error.index: error, **self._not_computable(columns, len(rows))}
                raise failing(self.step, list(bad.items()), rows) from error

    def _not_computable(self, columns: dict[str, list[Any]], length: int) -> dict[int, NotComputable]:
        """The rows that have no value, found one by one."""
        bad: dict[int, NotComputable] = {}
        for place in range(length):
            try:
                self.compute({name: [column[place]] for name, column in columns.items()}, 1)
            except NotComputable as error:
                bad[place] = error
        return bad


@contextmanager
def blaming_rows(step: Step, chunk: Records) -> Iterator[None]:
    """As `blaming`, of expressions: the error names all records of the letter that have no value."""
    with blaming(step):
        try:
            yield
        except NotComputable as error:
            raise failing(step, list({error.index: error, **error.all}.items()), chunk) from error


class WithColumnsOp(Operator):
    """Adds columns, or replaces them."""

    def __init__(self, step: WithColumnsStep, env: Env) -> None:
        super().__init__(step, env)
        self.made = {name: Computation(node, step.schema) for name, node in step.made.items()}
        self.needs = frozenset(name for node in step.made.values() for name in columns_in(node))

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        return (behind - self.made.keys()) | self.needs

    def push(self, rows: Records) -> None:
        with blaming_rows(self.step, rows):
            made = {name: one.vector(rows) for name, one in self.made.items()}
        self.forward(rows.extended(made))


class SelectColumnsOp(Operator):
    """Passes on the columns that expressions make, and no others."""

    def __init__(self, step: SelectColumnsStep, env: Env) -> None:
        super().__init__(step, env)
        self.made = {name: Computation(node, step.schema) for name, node in step.made.items()}
        self.needs = {name: frozenset(columns_in(node)) for name, node in step.made.items()}
        self.wanted = frozenset(self.made)
        """The columns that a later step reads: no others are computed."""

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        self.wanted = behind & self.made.keys()
        return frozenset[str]().union(*(self.needs[name] for name in self.wanted))

    def push(self, rows: Records) -> None:
        with blaming_rows(self.step, rows):
            made = {name: one.vector(rows) for name, one in self.made.items() if name in self.wanted}
        self.forward(rows.only(made))


class ExplodeOp(Operator):
    """Makes a row of each element of a list; the other columns are repeated."""

    def __init__(self, step: ExplodeStep, env: Env) -> None:
        super().__init__(step, env)
        self.list = step
        self.repeated = frozenset(step.schema.names) - {step.column}
        self._read_only(frozenset(one.name for one in step.made))

    def _read_only(self, wanted: frozenset[str]) -> None:
        step = self.list
        self.reader = ElementReader(step.element, step.title, wanted, keep_empty=step.keep_empty)

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        made = frozenset(one.name for one in self.list.made)
        self._read_only(behind & made)
        self.repeated = (behind - made) & frozenset(self.list.schema.names)
        return self.repeated | {self.list.column}

    def push(self, rows: Records) -> None:
        with blaming_rows(self.step, rows):
            found = self.reader.read(take(rows.vector(self.list.column), rows.picked))
            each = array("q", chain.from_iterable(map(repeat, rows.indexes(), found.sizes)))
            repeated = {name: take(rows.vector(name), each) for name in self.repeated}
            made = rows.made_of(each, {**repeated, **found.columns})
        self.forward(made)


class RowsOp(Operator):
    """Columns become rows."""

    def __init__(self, step: RowsStep, env: Env) -> None:
        super().__init__(step, env)
        self.names = step.schema.names
        self.make = shown_maker(step.kind, step.schema)

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        return frozenset(self.names)

    def push(self, rows: Records) -> None:
        with blaming(self.step):  # the type may have code of its own
            made = rows.of_columns(self.names, self.make)
        self.forward(made)
