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
from typing import Any, cast

from ....core.columns.schema import ColumnSchema, ColumnSpec
from ....core.errors import DeclarationError
from ...records.values.column_types import columns_of_rows
from ..steps.batches import BatchStep, SparkStep
from ..steps.row_columns import ColumnsUnknown
from ..steps.step import Step, readers_of, rebuilt

KINDS = "a TypedDict, dataclass, Struct or pyarrow.Schema of int, float, bool and str; or give the input its type: serde=hg.json(Order)"
DECLARE = f"declare the fields that the function needs: .spark(fn, rows=Order, schema=…) with {KINDS}"
DECLARE_ROWS = f"declare the fields: {{}}(…, rows=Order) with {KINDS}"


def columns_of_batch(step: BatchStep, rows: Any, where: str) -> ColumnSchema:
    """The columns of a batch. `rows`: what the user declares, if anything. Raises `DeclarationError` if they are not known."""
    known = step.schema
    if step.reference is not None:
        known = ColumnSchema(tuple(ColumnSpec.of_plain(*one) for one in step.reference.columns))
    if rows is not None and known is not None:
        raise DeclarationError(f"{where}: rows= of a batch that has the columns {known}", remedy="omit rows=")
    own = step.key_column
    if rows is not None:
        known = _declared(rows, where)
    if known is None:
        try:
            known = step.parents[0].row_columns(encoded=False)
        except ColumnsUnknown as why:
            remedy = DECLARE_ROWS.format(f".{where.partition('(')[0]}") if step.for_sink else DECLARE
            raise DeclarationError(f"{where}: the columns of its batches are not known: {why}", remedy=remedy) from None
    if own is not None and own.name not in known.names:
        known = ColumnSchema((own, *known.columns))
    lower = [name.lower() for name in known.names]
    twice = next((name for at, name in enumerate(known.names) if name.lower() in lower[:at]), None)
    if twice is not None:
        whom = "what ignores case, as most databases and Spark do" if step.for_sink else "Spark"
        raise DeclarationError(
            f"{where}: the rows have '{known.names[lower.index(twice.lower())]}' and '{twice}', which is one name for {whom}",
            remedy="rename one of them, or leave it out: rows= may have fewer fields than the rows",
        )
    return known


def with_columns_of_batches(steps: Sequence[Step]) -> list[Step]:
    """The steps, each batch of rows with its columns, and with the policy on which its stages agree."""
    readers = readers_of(steps)

    def declared(step: Step) -> Step:
        stages = cast("list[SparkStep]", readers.get(id(step), []))
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


def _name(kind: Any) -> str:
    return getattr(kind, "__qualname__", None) or f"{kind!r:.60}"
