"""Messages for tests of columns of Protobuf, as `protoc` would generate them; bytes that are, or could be, such; types of columns."""

from __future__ import annotations

import random
import struct
from datetime import datetime
from types import SimpleNamespace
from typing import Any, TypedDict

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)

SCALARS = (
    *(
        "double",
        "float",
        "int64",
        "uint64",
        "int32",
        "fixed64",
        "fixed32",
        "bool",
        "string",
        "group",
        "message",
        "bytes",
    ),
    *("uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)
"""The names of types, by their numbers less one."""
TYPES = {name: number for number, name in enumerate(SCALARS, 1)}


def _add(message: Any, number: int, name: str, kind: str, **more: Any) -> None:
    """A field; `kind`: a type, or a name for one that is not scalar, with `*` for a list, `?` for one that is optional, `!` if required."""
    label = {"*": 3, "!": 2}.get(kind[0], 1)
    if kind[0] == "?":
        message.oneof_decl.add(name=f"_{name}")
        more |= {"proto3_optional": True, "oneof_index": len(message.oneof_decl) - 1}
    kind = kind.lstrip("*?!")
    what, _, named = kind.partition(" ")
    if named:
        more["type_name"] = f".{named}"
    message.field.add(name=name, number=number, type=TYPES[what], label=label, **more)


def _map(message: Any, number: int, name: str, key: str, value: str) -> None:
    entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
    entry.options.map_entry = True
    _add(entry, 1, "key", key)
    _add(entry, 2, "value", value)
    _add(message, number, name, f"*message all.All.{entry.name}")


def _all() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="all.proto", package="all", syntax="proto3")
    file.dependency.extend((timestamp_pb2.DESCRIPTOR.name, wrappers_pb2.DESCRIPTOR.name))
    file.enum_type.add(name="Kind").value.add(name="NONE", number=0)
    file.enum_type[0].value.add(name="PAID", number=7)
    deep = file.message_type.add(name="Deep")
    _add(deep, 1, "d", "double")
    _add(deep, 2, "at", "message google.protobuf.Timestamp")
    deep.oneof_decl.add(name="one")
    _add(deep, 3, "a", "int32", oneof_index=0)
    _add(deep, 4, "b", "string", oneof_index=0)
    inner = file.message_type.add(name="Inner")
    _add(inner, 1, "n", "int32")
    _add(inner, 2, "t", "string")
    _add(inner, 3, "deep", "message all.Deep")
    _add(inner, 200, "list", "*sint64")
    tree = file.message_type.add(name="Tree")
    _add(tree, 1, "n", "int64")
    _add(tree, 2, "left", "message all.Tree")
    _add(tree, 3, "right", "*message all.Tree")
    whole = file.message_type.add(name="All")
    for number, name in enumerate(SCALARS, 1):
        if name not in ("group", "message", "enum"):
            _add(whole, number, f"f_{name}", name)
    _add(whole, 14, "kind", "enum all.Kind")
    whole.oneof_decl.add(name="pick")
    _add(whole, 20, "pa", "int32", oneof_index=0)
    _add(whole, 21, "pb", "string", oneof_index=0)
    _add(whole, 22, "pc", "message all.Inner", oneof_index=0)
    _add(whole, 23, "pd", "message google.protobuf.Timestamp", oneof_index=0)
    _add(whole, 24, "maybe", "?int32")
    _add(whole, 25, "words", "?string")
    _add(whole, 30, "inner", "message all.Inner")
    _add(whole, 31, "numbers", "*int32")
    _add(whole, 32, "texts", "*string")
    _add(whole, 33, "inners", "*message all.Inner")
    _map(whole, 34, "counts", "string", "int64")
    _map(whole, 35, "by", "int32", "message all.Inner")
    _add(whole, 36, "at", "message google.protobuf.Timestamp")
    _add(whole, 37, "boxed", "message google.protobuf.Int64Value")
    _add(whole, 38, "named", "message google.protobuf.StringValue")
    _add(whole, 39, "tree", "message all.Tree")
    _add(whole, 40, "kinds", "*enum all.Kind")
    _add(whole, 41, "prices", "*double")
    _add(whole, 42, "times", "*message google.protobuf.Timestamp")
    _add(whole, 1000, "far", "bool")
    return file


def _old() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="old.proto", package="old", syntax="proto2")
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="PAID", number=3)
    kind.value.add(name="OPEN", number=-2)
    old = file.message_type.add(name="Old")
    _add(old, 1, "r", "!int32")
    _add(old, 2, "s", "string")
    _add(old, 3, "kind", "enum old.Kind")
    _add(old, 4, "kinds", "*enum old.Kind")
    _add(old, 5, "u", "uint64", default_value="5")
    old.nested_type.add(name="G")
    _add(old.nested_type[0], 1, "n", "int32")
    _add(old.nested_type[0], 2, "next", "message old.Old")
    _add(old, 6, "g", "group old.Old.G")
    old.oneof_decl.add(name="pick")
    _add(old, 7, "ka", "enum old.Kind", oneof_index=0)
    _add(old, 8, "kb", "int32", oneof_index=0)
    _add(old, 9, "raw", "bytes")
    return file


def shop() -> Any:
    """The classes: `All`, `Inner` and others of proto3, `Old` of proto2."""
    pool = descriptor_pool.DescriptorPool()
    for file in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(file.DESCRIPTOR.serialized_pb)
    for file in (_all(), _old()):
        pool.Add(file)
    names = ("all.Deep", "all.Inner", "all.Tree", "all.All", "old.Old")
    return SimpleNamespace(
        **{one.rpartition(".")[2]: message_factory.GetMessageClass(pool.FindMessageTypeByName(one)) for one in names}
    )


# ----------------------------------------------------------------------------------------------------------------- bytes


def varint(number: int) -> bytes:
    """A number, seven bits a byte."""
    number %= 2**64
    made = bytearray()
    while number >= 0x80:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def sized(data: bytes) -> bytes:
    """Bytes with their length in front."""
    return varint(len(data)) + data


EDGES = (0, 1, 2, 3, 7, 63, 127, 128, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, -1, -2)
TEXTS = (b"", b"a", b"DE", "ö€".encode(), b'"\\\0\x1f\n\x0b\x7f/', b"\xff", b"\xed\xa0\x80", b"x" * 130)
TIMES = (0, 1, 1_700_000_000, -62_135_596_800, -62_135_596_801, 253_402_300_799, 253_402_300_800)


def _scalar(chance: random.Random, kind: str) -> tuple[int, bytes]:
    """How a value of a type stands there, and its bytes."""
    number = chance.choice(EDGES) if chance.random() < 0.4 else chance.randrange(200)
    if kind in ("double", "fixed64", "sfixed64"):
        return 1, struct.pack("<d", chance.uniform(-9, 9)) if chance.random() < 0.8 else chance.randbytes(8)
    if kind in ("float", "fixed32", "sfixed32"):
        return 5, struct.pack("<f", chance.uniform(-9, 9)) if chance.random() < 0.8 else chance.randbytes(4)
    if kind in ("string", "bytes"):
        return 2, sized(chance.choice(TEXTS[:5] if chance.random() < 0.97 else TEXTS))
    found = varint(number)
    if len(found) < 9 and chance.random() < 0.05:  # longer than it must be
        found = found[:-1] + bytes([found[-1] | 0x80]) + b"\x80" * chance.randrange(2) + b"\0"
    return 0, found


def message_bytes(chance: random.Random, message: Any, depth: int = 0) -> bytes:
    """Fields of a message, in any order, also more than once, some of them unknown or of another form."""
    out, fields = bytearray(), list(message.fields)
    for _ in range(chance.randrange(1 + 24 // (depth * 3 + 1))):
        one = chance.choice(fields)
        out += _field(chance, one, depth)
        if chance.random() < 0.03:
            out += unknown(chance, chance.choice((one.number, 99, 5000)), depth)
    return bytes(out)


def _field(chance: random.Random, one: Any, depth: int) -> bytes:
    kind = SCALARS[one.type - 1]
    if kind in ("message", "group"):
        inner = b"" if depth > 3 else message_bytes(chance, one.message_type, depth + 1)
        if one.message_type.full_name.endswith("Timestamp") and chance.random() < 0.8:
            inner = (
                b"\x08"
                + varint(chance.choice(TIMES))
                + b"\x10"
                + varint(chance.choice((0, 1999, 10**9 - 1, 10**9, -1)))
            )
        if kind == "group":
            return varint(one.number << 3 | 3) + inner + varint(one.number << 3 | 4)
        return varint(one.number << 3 | 2) + sized(inner)
    wire, data = _scalar(chance, kind)
    if wire != 2 and chance.random() < (0.5 if one.is_repeated else 0.02):
        return varint(one.number << 3 | 2) + sized(
            b"".join(_scalar(chance, kind)[1] for _ in range(chance.randrange(4)))
        )
    return varint(one.number << 3 | wire) + data


def unknown(chance: random.Random, number: int, depth: int = 0) -> bytes:
    """A field of any form."""
    wire = chance.choice((0, 1, 2, 3, 5) if chance.random() < 0.9 else range(8))
    data = {0: varint(5), 1: bytes(8), 2: sized(b"abc"), 5: bytes(4)}.get(wire, b"")
    if wire == 3 and depth < 6:
        inner = b"".join(unknown(chance, 2, depth + 1) for _ in range(chance.randrange(3)))
        data = inner + varint((number if chance.random() < 0.95 else 7) << 3 | 4)
    return varint(number << 3 | wire) + data


def mutated(chance: random.Random, data: bytes) -> bytes:
    """The same bytes, sometimes with one of them changed, or cut off."""
    made = bytearray(data)
    if made and chance.random() < 0.25:
        made[chance.randrange(len(made))] = chance.choice((0, 1, 2, 8, 0x7F, 0x80, 0xFF))
    if made and chance.random() < 0.1:
        del made[chance.randrange(len(made)) :]
    return bytes(made)


# --------------------------------------------------------------------------------------------------------------- columns

_PLAIN: dict[str, Any] = {"double": float, "float": float, "bool": bool, "string": str, "bytes": bytes}


def columns_type(chance: random.Random, message: Any, depth: int = 0) -> Any:
    """A type with some of the fields of a message, of types that columns have; None if there are none."""
    hints: dict[str, Any] = {}
    for one in message.fields:
        hint = _hint(chance, one, depth) if chance.random() < (0.6 if depth else 0.35) else None
        if hint is not None:
            hints[one.name] = hint
    if chance.random() < 0.2:
        hints["absent"] = int | None
    return TypedDict(f"C{depth}", hints) if hints else None  # type: ignore[operator]


def _hint(chance: random.Random, one: Any, depth: int) -> Any:
    kind = SCALARS[one.type - 1]
    if kind in ("message", "group"):
        message = one.message_type
        if message.GetOptions().map_entry:
            inner = _hint(chance, message.fields_by_name["value"], depth + 1)
            return None if inner is None else dict[str, inner]
        if message.full_name.endswith("Timestamp"):
            hint: Any = datetime
        elif message.full_name.endswith("Value"):
            hint = _PLAIN.get(SCALARS[message.fields_by_name["value"].type - 1], int)
        else:
            hint = None if depth > 2 else columns_type(chance, message, depth + 1)
    else:
        hint = _PLAIN.get(kind, int if chance.random() < 0.8 else float)
    if hint is None:
        return None
    return list[hint] if one.is_repeated else hint | None if chance.random() < 0.7 else hint
