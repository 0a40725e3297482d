"""Columns of nested objects: how they hang together, and the objects that are made of them.

    of = nesting(schema.columns)
    of.members                 # {"user": 0, "customer": Nesting(…)}: the number of a column, or what is nested
    of.dicts(columns, length)  # [{"user": "a", "customer": {"country": "DE"}}]

What it decides: whether an object is null. Where there is a column for that, it says so; else an object that may be null is null if all of
its columns are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....core.columns.schema import ColumnSpec
from ..native import chosen

MakeObjects = Callable[["Nesting", list[list[Any]]], list[Any]]


@dataclass(slots=True)
class Nesting:
    """The record, or an object in it."""

    members: dict[str, int | Nesting] = field(default_factory=dict[str, "int | Nesting"])
    """By the name of each field: the number of its column, or the object that it is."""
    optional: bool = False
    there: int | None = None
    """The number of the column that says whether the object is there."""

    def numbers(self) -> list[int]:
        """The numbers of its columns."""
        found: list[int] = []
        for one in self.members.values():
            found += [one] if isinstance(one, int) else one.numbers()
        return found

    def dicts(self, columns: list[list[Any]], length: int) -> list[Any]:
        """The objects as dicts, with None for those that are null."""
        lists = [columns[one] if isinstance(one, int) else one.dicts(columns, length) for one in self.members.values()]
        return self.without_nulls(chosen.part.dicts(tuple(self.members), lists, length), columns)

    def without_nulls(self, made: list[Any], columns: list[list[Any]]) -> list[Any]:
        """These objects, with None for those that are null."""
        if not self.optional:
            return made
        if self.there is not None:
            return [one if there else None for one, there in zip(made, columns[self.there], strict=True)]
        own = [columns[number] for number in self.numbers()]
        return [
            None if row.count(None) == len(row) else one for one, row in zip(made, zip(*own, strict=True), strict=True)
        ]


def nesting(columns: Sequence[ColumnSpec]) -> Nesting:
    """How these columns hang together."""
    record = Nesting()
    for number, column in enumerate(columns):
        at = record
        for name, optional in column.path if column.is_object else column.path[:-1]:
            inner = at.members.setdefault(name, Nesting(optional=optional))
            assert isinstance(inner, Nesting), "a schema has each name once"
            at = inner
        if column.is_object:
            at.there = number
        else:
            at.members[column.path[-1].name if column.path else column.name] = number
    return record
