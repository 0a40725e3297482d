"""Fields that verbs name where it is known which there are: behind a Spark stage, whose schema says so, and in values of a declared type.

A name that is wrong is said where it is declared, and so is a sum of what is no number. An object may have more than fields: every
attribute of its class may be named.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from ....core.batching.spark_schema import check_column, without_json
from ....core.columns.schema import TEXT, ColumnSchema
from ....core.errors import DeclarationError
from ....core.settings import offer
from ...records.columns.selecting import names_in
from ...records.memory.event_time import units_said
from ...records.values.column_types import nested_type, plain_fields
from ...records.values.serdes import Serde, is_json
from ..steps.batches import SparkStep
from ..steps.row_columns import ColumnsUnknown
from ..steps.step import Step, type_behind
from ..types.aggregates import OF_NUMBERS, AggregatePlan
from ..types.timestamps import TimeField, is_time


def check_field(step: Step, by: Any, where: str) -> None:
    """Refuse the name of a field that no row behind this step has. What is no name, such as a function, passes."""
    if isinstance(by, str):
        for stage in _results(step):
            check_column(by, stage.columns, where)
        check_name(type_of_rows(step), by, where)


def check_aggregated(step: Step, plan: AggregatePlan) -> None:
    """Refuse aggregates of fields that no row behind this step has, and sums and means of fields that never hold a number."""
    for title, part in zip(plan.names, plan.parts, strict=True):
        where = f"agg({title}=hg.{part.name}({part.of!r}))"
        for name in (*names_in(part.of), *names_in(part.by)):
            check_field(step, name, where)
        if part.name in OF_NUMBERS and isinstance(part.of, str):
            _check_number(type_of_rows(step), part.of, part.name, where)


def _check_number(kind: Any, name: str, verb: str, where: str) -> None:
    """Refuse a field to which a declared type gives a type that cannot be added to a number; nothing is known of other fields."""
    hint = _hint_of(kind, name)
    if not _adds_to_no_number(hint):
        return
    called = " or ".join(
        "text" if one is str else getattr(one, "__qualname__", str(one)) for one in _alternatives(hint)
    )
    row = f"row[{name!r}]" if isinstance(kind, ColumnSchema) or is_typeddict(kind) else f"row.{name}"
    raise DeclarationError(
        f"{where} needs numbers, and '{name}' is {called}",
        remedy=f"name a field of numbers, or make one: hg.{verb}(lambda row: float({row}))",
    )


def _hint_of(kind: Any, name: str) -> Any:
    """The type that a declared type gives to a field; None if that is not known."""
    if isinstance(kind, ColumnSchema):
        return str if kind[name].type == TEXT else None
    if name not in _fields_of(kind):
        return None
    try:
        return get_type_hints(kind).get(name)
    except NameError:  # of a type that only its own module can read
        return None


def _adds_to_no_number(hint: Any) -> bool:
    """Whether no value of this type can be added to zero, with which each sum begins.

    >>> _adds_to_no_number(str | None), _adds_to_no_number(bool), _adds_to_no_number(str | int), _adds_to_no_number(list[int])
    (True, False, False, True)
    """
    kinds = [get_origin(one) or one for one in _alternatives(hint)]
    return bool(kinds) and all(
        isinstance(k, type) and k not in (Any, object) and not hasattr(k, "__radd__") for k in kinds
    )


def _alternatives(hint: Any) -> list[Any]:
    """The types of which a value may be, without None."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return [one for one in parts if one not in (None, NoneType)]


def check_own_fields(kind: Any, key: Any, timestamp: Any, where: str) -> None:
    """Refuse a key or an event time of an input that its type does not have. Columns name fields as records do, rows as classes do."""
    time = timestamp.name if isinstance(timestamp, TimeField) else timestamp
    for what, name in (("key", key), ("timestamp", time)):
        if isinstance(name, str) and name not in getattr(kind, "__struct_encode_fields__", ()):
            _check_path(kind, name, f"{where}: {what}={name!r}")
    kinds = _kinds_of(kind, time) if isinstance(time, str) else []
    if kinds and not any(is_time(one, timestamp) for one in kinds):
        unit = timestamp.unit if isinstance(timestamp, TimeField) else "ms"
        raise DeclarationError(
            f"{where}: timestamp={time!r}: {kind.__qualname__} declares it as {kinds[0]}, which is no time in {unit!r}",
            remedy=f"ISO text takes hg.field(…, unit='iso'), numbers take unit={units_said()}",
        )


def _kinds_of(kind: Any, name: str) -> list[str]:
    """As what a declared type declares a field that could be a column; nothing is known of other fields."""
    try:
        return [one.column.type for one in plain_fields(kind) if name in (one.attribute, one.column.name)]
    except NameError:  # of a type that only its own module can read
        return []


def check_name(kind: Any, name: str, where: str) -> None:
    """Refuse the name of a field that values of a declared type do not have. Of other types nothing is known."""
    known = _fields_of(kind)
    if not known or name in known:
        return
    if not isinstance(kind, ColumnSchema) and not is_typeddict(kind):
        outermost = name.partition(".")[0]
        if outermost in known or hasattr(kind, outermost) or hasattr(kind, "__getattr__"):
            return
    has = "the values have" if isinstance(kind, ColumnSchema) else f"{kind.__qualname__} has"
    raise DeclarationError(f"{where}: {has} no field '{name}'", remedy=offer(name, known))


def _check_path(kind: Any, name: str, where: str) -> None:
    """As `check_name`, also of a field of a nested object."""
    outermost, _, rest = name.partition(".")
    known = _fields_of(kind)
    if not rest or name in known or outermost not in known:
        check_name(kind, name, where)
    elif (inner := _nested_in(kind, outermost)) is not None:
        _check_path(inner, rest, where)


def _nested_in(kind: Any, name: str) -> Any:
    """The type of a field that has fields itself; None if it has none, or is not known."""
    try:
        hints = get_type_hints(kind, include_extras=True)
    except NameError:  # of a type that only its own module can read
        return None
    return nested_type(hints[name])[0] if name in hints else None


def type_of_rows(step: Step) -> Any:
    """The type of the values behind a step, or their columns; None if it is not known. Dicts stay what they are in a shuffle of JSON."""
    kind, passed = type_behind(step), False
    while kind is None and _passes_on(step) and len(step.parents) == 1:
        if step.whole is not None:
            if not is_json(step.whole):
                return None
            passed = True
        step = step.parents[0]
        kind = type_behind(step)
    return kind if not passed or isinstance(kind, ColumnSchema) or is_typeddict(kind) else None


def columns_of_results(step: Step) -> ColumnSchema | None:
    """The columns of the results of aggregates, running or of windows, that this step passes on as they are; None if they are not known."""
    while _passes_on(step) and len(step.parents) == 1 and step.whole is None:
        step = step.parents[0]
    try:
        return None if step.results is None else step.row_columns(encoded=False)
    except ColumnsUnknown:
        return None


def _passes_on(step: Step) -> bool:
    """Whether its rows are those that came in."""
    return step.keeps_values or step.passes_on


def _fields_of(kind: Any) -> tuple[str, ...]:
    """The names of the fields of a type; empty if they are not known."""
    if isinstance(kind, ColumnSchema):
        return kind.names
    if dataclasses.is_dataclass(kind):
        return tuple(one.name for one in dataclasses.fields(kind))
    if is_typeddict(kind):
        try:
            return tuple(get_type_hints(kind))
        except NameError:  # of a type that only its own module can read
            return ()
    return getattr(kind, "__struct_fields__", ())


def check_written(step: Step, serde: Serde[Any], where: str) -> None:
    """Refuse to write results as plain JSON that has no form for one of their columns."""
    if not is_json(serde) or serde.type is not None:
        return
    for stage in _results(step):
        for name, kind in without_json(stage.schema).items():
            raise DeclarationError(
                f"{where}: JSON has no {kind}, and the column '{name}' of the result of .spark() is one",
                remedy=f"F.col('{name}').cast('string') or .cast('double') in the function, and so in schema=; or another serde=",
            )


def _results(step: Step) -> Iterator[SparkStep]:
    """The Spark stages whose rows this step passes on as they are."""
    stack = [step]
    while stack:
        one = stack.pop()
        if isinstance(one, SparkStep):
            yield one
        elif _passes_on(one):
            stack += one.parents
