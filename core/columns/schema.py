"""The schema of a stream of columns: which columns a record has, of which type, and which of them may be missing.

What it decides: the four types that a column may be stored as, and what a missing field means. What else a column may be, such as a time
or a list, is one of these with a logical type (`logical`). Promises:

- A schema is frozen data; no two of its columns have the same name.
- A field that is missing is null where the column is optional, and bad data elsewhere.
- The fields of a nested object are columns (`customer.country`), which are null where it is null. If it may be, there is a column of its
  own name, too (`customer`), which is null where it is, and true elsewhere.
- A name that the schema does not have is refused, with the name that was probably meant.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

from ..errors import DeclarationError
from ..settings import offer
from .logical import Logical

ColumnKind = Literal["int64", "float64", "bool", "text"]
INT: Final = "int64"
FLOAT: Final = "float64"
BOOL: Final = "bool"
TEXT: Final = "text"
PYTHON: dict[ColumnKind, type] = {INT: int, FLOAT: float, BOOL: bool, TEXT: str}
"""The type of a column → the Python type of its values."""
LEAST, MOST = -(1 << 63), (1 << 63) - 1
"""The range of an int64."""

Scalar = int | float | bool | str
"""A value of a column that is not null."""


def is_text(value: str) -> bool:
    """Whether this is Unicode text. A str of Python may contain lone surrogates, which neither JSON nor UTF-8 has.

    >>> is_text("a"), is_text("\\ud800")
    (True, False)
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


class PathPart(NamedTuple):
    """A field on the way to a nested one. `optional`: it may be null or missing."""

    name: str
    optional: bool


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One column. `optional`: its values may be null."""

    name: str
    type: ColumnKind
    optional: bool = False
    path: tuple[PathPart, ...] = ()
    """Of a nested field: the objects that it lies in, the outermost first, and itself. Empty for a field of the record."""
    is_object: bool = False
    """It says of the object at its path whether it is there."""
    logical: Logical | None = None
    """What its values mean, if they are more than what they are stored as."""

    def __str__(self) -> str:
        return f"{self.name}: {self.said}{' | null' if self.optional else ''}"

    @property
    def said(self) -> str:
        """Its type, for people."""
        return self.type if self.logical is None else str(self.logical)

    def plain(self) -> tuple[Any, ...]:
        """The same as plain values, for other processes."""
        flat = self.name, self.type, self.optional
        if self.logical is not None:
            return (*flat, tuple(map(tuple, self.path)), self.is_object, self.logical.plain())
        return (*flat, tuple(map(tuple, self.path)), self.is_object) if self.path else flat

    @classmethod
    def of_plain(
        cls,
        name: str,
        kind: ColumnKind,
        optional: bool,
        path: Iterable[Iterable[Any]] = (),
        is_object: bool = False,
        logical: tuple[Any, ...] | None = None,
    ) -> ColumnSpec:
        """The column of these plain values."""
        own = None if logical is None else Logical.of_plain(*logical)
        return cls(name, kind, optional, tuple(PathPart(*part) for part in path), is_object, own)


@dataclass(frozen=True)
class ColumnSchema:
    """The columns of a stream, in order.

    >>> ColumnSchema((ColumnSpec("user", TEXT), ColumnSpec("amount", FLOAT)))["amount"].type
    'float64'
    """

    columns: tuple[ColumnSpec, ...]

    def __post_init__(self) -> None:
        twice = next((name for i, name in enumerate(self.names) if name in self.names[:i]), None)
        if twice is not None and any(one.path for one in self.columns if one.name == twice):
            raise DeclarationError(
                f"the field '{twice}' and a nested field have one name as columns",
                remedy="leave one of them out of the type",
            )
        if twice is not None:
            raise DeclarationError(f"the column '{twice}' is declared twice", remedy="give one of them another name")
        objects = {one.path[0].name for one in self.columns if one.path}
        for one in self.columns:
            if one.name in objects and not one.path:
                raise DeclarationError(
                    f"the column '{one.name}' has the name of an object whose fields are columns",
                    remedy="give it another name",
                )
        for name in self.names:
            if not is_text(name):
                raise DeclarationError(f"the column {name!r} has a lone surrogate in its name", remedy="use text")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def _by_name(self) -> dict[str, ColumnSpec]:
        return {column.name: column for column in self.columns}

    def __getitem__(self, name: str) -> ColumnSpec:
        found = self._by_name.get(name)
        if found is None and (inner := self.inside(name)):
            raise DeclarationError(
                f"'{name}' is an object, and its fields are columns", remedy=f"name one of them: {', '.join(inner)}"
            )
        if found is None:
            raise DeclarationError(f"there is no column '{name}'", remedy=offer(name, self.names))
        return found

    def __str__(self) -> str:
        return ", ".join(map(str, self.columns))

    @cached_property
    def nested(self) -> bool:
        """Whether it has columns of nested objects."""
        return any(column.path for column in self.columns)

    @cached_property
    def logical(self) -> bool:
        """Whether it has columns of logical types."""
        return any(column.logical for column in self.columns)

    @cached_property
    def stored(self) -> ColumnSchema:
        """This schema without logical types: what its columns are stored as."""
        if not self.logical:
            return self
        return ColumnSchema(tuple(replace(column, logical=None) for column in self.columns))

    def only_stored(self, what: str) -> None:
        """Refuse columns of logical types."""
        found = next((one for one in self.columns if one.logical is not None), None)
        if found is not None:
            raise DeclarationError(
                f"{what} takes no columns of the type {found.said}, such as '{found.name}'",
                remedy="leave it out, or make another column of it: .select(…), for example with .cast(int) or .strftime(…)",
            )

    def flat(self, what: str) -> None:
        """Refuse columns of nested objects."""
        inner = next((one for one in self.columns if one.path and not one.is_object), None)
        if inner is not None:
            title = inner.path[-1].name
            raise DeclarationError(
                f"{what} takes no fields of nested objects, such as '{inner.name}'",
                remedy=f'name the columns that it gets: .select({title}=hg.col("{inner.name}"))',
            )

    def value(self, name: str, what: str) -> ColumnSpec:
        """The column of this name, for a use that needs a value: of an object it is only known whether it is there."""
        found = self[name]
        if found.is_object:
            inner = ", ".join(one for one in self.inside(name) if one != name)
            raise DeclarationError(
                f"{what}: '{name}' is an object", remedy=f"name one of its fields ({inner}), or ask .is_null()"
            )
        return found

    def inside(self, name: str) -> tuple[str, ...]:
        """The columns of an object, with its own if it has one."""
        parts = tuple(name.split("."))
        return tuple(
            one.name
            for one in self.columns
            if one.path and tuple(part.name for part in one.path)[: len(parts)] == parts
        )

    def only(self, names: Iterable[str]) -> ColumnSchema:
        """The schema of these columns alone, in the order of this schema."""
        kept = frozenset(names)
        return ColumnSchema(tuple(column for column in self.columns if column.name in kept))

    def extended(self, columns: Iterable[ColumnSpec]) -> ColumnSchema:
        """This schema with further columns. One that has the name of an earlier column replaces it in its place."""
        named = {column.name: column for column in (*self.columns, *columns)}
        return ColumnSchema(tuple(named.values()))
