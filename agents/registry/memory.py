"""A schema registry in memory: what the test driver asks. Its schemas are those that a test gives, and those that serdes write.

Promise: no network. An id that the test has not given does not exist; a schema that a serde writes gets the next free id, and a GUID that
follows from the schema, unless the test has given it one.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from uuid import NAMESPACE_URL, UUID, uuid5

from ...core.errors import DeclarationError
from ..learning import MustLearn
from .asked import AVRO, JSON_SCHEMA, PROTOBUF, NoSchema, SchemaText, Standing

T = TypeVar("T")


class MemoryRegistry:
    """The schemas of one driver, by id, by GUID, and by subject."""

    said = "the test driver, in schemas="

    def __init__(self, given: Mapping[Any, Any] | None = None) -> None:
        """`given`: id, GUID (as `uuid.UUID`) or subject → the schema, as text or as what JSON has for it."""
        self._schemas: dict[int | UUID, SchemaText] = {}
        self._latest: dict[str, Standing] = {}
        for name, schema in (given or {}).items():
            if type(name) is str:
                self._put(name, _text_of(schema))
            elif isinstance(name, int | UUID) and type(name) is not bool:
                self._schemas[name] = _text_of(schema)
            else:
                raise DeclarationError(
                    f"schemas={{{name!r}: …}} is no name of a schema", remedy="an id, a uuid.UUID, or a subject"
                )

    def _put(self, subject: str, schema: SchemaText) -> Standing:
        number = next((one for one, text in self._schemas.items() if text == schema and isinstance(one, int)), None)
        if number is None:
            number = next(one for one in itertools.count(1) if one not in self._schemas)
            self._schemas[number] = schema
        guid = next((one for one, text in self._schemas.items() if text == schema and isinstance(one, UUID)), None)
        if guid is None:
            guid = uuid5(NAMESPACE_URL, repr(schema))
            self._schemas[guid] = schema
        before = self._latest.get(subject)
        if before is None or before.number != number:
            before = Standing(number, 1 if before is None else before.version + 1, schema, guid)
        self._latest[subject] = before
        return before

    async def by_id(self, schema: int | UUID) -> SchemaText:
        if schema not in self._schemas:
            raise NoSchema(f"{self.said}: no schema has the id {schema}")
        return self._schemas[schema]

    async def has_guids(self) -> bool:
        return True

    async def version(self, subject: str, version: int | None) -> Standing:
        if subject not in self._latest:  # it will not come
            raise DeclarationError(
                f"{self.said}: no subject '{subject}'", remedy=f"Driver(app, schemas={{'{subject}': …}})"
            )
        return self._latest[subject]

    async def find(self, subject: str, schema: SchemaText) -> Standing:
        return self._put(subject, schema)

    register = find


def _text_of(schema: Any) -> SchemaText:
    if isinstance(schema, SchemaText):
        return schema
    if (file := getattr(schema, "DESCRIPTOR", None)) is not None:
        from .protobuf import text_of_file

        return SchemaText(PROTOBUF, text_of_file(file.file))
    text = schema if isinstance(schema, str) else json.dumps(schema)
    try:
        found = json.loads(text)
    except ValueError:
        return SchemaText(AVRO, json.dumps(text))
    is_json_schema = isinstance(found, dict) and ("$schema" in found or "properties" in found or "$ref" in found)
    return SchemaText(JSON_SCHEMA if is_json_schema else AVRO, text)


def taught(call: Callable[..., T], *args: Any) -> T:
    """What a call gives when its serde has learned what it must, from a registry that answers at once."""
    while True:
        try:
            return call(*args)
        except MustLearn as unknown:
            learning = unknown.learn(None)  # type: ignore[arg-type]  # a registry in memory asks no topics
            try:
                learning.send(None)  # type: ignore[attr-defined]  # it is a coroutine
            except StopIteration:
                continue
            raise AssertionError("a registry in memory answers at once") from None
