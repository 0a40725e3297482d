"""Columns from values: a field by its name, or a function of the value.

A field is an item of a mapping, or an attribute of anything else (a dataclass, a Struct). Which one it is, is looked up once a column;
a column of mixed kinds is read one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter, itemgetter
from typing import Any

Column = Callable[[list[Any]], list[Any]]


def field_of(value: Any, name: str) -> Any:
    """One field of one value."""
    return value[name] if isinstance(value, Mapping) else getattr(value, name)


def column_of(by: str | Callable[[Any], Any]) -> Column:
    """A function from a column of values to the column that `by` selects.

    >>> column_of("a")([{"a": 1}, {"a": 2}])
    [1, 2]
    """
    if not isinstance(by, str):
        fn = by

        def apply(values: list[Any]) -> list[Any]:
            return [fn(value) for value in values]

        return apply
    name, item, attribute = by, itemgetter(by), attrgetter(by)

    def fields(values: list[Any]) -> list[Any]:
        kinds = set(map(type, values))
        if len(kinds) == 1:
            return list(map(item if issubclass(kinds.pop(), Mapping) else attribute, values))
        return [field_of(value, name) for value in values]

    return fields


def all_mappings(values: Iterable[Any]) -> bool:
    """Whether fields of these values are items."""
    return all(issubclass(kind, Mapping) for kind in set(map(type, values)))
