"""Which columns the rows of a batch for Spark have: those that are declared, and never what its rows happen to hold.

What it decides: where the columns are known without `rows=`. They are known

- behind an input, a repartition or `.rows()` with a type, and of columns;
- behind a function that is annotated with the type that it returns (`map`, `flat_map`, `map_async`, `into=` of a join);
- behind aggregates of known fields, and behind a Spark stage whose `schema=` has plain columns.

Steps that pass rows on as they are change nothing. Promises: everything else is refused at the line of `.spark(…)`, with what to declare;
all rows of a batch have the same columns, whatever they hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from ....core.batching.spark_schema import result_types
from ....core.columns.schema import BOOL, FLOAT, INT, TEXT, ColumnKind, ColumnSchema, ColumnSpec
from ....core.errors import DeclarationError
from ....core.windows.results import CLOSED_FIELD, END_FIELD, START_FIELD
from ...records.values.column_types import columns_of_rows
from ...records.values.serdes import is_json
from ..steps.batches import BatchStep, SparkStep
from ..steps.columns import FilterColumnsStep, RowsStep
from ..steps.keyed import AggregateStep, JoinStep, JoinTableStep, WindowStep
from ..steps.rows import EventsStep, FilterStep, FlatMapStep, MapAsyncStep, MapStep, MergeStep, RekeyStep
from ..steps.sources import InputStep, ShuffleStep
from ..steps.step import Step, readers_of, rebuilt
from ..types.arguments import shown

DECLARE = (
    "declare the fields that the function needs: .spark(fn, rows=Order, schema=…) with a TypedDict, dataclass, Struct or pyarrow.Schema "
    "of int, float, bool and str; or give the input its type: serde=hg.json(Order)"
)
OF_FIELD = ("sum", "min", "max", "first", "last")
"""Aggregates whose results have the type of their field."""


PLAIN: dict[str, ColumnKind] = {
    **dict.fromkeys(("bigint", "byte", "int", "integer", "long", "short", "smallint", "tinyint"), INT),
    **dict.fromkeys(("double", "float", "real"), FLOAT),
    **dict.fromkeys(("char", "character", "string", "varchar"), TEXT),
    "boolean": BOOL,
}
"""Spark's types whose values a column of a batch can hold → the type of that column."""


class _Unknown(Exception):
    """The columns behind a step are not known; why not."""


def columns_of_batch(step: BatchStep, rows: Any, where: str) -> ColumnSchema:
    """The columns of a batch. `rows`: what the user declares, if anything. Raises `DeclarationError` if they are not known."""
    known = step.schema
    if step.reference is not None:
        known = ColumnSchema(
            tuple(ColumnSpec(name, cast("Any", kind), may) for name, kind, may in step.reference.columns)
        )
    if rows is not None and known is not None:
        raise DeclarationError(f"{where}: rows= of a batch that has the columns {known}", remedy="omit rows=")
    if rows is not None:
        known = _declared(rows, where)
    if known is None:
        try:
            known = _behind(step.parents[0], encoded=False)
        except _Unknown as why:
            raise DeclarationError(
                f"{where}: the columns of its batches are not known: {why}", remedy=DECLARE
            ) from None
    lower = [name.lower() for name in known.names]
    twice = next((name for at, name in enumerate(known.names) if name.lower() in lower[:at]), None)
    if twice is not None:
        raise DeclarationError(
            f"{where}: the rows have '{known.names[lower.index(twice.lower())]}' and '{twice}', which is one name for Spark",
            remedy="rename one of them, or leave it out: rows= may have fewer fields than the rows",
        )
    return known


def with_columns_of_batches(steps: Sequence[Step]) -> list[Step]:
    """The steps, each batch of rows with its columns, and with the policy on which its stages agree."""
    readers = readers_of(steps)

    def declared(step: Step) -> Step:
        stages = [one for one in readers.get(id(step), ()) if isinstance(one, SparkStep)]
        if not isinstance(step, BatchStep) or step.schema is not None or not stages:
            return step
        policies = [one.on_error for one in stages]
        agreed = policies[0] if all(one == policies[0] for one in policies) else None
        return replace(step, rows=stages[0].rows, on_error=agreed)

    return rebuilt(steps, declared)


def _declared(rows: Any, where: str) -> ColumnSchema:
    try:
        return columns_of_rows(rows)
    except DeclarationError as error:
        raise DeclarationError(
            f"{where}: rows={_name(rows)}: {error.what}",
            remedy="columns of a batch are int, float, bool or str, or each of them | None; leave the field out, or make one of these "
            "of it in a .map() before",
        ) from None


# ----------------------------------------------------------------------------------------------------- what steps declare


def _behind(step: Step, *, encoded: bool) -> ColumnSchema:
    """The columns of the rows behind a step. `encoded`: they have been written and read since, without their type."""
    match step:
        case InputStep() if step.serde.type is None:
            raise _Unknown(f"the input '{step.topic}' has no type")
        case InputStep():
            return _of_type(step.serde.type, encoded)
        case ShuffleStep():
            return _behind_shuffle(step)
        case RowsStep():
            return step.schema if step.kind is None else _of_type(step.kind, encoded)
        case MapStep() | MapAsyncStep() | FlatMapStep():
            return _of_function(step, step.fn, encoded)
        case JoinTableStep() | JoinStep():
            return _of_function(step, step.into, encoded)
        case AggregateStep() | WindowStep(rows=None):
            return _of_aggregates(step)
        case SparkStep():
            return _of_result(step)
        case FilterStep() | FilterColumnsStep() | EventsStep() | RekeyStep() | MergeStep():
            first, *others = (_behind(one, encoded=encoded) for one in step.parents)
            if any(one != first for one in others):
                raise _Unknown(f"the streams that {_said(step)} makes one of have different fields")
            return first
        case _:
            raise _Unknown(f"{_said(step)} passes on whatever its code gives")


def _behind_shuffle(step: ShuffleStep) -> ColumnSchema:
    if step.serde.type is not None:
        return _of_type(step.serde.type, encoded=False)
    if not is_json(step.serde):
        raise _Unknown(f"{_said(step)} carries {step.serde.name}")
    return _behind(step.parents[0], encoded=True)


def _of_type(kind: Any, encoded: bool) -> ColumnSchema:
    try:
        return columns_of_rows(kind, encoded=encoded)
    except DeclarationError as error:
        raise _Unknown(error.what) from None


def _of_function(step: Step, fn: Any, encoded: bool) -> ColumnSchema:
    """The columns of what a function returns, as it is annotated."""
    kind = _returned(fn)
    if kind is None:
        raise _Unknown(f"{shown(fn)} of {_said(step)} is not annotated with the type that it returns")
    if isinstance(step, FlatMapStep):
        kind = next(iter(get_args(kind)), None)
    options = (
        [one for one in get_args(kind) if one is not NoneType] if get_origin(kind) in (Union, UnionType) else [kind]
    )
    if len(options) != 1:
        raise _Unknown(f"{shown(fn)} of {_said(step)} returns one of several types")
    return _of_type(options[0], encoded)


def _returned(fn: Any) -> Any:
    try:
        return get_type_hints(fn).get("return")
    except (NameError, TypeError):  # of a type that only its own scope can read; an object that has no annotations
        return None


def _of_aggregates(step: AggregateStep | WindowStep) -> ColumnSchema:
    found: list[ColumnSpec] = []
    for name, part in zip(step.plan.names, step.plan.parts, strict=True):
        if part.name == "count":
            found.append(ColumnSpec(name, INT))
        elif part.name == "mean":
            found.append(ColumnSpec(name, FLOAT, optional=True))
        elif part.name in OF_FIELD and isinstance(part.of, str):
            of: dict[str, ColumnKind] = {one.name: one.type for one in _behind(step.parents[0], encoded=False).columns}
            if part.of not in of:
                raise _Unknown(f"the type of '{part.of}', which '{name}' of {_said(step)} is made of, is not known")
            kind: ColumnKind = INT if part.name == "sum" and of[part.of] == BOOL else of[part.of]
            found.append(ColumnSpec(name, kind, optional=True))
        else:
            raise _Unknown(f"the type of '{name}' of {_said(step)} is not known")
    if isinstance(step, WindowStep):
        found += [ColumnSpec(START_FIELD, INT), ColumnSpec(END_FIELD, INT), ColumnSpec(CLOSED_FIELD, TEXT)]
    return ColumnSchema(tuple(found))


def _of_result(step: SparkStep) -> ColumnSchema:
    kinds = result_types(step.schema)
    if odd := next((name for name, kind in kinds.items() if kind not in PLAIN), None):
        raise _Unknown(
            f"the column '{odd}' of the result of {_said(step)} is {kinds[odd]}, which no column of a batch can hold"
        )
    return ColumnSchema(tuple(ColumnSpec(name, PLAIN[kind], optional=True) for name, kind in kinds.items()))


def _said(step: Step) -> str:
    return f"{step.verb} ({step.where})"


def _name(kind: Any) -> str:
    return getattr(kind, "__qualname__", None) or f"{kind!r:.60}"
