"""Which values and records fit a schema of columns.

What it decides: that. The rules for values are those of the decoder for records (see `decoder`): types are strict, a whole number has at
most 64 bits, a missing field is null, and null is an error where the column is not optional. A float is finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from operator import attrgetter, itemgetter
from typing import Any

import orjson

from ....core.columns.logical import NotStorable
from ....core.columns.schema import BOOL, FLOAT, INT, LEAST, MOST, PYTHON, TEXT, ColumnSchema, ColumnSpec
from ....core.errors import DataError
from ..logical.logical_columns import stored_value
from ..values.messages import message_values
from .decoder import BadSpan, RecordFlaw
from .selecting import field_of

_NO_OBJECTS = frozenset((str, int, float, bool, list, tuple, type(None)))
_MISSING = object()
_SHOWN = 60
_OPTIONAL = "declare it optional (| None), or see on_bad_data="


# ------------------------------------------------------------------------------------------------------------- from bytes


def why_bad(bad: BadSpan, data: bytes, kinds: Mapping[str, str]) -> DataError:
    """Why a record is bad, for people. `kinds`: those of the decoder."""
    if bad.flaw == RecordFlaw.NOT_JSON:
        try:
            orjson.loads(data)
        except orjson.JSONDecodeError as error:
            return DataError(f"not json: {error} in {_shown(data)}", remedy="see on_bad_data=")
    if bad.flaw == RecordFlaw.NOT_OBJECT or bad.column is None:
        return DataError(f"the record is {_shown(data)}, not an object with fields", remedy="see on_bad_data=")
    where = f"the field '{bad.column}'"
    match bad.flaw:
        case RecordFlaw.MISSING:
            return DataError(f"{where} is missing", remedy=_OPTIONAL)
        case RecordFlaw.NULL:
            return DataError(f"{where} is null", remedy=_OPTIONAL)
        case RecordFlaw.OUT_OF_RANGE:
            return DataError(f"{where} has a number of more than 64 bits in {_shown(data)}", remedy="see on_bad_data=")
        case _ if bad.column in kinds:
            return DataError(f"{where} is no {kinds[bad.column]} in {_shown(data)}", remedy="see on_bad_data=")
        case _:
            return DataError(f"{where} is of another type in {_shown(data)}", remedy="see on_bad_data=")


# ------------------------------------------------------------------------------------------------------------ from values


def columns_of_values(
    values: Sequence[Any], schema: ColumnSchema
) -> tuple[dict[str, list[Any]], list[tuple[int, DataError]]]:
    """The columns of values (mappings, messages, or objects with attributes), with None for those that do not fit; and why these do not.

    >>> from headgate.core.columns.schema import TEXT
    >>> columns, bad = columns_of_values([{"a": "x"}, {"a": 1}], ColumnSchema((ColumnSpec("a", TEXT),)))
    >>> columns, bad[0][1].what
    ({'a': ['x', None]}, "the field 'a' is 1, not text")
    """
    values = message_values(values, schema)
    if (plain := _plainly(values, schema)) is not None:
        return plain, []
    bad: list[tuple[int, DataError]] = []
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    for index, value in enumerate(values):
        try:
            if type(value) in _NO_OBJECTS:
                raise DataError(f"the value is {_shown(value)}, not an object with fields")
            row = [_one(value, one) for one in schema.columns]
        except DataError as error:
            bad.append((index, error))
            row = [None] * len(schema.columns)
        for name, found in zip(schema.names, row, strict=True):
            columns[name].append(found)
    return columns, bad


def _plainly(values: Sequence[Any], schema: ColumnSchema) -> dict[str, list[Any]] | None:
    """The columns of values of one type that fit without a conversion, a column at a time; None if there is anything else among them."""
    kinds = set(map(type, values))
    if schema.nested or len(kinds) != 1 or not kinds.isdisjoint(_NO_OBJECTS):
        return None
    (kind,) = kinds
    if kind is not dict and (issubclass(kind, Mapping) or any("." in name for name in schema.names)):
        return None
    columns: dict[str, list[Any]] = {}
    for one in schema.columns:
        try:
            columns[one.name] = list(map(itemgetter(one.name) if kind is dict else attrgetter(one.name), values))
        except (KeyError, AttributeError):
            if kind is not dict or not one.optional:
                return None
            columns[one.name] = [value.get(one.name) for value in values]
        if one.logical is not None:
            if None in columns[one.name] and not one.optional:
                return None
            try:
                columns[one.name] = [None if v is None else stored_value(v, one.logical) for v in columns[one.name]]
            except NotStorable:
                return None
        elif not _all_fit(columns[one.name], one):
            return None
    return columns


def _all_fit(column: list[Any], spec: ColumnSpec) -> bool:
    types = set(map(type, column))
    if type(None) in types:
        if not spec.optional:
            return False
        types.discard(type(None))
        column = [value for value in column if value is not None]
    if not types <= {PYTHON[spec.type]}:
        return False
    if spec.type == INT:
        return not column or LEAST <= min(column) <= max(column) <= MOST
    return spec.type != FLOAT or all(map(isfinite, column))


def _one(value: Any, spec: ColumnSpec) -> Any:
    """The value of one field; a `DataError` that says why it does not fit."""
    if spec.path:
        return _nested(value, spec)
    found = _found(value, spec.name)
    if found is not None and found is not _MISSING:
        return _fitting(found, spec)
    if spec.optional:
        return None
    raise DataError(f"the field '{spec.name}' is {'null' if found is None else 'missing'}", remedy=_OPTIONAL)


def _found(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name, _MISSING)
    return field_of(value, name) if hasattr(value, name) else _MISSING


def _nested(value: Any, spec: ColumnSpec) -> Any:
    """The value of a field of a nested object; of the object itself, whether it is there."""
    for depth, (name, optional) in enumerate(spec.path, 1):
        where = ".".join(one.name for one in spec.path[:depth])
        found = _found(value, name)
        if found is None or found is _MISSING:
            if optional:
                return None
            raise DataError(f"the field '{where}' is {'null' if found is None else 'missing'}", remedy=_OPTIONAL)
        if depth == len(spec.path) and not spec.is_object:
            return _fitting(found, spec)
        if type(found) in _NO_OBJECTS:
            raise DataError(f"the field '{where}' is {_shown(found)}, not an object with fields")
        value = found
    return True


def _fitting(found: Any, spec: ColumnSpec) -> Any:
    if spec.logical is not None:
        try:
            return stored_value(found, spec.logical)
        except NotStorable as error:
            raise DataError(
                f"the field '{spec.name}' is {_shown(found)}, which is {error}: no {spec.logical}"
            ) from None
    wanted, is_bool = PYTHON[spec.type], isinstance(found, bool)
    if spec.type == FLOAT and isinstance(found, int) and not is_bool:
        try:
            found = float(found)
        except OverflowError:
            raise DataError(f"the field '{spec.name}' is a number that no float64 can hold") from None
    if not isinstance(found, wanted) or (is_bool and spec.type != BOOL):
        raise DataError(f"the field '{spec.name}' is {_shown(found)}, not {spec.type}")
    if spec.type == INT and not LEAST <= found <= MOST:
        raise DataError(
            f"the field '{spec.name}' is {_shown(found)}, which has more than 64 bits", remedy="declare it as float"
        )
    if spec.type == FLOAT and not isfinite(found):
        raise DataError(f"the field '{spec.name}' is {found}, which is no finite number")
    if spec.type == TEXT and isinstance(found, str):
        try:
            found.encode()
        except UnicodeEncodeError as error:
            raise DataError(f"the field '{spec.name}' is {_shown(found)}, which is no text: {error.reason}") from None
    return wanted(found)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
