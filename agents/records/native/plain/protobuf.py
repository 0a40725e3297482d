"""Protobuf messages as columns: as `proto_read.c`. A program is a table for each message, by the numbers of its fields."""

from __future__ import annotations

import math
import struct
from base64 import b64encode
from enum import IntEnum, IntFlag
from typing import Any, NamedTuple

from ...layout import Buffer, kind_of, longs
from .decoded import CUT, MISSING, NO_SCHEMA, OUT_OF_RANGE, WRONG_TYPE, FoundFlaw, decoded

Action = IntEnum("Action", "SKIP FILL INTO KEEP PART LIST", start=0)
"""What is done with a field."""
Rest = IntEnum("Rest", "NOTHING FLAWED EMPTY TIME BRACKETS", start=0)
"""What a column has that has got no value."""


class Flag(IntFlag):
    """CHECKED: text must be UTF-8. CLOSED: a number that the enum does not have is as if it were not there."""

    REPEATED = 1
    CHECKED = 2
    CLOSED = 4


(DOUBLE, FLOAT, INT_64, UINT_64, INT_32, FIXED_64, FIXED_32, BOOLEAN, STRING, GROUP, MESSAGE, BLOB, UINT_32, ENUM, SFIXED_32, SFIXED_64,
 SINT_32, SINT_64) = range(1, 19)  # fmt: skip
"""Types of fields, as descriptors number them."""
VARINT, WIRE_64, BYTES, BEGIN, END, WIRE_32 = range(6)
DEEPEST_MESSAGE = 100
_WIRES = {DOUBLE: WIRE_64, FIXED_64: WIRE_64, SFIXED_64: WIRE_64, FLOAT: WIRE_32, FIXED_32: WIRE_32, SFIXED_32: WIRE_32}
_WIRES |= {STRING: BYTES, BLOB: BYTES, MESSAGE: BYTES, GROUP: BEGIN}
_FORMS = {DOUBLE: "<d", FLOAT: "<f", FIXED_64: "<Q", SFIXED_64: "<q", FIXED_32: "<I", SFIXED_32: "<i"}
_LEAST_SECOND, _MOST_SECOND = -62_135_596_800, 253_402_300_799


class ProtoField(NamedTuple):
    """A field of a message, as the compiled part has it."""

    number: int
    type: int
    flags: int
    action: int
    slot: int
    table: int
    object: int
    oneof: int
    member: int
    x: int
    y: int


class ProtoProgram(NamedTuple):
    """What reads the messages of one class."""

    tables: list[dict[int, ProtoField]]
    rules: list[tuple[int, int, int]]
    objects: list[tuple[int, int]]
    cleared: list[int]
    longs: list[int]
    kinds: bytes
    parts: int
    oneofs: int


def proto_program(
    fields: Buffer,
    tables: Buffer,
    rules: Buffer,
    objects: Buffer,
    cleared: Buffer,
    constants: Buffer,
    kinds: Buffer,
    parts: int,
    oneofs: int,
) -> ProtoProgram:
    """What `proto_decode` runs. It has been made by `registry.protobuf_program`, so it is believed."""
    rows = [ProtoField(*row) for row in _rows(fields, 11)]
    made = [{one.number: one for one in rows[first : first + count]} for first, count in _rows(tables, 2)]
    if not made:
        raise ValueError("no such program")
    return ProtoProgram(
        made,
        [(a, b, c) for a, b, c in _rows(rules, 3)],
        [(a, b) for a, b in _rows(objects, 2)],
        [one for (one,) in _rows(cleared, 1)],
        longs(constants).tolist(),
        bytes(kinds),
        parts,
        oneofs,
    )


def _rows(of: Buffer, width: int) -> list[tuple[int, ...]]:
    numbers = memoryview(of).cast("B").cast("i").tolist()
    return [tuple(numbers[at : at + width]) for at in range(0, len(numbers), width)]


def proto_decode(
    program: ProtoProgram, skipped: Buffer, which: Buffer, buffer: Buffer, offsets: Buffer, lengths: Buffer
) -> tuple[Any, ...]:
    """Protobuf messages as columns: see `decoded`. `skipped`: by the number of a prefix, how many bytes stand in front of a message, or -1
    if nothing reads it. `which`: by record, the number of its prefix."""
    sizes, numbers = longs(skipped), longs(which)
    if len(numbers) != len(longs(offsets)):
        raise ValueError("offsets, lengths and prefixes are not of one length")

    def read(index: int, data: bytes) -> list[Any]:
        if numbers[index] >= len(sizes):
            raise ValueError(f"record {index} has no such prefix")
        size = -1 if numbers[index] < 0 else sizes[numbers[index]]
        if size < 0:
            raise FoundFlaw(NO_SCHEMA, -1)
        if len(data) < size:
            raise FoundFlaw(CUT, -1)
        return _Message(program, data[size:]).read()

    return decoded(program.kinds, buffer, offsets, lengths, read)


class _Message:
    """Reads one record."""

    def __init__(self, program: ProtoProgram, data: bytes) -> None:
        self._program, self._data, self._at = program, data, 0
        self._values: dict[int, Any] = {}
        """By column: what it has got; a `FoundFlaw` if that does not fit."""
        self._there: set[int] = set()
        """The objects that are there."""
        self._parts: list[int] = [0] * program.parts
        self._chosen: list[int] = [0] * program.oneofs

    def read(self) -> list[Any]:
        self._fields(0, len(self._data), 0, 0)
        return [self._settled(slot) for slot in range(len(self._program.kinds))]

    def _settled(self, slot: int) -> Any:
        """The value of a column, or what it has without one."""
        if slot in self._values:
            found = self._values[slot]
            if isinstance(found, FoundFlaw):
                raise found
            import msgspec

            return msgspec.json.encode(found) if isinstance(found, list) else found
        at, rest, x = self._program.rules[slot]
        lacking = -1
        while at >= 0:
            lacking = lacking if at in self._there else at  # the outermost counts
            at = self._program.objects[at][0]
        if lacking >= 0:
            rest = Rest.NOTHING if self._program.objects[lacking][1] else Rest.FLAWED
        match rest:
            case Rest.NOTHING:
                return None
            case Rest.EMPTY:
                empty: dict[str, Any] = {"int64": 0, "float64": 0.0, "bool": False, "text": b""}
                return empty[kind_of(self._program.kinds[slot])]
            case Rest.BRACKETS:
                return b"[]"
            case Rest.TIME:
                seconds, nanos = self._parts[x : x + 2]
                if not (_LEAST_SECOND <= seconds <= _MOST_SECOND and 0 <= nanos <= 999_999_999):
                    raise FoundFlaw(OUT_OF_RANGE, slot)
                return seconds * 1_000_000 + nanos // 1000
            case _:
                raise FoundFlaw(MISSING, slot)

    def _fields(self, table: int, end: int, depth: int, group: int) -> None:
        """The fields of a message up to its end, or that of the group."""
        while self._at < end:
            begin = self._at
            number, wire = self._tag(end)
            if number == 0:  # only in an unknown group it is one
                raise FoundFlaw(CUT, -1)
            if wire == END:
                if number != group:
                    raise FoundFlaw(CUT, -1)
                return
            field = self._program.tables[table].get(number)
            own = -1 if field is None else _WIRES.get(field.type, VARINT)
            packed = field is not None and wire == BYTES and field.flags & Flag.REPEATED and own != BEGIN
            if field is None or (wire != own and not packed):
                self._skip(number, wire, end, depth)
            elif field.action in (Action.FILL, Action.PART):
                self._fill(field, end)
            elif field.action == Action.INTO:
                self._into(field, end, depth)
            elif field.action == Action.LIST:
                self._elements(field, wire, end)
            else:
                self._pass(field, wire, end, depth)
                if field.action == Action.KEEP:
                    self._values[field.slot] = self._values.get(field.slot, b"") + self._data[begin : self._at]
        if group:
            raise FoundFlaw(CUT, -1)

    def _into(self, field: ProtoField, end: int, depth: int) -> None:
        self._choose(field)
        if field.object >= 0:
            self._there.add(field.object)
        if field.slot >= 0:
            self._values[field.slot] = True
        self._inner(field, end, depth)

    def _inner(self, field: ProtoField, end: int, depth: int) -> None:
        if depth >= DEEPEST_MESSAGE:
            raise FoundFlaw(CUT, -1)
        if field.type == GROUP:
            self._fields(field.table, end, depth + 1, field.number)
        else:
            size = self._size(end)
            self._fields(field.table, self._at + size, depth + 1, 0)

    def _pass(self, field: ProtoField, wire: int, end: int, depth: int) -> None:
        """Read a field that no column wants, or as it is."""
        own = _WIRES.get(field.type, VARINT)
        if field.type in (MESSAGE, GROUP):
            self._inner(field, end, depth)
        elif wire != own:
            size = self._size(end)
            stop = self._at + size
            if own != VARINT and size % (8 if own == WIRE_64 else 4):
                raise FoundFlaw(CUT, -1)
            while self._at < stop:
                self._skip(field.number, own, stop, depth)
        elif wire == BYTES:
            data = self._bytes(end)
            if field.flags & Flag.CHECKED and not _is_text(data):
                raise FoundFlaw(CUT, -1)
        elif wire == VARINT:
            if not self._allowed(field, self._number(end)):
                return
        else:
            self._skip(field.number, wire, end, depth)
        self._choose(field)

    def _skip(self, number: int, wire: int, end: int, depth: int) -> None:
        """Read an unknown field."""
        if wire == VARINT:
            self._number(end)
        elif wire in (WIRE_64, WIRE_32):
            self._take(8 if wire == WIRE_64 else 4, end)
        elif wire == BYTES:
            self._bytes(end)
        elif wire == BEGIN and depth < DEEPEST_MESSAGE:
            while (inner := self._tag(end))[1] != END:
                self._skip(*inner, end, depth + 1)
            if inner[0] != number:
                raise FoundFlaw(CUT, -1)
        else:
            raise FoundFlaw(CUT, -1)

    def _fill(self, field: ProtoField, end: int) -> None:
        if (found := self._one(field, end)) is None:
            return
        self._choose(field)
        if field.action == Action.PART:
            self._parts[field.slot] = found - 2**64 if found >= 2**63 else found
        elif field.type == BLOB:
            self._values[field.slot] = b64encode(found)
        else:
            plain = isinstance(found, FoundFlaw | bytes)
            self._values[field.slot] = found if plain else self._column(field.slot, found)

    def _elements(self, field: ProtoField, wire: int, end: int) -> None:
        """Read a value of a list, or several in one."""
        if wire == _WIRES.get(field.type, VARINT):
            self._element(field, end)
            return
        size = self._size(end)
        stop = self._at + size
        while self._at < stop:
            self._element(field, stop)

    def _element(self, field: ProtoField, end: int) -> None:
        if (found := self._one(field, end)) is None:
            return
        if isinstance(found, int) and found >= 2**63:
            found = FoundFlaw(OUT_OF_RANGE, field.slot)
        made = self._values.setdefault(field.slot, [])
        if isinstance(found, FoundFlaw):
            self._values[field.slot] = found
        elif isinstance(made, list):  # else it is none already
            made.append(found.decode() if isinstance(found, bytes) else found)

    def _one(self, field: ProtoField, end: int) -> Any:
        """The value at hand; a `FoundFlaw` if no column holds it, None if it does not count."""
        if field.type in (STRING, BLOB):
            found = self._bytes(end)
            if field.type == BLOB or _is_text(found):
                return found
            if field.flags & Flag.CHECKED:
                raise FoundFlaw(CUT, -1)
            return FoundFlaw(WRONG_TYPE, field.slot)
        if (form := _FORMS.get(field.type)) is not None:
            return struct.unpack(form, self._take(struct.calcsize(form), end))[0]
        bits = self._number(end)
        return _typed(field.type, bits) if self._allowed(field, bits) else None

    def _column(self, slot: int, found: Any) -> Any:
        """A number as its column has it."""
        kind = kind_of(self._program.kinds[slot])
        if kind == "float64":
            return float(found) if math.isfinite(found) else FoundFlaw(OUT_OF_RANGE, slot)
        if kind == "int64" and found >= 2**63:
            return FoundFlaw(OUT_OF_RANGE, slot)
        return found

    def _allowed(self, field: ProtoField, bits: int) -> bool:
        return not field.flags & Flag.CLOSED or _typed(ENUM, bits) in self._program.longs[field.x : field.x + field.y]

    def _choose(self, field: ProtoField) -> None:
        """The field has a value now, so the others of its choice have none."""
        if field.oneof < 0 or (before := self._chosen[field.oneof]) == field.member:
            return
        self._chosen[field.oneof] = field.member
        columns, objects = len(self._program.kinds), len(self._program.objects)
        for at in self._program.cleared[before + 1 : before + 1 + self._program.cleared[before]]:
            if at < columns:
                self._values.pop(at, None)
            elif at < columns + objects:
                self._there.discard(at - columns)
            else:
                self._parts[at - columns - objects] = 0

    # ------------------------------------------------------------------------------------------------------------- bytes

    def _tag(self, end: int) -> tuple[int, int]:
        begin, found = self._at, self._number(end)
        if self._at - begin > 5 or found >= 2**32:
            raise FoundFlaw(CUT, -1)
        return found >> 3, found & 7

    def _number(self, end: int) -> int:
        value = 0
        for shift in range(0, 70, 7):
            if self._at >= end:
                break
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value % 2**64
        raise FoundFlaw(CUT, -1)

    def _size(self, end: int) -> int:
        size = self._number(end)
        if size > end - self._at:
            raise FoundFlaw(CUT, -1)
        return size

    def _bytes(self, end: int) -> bytes:
        return self._take(self._size(end), end)

    def _take(self, size: int, end: int) -> bytes:
        if size > end - self._at:
            raise FoundFlaw(CUT, -1)
        self._at += size
        return self._data[self._at - size : self._at]


def _typed(kind: int, bits: int) -> Any:
    """A number as its type has it."""
    match kind:
        case 5 | 14:  # int32, an enum
            return (bits + 2**31) % 2**32 - 2**31
        case 3:
            return bits - 2**64 if bits >= 2**63 else bits
        case 13:
            return bits % 2**32
        case 17 | 18:  # zigzag
            bits = bits % 2**32 if kind == SINT_32 else bits
            return bits >> 1 ^ -(bits & 1)
        case 8:
            return bits != 0
        case _:
            return bits


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
