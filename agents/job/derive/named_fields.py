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
from typing import Any

from ....core.columns.schema import ColumnSchema
from ....core.errors import DeclarationError
from ...records.native import chosen
from ...records.values.column_types import columns_alone, columns_instead, writes_as_columns
from ...records.values.serdes import Serde, is_json, named_only
from ..steps.sources import InputStep, inputs_of
from ..steps.step import NeedsValue, Step, lineage, readers_of, rebuilt, type_behind

# --------------------------------------------------------------------------------------------- what expressions can name


def fields_behind(step: Step, verb: str) -> tuple[ColumnSchema, dict[str, DeclarationError]]:
    """The fields that an expression over the values behind this step can read, and why it cannot read others; a `DeclarationError` if they
    are not known."""
    return fields_of_type(type_behind(step), step, verb)


def fields_of_type(kind: Any, step: Step, verb: str) -> tuple[ColumnSchema, dict[str, DeclarationError]]:
    """The same of values whose type is known."""
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
    if isinstance(kind, ColumnSchema) or not (
        hasattr(kind, "__struct_fields__") or dataclasses.is_dataclass(kind) or hasattr(kind, "DESCRIPTOR")
    ):
        return default
    return step.declaring().serde.within


# ----------------------------------------------------------------------------------------------- what declared steps name


def with_named_fields(steps: Sequence[Step]) -> tuple[list[Step], dict[str, str]]:
    """The steps, each input with the fields and columns that are read of it; and by its topic, why an input is not read as columns."""
    readers = readers_of(steps)
    changed: dict[int, Step] = {}
    why: dict[str, str] = {}
    for topic, step in inputs_of(steps).items():
        if step.serde.type is None or not is_json(step.serde) or step.producers:
            continue
        if all(one.fetched is step for one in readers.get(id(step), ())):
            continue
        behind = _behind(step, readers)
        try:
            made = _named(step, behind)
            changed[id(step)] = made
            changed[id(step)], others = _as_columns(made, behind, readers)
            changed |= others
        except NeedsValue as reason:
            why[topic] = str(reason)
    return rebuilt(steps, lambda step: changed.get(id(step), step)), why


def _behind(step: InputStep, readers: dict[int, list[Step]]) -> list[Step]:
    """The steps that work on the values of an input, up to those that pass none of them on."""
    found: dict[int, Step] = {}
    stack = list(readers.get(id(step), ()))
    while stack:
        one = stack.pop()
        if id(one) not in found:
            found[id(one)] = one
            if one.passes_on:
                stack += readers.get(id(one), ())
    return list(found.values())


def _named(step: InputStep, behind: Sequence[Step]) -> InputStep:
    """The input, decoding only the fields that steps name. An output writes all fields, and a shuffle of rows carries them."""
    names = step.fields().union(*(one.fields() for one in behind))
    if any(one.whole is not None for one in behind):
        return step
    return replace(step, named=named_only(step.serde, names))


# ------------------------------------------------------------------------------------------------------------- as columns


def _as_columns(
    step: InputStep, behind: Sequence[Step], readers: dict[int, list[Step]]
) -> tuple[InputStep, dict[int, Step]]:
    """The input, read as columns, and the steps behind it that are others over columns, by their former ids. Raises `NeedsValue` if rows
    are needed."""
    if not chosen.part.FAST:
        raise NeedsValue(step, "is decoded faster as rows: the compiled part is not installed")
    schema = columns_instead(step.serde.type)
    names = set(step.fields())
    made: dict[int, Step] = {}
    step.check_time(schema)
    for one in behind:
        if one.whole is not None:
            _check_whole(one, one.whole, step)
            names |= set(schema.names)
        names |= one.fields()
        made |= dict(_over(one, schema, readers))
    if missing := names.difference(schema.names):
        raise NeedsValue(step, f"has no column '{min(missing)}'")
    return replace(step, columns=schema.only(names)), made


def _over(step: Step, schema: ColumnSchema, readers: dict[int, list[Step]]) -> Iterator[tuple[int, Step]]:
    """A step that takes these columns, by its former id, and the step for which it combines."""
    yield id(step), step.over(schema)
    if step.partial:
        for one in readers.get(id(step), ()):
            yield from _over(one, schema, readers)


def _check_whole(step: Step, serde: Serde[Any], source: InputStep) -> None:
    """Raise `NeedsValue` if a step that writes all fields by this serde would write something else of columns."""
    if not is_json(serde) or serde.type not in (None, source.serde.type):
        raise NeedsValue(step, f"writes {serde.name}")
    if not writes_as_columns(source.serde.type):
        raise NeedsValue(step, "writes fields that are no columns")
    if len(inputs_of(lineage((step,)))) != 1:
        raise NeedsValue(step, "has several inputs")


def on_columns(steps: Sequence[Step]) -> list[tuple[Step, bool]]:
    """Each step, and whether it works on columns."""
    gives: dict[int, bool] = {}
    found: list[tuple[Step, bool]] = []
    for step in steps:
        takes = step.takes_columns
        if takes is None:
            takes = any(gives[id(parent)] for parent in step.parents)
        gives[id(step)] = takes and step.gives_columns
        found.append((step, takes))
    return found
