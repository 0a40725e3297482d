"""Decodes JSON into values of a type: a dataclass, TypedDict or msgspec Struct.

What it decides: which records fit the type, beyond what msgspec checks; typed rows and columns judge a record alike. Promises:

- A field that may be None may be missing, and is None then.
- A whole number has at most 64 bits.
- Bytes that are not UTF-8 are bad data, also in fields that the type does not have.
- A chunk without bad records costs one pass in C for each of these rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Any, is_typeddict

import orjson

from ...core.columns.schema import INT, LEAST, MOST
from ...core.errors import DataError
from .column_types import PlainField, plain_fields


class TypedJson:
    """The decoder of one type. `one` and `many` raise for a record that does not fit."""

    def __init__(self, library: Any, kind: Any) -> None:
        self._decode: Callable[[bytes], Any] = library.json.Decoder(kind).decode
        self._kind = kind
        self._convert: Any = library.convert
        self._misfit: type[Exception] = library.ValidationError
        fields = plain_fields(kind)
        self._nulls = {f.column.name: None for f in fields if f.column.optional and f.required}
        """The fields that are None where they are missing."""
        self._whole = [(f.column.name, _getter(kind, f)) for f in fields if f.column.type == INT]
        if self._nulls:
            self._decode = self._filled(self._decode)

    def one(self, data: bytes) -> Any:
        """Decode one value."""
        return self.many([data])[0]

    def many(self, data: Sequence[Any]) -> list[Any]:
        """Decode a column."""
        decode = self._decode
        values = [decode(one) for one in data]
        if not all(map(bytes.isascii, data)):
            b"".join(data).decode()  # each one begins and ends with a character of JSON, so that no two make a third
        for name, get in self._whole:
            numbers = list(map(get, values))
            if None in numbers:
                numbers = [one for one in numbers if one is not None]
            if numbers and (min(numbers) < LEAST or max(numbers) > MOST):
                raise DataError(
                    f"the field '{name}' has a number of more than 64 bits", remedy="declare it float, or leave it out"
                )
        return values

    def _filled(self, decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        """A decoder that takes a missing field for null where null is allowed. Only records that lack one are slow."""
        nulls = self._nulls

        def filled(data: bytes) -> Any:
            try:
                return decode(data)
            except self._misfit:
                value: Any = orjson.loads(data)
                if not isinstance(value, dict) or nulls.keys() <= value.keys():
                    raise
                return self._convert({**nulls, **value}, self._kind)

        return filled


def _getter(kind: Any, field: PlainField) -> Callable[[Any], Any]:
    if not is_typeddict(kind):
        return attrgetter(field.attribute)
    name = field.column.name
    return itemgetter(name) if field.required else lambda value: value.get(name)
