"""Decodes JSON into values of a type: a dataclass, TypedDict or msgspec Struct.

What it decides: which records fit the type, beyond what msgspec checks; typed rows and columns judge a record alike. Promises:

- A field that may be None may be missing, and is None then (`missing_fields`). (With the default None in its class, that is as fast as any
  other record.)
- Of two equal keys, the last one counts.
- A whole number has at most 64 bits.
- Bytes that are not UTF-8, and numbers beyond a double (`1e400`), are bad data, also in fields that the type does not have.
- A chunk without bad records costs one pass in C for each of these rules.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Any, is_typeddict

import orjson

from ....core.columns.schema import INT, LEAST, MOST
from ....core.errors import DataError, DeclarationError
from ..native import chosen
from .column_types import PlainField, fields_alone, plain_fields
from .missing_fields import Fill, as_it_is, filler


class TypedJson:
    """The decoder of one type. `one` raises for a record that does not fit; `many` may also raise where `one` accepts all records."""

    def __init__(self, library: Any, kind: Any) -> None:
        self._strictly: Callable[[bytes], Any] = decoder_of(library.json, kind)
        self._kind = kind
        self._convert: Any = library.convert
        self._misfit: type[Exception] = library.ValidationError
        self._fill = filler(kind)
        self._filled = filled_json(library, self._fill)
        self._whole = [(f.column.name, _getter(kind, f)) for f in plain_fields(kind) if f.column.type == INT]

    def one(self, data: bytes) -> Any:
        """Decode one value."""
        values = [self._leniently(data)]
        self._check([data], values)
        return values[0]

    def many(self, data: Sequence[Any]) -> list[Any]:
        """Decode a column."""
        values = list(map(self._strictly if self._fill is as_it_is else self._leniently, data))
        self._check(data, values)
        return values

    def _check(self, data: Sequence[bytes], values: list[Any]) -> None:
        if not all(map(bytes.isascii, data)):
            b"".join(data).decode()  # each one begins and ends with a character of JSON, so that no two make a third
        for index in beyond(data):
            orjson.loads(data[index])  # msgspec does not look at numbers that it skips
        for name, get in self._whole:
            numbers = list(map(get, values))
            try:
                array("q", numbers)
            except OverflowError:
                raise _too_long(name) from None
            except TypeError:  # some are null
                if any(one is not None and not LEAST <= one <= MOST for one in numbers):
                    raise _too_long(name) from None

    def _leniently(self, data: bytes) -> Any:
        """Decode a value, in which a missing field is null where null is allowed, and the last of two equal keys counts.

        Only records that msgspec refuses are slow. How deep a record may be nested for it depends on how deep the caller is.
        """
        try:
            return self._strictly(data)
        except (self._misfit, RecursionError) as misfit:
            value: Any = orjson.loads(data)
            if not isinstance(value, dict):
                raise
            try:
                if isinstance(misfit, RecursionError):
                    return self._convert(self._fill(value), self._kind)
                # decoded from JSON again: `convert` gets numbers that are no longer exact
                return self._strictly(self._filled(data))
            except (self._misfit, RecursionError):
                raise misfit from None


def filled_json(library: Any, fill: Fill) -> Callable[[bytes], bytes]:
    """JSON with what is missing in it. Numbers with a fraction or an exponent stay as they stand."""
    raw: Callable[[bytes], Any] = library.Raw
    decode = library.json.Decoder(float_hook=lambda text: raw(text.encode())).decode
    encode: Callable[[Any], bytes] = library.json.Encoder().encode
    return lambda data: encode(fill(decode(data)))


def beyond(data: Sequence[bytes]) -> list[int]:
    """The values in which a number may be beyond every double; rather too many than too few.

    >>> beyond([b'{"a":1e400}', b'{"a":1e-7}', b'{"a":' + b"9" * 309 + b"}"])
    [0, 2]
    """
    return chosen.part.beyond(data)


def decoder_of(form: Any, kind: Any) -> Callable[[bytes], Any]:
    """msgspec's decoder of a type in this form, JSON or msgpack; a `DeclarationError` for a type that it does not know."""
    name = getattr(kind, "__qualname__", kind)
    try:
        return form.Decoder(kind).decode
    except NameError as error:
        raise DeclarationError(
            f"the fields of {name} cannot be read: {error}",
            remedy="define the types of its fields at the top of a module",
        ) from None
    except (TypeError, ValueError) as error:
        raise DeclarationError(
            f"values of type {name} cannot be read: {error}",
            remedy="fields of types that msgspec knows; leave others out of the type: fields that it does not have are skipped",
        ) from error


def struct_of(library: Any, kind: Any, names: frozenset[str]) -> Any:
    """A Struct that has only these fields of a type; None if the type has rules for the whole record, or no such fields.

    Values of the Struct stand for those of the type wherever steps only name fields. The cycle collector does not see them: JSON contains
    no cycles.
    """
    found = {one.attribute: one for one in fields_alone(kind)}
    if not names <= found.keys():
        return None
    optional = {one.attribute for one in plain_fields(kind, logical=True) if one.column.optional}
    fields = [
        (one.attribute, one.hint, *(one.default or ((None,) if one.attribute in optional else ())))
        for one in found.values()
        if one.attribute in names
    ]
    encoded = {one.attribute: one.name for one in found.values()}
    return library.defstruct(kind.__name__, sorted(fields, key=len), gc=False, rename=encoded)


def _too_long(name: str) -> DataError:
    return DataError(
        f"the field '{name}' has a number of more than 64 bits", remedy="declare it float, or leave it out"
    )


def _getter(kind: Any, field: PlainField) -> Callable[[Any], Any]:
    if not is_typeddict(kind):
        return attrgetter(field.attribute)
    name = field.column.name
    return itemgetter(name) if field.required else lambda value: value.get(name)
