"""`hg.json_schema(…)`: JSON with a schema registry, in Confluent's format: a schema's id in front of plain JSON.

What it decides: what is read is checked by the type, if there is one, else by `schema=`, else by the schema that wrote it; what is written
is checked by the schema that it is written with. Promises: a schema is never a way out: what it refers to comes from the registry, or it
cannot be used.

The library is jsonschema-rs: it knows the drafts up to 2020-12, and checks a small record in 0.2 µs (fastjsonschema: 0.9, drafts up to 7,
and it runs code that it makes of the schema; jsonschema: 26).
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, overload

import orjson

from ...core.columns.schema import ColumnSchema
from ...core.errors import DataError, DeclarationError
from ..records.values import serdes
from ..records.values.serdes import Serde
from . import wire
from .asked import JSON_SCHEMA, Referred, SchemaText, WholeSchema
from .avro import library_of
from .serde import ReadValue, RegistrySerde
from .subjects import SubjectName, checked_strategy

T = TypeVar("T")
JsonSchema = str | Path | Mapping[str, Any]
"""A schema as text, as a file, or as what JSON has for it."""
DIALECT = "https://json-schema.org/draft/2020-12/schema"
"""The JSON Schema that a type's is written in."""


class JsonFormat:
    """JSON, for one schema and one type."""

    kind = JSON_SCHEMA
    reads_columns = False
    mark = b""

    def __init__(
        self, library: Any, kind: Any, own: SchemaText | None, refers: Mapping[str, Referred], *, checks: bool
    ) -> None:
        """`checks`: the own schema is what readers want."""
        self._library = library
        self.type = kind
        self.name = f"json_schema({getattr(kind, '__qualname__', kind)})" if kind is not None else "json_schema"
        self.own = own
        self.refers = refers
        self._checks = checks
        self._plain: Serde[Any] = serdes.json() if kind is None else serdes.json(kind)
        self.reads_alone = kind is not None and not checks

    def reader(self, schema: WholeSchema | None, own: WholeSchema | None) -> ReadValue:
        wanted = own if self._checks else None if self.type is not None else schema
        check = None if wanted is None else self._check(wanted)
        typed = None if self.type is None else self._plain.loads

        def value(data: bytes, at: int) -> Any:
            body = data[at:]
            if check is None:
                return orjson.loads(body) if typed is None else typed(body)
            found = orjson.loads(body)
            check(found)
            return found if typed is None else typed(body)

        return value

    def writer(self, schema: WholeSchema) -> Callable[[Any], bytes]:
        check, dumps = self._check(schema), self._plain.dumps

        def encode(value: Any) -> bytes:
            body = dumps(value)
            check(value if type(value) is dict else orjson.loads(body))
            return body

        return encode

    def _check(self, whole: WholeSchema) -> Callable[[Any], None]:
        """Raises `DataError` for a value that the schema does not allow."""
        named = {name: json.loads(one.text) for name, one in whole.named.items()}

        def retrieve(uri: str) -> Any:
            found = named.get(uri) or named.get(uri.removeprefix("json-schema:///"))
            if found is None:
                raise ValueError(f"the schema refers to {uri}, of which the registry says nothing")
            return found

        try:
            made = self._library.validator_for(json.loads(whole.schema.text), retriever=retrieve)
        except Exception as error:  # the library has errors of its own, all of which say the same
            raise DataError(f"no JSON Schema that can be used: {error}", remedy="correct it in the registry") from error
        wrong = self._library.ValidationError

        def check(value: Any) -> None:
            try:
                made.validate(value)
            except wrong as error:
                at = "".join(f"[{one!r}]" for one in error.instance_path)
                raise DataError(
                    f"the schema does not allow it: {error.message}{f' at {at}' if at else ''}",
                    remedy="see on_bad_data= where it is read, on_error= where it is written",
                ) from None

        return check

    def column_reader(self, serde: RegistrySerde[Any], schema: ColumnSchema) -> None:
        return None

    def record_name(self) -> str:
        found = None if self.own is None else json.loads(self.own.text)
        return str(found.get("title", "")) if isinstance(found, dict) else ""

    def within(self) -> Serde[Any]:
        return self._plain


def schema_of_class(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a dataclass, Struct or TypedDict: what msgspec says, without the indirection at its top.

    >>> schema_of_class(dict[str, int])
    {'$schema': 'https://json-schema.org/draft/2020-12/schema', 'type': 'object', 'additionalProperties': {'type': 'integer'}}
    """
    library: Any = importlib.import_module("msgspec")
    found = dict(library.json.schema(kind))
    name = str(found.get("$ref", "")).removeprefix("#/$defs/")
    if name in found.get("$defs", {}) and len(found) == 2:
        rest = {one: part for one, part in found["$defs"].items() if one != name}
        top = found["$defs"][name]
        if f"#/$defs/{name}" in json.dumps(found["$defs"]):  # it refers to itself
            return {"title": top.get("title", name), **found}
        return {**top, **({"$defs": rest} if rest else {})}
    if {"properties", "$ref"} & found.keys():
        return found
    return {"$schema": DIALECT, **found}  # by nothing else does Apicurio see that it is a schema


@overload
def json_schema(
    kind: None = None,
    *,
    schema: JsonSchema | None = None,
    subject: SubjectName = ...,
    register: bool = ...,
    references: Mapping[str, str] | None = ...,
    schema_id: str = ...,
) -> Serde[Any]: ...
@overload
def json_schema(
    kind: type[T],
    *,
    schema: JsonSchema | None = None,
    subject: SubjectName = ...,
    register: bool = ...,
    references: Mapping[str, str] | None = ...,
    schema_id: str = ...,
) -> Serde[T]: ...
def json_schema(
    kind: Any = None,
    *,
    schema: JsonSchema | None = None,
    subject: SubjectName = "topic",
    register: bool = False,
    references: Mapping[str, str] | None = None,
    schema_id: str = wire.PREFIX,
) -> Serde[Any]:
    """JSON with a schema registry, as Confluent's serializers write it. `registry.url` says where the registry is.

    Reading: with a dataclass, TypedDict or msgspec Struct, values are decoded into that type and checked as by `hg.json`; with `schema=`,
    checked by that schema; without either, by the schema that wrote them. Writing: with `schema=`, else with the schema that follows from
    the type, else with the latest one of the subject, which checks each value. It must stand under the subject, unless `register=True`
    puts it there. `subject` and `schema_id`: see `hg.avro`; the name of a record is its schema's title.

    >>> app.input("orders", serde=hg.json_schema(Order))
    """
    library = library_of("jsonschema_rs", "json_schema")
    if isinstance(kind, str | Path | dict):
        raise DeclarationError(
            f"json_schema({kind!r:.60}) is no type",
            remedy="json_schema(schema=…) takes a schema, json_schema(Order) a class",
        )
    text: str | None = None
    if isinstance(schema, Path):
        text = schema.read_text(encoding="utf-8")
    elif schema is not None:
        text = schema if isinstance(schema, str) else json.dumps(schema)
    elif kind is not None:
        text = json.dumps(schema_of_class(kind))
    own = None if text is None else SchemaText(JSON_SCHEMA, text)
    format = JsonFormat(
        library, kind, own, {name: Referred(one) for name, one in (references or {}).items()}, checks=schema is not None
    )
    if own is not None and not references:
        try:
            format._check(WholeSchema(own, {}))
        except (DataError, ValueError) as error:
            what = error.what if isinstance(error, DataError) else str(error)
            raise DeclarationError(
                f"json_schema(schema=…): {what}", remedy="correct it; references={name: subject} says what it refers to"
            ) from error
    strategy = checked_strategy(subject, "json_schema", format.record_name())
    return RegistrySerde(format, strategy, register=register, place=wire.checked_place(schema_id, "json_schema"))
