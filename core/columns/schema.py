"""The schema of a stream of columns: which columns a record has, of which type, and which of them may be missing.

What it decides: the four types that a column may have, and what a missing field means. Promises:

- A schema is frozen data; no two of its columns have the same name.
- A field that is missing is null where the column is optional, and bad data elsewhere.
- A name that the schema does not have is refused, with the name that was probably meant.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from ..errors import DeclarationError
from ..settings import offer

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


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One column. `optional`: its values may be null."""

    name: str
    type: ColumnKind
    optional: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.type}{' | null' if self.optional else ''}"


@dataclass(frozen=True)
class ColumnSchema:
    """The columns of a stream, in order.

    >>> ColumnSchema((ColumnSpec("user", TEXT), ColumnSpec("amount", FLOAT)))["amount"].type
    'float64'
    """

    columns: tuple[ColumnSpec, ...]

    def __post_init__(self) -> None:
        twice = next((name for i, name in enumerate(self.names) if name in self.names[:i]), None)
        if twice is not None:
            raise DeclarationError(f"the column '{twice}' is declared twice", remedy="give one of them another name")
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
        if found is None:
            raise DeclarationError(f"there is no column '{name}'", remedy=offer(name, self.names))
        return found

    def __str__(self) -> str:
        return ", ".join(map(str, self.columns))

    def only(self, names: Iterable[str]) -> ColumnSchema:
        """The schema of these columns alone, in the order of this schema."""
        kept = frozenset(names)
        return ColumnSchema(tuple(column for column in self.columns if column.name in kept))

    def extended(self, columns: Iterable[ColumnSpec]) -> ColumnSchema:
        """This schema with further columns. One that has the name of an earlier column replaces it in its place."""
        named = {column.name: column for column in (*self.columns, *columns)}
        return ColumnSchema(tuple(named.values()))
