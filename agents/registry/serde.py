"""A serde whose schemas stand in a registry. What it does not know yet, it learns before the letter runs (`learning`).

What it decides: which schema reads a record (the one that its prefix names, in its bytes or in a header) and which one writes it (its own;
without one, the latest of its subject). Promises:

- A schema is asked for once, off the main loop; all ids that a chunk lacks are asked for together.
- An id that does not exist, or whose schema is of another kind, makes the records that name it bad data, and no others. It is asked for
  again after `AGAIN_S`, in case someone has brought it.
- Nothing is registered unless `register=True` says so: what would be written waits until its schema stands under the subject, and says so.
  A registry that refuses a schema fails the task.
- A schema is named where the declaration says: by its id in front of the bytes, or by its GUID in a header. At a registry without GUIDs,
  the second fails the task before anything is written or registered.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from ...core.columns.schema import ColumnSchema
from ...core.errors import DataError, DeclarationError, EnvironmentFault, HeadgateError
from ..cancellation import passes
from ..learning import MustLearn, NotYet
from ..records.values.record import Headers
from ..records.values.serdes import Decoded, Encoded, Serde
from . import wire
from .asked import NoSchema, Reference, Referred, SchemaRegistry, SchemaText, WholeSchema, whole
from .subjects import SubjectName, named_subject

T = TypeVar("T")
AGAIN_S = 60.0
"""For so long an id is taken not to exist."""
MOST_MISSING = 1000
"""So many ids are asked for together; and so many are remembered that do not exist."""
ReadValue = Callable[[bytes, int], Any]
"""Reads the value that begins at this place of the bytes."""


class NeedsSchema(Exception):
    """The schema that wrote a value must be known before it can be read."""


class SchemaFormat(Protocol):
    """How values are written with a schema: Avro, Protobuf, JSON Schema."""

    kind: str
    name: str
    type: Any
    reads_alone: bool
    """Whether values are read without the schema that wrote them, unless one raises `NeedsSchema`."""
    own: SchemaText | None
    """The schema to write with; None: the latest of the subject."""
    refers: Mapping[str, Referred]
    """What the own schema refers to, by the names that it uses."""
    mark: bytes
    """What stands behind the name of the schema, wherever that stands: of Protobuf, the place of the message in its file."""
    reads_columns: bool
    """Whether there is a `column_reader`."""

    def reader(self, schema: WholeSchema | None, own: WholeSchema | None) -> ReadValue:
        """Reads values that were written with a schema. `own`: the own schema, which stands for what readers want."""
        ...

    def writer(self, schema: WholeSchema) -> Callable[[Any], bytes]:
        """Writes values with a schema; what names it is not part of them."""
        ...

    def column_reader(self, serde: RegistrySerde[Any], schema: ColumnSchema) -> Any:
        """See `Serde.column_reader`."""
        ...

    def record_name(self) -> str:
        """The full name of what the own schema describes; empty without one."""
        ...

    def within(self) -> Serde[Any]:
        """The serde with which its values go through the job's own streams and tables."""
        ...


@runtime_checkable
class WritesColumns(Protocol):
    """A format that writes columns without rows."""

    def column_writer(self, serde: RegistrySerde[Any]) -> Any:
        """See `Serde.column_writer`."""
        ...

    def lacking(self, schema: ColumnSchema) -> str | None:
        """See `Serde.lacking`."""
        ...


class RegistrySerde(Serde[T]):
    """A serde that asks a registry. `topic` and `part` are known where it writes."""

    __slots__ = (
        "_absent",
        "_format",
        "_header",
        "_learned",
        "_own",
        "_place",
        "_readers",
        "_register",
        "_registry",
        "_strategy",
        "_wholes",
        "_writer",
        "_writes",
        "part",
        "topic",
    )

    asks: ClassVar[bool] = True
    own_headers: ClassVar[frozenset[str]] = frozenset(wire.HEADERS.values())

    def __init__(
        self,
        format: SchemaFormat,
        strategy: SubjectName,
        *,
        register: bool,
        place: str,
        topic: str = "",
        part: str = "value",
    ) -> None:
        """`place`: where it names the schema that it writes with, `wire.PREFIX` or `wire.HEADER`."""
        by = ", their schema in a header" if place == wire.HEADER else ""
        super().__init__(
            f"{format.name} of {topic} {part}s{by}" if topic else format.name,
            self._encode_one,
            self._decode_one,
            format.type,
        )
        self._format = format
        self._strategy = strategy
        self._register = register
        self._place = place
        self.topic, self.part = topic, part
        self._registry: SchemaRegistry | None = None
        self.connect(None)

    def connect(self, registry: SchemaRegistry | None) -> None:
        """Ask this registry from now on. What others have said is forgotten."""
        self._registry = registry
        self._readers: dict[bytes, tuple[ReadValue, int]] = {}
        """By prefix: what reads the values behind it, and where they begin."""
        self._wholes: dict[bytes, WholeSchema] = {}
        """By prefix: the schema that wrote the values behind it."""
        self._learned: set[bytes] = set()
        """The prefixes whose schema is known; others are read without."""
        self._absent: dict[bytes, tuple[DataError, float]] = {}
        """By prefix: why no value behind it can be read, and until when that is believed."""
        self._own: WholeSchema | None = None
        self._writer: Callable[[Any], bytes] | None = None
        self._writes: tuple[bytes, WholeSchema] | None = None
        """What stands in front of what it writes, and the schema of that."""
        self._header: bytes | None = None

    def at(self, topic: str, part: str) -> RegistrySerde[T]:
        if (topic, part) == (self.topic, self.part):
            return self
        made: RegistrySerde[T] = RegistrySerde(
            self._format, self._strategy, register=self._register, place=self._place, topic=topic, part=part
        )
        made.connect(self._registry)
        return made

    @property
    def within(self) -> Serde[T]:
        return self._format.within()

    @property
    def subject(self) -> str:
        """The subject under which the schema stands that it writes with."""
        return named_subject(self._strategy, self.topic, self.part, self._format.record_name())

    # ------------------------------------------------------------------------------------------------------------ reading

    def with_headers(
        self, data: Sequence[bytes | None], headers: Sequence[Headers], part: str
    ) -> Sequence[bytes | None]:
        """Where a header names the schema, it stands in front of the bytes, as older serializers put it there."""
        name = wire.HEADERS[part]
        out: list[bytes | None] = []
        for one, of in zip(data, headers, strict=True):
            head = next((found for title, found in of if title == name and found), None) if of else None
            out.append(one if one is None or head is None else head + one)
        return out

    def loads_many(self, data: Sequence[bytes | None]) -> Decoded[T]:
        """Decode a column; see `Serde.loads_many`. Raises `MustLearn` if it names schemas that are not known."""
        out: Decoded[T] = Decoded([])
        values, lacking = out.values, dict[bytes, None]()
        head, read, at = b"", _nothing, 0
        for index, one in enumerate(data):
            value: Any = None
            if one is not None:
                try:
                    if not head or not one.startswith(head):
                        head, read, at = self._reader(one)
                    value = read(one, at)
                except NeedsSchema:
                    lacking[wire.head_of(one)] = None
                    head = b""
                except BaseException as error:  # whatever it is, only this record is bad
                    if passes(error):
                        raise
                    out.bad.append((index, self._unreadable(one, error)))
                    if read is _nothing:
                        head = b""
            values.append(value)
        if lacking:
            raise self._unknown(list(lacking)[:MOST_MISSING])
        return out

    @property
    def registers(self) -> bool:
        """Whether it puts its schema under the subject."""
        return self._register

    @property
    def reads_columns(self) -> bool:  # type: ignore[override]
        """Whether there is a `column_reader`."""
        return self._format.reads_columns

    def column_reader(self, schema: ColumnSchema) -> Any:
        """What decodes records into these columns; None if rows must be made of them."""
        return self._format.column_reader(self, schema)

    def schemas(self, heads: Sequence[bytes]) -> dict[bytes, tuple[WholeSchema, WholeSchema | None] | None]:
        """The schemas of the values behind these prefixes, each with the own one; None where no value can be read. Raises `MustLearn`."""
        found: dict[bytes, tuple[WholeSchema, WholeSchema | None] | None] = {}
        lacking: list[bytes] = []
        for head in heads:
            try:
                self._reader(head)
                found[head] = self._wholes[head], self._own
            except NeedsSchema:
                lacking.append(head)
            except DataError:
                found[head] = None
        if lacking:
            raise self._unknown(lacking[:MOST_MISSING])
        return found

    def loads(self, data: bytes) -> T:
        found = self.loads_many([data])
        if found.bad:
            raise found.bad[0][1]
        return found.values[0]  # pyright: ignore[reportReturnType] - it is not None, as the bytes are not

    def _decode_one(self, data: bytes) -> Any:
        return self.loads(data)

    def _reader(self, data: bytes) -> tuple[bytes, ReadValue, int]:
        """The prefix of these bytes, what reads the value behind it, and where that begins."""
        head = wire.head_of(data)
        if (found := self._readers.get(head)) is not None:
            return head, *found
        if (absent := self._absent.get(head)) is not None:
            if time.monotonic() < absent[1]:
                raise DataError(absent[0].what, remedy=absent[0].remedy)
            del self._absent[head]
        if self._format.reads_alone:
            read = self._format.reader(None, None)
            self._readers[head] = read, len(head)
            return head, read, len(head)
        raise NeedsSchema

    def _unknown(self, heads: list[bytes]) -> MustLearn:
        registry = self._connected()
        shown = ", ".join(str(wire.schema_of(one)) for one in heads[:3]) + (", …" if len(heads) > 3 else "")
        what = f"the schema{'s' * (len(heads) > 1)} {shown} of {registry.said}"
        return MustLearn(
            f"{what} {'are' if len(heads) > 1 else 'is'} not known yet",
            question=("schemas", id(self), tuple(sorted(heads)), time.monotonic() // AGAIN_S),
            lacks=f"{what} cannot be learned",
            learn=lambda _: self._learn(registry, heads),
            remedy="none needed: it is asked",
        )

    async def _learn(self, registry: SchemaRegistry, heads: list[bytes]) -> None:
        own = self._format.own
        if self._own is None and own is not None and not self._format.reads_alone:
            try:
                self._own = await whole(registry, await self._placed(registry, own, self._format.refers))
            except NoSchema as error:
                raise NotYet(error.what, remedy="bring what schema= refers to, or correct references=") from error
        for head in heads:
            if head in self._learned:
                continue
            try:
                schema = await whole(registry, await registry.by_id(wire.schema_of(head)))
                if schema.schema.kind != self._format.kind:
                    raise NoSchema(
                        f"the schema {wire.schema_of(head)} is {schema.schema.kind}, not {self._format.kind}"
                    )
                self._readers[head] = self._format.reader(schema, self._own), len(head)
                self._wholes[head] = schema
                self._learned.add(head)
            except NoSchema as error:
                self._miss(head, DataError(error.what, remedy="see on_bad_data=; or bring the schema to the registry"))
            except (DataError, ValueError, TypeError, KeyError, LookupError) as error:
                why = error.what if isinstance(error, HeadgateError) else f"{type(error).__name__}: {error}"
                text = f"the schema {wire.schema_of(head)} cannot be used: {why}"
                self._miss(head, DataError(text, remedy="see on_bad_data="))

    def _miss(self, head: bytes, error: DataError) -> None:
        if len(self._absent) >= 2 * MOST_MISSING:
            self._absent.clear()
        self._readers.pop(head, None)
        self._absent[head] = error, time.monotonic() + AGAIN_S

    # ------------------------------------------------------------------------------------------------------------ writing

    def dumps_many(self, values: Sequence[T | None]) -> Encoded:
        """Encode a column; see `Serde.dumps_many`. Raises `MustLearn` before the first one, if the schema's id is not known."""
        write = self._write()
        out = Encoded([])
        for index, one in enumerate(values):
            data: bytes | None = None
            if one is not None:
                try:
                    data = write(one)
                except BaseException as error:  # whatever it is, only this value is bad
                    if passes(error):
                        raise
                    out.bad.append((index, self._unwritable(one, error)))
            out.values.append(data)
        return out

    def dumps(self, value: T) -> bytes:
        found = self.dumps_many([value])
        if found.bad:
            raise found.bad[0][1]
        return found.values[0]  # pyright: ignore[reportReturnType] - it is not None, as the value is not

    def _encode_one(self, value: T) -> bytes:
        return self._write()(value)

    def column_writer(self) -> Any:
        """What encodes columns without rows; None if rows must be made of them."""
        return self._format.column_writer(self) if isinstance(self._format, WritesColumns) else None

    def lacking(self, schema: ColumnSchema) -> str | None:
        """A field that its records must have and that is none of these columns, if its own schema says so."""
        return self._format.lacking(schema) if isinstance(self._format, WritesColumns) else None

    def know(self) -> None:
        """Raise `MustLearn` as long as the schema to write with is not known."""
        self._write()

    @property
    def in_header(self) -> bool:
        """Whether it names the schema that it writes with in a header."""
        return self._place == wire.HEADER

    @property
    def header_name(self) -> str:
        return wire.HEADERS[self.part]

    def header(self) -> bytes | None:
        self._write()
        return self._header

    def writing(self) -> tuple[bytes, WholeSchema]:
        """What stands in front of each value that it writes, and the schema of these values. Raises `MustLearn`, if that is not known."""
        self._write()
        assert self._writes is not None, "what writes values is learned with it"
        return self._writes

    def _write(self) -> Callable[[Any], bytes]:
        if self._writer is None:
            registry = self._connected()
            raise MustLearn(
                f"the schema of {self.subject} is not known yet",
                question=("writer", id(self)),
                lacks=f"no schema to write with: the subject '{self.subject}' at {registry.said}",
                learn=lambda _: self._learn_writer(registry),
                remedy="none needed: it is asked",
            )
        return self._writer

    async def _learn_writer(self, registry: SchemaRegistry) -> None:
        own = self._format.own
        if self.in_header and not await registry.has_guids():
            raise no_guids(registry, self)
        try:
            if own is None:
                standing = await registry.version(self.subject, None)
            else:
                own = await self._placed(registry, own, self._format.refers)
                standing = await (registry.register if self._register else registry.find)(self.subject, own)
            if self.in_header and standing.guid is None:  # some say it only where they are asked for a schema
                standing = await registry.find(self.subject, standing.schema)
            schema = await whole(registry, standing.schema)
        except NoSchema as error:
            if self._register:  # it is there, and refuses
                raise EnvironmentFault(
                    error.what, remedy="correct the schema, or the subject's compatibility"
                ) from error
            raise NotYet(error.what, remedy="register it there, or let the job do it: register=True") from error
        if schema.schema.kind != self._format.kind:
            what = f"the latest schema of '{self.subject}' is {schema.schema.kind}, not {self._format.kind}"
            raise EnvironmentFault(what, remedy="give the step the serde of that kind")
        write = self._format.writer(schema)
        if self.in_header:
            if standing.guid is None:
                raise no_guids(registry, self)
            self._header = wire.prefix(standing.guid) + self._format.mark
            self._writer, self._writes = write, (b"", schema)
            return
        head = wire.prefix(standing.number) + self._format.mark
        self._writer, self._writes = (lambda value: head + write(value)), (head, schema)

    async def _placed(self, registry: SchemaRegistry, schema: SchemaText, refers: Mapping[str, Referred]) -> SchemaText:
        """A schema with the versions that it refers to."""
        found: list[Reference] = []
        for name, one in refers.items():
            if one.schema is None:
                standing = await registry.version(one.subject, None)
            else:
                part = await self._placed(registry, one.schema, one.refers)
                if self._register:
                    await registry.register(one.subject, part)
                standing = await registry.find(one.subject, part)
            found.append(Reference(name, one.subject, standing.version))
        return dataclasses.replace(schema, references=tuple(found))

    def _connected(self) -> SchemaRegistry:
        if self._registry is None:
            raise DeclarationError(
                f"{self.name} has no registry to ask: it reads and writes in a running job",
                remedy="in a test, hg.testing.Driver(app, schemas={…}) stands for one",
            )
        return self._registry


def _nothing(data: bytes, at: int) -> Any:
    """Reads nothing: no schema is known."""


def no_guids(registry: SchemaRegistry, serde: RegistrySerde[Any]) -> EnvironmentFault:
    """The error of a serde that names its schema in a header, at a registry that has no name for it that holds there."""
    return EnvironmentFault(
        f"{registry.said} has no GUIDs, so the schema of '{serde.subject}' cannot be named in a header",
        remedy=f"leave out schema_id='header' of the {serde.part}s of {serde.topic}: the id then stands in front of them; or "
        "give registry.url a registry with GUIDs, such as Confluent's from 8.0 or Redpanda's from 26.3 on",
    )


def serdes_of(steps: Iterable[Any]) -> Iterator[RegistrySerde[Any]]:
    """The serdes of these steps that ask a registry."""
    for step in steps:
        for field in dataclasses.fields(step):
            found = getattr(step, field.name)
            for one in found if isinstance(found, tuple) else (found,):
                if isinstance(one, RegistrySerde):
                    yield one


def connect(steps: Iterable[Any], registry: Callable[[], SchemaRegistry]) -> None:
    """Let the serdes of these steps ask a registry, which is made if there are any."""
    found = list(serdes_of(steps))
    if found:
        made = registry()
        for one in found:
            one.connect(made)
