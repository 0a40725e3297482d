"""Columns of logical types at the borders: read from JSON, shown to users as Python values, and written.

    reader = LogicalReader(Logical("timestamp"))
    vector, bad = reader.read(json_column)      # as it is stored; the rows whose JSON is no such value
    shown_values(vector.values(), kind)         # datetimes
    written(vector, kind, rows)                 # a vector that the encoder writes

What it decides: nothing. Which JSON is a value, msgspec decides, so that columns and typed rows read and write alike; on top of that a
value must be storable: see `core/columns/logical.py`. Promises: a column costs one call of msgspec, unless a value in it is bad; a base row
that is not selected is not looked at.
"""

from __future__ import annotations

from array import array
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict, Union

import msgspec

from ....core.columns import logical as of
from ....core.columns.logical import Logical, NotStorable, shown, stored, stored_times
from ....core.columns.logical import written as text_of
from ....core.columns.schema import BOOL, FLOAT, INT, LEAST, MOST, TEXT, ColumnSchema
from ..layout import Buffer, longs
from ..memory.octets import octets_of_texts
from ..memory.record_spans import pieces
from ..memory.taking import spans_of
from ..memory.vectors import Vector, dicts_of
from ..values.column_types import hints_of_columns, maker
from ..values.missing_fields import as_it_is, filler
from ..values.typed_json import filled_json

_PLAIN: dict[str, Any] = {
    INT: Annotated[int, msgspec.Meta(ge=LEAST, le=MOST)],
    FLOAT: float,
    BOOL: bool,
    TEXT: str,
    of.TIMESTAMP: Annotated[datetime, msgspec.Meta(tz=True)],
    of.LOCAL: Annotated[datetime, msgspec.Meta(tz=False)],
    of.DATE: date,
    of.DECIMAL: Decimal,
    of.BYTES: bytes,
}


def type_of(kind: Logical) -> Any:
    """The Python type of the values, as msgspec reads them; objects in a list or a map are dicts."""
    inner = [Union[type_of(one), None] if one.optional else type_of(one) for one in kind.of]  # noqa: UP007 - it is computed
    if kind.name == of.LIST:
        return list[inner[0]]
    if kind.name == of.MAP:
        return dict[str, inner[0]]
    if kind.name == of.OBJECT:
        fields: dict[str, Any] = {}
        for name, one, hint in zip(kind.fields, kind.of, inner, strict=True):
            fields[name] = NotRequired[hint] if one.optional else hint
        return TypedDict("Object", fields)  # type: ignore[operator]
    return _PLAIN[kind.name]


def _has_decimals(kind: Logical) -> bool:
    return kind.name == of.DECIMAL or any(map(_has_decimals, kind.of))


def _check_decimals(value: Any, kind: Logical) -> None:
    """Raise `NotStorable` if a decimal somewhere in a value has more digits than declared."""
    if value is None:
        return
    if kind.name == of.DECIMAL:
        stored(value, kind)
    elif kind.name == of.LIST:
        for one in value:
            _check_decimals(one, kind.of[0])
    elif kind.name == of.MAP:
        for one in value.values():
            _check_decimals(one, kind.of[0])
    elif kind.name == of.OBJECT:
        for name, one in zip(kind.fields, kind.of, strict=True):
            _check_decimals(value.get(name), one)


class _Checker(NamedTuple):
    """What finds out whether JSON is a list or a map of a type."""

    decode: Callable[[bytes], Any]
    decimals: bool


@lru_cache(maxsize=1000)
def _checker(kind: Logical) -> _Checker:
    return _Checker(msgspec.json.Decoder(type_of(kind)).decode, _has_decimals(kind))


class LogicalReader:
    """Reads a column of JSON, each value as it stands in its record, as a logical type."""

    def __init__(self, kind: Logical) -> None:
        self._kind = kind
        self._type = type_of(kind)
        self._checked = kind.name in of.JSON and _has_decimals(kind)

    @cached_property
    def _many(self) -> Callable[[bytes], list[Any]]:
        values = Logical(of.LIST, of=(replace(self._kind, optional=True),))
        return msgspec.json.Decoder(type_of(values)).decode

    @cached_property
    def _one(self) -> Callable[[bytes], Any]:
        return msgspec.json.Decoder(self._type).decode

    def read(self, column: Vector) -> tuple[Vector, list[int]]:
        """The column as it is stored, null where it is and where it is bad; and the bad rows."""
        parts = pieces(spans_of(column))
        bad: list[int] = []
        try:
            values = self._many(b"[%b]" % b",".join([b"null" if one is None else one for one in parts]))
            found = self._stored(values, parts)
        except (msgspec.MsgspecError, NotStorable, RecursionError):
            found = [None if one is None else self._each(row, one, bad) for row, one in enumerate(parts)]
        return Vector.of(INT if self._kind.name in of.WHOLE else TEXT, found), bad

    def _each(self, row: int, part: bytes, bad: list[int]) -> Any:
        try:
            return self._stored([self._one(part)], [part])[0]
        except (msgspec.MsgspecError, NotStorable, RecursionError):
            bad.append(row)
            return None

    def _stored(self, values: list[Any], parts: Sequence[bytes | None]) -> list[Any]:
        if self._kind.name in of.JSON:
            if self._checked:
                for value in values:
                    _check_decimals(value, self._kind)
            return list(parts)
        return stored_values(values, self._kind)


def stored_values(values: Sequence[Any], kind: Logical) -> list[Any]:
    """Values that msgspec has read, of a type that is no list and no map, as they are stored. Raises `NotStorable`."""
    if kind.name in of.TIMES:
        return stored_times(values, kind)
    if kind.name == of.BYTES:
        return [None if one is None else b64encode(one) for one in values]
    return [None if one is None else stored(one, kind) for one in values]


def stored_value(value: Any, kind: Logical) -> Any:
    """A value that a user has given as it is stored. Raises `NotStorable`."""
    if kind.name == of.BYTES:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise NotStorable("not bytes")
        return b64encode(value)
    if kind.name not in of.JSON:
        return stored(value, kind)
    try:
        found = msgspec.json.encode(value)
        check = _checker(kind)
        read = check.decode(found)
        if check.decimals:
            _check_decimals(read, kind)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotStorable(f"not a {kind}: {error}") from None
    return found


def shown_values(values: Sequence[Any], kind: Logical, hint: Any = None) -> list[Any]:
    """Stored values as users see them. `hint`: the type that a list or a map was declared with; else objects in it are dicts."""
    if kind.name == of.BYTES:
        return octets_of_texts(values)
    if kind.name in of.JSON:
        decode = msgspec.json.Decoder(type_of(kind)).decode if hint is None else _declared(hint)
        return [None if one is None else decode(one) for one in values]
    return [None if one is None else shown(one, kind) for one in values]


@lru_cache(maxsize=1000)
def _declared(hint: Any) -> Callable[[bytes], Any]:
    """Decodes a list or a map of a declared type; what a record lacks is None where that is allowed, as in typed rows."""
    strictly, fill = msgspec.json.Decoder(hint).decode, filler(hint)
    if fill is as_it_is:
        return strictly
    filled = filled_json(msgspec, fill)

    def decode(data: bytes) -> Any:
        try:
            return strictly(data)
        except msgspec.ValidationError:
            return strictly(filled(data))

    return decode


def shown_maker(kind: Any, schema: ColumnSchema) -> Callable[[list[list[Any]]], list[Any]] | None:
    """As `maker`, of columns as they are stored."""
    if kind in (str, bytes):  # the record was its one column
        (own,) = schema.columns
        return lambda columns: columns[0] if own.logical is None else shown_values(columns[0], own.logical)
    make = maker(kind, schema)
    if not schema.logical:
        return make
    hints = {} if kind is None else hints_of_columns(kind, schema)

    def made(columns: list[list[Any]]) -> list[Any]:
        found = [
            one if of.logical is None else shown_values(one, of.logical, hints.get(of.name))
            for of, one in zip(schema.columns, columns, strict=True)
        ]
        return dicts_of(schema.names, len(found[0]), found) if make is None else make(found)

    return made


def written(column: Vector, kind: Logical, rows: Buffer | None) -> Vector:
    """A column as the encoder writes it: the JSON of each of these rows, null elsewhere."""
    if kind.name == of.BYTES:
        return column
    if kind.name in of.JSON:
        spans = spans_of(column)
        lengths = array("q", [size if size > 0 else 0 for size in longs(spans.lengths)])
        return Vector("json", column.length, spans.buffer, spans.offsets, lengths)
    values, seconds = column.values(), dict[int, str]()
    texts: list[Any] = [None] * len(values)
    for row in range(len(values)) if rows is None else longs(rows):
        if (value := values[row]) is not None:
            texts[row] = text_of(value, kind, seconds)
    return Vector.of(TEXT, texts)
