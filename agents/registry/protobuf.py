"""`hg.protobuf(Order)`: Protobuf with a schema registry, in Confluent's format.

What it decides: a message is read by its own class, whatever fields its writer knew: that is Protobuf's evolution. So reading asks the
registry nothing, unless the record says that it is another message of its file than the class is; then the writer's file tells whether
messages were only put in front of it, or whether it is bad data. Promise: another message is never read as this one.

The library is Protobuf's own runtime (upb, in C), of which the users' generated classes are made anyway.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ...core.columns.schema import ColumnSchema
from ...core.errors import DataError, DeclarationError
from ..records.values import serdes
from ..records.values.serdes import Serde
from . import wire
from .asked import PROTOBUF, Referred, SchemaText, WholeSchema
from .avro import library_of
from .program_columns import ProgramColumns
from .protobuf_columns import ProtobufPrograms
from .serde import NeedsSchema, ReadValue, RegistrySerde
from .subjects import SubjectName, checked_strategy

T = TypeVar("T")
BUILT_IN = "google/protobuf/"
"""Files that every registry and every class knows."""


def text_of_file(file: Any) -> str:
    """A file as a registry gets it: its descriptor in base64."""
    return base64.standard_b64encode(file.serialized_pb).decode()


def place_of(message: Any) -> tuple[int, ...]:
    """The place of a message in its file: the number of the outermost, then of each one inside of it."""
    around = message.containing_type
    if around is None:
        return (list(message.file.message_types_by_name.values()).index(message),)
    return (*place_of(around), list(around.nested_types).index(message))


def name_at(text: str, place: tuple[int, ...]) -> str:
    """The full name of the message at a place of a file; empty if the text is no descriptor. Raises `DataError` if there is none."""
    library = library_of("google.protobuf.descriptor_pb2", "protobuf")
    try:
        file = library.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, library_of("google.protobuf.message", "protobuf").DecodeError):
        return ""
    names, inside = [file.package] if file.package else [], file.message_type
    for number in place:
        if number >= len(inside):
            raise DataError(f"the file {file.name} has no message at {place}", remedy="see on_bad_data=")
        names.append(inside[number].name)
        inside = inside[number].nested_type
    return ".".join(names)


def _imported(file: Any, subjects: Mapping[str, str]) -> dict[str, Referred]:
    """The files that a file imports, with those that they import."""
    return {
        one.name: Referred(
            subjects.get(one.name, one.name), SchemaText(PROTOBUF, text_of_file(one)), _imported(one, subjects)
        )
        for one in file.dependencies
        if not one.name.startswith(BUILT_IN)
    }


class ProtobufFormat:
    """Protobuf, for one message."""

    kind = PROTOBUF
    reads_alone = True
    reads_columns = True

    def __init__(self, message: Any, subjects: Mapping[str, str]) -> None:
        """`subjects`: of imported files, where that is not the name of the file."""
        self.type = message
        self.descriptor = message.DESCRIPTOR
        self.name = f"protobuf({self.descriptor.full_name})"
        self.place = place_of(self.descriptor)
        self.own: SchemaText | None = SchemaText(PROTOBUF, text_of_file(self.descriptor.file))
        self.refers: Mapping[str, Referred] = _imported(self.descriptor.file, subjects)
        self.mark = wire.path(self.place)
        self._errors = library_of("google.protobuf.message", "protobuf")

    def reader(self, schema: WholeSchema | None, own: WholeSchema | None) -> ReadValue:
        parse, mark, size, same = self.type.FromString, self.mark, len(self.mark), self._is_own(schema)

        def value(data: bytes, at: int) -> Any:
            if data[at : at + size] == mark:
                return parse(data[at + size :])
            place, at = wire.read_path(data, at)
            same(place)
            return parse(data[at:])

        return value

    def _is_own(self, schema: WholeSchema | None) -> Callable[[tuple[int, ...]], None]:
        """Raises `NeedsSchema` if only the writer's file tells which message stands at a place, `DataError` if it is another one."""
        known: dict[tuple[int, ...], str] = {}

        def same(place: tuple[int, ...]) -> None:
            if schema is None:
                raise NeedsSchema
            if place not in known:
                known[place] = name_at(schema.schema.text, place)
            if known[place] not in ("", self.descriptor.full_name):
                raise DataError(
                    f"the record is the message {known[place]}, not {self.descriptor.full_name}",
                    remedy="see on_bad_data=, or give the input the class of that message",
                )

        return same

    def writer(self, schema: WholeSchema) -> Callable[[Any], bytes]:
        kind = self.type

        def encode(value: Any) -> bytes:
            if type(value) is not kind:
                raise TypeError(f"{type(value).__name__} is not {kind.__name__}")
            return value.SerializeToString()

        return encode

    def column_reader(self, serde: RegistrySerde[Any], schema: ColumnSchema) -> ProgramColumns:
        return ProgramColumns(ProtobufPrograms(serde, self.type, self.place, schema), schema)

    def record_name(self) -> str:
        return self.descriptor.full_name

    def within(self) -> Serde[Any]:
        kind = self.type
        return serdes.custom(kind.FromString, kind.SerializeToString, name=f"message {self.descriptor.full_name}")


def protobuf(
    message: type[T],
    *,
    subject: SubjectName = "topic",
    register: bool = False,
    references: Mapping[str, str] | None = None,
    schema_id: str = wire.PREFIX,
) -> Serde[T]:
    """Protobuf with a schema registry, as Confluent's serializers write it. `message` is a class that `protoc` has generated.
    `registry.url` says where the registry is.

    Reading: into that class; fields that it does not know are kept, missing ones have their defaults. A record of another message is bad
    data. `.columns(Order)` behind it decodes the bytes into the fields of a type. Writing: the file of the message must stand under the
    subject, unless `register=True` puts it there. `subject` and `schema_id`: see `hg.avro`. `references`: files that it imports, name →
    subject, where that is not the name of the file.

    >>> app.input("orders", serde=hg.protobuf(shop_pb2.Order))
    """
    library_of("google.protobuf", "protobuf")
    descriptor = getattr(message, "DESCRIPTOR", None)
    if not isinstance(message, type) or descriptor is None or not hasattr(message, "FromString"):
        raise DeclarationError(
            f"protobuf({message!r:.60}) is no class of a message",
            remedy="a class that protoc has generated: shop_pb2.Order",
        )
    format = ProtobufFormat(message, references or {})
    strategy = checked_strategy(subject, "protobuf", format.record_name())
    return RegistrySerde(format, strategy, register=register, place=wire.checked_place(schema_id, "protobuf"))
