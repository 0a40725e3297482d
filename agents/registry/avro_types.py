"""The Avro schema that follows from a Python type: a dataclass, a msgspec Struct, a TypedDict, a named tuple, or a plain type.

What it decides: `int` is `long`, `float` `double`; times are `timestamp-micros`; what may be None is a union with null; an Enum of names is
an enum. Promise: a type that has no such schema is refused, with the field and what to write instead.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

from ...core.errors import DeclarationError

PLAIN = {"int": "long", "float": "double", "str": "string", "bytes": "bytes", "bool": "boolean", "none": "null"}
LOGICAL = {
    "datetime": {"type": "long", "logicalType": "timestamp-micros"},
    "date": {"type": "int", "logicalType": "date"},
    "time": {"type": "long", "logicalType": "time-micros"},
    "uuid": {"type": "string", "logicalType": "uuid"},
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def schema_of_type(kind: Any, namespace: str = "") -> Any:
    """The schema of a type, as what JSON has for it.

    >>> schema_of_type(dict[str, int | None])
    {'type': 'map', 'values': ['null', 'long']}
    """
    library: Any = importlib.import_module("msgspec.inspect")
    try:
        found = library.type_info(kind)
    except TypeError as error:
        raise _refused(str(getattr(kind, "__qualname__", kind)), str(error)) from error
    if type(found).__name__ == "NamedTupleType":  # inside of another type it would be an array
        made = _record(found, set(), library.NODEFAULT)
    else:
        made = _schema(found, getattr(kind, "__qualname__", str(kind)), set(), library.NODEFAULT)
    if namespace and isinstance(made, dict) and "name" in made:
        made = {"type": made.pop("type"), "name": made.pop("name"), "namespace": namespace, **made}
    return made


def _schema(one: Any, where: str, seen: set[Any], absent: Any) -> Any:
    word = type(one).__name__.removesuffix("Type").lower()
    if word in PLAIN:
        return PLAIN[word]
    if word in LOGICAL:
        return dict(LOGICAL[word])
    if word in ("list", "vartuple", "set", "frozenset", "collection"):
        return {"type": "array", "items": _schema(one.item_type, where, seen, absent)}
    if word == "dict":
        if type(one.key_type).__name__ != "StrType":
            raise _refused(where, "the keys of a map are text in Avro")
        return {"type": "map", "values": _schema(one.value_type, where, seen, absent)}
    if word == "union":
        parts = [_schema(part, where, seen, absent) for part in one.types]
        return sorted(parts, key=lambda part: part != "null")
    if word == "enum":
        return _enum(one.cls, where, seen)
    if word in ("struct", "dataclass", "typeddict"):
        return _record(one, seen, absent)
    raise _refused(where, f"Avro has no type for {word}")


def _enum(cls: Any, where: str, seen: set[Any]) -> Any:
    symbols = [one.value for one in cls]
    if not all(isinstance(one, str) and _NAME.fullmatch(one) for one in symbols):
        raise _refused(where, f"the values of {cls.__name__} are no names: {symbols!r:.60}")
    if cls in seen:
        return cls.__name__
    seen.add(cls)
    return {"type": "enum", "name": cls.__name__, "symbols": symbols}


def _record(one: Any, seen: set[Any], absent: Any) -> Any:
    cls = one.cls
    if cls in seen:
        return cls.__name__
    seen.add(cls)
    fields: list[dict[str, Any]] = []
    for field in one.fields:
        where = f"{cls.__name__}.{field.name}"
        kind = _schema(field.type, where, seen, absent)
        made = {"name": field.encode_name, "type": kind}
        default = getattr(field, "default", absent)
        factory = getattr(field, "default_factory", absent)
        if factory in (list, dict):
            default = factory()
        if default is None or isinstance(default, str | int | float | bool | list | dict):
            made["default"] = default
            made["type"] = _first(kind, default)
        elif not field.required and isinstance(kind, list) and "null" in kind and default is absent:
            made["default"] = None
        fields.append(made)
    return {"type": "record", "name": cls.__name__, "fields": fields}


def _first(kind: Any, default: Any) -> Any:
    """A union with the part first that its default belongs to, as Avro wants it."""
    if not isinstance(kind, list) or default is None:
        return kind
    return sorted(kind, key=lambda part: part == "null")


def _refused(where: str, why: str) -> DeclarationError:
    return DeclarationError(
        f"avro({where}): {why}", remedy="give the schema itself: hg.avro(Order, schema=…), or change the type"
    )
