"""`hg.avro(…)`: Avro with a schema registry, in Confluent's format.

What it decides: a record is read with the schema that wrote it, resolved to the given `schema=`, if there is one (Avro's rules of
evolution: names, aliases, defaults, wider numbers); then it becomes an object of the given type, if there is one, by the names of its
fields and with the defaults of the type. A named tuple is such a type, and it can be a key: so keys that are records, as those of Debezium
and Connect, are read, grouped by and written. On its way through the job a key is a plain tuple, so a tuple is written as the record whose
fields are in this order. Promises: bytes behind a value, and too few of them, are bad data, as is what does not fit the type.

The library is fastavro: it is compiled, and its maintainers release for each Python. It reads a small record in 2 µs where Apache's `avro`
takes 9.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar, overload
from uuid import UUID

from ...core.columns.schema import ColumnSchema
from ...core.errors import DataError, DeclarationError, EnvironmentFault
from ..records.values import serdes
from ..records.values.serdes import Serde
from . import wire
from .asked import AVRO, Referred, SchemaText, WholeSchema
from .avro_columns import AvroPrograms, ParsedSchemas
from .avro_program import type_of
from .avro_types import schema_of_type
from .avro_write_program import missing_field
from .avro_writer import AvroWriter
from .program_columns import ProgramColumns
from .serde import ReadValue, RegistrySerde
from .subjects import SubjectName, checked_strategy

T = TypeVar("T")
AvroSchema = str | Path | Mapping[str, Any] | list[Any]
"""A schema as text, as a file, or as what JSON has for it."""
_AS_THEY_ARE = (bytes, bytearray, datetime, date, time, Decimal, UUID)


class AvroFormat:
    """Avro, for one schema and one type."""

    kind = AVRO
    reads_alone = False
    reads_columns = True
    mark = b""

    def __init__(
        self, library: Any, kind: Any, own: SchemaText | None, refers: Mapping[str, Referred], *, resolves: bool
    ) -> None:
        """`resolves`: the own schema stands for what readers want, too."""
        self._library = library
        self.type = kind
        self.name = f"avro({getattr(kind, '__qualname__', kind)})" if kind is not None else "avro"
        self.own = own
        self.refers = refers
        self._resolves = resolves
        self._plain = kind is None or kind in (str, int, float, bool, bytes)
        """Whether its values are what the library gives, and takes."""
        self._msgspec: Any = None if kind is None else importlib.import_module("msgspec")
        self._fields: tuple[str, ...] = getattr(kind, "_fields", ()) if is_named_tuple(kind) else ()

    def _parsed(self, whole: WholeSchema) -> Any:
        """The schema as the library has it."""
        return self._named(whole)[0]

    def _named(self, whole: WholeSchema) -> tuple[Any, dict[str, Any]]:
        """The schema as the library has it, and the types that have names."""
        named: dict[str, Any] = {}
        parsed: Any = None
        for one in whole.in_order():
            parsed = self._library.parse_schema(_loaded(one.text), named_schemas=named)
        return parsed, named

    def column_reader(self, serde: RegistrySerde[Any], schema: ColumnSchema) -> ProgramColumns:
        def parsed(wrote: WholeSchema, own: WholeSchema | None) -> ParsedSchemas:
            reader = self._named(own) if own is not None and self._resolves else (None, {})
            return ParsedSchemas(*self._named(wrote), *reader)

        dicts = AvroFormat(self._library, None, self.own, self.refers, resolves=self._resolves)
        return ProgramColumns(AvroPrograms(serde, self._library, schema, parsed, dicts.reader), schema)

    def column_writer(self, serde: RegistrySerde[Any]) -> AvroWriter:
        return AvroWriter(serde, self._library, self._named)

    def lacking(self, schema: ColumnSchema) -> str | None:
        own = None if self.own is None else _loaded(self.own.text)
        if not isinstance(own, dict) or type_of(own) != "record":
            return None
        return missing_field(own, [one.path[0].name if one.path else one.name for one in schema.columns])

    def reader(self, schema: WholeSchema | None, own: WholeSchema | None) -> ReadValue:
        assert schema is not None, "Avro is read with the schema that wrote it"
        wrote = self._parsed(schema)
        wants = self._parsed(own) if own is not None and self._resolves else None
        read, kind = self._library.schemaless_reader, self.type
        convert = None if kind is None else self._msgspec.convert
        fields, defaults = self._fields, getattr(kind, "_field_defaults", {}) if self._fields else {}

        def value(data: bytes, at: int) -> Any:
            source = BytesIO(data)
            source.seek(at)
            found = read(source, wrote, wants)
            if source.tell() != len(data):
                raise DataError(
                    f"{len(data) - source.tell()} bytes follow the value", remedy="another schema has written it"
                )
            if fields:
                found = _in_order(found, fields, defaults)
            return found if convert is None else convert(found, kind)

        return value

    def writer(self, schema: WholeSchema) -> Callable[[Any], bytes]:
        wrote, write = self._parsed(schema), self._library.schemaless_writer
        is_record = isinstance(wrote, dict) and type_of(wrote) == "record"
        names = tuple(one["name"] for one in wrote["fields"]) if is_record else ()

        def encode(value: Any) -> bytes:
            target = BytesIO()
            if is_record and isinstance(value, tuple):
                value = _by_name(value, getattr(value, "_fields", None) or self._fields or names)
            write(target, wrote, value if type(value) is dict else self._built(value))
            return target.getvalue()

        return encode

    def _built(self, value: Any) -> Any:
        """A value in parts that the library knows: objects become dicts."""
        if isinstance(value, str | int | float | bytes) or (self._msgspec is None and not _is_object(value)):
            return value
        library = self._msgspec or importlib.import_module("msgspec")
        return library.to_builtins(value, builtin_types=_AS_THEY_ARE)

    def record_name(self) -> str:
        found = None if self.own is None else _loaded(self.own.text)
        if not isinstance(found, dict) or not found.get("name"):
            return ""
        name, space = str(found["name"]), found.get("namespace")
        return f"{space}.{name}" if space and "." not in name else name

    def within(self) -> Serde[Any]:
        return serdes.msgpack() if self._plain else serdes.msgpack(self.type)


def _in_order(found: Any, fields: tuple[str, ...], defaults: Mapping[str, Any]) -> list[Any]:
    """The fields of a record as a named tuple has them."""
    if not isinstance(found, dict):
        raise DataError(f"it is {type(found).__name__}, and no record", remedy="a named tuple is made of a record")
    known = {**defaults, **found}
    if absent := next((name for name in fields if name not in known), None):
        raise DataError(f"the record has no field '{absent}'", remedy="give the field of the named tuple a default")
    return [known[name] for name in fields]


def _by_name(value: tuple[Any, ...], fields: tuple[str, ...]) -> dict[str, Any]:
    """The record of which a tuple has the fields."""
    if len(value) != len(fields):
        raise DataError(
            f"a tuple of {len(value)} is no record of the fields {', '.join(fields)}", remedy="one part for each field"
        )
    return {
        name: importlib.import_module("msgspec").to_builtins(one, builtin_types=_AS_THEY_ARE)
        if _is_object(one)
        else one
        for name, one in zip(fields, value, strict=True)
    }


def is_named_tuple(kind: Any) -> bool:
    """Whether a type is a named tuple."""
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def _is_object(value: Any) -> bool:
    return dataclasses.is_dataclass(value) or hasattr(type(value), "__struct_fields__")


def _loaded(text: str) -> Any:
    return json.loads(text)


def _schema_text(schema: AvroSchema) -> str:
    """The schema as a registry gets it: the text that the user gave, if it is JSON."""
    if isinstance(schema, Path):
        schema = schema.read_text(encoding="utf-8")
    if not isinstance(schema, str):
        return json.dumps(schema)
    try:
        json.loads(schema)
    except ValueError:
        return json.dumps(schema)  # the bare name of a type: string
    return schema


def library_of(name: str, verb: str) -> Any:
    """A library of `headgate[registry]`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise EnvironmentFault(
            f"hg.{verb}() needs {name}: {error}", remedy="pip install 'headgate[registry]'"
        ) from error


@overload
def avro(
    kind: None = None,
    *,
    schema: AvroSchema | None = None,
    namespace: str = ...,
    subject: SubjectName = ...,
    register: bool = ...,
    references: Mapping[str, str] | None = ...,
    schema_id: str = ...,
) -> Serde[Any]: ...
@overload
def avro(
    kind: type[T],
    *,
    schema: AvroSchema | None = None,
    namespace: str = ...,
    subject: SubjectName = ...,
    register: bool = ...,
    references: Mapping[str, str] | None = ...,
    schema_id: str = ...,
) -> Serde[T]: ...
def avro(
    kind: Any = None,
    *,
    schema: AvroSchema | None = None,
    namespace: str = "",
    subject: SubjectName = "topic",
    register: bool = False,
    references: Mapping[str, str] | None = None,
    schema_id: str = wire.PREFIX,
) -> Serde[Any]:
    """Avro with a schema registry, as Confluent's serializers write it. `registry.url` says where the registry is.

    Reading: each record with the schema that wrote it, which its id names; with `schema=`, resolved to that one by Avro's rules. With a
    dataclass or msgspec Struct, values are decoded into that type and checked: fields that it does not have are skipped, fields that are
    missing have its defaults. For keys that are records, a named tuple does the same, since it can be a key.

    Writing: with `schema=`, else with the schema that follows from the type (in `namespace`), else with the latest one of the subject.
    It must stand under the subject, unless `register=True` puts it there. `subject` is `"topic"` (`orders-value`, `orders-key`),
    `"record"`, `"topic-record"`, or a function `(topic, part, record)`. `references`: what `schema=` refers to, name → subject.
    `schema_id` says where the schema is named: `"prefix"`, an id in front of the bytes; `"header"`, a GUID in the header
    `__value_schema_id` or `__key_schema_id`, for which the registry must have GUIDs.

    >>> app.input("orders", serde=hg.avro(Order)).to("paid", serde=hg.avro(Order, register=True))
    """
    library = library_of("fastavro", "avro")
    if isinstance(kind, str | Path | dict | list):
        raise DeclarationError(
            f"avro({kind!r:.60}) is no type", remedy="avro(schema=…) takes a schema, avro(Order) a class"
        )
    given = schema is not None
    text = _schema_text(schema) if schema is not None else None
    if text is None and kind is not None:
        text = json.dumps(schema_of_type(kind, namespace))
    own = None if text is None else SchemaText(AVRO, text)
    if own is not None and not references:
        try:
            library.parse_schema(_loaded(own.text), named_schemas={})
        except Exception as error:
            raise DeclarationError(
                f"avro(schema=…) is no Avro schema: {error}",
                remedy="correct it; references={name: subject} says where types stand that it does not define",
            ) from error
    format = AvroFormat(
        library, kind, own, {name: Referred(one) for name, one in (references or {}).items()}, resolves=given
    )
    strategy = checked_strategy(subject, "avro", format.record_name())
    return RegistrySerde(format, strategy, register=register, place=wire.checked_place(schema_id, "avro"))
