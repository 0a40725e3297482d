"""A table as users declare it. In user code that a task runs it is a mapping; everywhere else, using it raises an error that says why."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from ....core.errors import DeclarationError
from ....core.words import TABLE
from .refused_verbs import RefusesVerbs

if TYPE_CHECKING:
    from ...records.values.serdes import Serde
    from ..types.schemas import Migrate

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")


class Tables(Protocol):
    """The tables of a task."""

    def table(self, name: str) -> Any:
        """The table with this name."""


_current: contextvars.ContextVar[Tables | None] = contextvars.ContextVar("headgate_tables", default=None)


@contextlib.contextmanager
def bound(tables: Tables) -> Iterator[None]:
    """User code that runs in this block sees the tables of this task."""
    token = _current.set(tables)
    try:
        yield
    finally:
        _current.reset(token)


def current_table(name: str) -> Any:
    """A table of the running task; outside of a task, raises `DeclarationError`."""
    tables = _current.get()
    if tables is None:
        raise DeclarationError(
            f"table {name!r} is used outside of a task",
            remedy="use it in an operator, agent or actor; `headgate tables` reads it from outside",
        )
    return tables.table(name)


class DeclaredTable(RefusesVerbs, MutableMapping[K, V], Generic[K, V]):
    """A table of an app. Inside operators, agents and actors it is a mapping: the running task's part of the table.

    >>> counts = app.table("counts", key=hg.text(), value=hg.json())
    >>> def seen(user):                     # in a map, for example
    ...     counts[user] = counts.get(user, 0) + 1
    ...     return counts[user]
    """

    KIND = TABLE

    def __init__(
        self, name: str, key: Serde[Any], value: Serde[Any], ttl_ms: int | None, migrate: Migrate | None = None
    ) -> None:
        self.name = name
        self.key_serde = key
        self.serde = value
        self.ttl_ms = ttl_ms
        self.migrate = migrate

    def __repr__(self) -> str:
        return f"<table {self.name}>"

    def __eq__(self, other: object) -> bool:
        return self is other  # whatever is in the table

    def __hash__(self) -> int:
        return id(self)

    def _bound(self) -> Any:

        return current_table(self.name)

    def __getitem__(self, key: K) -> V:
        return self._bound()[key]

    def __setitem__(self, key: K, value: V) -> None:
        self._bound()[key] = value

    def __delitem__(self, key: K) -> None:
        del self._bound()[key]

    def __contains__(self, key: object) -> bool:
        return key in self._bound()

    def __iter__(self) -> Iterator[K]:
        return iter(self._bound())

    def __len__(self) -> int:
        return len(self._bound())

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V) -> V: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: Any = None) -> Any:
        """The value of a key, or the default."""
        return self._bound().get(key, default)

    def get_many(self, keys: Iterable[K]) -> list[V | None]:
        """The values of many keys in one look-up; None for a key without a value."""
        return self._bound().get_many(list(keys))

    def update(self, changes: Mapping[K, V] | Iterable[tuple[K, V]] = (), /, **named: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Set many keys."""
        self._bound().update(changes, **named)

    def range(self, start: K | None = None, end: K | None = None, *, reverse: bool = False) -> Iterator[tuple[K, V]]:
        """Keys and values from `start` up to but not including `end`, in the order of the keys' bytes."""
        return self._bound().range(start, end, reverse=reverse)
