"""Steps that only name fields: `filter(hg.col("amount") >= 10)`, `repartition("user").agg(total=hg.sum("amount"))`, `to("out")`.

What it decides: which fields of an input's records are read, and whether they are read as columns. The rules:

- If every step behind an input with a schema only names fields, only these fields are decoded. Other fields are skipped, like those that
  the type does not have. One step that needs the value itself (a function of it, a table, a sink) makes its input decode whole values.
- If, moreover, all of these steps work on columns, the input is read as columns. This ends at the aggregate, the window or the output, or
  at the shuffle that combines for one of them. A shuffle of whole rows carries columns; what cannot be one goes through it as rows.
- A chunk that columns cannot hold (a null value), or with which a step fails, is run as rows. So rows decide about everything that is odd:
  which record is bad, with what error, and what a null in a sum is.

Promises: the graph, the names, the topics, the tables and all stored bytes are those of rows, so a running job may change from one to the
other. `headgate plan` shows which steps work on columns, and why an input with a schema is not read as columns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeGuard, cast

from ....core.columns.expressions import columns_in
from ....core.columns.schema import BOOL, FLOAT, TEXT, ColumnSchema
from ....core.columns.typing import NUMBERS
from ....core.errors import DeclarationError
from ...records.native import chosen
from ...records.values.column_types import columns_alone, columns_instead, writes_as_columns
from ...records.values.serdes import OUTPUT_KEY, Serde, is_json, json, named_only
from ..steps.columns import ColumnsStep, FilterColumnsStep, RowsStep, WithColumnsStep
from ..steps.ends import ToStep
from ..steps.keyed import AggregateStep, WindowStep
from ..steps.rows import EventsStep, FilterStep, MergeStep, RekeyStep
from ..steps.sources import InputStep, ShuffleStep
from ..steps.step import Step, lineage, readers_of, rebuilt
from ..types.timestamps import TimeField

OF_NUMBERS = ("sum", "mean")


# --------------------------------------------------------------------------------------------- what expressions can name


def fields_behind(step: Step, verb: str) -> tuple[ColumnSchema, dict[str, DeclarationError]]:
    """The fields that an expression over the values behind this step can read, and why it cannot read others; a `DeclarationError` if they
    are not known."""
    kind = type_behind(step)
    if isinstance(kind, ColumnSchema):
        return kind, {}
    schema, refused = columns_alone(kind) if kind is not None else (ColumnSchema(()), {})
    if not schema.columns and not refused:
        raise DeclarationError(
            f"{verb} takes an expression only where the fields are known, and the values behind {step.verb} have no declared type",
            remedy="declare it: app.input(…, serde=hg.json(Order)); or use a function of the value",
        )
    return schema, refused


def serde_behind(step: Step, default: Serde[Any]) -> Serde[Any]:
    """The serde of the values behind a step on their way through streams and tables, unless one is given: `default`, or that of the type of
    the values if they are objects, so that functions find objects there, too."""
    kind = type_behind(step)
    if isinstance(kind, ColumnSchema) or not (hasattr(kind, "__struct_fields__") or dataclasses.is_dataclass(kind)):
        return default
    found = _declaring(step)
    return found.serde if isinstance(found, InputStep | ShuffleStep) else json(cast("type[Any]", kind))


def type_behind(step: Step) -> Any:
    """The type of the values behind a step, or their columns; None if it is not known."""
    found = _declaring(step)
    if isinstance(found, RowsStep):
        return found.kind if found.kind is not None else found.schema
    return None if found is None else found.serde.type


def _declaring(step: Step) -> InputStep | ShuffleStep | RowsStep | None:
    """The step that declares the type of the values behind a step; None if it is not known."""
    match step:
        case InputStep() | ShuffleStep() | RowsStep():
            return step
        case FilterStep() | FilterColumnsStep() | EventsStep() | RekeyStep() | MergeStep():
            first, *others = step.parents
            kind = type_behind(first)
            return _declaring(first) if all(type_behind(one) == kind for one in others) else None
        case _:
            return None


# ----------------------------------------------------------------------------------------------- what declared steps name


class _NeedsValue(Exception):
    """A step needs whole values, or no columns can be made for it."""

    def __init__(self, step: Step, why: str) -> None:
        super().__init__(f"{step.verb} ({step.where}) {why}")


def with_named_fields(steps: Sequence[Step]) -> tuple[list[Step], dict[str, str]]:
    """The steps, each input with the fields and columns that are read of it; and by its topic, why an input is not read as columns."""
    readers = readers_of(steps)
    changed: dict[int, Step] = {}
    why: dict[str, str] = {}
    for step in steps:
        if isinstance(step, InputStep) and step.serde.type is not None and is_json(step.serde) and not step.producers:
            if all(isinstance(one, ColumnsStep) and one.direct for one in readers.get(id(step), ())):
                continue
            behind = _behind(step, readers)
            try:
                made = _named(step, behind)
                changed[id(step)] = made
                changed[id(step)], others = _as_columns(made, behind, readers)
                changed |= others
            except _NeedsValue as reason:
                why[step.topic] = str(reason)
    return rebuilt(steps, lambda step: changed.get(id(step), step)), why


def _behind(step: InputStep, readers: dict[int, list[Step]]) -> list[Step]:
    """The steps that work on the values of an input, up to those that pass none of them on."""
    found: dict[int, Step] = {}
    stack = list(readers.get(id(step), ()))
    while stack:
        one = stack.pop()
        if id(one) not in found:
            found[id(one)] = one
            if isinstance(one, FilterColumnsStep | MergeStep | EventsStep) or _carries_rows(one):
                stack += readers.get(id(one), ())
    return list(found.values())


def _carries_rows(step: Step) -> TypeGuard[ShuffleStep]:
    return isinstance(step, ShuffleStep) and step.combine is None


def _takes_whole(step: Step) -> bool:
    """Whether a step writes all fields."""
    return isinstance(step, ToStep) or _carries_rows(step) or (isinstance(step, WindowStep) and step.late is not None)


def _fields_of(step: Step) -> frozenset[str]:
    """The fields that a step names; it passes on the values of its rows, or none of them. Raises `_NeedsValue`."""
    match step:
        case FilterColumnsStep():
            return frozenset(columns_in(step.keep))
        case MergeStep() | EventsStep():
            return frozenset()
        case ShuffleStep():
            of = step.combine
            if step.by is not None and not isinstance(step.by, str):
                raise _NeedsValue(step, "has a function of the value")
            aggregated = frozenset[str]() if of is None else _of_aggregates(of)
            return aggregated | ({step.by} if step.by is not None else frozenset())
        case AggregateStep() | WindowStep(rows=None):
            return _of_aggregates(step)
        case _:
            raise _NeedsValue(step, "needs the whole value")


def _of_aggregates(step: AggregateStep | WindowStep) -> frozenset[str]:
    if any(callable(part.of) for part in step.plan.parts):
        raise _NeedsValue(step, "has a function of the value")
    return step.plan.reads


def _own_fields(step: InputStep) -> frozenset[str]:
    time = step.timestamp.name if isinstance(step.timestamp, TimeField) else step.timestamp
    if not isinstance(step.key, str | None) or not isinstance(time, str | None):
        raise _NeedsValue(step, "has a function of the value")
    return frozenset(name for name in (step.key, time) if name is not None)


def _named(step: InputStep, behind: Sequence[Step]) -> InputStep:
    """The input, decoding only the fields that steps name. An output writes all fields, and a shuffle of rows carries them."""
    names = _own_fields(step).union(*(_fields_of(one) for one in behind if not isinstance(one, ToStep)))
    if any(map(_takes_whole, behind)):
        return step
    return replace(step, named=named_only(step.serde, names))


# ------------------------------------------------------------------------------------------------------------- as columns


def _as_columns(
    step: InputStep, behind: Sequence[Step], readers: dict[int, list[Step]]
) -> tuple[InputStep, dict[int, Step]]:
    """The input, read as columns, and the outputs and windows behind it, by their former ids, with the columns that come in. Raises
    `_NeedsValue` if rows are needed."""
    if not chosen.part.FAST:
        raise _NeedsValue(step, "is decoded faster as rows: the compiled part is not installed")
    kind = step.serde.type
    schema = columns_instead(kind)
    names = set(_own_fields(step))
    made: dict[int, Step] = {}
    _check_time(step, schema)
    for one in behind:
        if _takes_whole(one):
            _check_whole(one, step)
            names |= set(schema.names)
        if isinstance(one, ToStep):
            _check_output(one, schema)
            made[id(one)] = replace(one, schema=schema)
        else:
            names |= _fields_of(one)
            _check_columns(one, schema)
            made |= dict(_with_columns(one, schema, readers))
    if missing := names.difference(schema.names):
        raise _NeedsValue(step, f"has no column '{min(missing)}'")
    return replace(step, columns=schema.only(names)), made


def _with_columns(
    step: Step, schema: ColumnSchema, readers: dict[int, list[Step]]
) -> Iterator[tuple[int, ShuffleStep | WindowStep]]:
    """A window that takes these columns, with the shuffle that combines for it, or a shuffle that carries them, by their former ids."""
    if isinstance(step, WindowStep):
        yield id(step), replace(step, schema=schema)
    if _carries_rows(step):
        yield id(step), replace(step, columns=schema)
    if isinstance(step, ShuffleStep) and isinstance(step.combine, WindowStep):
        yield id(step), replace(step, combine=replace(step.combine, schema=schema))
        for one in readers.get(id(step), ()):
            yield from _with_columns(one, schema, readers)


def _inputs_of(step: Step) -> int:
    return sum(isinstance(one, InputStep) for one in lineage((step,)))


def _check_columns(step: Step, schema: ColumnSchema) -> None:
    """Raise `_NeedsValue` if a step does not work on these columns as on rows."""
    types = {one.name: one.type for one in schema.columns}
    plan = None
    if isinstance(step, ShuffleStep):
        if step.by is None:
            raise _NeedsValue(step, "has no field, but the key of the record")
        if types.get(str(step.by)) == FLOAT:
            raise _NeedsValue(step, "is by a float")
        plan = None if step.combine is None else step.combine.plan
    elif isinstance(step, AggregateStep | WindowStep):
        plan = step.plan
    for part in plan.parts if plan is not None else ():
        if part.name in OF_NUMBERS and types.get(str(part.of)) not in (*NUMBERS, None):
            raise _NeedsValue(step, f"has hg.{part.name}('{part.of}'), which is no number")


def _check_time(step: InputStep, schema: ColumnSchema) -> None:
    time = step.timestamp
    name, iso = (time.name, time.unit == "iso") if isinstance(time, TimeField) else (time, False)
    types = {one.name: one.type for one in schema.columns}
    if name is not None and (types.get(name) == BOOL or (types.get(name) == TEXT) != iso):
        raise _NeedsValue(step, f"has the timestamp '{name}', which is {types.get(name, 'no column')}")


def _check_whole(step: Step, source: InputStep) -> None:
    """Raise `_NeedsValue` if a step that writes all fields would write something else of columns."""
    serde = step.serde if isinstance(step, ToStep | ShuffleStep) else cast("WindowStep", step).late_serde
    if not is_json(serde) or serde.type not in (None, source.serde.type):
        raise _NeedsValue(step, f"writes {serde.name}")
    if not writes_as_columns(source.serde.type):
        raise _NeedsValue(step, "writes fields that are no columns")
    if _inputs_of(step) != 1:
        raise _NeedsValue(step, "has several inputs")


def _check_output(step: ToStep, schema: ColumnSchema) -> None:
    own = step.key_serde
    types = {one.name: one.type for one in schema.columns}
    if step.partition is not None or not isinstance(step.key, str | None):
        raise _NeedsValue(step, "has a function of the value")
    if step.key is not None and (
        types.get(step.key) == FLOAT or (types.get(step.key) == BOOL and own.name != OUTPUT_KEY)
    ):
        raise _NeedsValue(step, f"has the key '{step.key}', which is {types[step.key]}")


# ---------------------------------------------------------------------------------------------------------- for people


def on_columns(steps: Sequence[Step]) -> list[tuple[Step, bool]]:
    """Each step, and whether it works on columns."""
    gives: dict[int, bool] = {}
    found: list[tuple[Step, bool]] = []
    for step in steps:
        match step:
            case InputStep():
                takes = step.columns is not None
            case ColumnsStep():
                takes = True
            case _:
                takes = any(gives[id(parent)] for parent in step.parents)
        passing = isinstance(step, FilterColumnsStep | WithColumnsStep | MergeStep | EventsStep)
        shuffled = _carries_rows(step) and (step.schema or step.columns) is not None
        gives[id(step)] = takes and (passing or shuffled or isinstance(step, InputStep | ColumnsStep))
        found.append((step, takes))
    return found
