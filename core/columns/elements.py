"""Which columns the elements of a list become: `explode` makes a row of each of them.

What it decides: an element that is an object becomes columns of its fields, as a nested object of the record does; any other element
becomes one column. Promises:

- The types follow from the declaration alone. Elements that may be null, and those that stand for an empty list, make optional columns.
- An element lies where its list lay; under another name it is a field of the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from .logical import LIST, OBJECT, WHOLE, Logical
from .schema import BOOL, INT, PYTHON, TEXT, ColumnKind, ColumnSchema, ColumnSpec, PathPart

PLAIN: Final[dict[str, ColumnKind]] = {kind: kind for kind in PYTHON}
"""The types that an element may have as it is stored."""


def stored_as(kind: Logical) -> ColumnKind:
    """The type as which the values of a type are stored, which is no object.

    >>> stored_as(Logical("date")), stored_as(Logical("float64"))
    ('int64', 'float64')
    """
    return PLAIN.get(kind.name) or (INT if kind.name in WHOLE else TEXT)


def element_of(column: ColumnSpec, *, keep_empty: bool) -> Logical | None:
    """The type of the elements of a column; None if it is no list. `keep_empty`: one that is null stands for a list without elements."""
    if column.logical is None or column.logical.name != LIST:
        return None
    (found,) = column.logical.of
    return replace(found, optional=found.optional or keep_empty)


def element_columns(column: ColumnSpec, element: Logical, name: str | None = None) -> tuple[ColumnSpec, ...]:
    """The columns of the elements of a list. `name`: what they are called; otherwise, as their list.

    >>> sku = Logical("object", of=(Logical("text"),), fields=("sku",))
    >>> items = ColumnSpec("items", "text", logical=Logical("list", of=(sku,)))
    >>> [str(one) for one in element_columns(items, sku)], [str(one) for one in element_columns(items, Logical("int64"), "n")]
    (['items.sku: text'], ['n: int64'])
    """
    outer = () if name is not None else column.path[:-1]
    title = name if name is not None else column.path[-1].name if column.path else column.name
    return tuple(_columns(element, (*outer, PathPart(title, element.optional))))


def _columns(kind: Logical, path: tuple[PathPart, ...]) -> Iterator[ColumnSpec]:
    title, optional = ".".join(one.name for one in path), any(one.optional for one in path)
    if kind.name != OBJECT:
        logical = None if kind.name in PLAIN else replace(kind, optional=False)
        yield ColumnSpec(title, stored_as(kind), optional, path if len(path) > 1 else (), logical=logical)
        return
    if kind.optional:
        yield ColumnSpec(title, BOOL, True, path, is_object=True)
    for name, one in zip(kind.fields, kind.of, strict=True):
        yield from _columns(one, (*path, PathPart(name, one.optional)))


def exploded(schema: ColumnSchema, name: str, made: tuple[ColumnSpec, ...]) -> ColumnSchema:
    """A schema with these columns in the place of a list."""
    return ColumnSchema(tuple(new for one in schema.columns for new in (made if one.name == name else (one,))))
