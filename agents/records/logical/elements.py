"""The elements of a column of lists, as columns.

    reader = ElementReader(element, "items", frozenset({"items.sku"}), keep_empty=False)
    sizes, columns = reader.read(column)    # how many rows each list makes, and the columns of all elements

What it decides: nothing. A list is stored as JSON, and was checked when it was read (`logical_columns`); here msgspec reads it again, all
lists of a chunk at once. Promises: only the fields that are wanted are read; what is no list of its type is named by its row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple, Union

import msgspec

from ....core.columns import logical as of
from ....core.columns.elements import PLAIN, stored_as
from ....core.columns.evaluate import NotComputable
from ....core.columns.logical import Logical, NotStorable
from ....core.columns.schema import BOOL
from ..memory.record_spans import pieces
from ..memory.taking import spans_of
from ..memory.vectors import Vector
from .logical_columns import stored_values, type_of

NamedVectors = dict[str, Vector]
_NOTHING = msgspec.defstruct("Nothing", [])
"""An object of which no field is wanted."""


class ElementColumns(NamedTuple):
    """The elements of lists."""

    sizes: list[int]
    """How many rows each list makes."""
    columns: NamedVectors


class _Form(NamedTuple):
    """How msgspec reads elements, and what makes columns of them."""

    hint: Any
    columns: Callable[[list[Any]], NamedVectors]


class ElementReader:
    """Reads lists of elements of a type."""

    def __init__(self, element: Logical, title: str, wanted: frozenset[str], *, keep_empty: bool) -> None:
        """`title`: the column of an element, or what comes before the names of its fields. `wanted`: the columns to make."""
        self._form, self._keep_empty = _form(element, title, wanted), keep_empty
        self._kind = Logical(of.LIST, of=(element,))
        one: Any = list.__class_getitem__(_or_none(self._form.hint, element.optional))
        self._one = msgspec.json.Decoder(one | None).decode
        some: Any = list.__class_getitem__(one | None)
        self._many = msgspec.json.Decoder(some).decode

    def read(self, column: Vector) -> ElementColumns:
        """The elements of each list of a column, as it is stored; a list that is null has none. Raises `NotComputable`."""
        parts = [b"null" if one is None else one for one in pieces(spans_of(column))]
        try:
            return self._columns(self._many(b"[%b]" % b",".join(parts)))
        except (
            msgspec.MsgspecError,
            NotStorable,
            RecursionError,
        ):
            return self._columns(self._each(parts))

    def _each(self, parts: Sequence[bytes]) -> list[Any]:
        found: list[Any] = []
        bad: dict[int, NotComputable] = {}
        for row, part in enumerate(parts):
            try:
                found.append(self._one(part))
                self._form.columns(found[-1] or [])
            except (msgspec.MsgspecError, NotStorable, RecursionError) as error:
                bad[row] = NotComputable(row, f"it has a {self._kind} that cannot be read: {error}")
        for first in bad.values():
            first.all = bad
            raise first
        return found

    def _columns(self, lists: list[Any]) -> ElementColumns:
        if self._keep_empty:
            lists = [one or (None,) for one in lists]
        else:
            lists = [one or () for one in lists]
        return ElementColumns(list(map(len, lists)), self._form.columns(list(chain.from_iterable(lists))))


def _form(kind: Logical, title: str, wanted: frozenset[str]) -> _Form:
    if kind.name == of.OBJECT:
        return _object(kind, title, wanted)
    if title not in wanted:
        return _Form(msgspec.Raw, lambda _: {})
    stored = stored_as(kind)
    if kind.name in PLAIN:
        return _Form(type_of(kind), lambda values: {title: Vector.of(stored, values)})
    if kind.name in of.JSON:
        return _Form(msgspec.Raw, lambda values: {title: Vector.of(stored, list(map(_text, values)))})
    return _Form(type_of(kind), lambda values: {title: Vector.of(stored, stored_values(values, kind))})


def _object(kind: Logical, title: str, wanted: frozenset[str]) -> _Form:
    """Of a Struct that has the wanted fields."""
    inner = {name: _form(one, f"{title}.{name}", wanted) for name, one in zip(kind.fields, kind.of, strict=True)}
    inner = {name: one for name, one in inner.items() if _wants(f"{title}.{name}", wanted)}
    optional = {name: one.optional for name, one in zip(kind.fields, kind.of, strict=True)}
    names = {f"f{at}": name for at, name in enumerate(inner)}
    fields: list[Any] = [
        (own, _or_none(inner[name].hint, optional[name]), *([None] if optional[name] else []))
        for own, name in sorted(names.items(), key=lambda one: optional[one[1]])  # those with a default come last
    ]
    struct = msgspec.defstruct("Element", fields, rename=names, gc=False) if names else _NOTHING
    getters = {own: attrgetter(own) for own in names}

    def columns(values: list[Any]) -> NamedVectors:
        made: NamedVectors = {}
        if title in wanted:
            made[title] = Vector.of(BOOL, [None if one is None else True for one in values])
        for own, name in names.items():
            get = getters[own]
            some = [None if one is None else get(one) for one in values] if kind.optional else list(map(get, values))
            made |= inner[name].columns(some)
        return made

    return _Form(struct, columns)


def _wants(title: str, wanted: frozenset[str]) -> bool:
    return any(one == title or one.startswith(f"{title}.") for one in wanted)


def _or_none(hint: Any, optional: bool) -> Any:
    """The hint, or None. What is read as it stands may be null anyway."""
    return Union[hint, None] if optional and hint is not msgspec.Raw else hint  # noqa: UP007 - it is computed


def _text(raw: Any) -> bytes | None:
    found = None if raw is None else bytes(raw)
    return None if found == b"null" else found
