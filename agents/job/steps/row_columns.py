"""Which columns rows have by what is declared of them: by a type, by what a function is annotated to return, by aggregates.

Promises: a column is never known by what rows happen to hold. Of what is not declared, `ColumnsUnknown` says so, in the words of the user.
"""

from __future__ import annotations

from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from ....core.batching.spark_schema import result_types
from ....core.columns.schema import BOOL, FLOAT, INT, TEXT, ColumnKind, ColumnSchema, ColumnSpec
from ....core.errors import DeclarationError
from ...records.values.column_types import columns_of_rows
from ..types.arguments import returned, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..types.aggregates import AggregatePlan

OF_FIELD = ("sum", "min", "max", "first", "last", "arg_max", "arg_min")
"""Aggregates whose results have the type of their field."""
PLAIN: dict[str, ColumnKind] = {
    **dict.fromkeys(("bigint", "byte", "int", "integer", "long", "short", "smallint", "tinyint"), INT),
    **dict.fromkeys(("double", "float", "real"), FLOAT),
    **dict.fromkeys(("char", "character", "string", "varchar"), TEXT),
    "boolean": BOOL,
}
"""Spark's types whose values a column of a batch can hold → the type of that column."""


class ColumnsUnknown(Exception):
    """The columns behind a step are not known; why not."""


def of_type(kind: Any, encoded: bool) -> ColumnSchema:
    """The columns of values of a type."""
    try:
        return columns_of_rows(kind, encoded=encoded)
    except DeclarationError as error:
        raise ColumnsUnknown(error.what) from None


def of_function(said: str, fn: Any, encoded: bool, *, each: bool = False) -> ColumnSchema:
    """The columns of what a function returns, as it is annotated. `said`: the step that has it; `each`: it returns several values."""
    kind = returned(fn)
    if kind is None:
        raise ColumnsUnknown(f"{shown(fn)} of {said} is not annotated with the type that it returns")
    if each:
        kind = next(iter(get_args(kind)), None)
    options = (
        [one for one in get_args(kind) if one is not NoneType] if get_origin(kind) in (Union, UnionType) else [kind]
    )
    if len(options) != 1:
        raise ColumnsUnknown(f"{shown(fn)} of {said} returns one of several types")
    return of_type(options[0], encoded)


def of_aggregates(said: str, plan: AggregatePlan, rows: Callable[[], ColumnSchema]) -> tuple[ColumnSpec, ...]:
    """The columns of the results of aggregates. `rows`: what makes the columns of the rows that they are of."""
    found: list[ColumnSpec] = []
    for name, part in zip(plan.names, plan.parts, strict=True):
        if part.name in ("count", "count_distinct"):
            found.append(ColumnSpec(name, INT))
        elif part.name in ("mean", "quantile"):
            found.append(ColumnSpec(name, FLOAT, optional=True))
        elif part.name in OF_FIELD and isinstance(part.of, str):
            of = {one.name: one for one in rows().columns}
            if part.of not in of:
                raise ColumnsUnknown(f"the type of '{part.of}', which '{name}' of {said} is made of, is not known")
            column = of[part.of]
            if column.logical is not None and part.logical is None:
                raise ColumnsUnknown(
                    f"'{name}' of {said} is of a {column.logical}, which aggregates of rows do not know"
                )
            kind: ColumnKind = INT if part.name == "sum" and column.type == BOOL else column.type
            found.append(ColumnSpec(name, kind, optional=True, logical=part.logical))
        else:
            raise ColumnsUnknown(f"the type of '{name}' of {said} is not known")
    return tuple(found)


def of_result(said: str, schema: Any) -> ColumnSchema:
    """The columns of the rows that Spark returns."""
    kinds = result_types(schema)
    if odd := next((name for name, kind in kinds.items() if kind not in PLAIN), None):
        raise ColumnsUnknown(
            f"the column '{odd}' of the result of {said} is {kinds[odd]}, which no column of a batch can hold"
        )
    return ColumnSchema(tuple(ColumnSpec(name, PLAIN[kind], optional=True) for name, kind in kinds.items()))
