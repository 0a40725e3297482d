"""What is asked of a schema registry, and what it answers.

What it decides: which failures are answers. That a schema does not exist is one (`NoSchema`). That the registry is away, or wants another
login, is none (`NotYet`): it is asked again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from ...core.errors import HeadgateError

AVRO, PROTOBUF, JSON_SCHEMA = "AVRO", "PROTOBUF", "JSON"


class NoSchema(HeadgateError):
    """The registry has answered that there is no such schema."""


class NoGuids(NoSchema):
    """The registry has answered that it names schemas by ids alone."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one names: under which name, and where it stands."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as a registry keeps it."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class Referred:
    """What an own schema refers to: under which subject it stands and, if it is known here, what it is."""

    subject: str
    schema: SchemaText | None = None
    refers: Mapping[str, Referred] = field(default_factory=dict[str, "Referred"])
    """What it refers to itself, by the names that it uses."""


@dataclass(frozen=True, slots=True)
class WholeSchema:
    """A schema with all that it refers to, by the names that it uses; each behind those that it refers to itself."""

    schema: SchemaText
    named: Mapping[str, SchemaText]

    def in_order(self) -> Iterator[SchemaText]:
        """What it refers to, then itself."""
        yield from self.named.values()
        yield self.schema


@dataclass(frozen=True, slots=True)
class Standing:
    """A schema under a subject."""

    number: int
    version: int
    schema: SchemaText
    guid: UUID | None = None
    """Its name in every registry; None if the registry has said none."""


class SchemaRegistry(Protocol):
    """A schema registry. Each question raises `NoSchema` or `NotYet`."""

    @property
    def said(self) -> str:
        """Its name in messages, without secrets."""
        ...

    async def by_id(self, schema: int | UUID) -> SchemaText:
        """The schema with this id or GUID."""
        ...

    async def has_guids(self) -> bool:
        """Whether it finds schemas by GUIDs."""
        ...

    async def version(self, subject: str, version: int | None) -> Standing:
        """A version of a subject; None: the latest."""
        ...

    async def find(self, subject: str, schema: SchemaText) -> Standing:
        """Where this schema stands under a subject."""
        ...

    async def register(self, subject: str, schema: SchemaText) -> Standing:
        """Put this schema under a subject, unless it stands there."""
        ...


async def whole(registry: SchemaRegistry, schema: SchemaText) -> WholeSchema:
    """A schema with all that it refers to."""
    named: dict[str, SchemaText] = {}
    await _gather(registry, schema, named)
    return WholeSchema(schema, named)


async def _gather(registry: SchemaRegistry, schema: SchemaText, named: dict[str, SchemaText]) -> None:
    for one in schema.references:
        if one.name not in named:
            found = await registry.version(one.subject, one.version)
            await _gather(registry, found.schema, named)
            named[one.name] = found.schema
