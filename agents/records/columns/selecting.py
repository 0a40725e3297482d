"""Columns from values: a field by its name, or a function of the value.

A field is an item of a mapping, or an attribute of anything else (a dataclass, a Struct). Which of the two is decided once per column; a
column of mixed types is read value by value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any

from ....core.settings import offer

Column = Callable[[list[Any]], list[Any]]


def field_of(value: Any, name: str) -> Any:
    """One field of one value."""
    return value[name] if isinstance(value, Mapping) else getattr(value, name)


@dataclass(frozen=True, slots=True, repr=False)
class SeveralFields:
    """Selects several fields of a value, as a dict.

    >>> SeveralFields(("a", "b"))({"a": 1, "b": 2, "c": 3})
    {'a': 1, 'b': 2}
    """

    names: tuple[str, ...]

    def __call__(self, value: Any) -> dict[str, Any]:
        return {name: field_of(value, name) for name in self.names}

    def __str__(self) -> str:
        return ", ".join(self.names)

    def __repr__(self) -> str:
        return repr([*self.names])


def names_in(by: Any) -> tuple[str, ...]:
    """The fields that a selector names; none for a function of the value.

    >>> names_in("a"), names_in(SeveralFields(("a", "b"))), names_in(len)
    (('a',), ('a', 'b'), ())
    """
    if isinstance(by, str):
        return (by,)
    return by.names if isinstance(by, SeveralFields) else ()


def needs_value(by: Any) -> bool:
    """Whether a selector is a function, which needs the value itself."""
    return callable(by) and not isinstance(by, SeveralFields)


def column_of(by: str | Callable[[Any], Any]) -> Column:
    """A function that maps a column of values to the column that `by` selects.

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


def nested_column_of(by: str | Callable[[Any], Any]) -> Column:
    """As `column_of`; a name with dots may be that of a field of a nested object.

    >>> nested_column_of("a.b")([{"a": {"b": 1}}, {"a.b": 2}])
    [1, 2]
    """
    if not isinstance(by, str) or "." not in by:
        return column_of(by)
    name, path = by, by.split(".")

    def nested(value: Any) -> Any:
        if isinstance(value, Mapping) and name in value:
            return value[name]
        for part in path:
            value = field_of(value, part)
        return value

    return lambda values: list(map(nested, values))


def all_mappings(values: Iterable[Any]) -> bool:
    """Whether fields of these values are items."""
    return all(issubclass(kind, Mapping) for kind in set(map(type, values)))


NULL = (
    "its value is null (a tombstone): drop such records with .filter(lambda value: value is not None) before this step"
)


def lacking(names: Sequence[str], values: Sequence[Any]) -> Callable[[BaseException], str]:
    """A function that explains why these fields could not be read: it names the first missing field, and the name probably meant.

    >>> lacking(["totla"], [{"n": 1, "total": 2}])(KeyError("totla"))
    "the value has no field 'totla': did you mean 'total'?"
    """

    def explain(error: BaseException) -> str:
        if not isinstance(error, KeyError | AttributeError | TypeError):
            return ""
        if values and values[-1] is None:  # a failing record is retried alone, or as the last of its run
            return NULL
        for value in values:
            for name in names:
                if (
                    value is not None and (name not in value)
                    if isinstance(value, Mapping)
                    else not hasattr(value, name)
                ):
                    return f"the value has no field '{name}': {offer(name, fields_in(value)) or 'it has none'}"
        return ""

    return explain


def fields_in(value: Any) -> list[str]:
    """The names of the fields of this value."""
    if isinstance(value, Mapping):
        return [name for name in value if isinstance(name, str)]
    return [name for name in dir(value) if not name.startswith("_") and not callable(getattr(value, name, None))]
