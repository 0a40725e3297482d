"""Validates an Arrow IPC stream without copying anything of it: can every reader read it in the same way, and where do its columns lie?

An Arrow frame may hold far less than the Arrow format allows. This is checked here, before a library written in another language sees bytes
from the network. Promises:

- A stream that passes is complete: every length, offset and bitmap lies inside its message, texts are UTF-8, and no two buffers overlap. So
  a library that reads it does not read other memory, and does not need more memory than the size of the bytes justifies.
- It has no compression, no dictionary and no extension type, is little-endian, and has only the types in `_KNOWN`.
- The columns `__key`, `__timestamp` and `__headers` have the required types. Other names that begin with two underscores are refused.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from .flat import FlatTable, Flaw, root

KEY, TIMESTAMP, HEADERS = "__key", "__timestamp", "__headers"
"""The columns for a record's key, timestamp and headers."""
VERSION_OF, KIND_OF, SCHEMA_OF = "hg.v", "hg.kind", "hg.schema"
"""The keys of the frame's schema metadata: the format version, the kind of the rows, and the name of the values' schema."""
MAX_NESTING = 8

_CONTINUED = 0xFFFFFFFF
_V5 = 4
_SCHEMA, _DICTIONARY, _RECORD_BATCH = 1, 2, 3
_LITTLE = 0
_DAYS, _SECONDS, _MILLISECONDS = 0, 0, 1
_INT, _FLOAT, _BINARY, _UTF8, _BOOL, _DATE, _TIMESTAMP, _LIST, _STRUCT = 2, 3, 4, 5, 6, 8, 10, 12, 13
_DURATION, _LARGE_BINARY, _LARGE_UTF8, _LARGE_LIST = 18, 19, 20, 21
_FIXED = frozenset((_INT, _FLOAT, _BOOL, _DATE, _TIMESTAMP, _DURATION))
_TEXTS, _LISTS = frozenset((_UTF8, _LARGE_UTF8)), frozenset((_LIST, _LARGE_LIST))
_SIZED = _TEXTS | _LISTS | {_BINARY, _LARGE_BINARY}
"""Types of variable length: their buffers include offsets."""
_KNOWN = _FIXED | _SIZED | {_STRUCT}
_REFUSED = {
    1: "null",
    7: "decimal",
    9: "time",
    11: "interval",
    14: "union",
    15: "fixed-size binary",
    16: "fixed-size list",
    17: "map",
    22: "run-end encoded",
    23: "binary view",
    24: "text view",
    25: "list view",
    26: "large list view",
}


ArrowKind = Literal["int64", "float64", "bool", "utf8", "binary", "struct", "list", "other"]
"""The types that headgate itself writes; all others that a frame may hold are `other`."""
_KINDS: dict[tuple[int, int, bool], ArrowKind] = {
    (_INT, 64, True): "int64",
    (_FLOAT, 64, False): "float64",
    (_BOOL, 1, False): "bool",
    (_UTF8, 32, False): "utf8",
    (_BINARY, 32, False): "binary",
    (_STRUCT, 0, False): "struct",
    (_LIST, 32, False): "list",
}


@dataclass(frozen=True, slots=True)
class ArrowField:
    """One column, or a nested field of one: how its buffers are read."""

    name: str
    type: int
    bits: int
    """Bits per value, or per offset for types of variable length; 0 for a struct."""
    signed: bool
    required: bool
    """Whether nulls are forbidden."""
    children: tuple[ArrowField, ...]

    @property
    def kind(self) -> ArrowKind:
        """The type, if it is one that headgate writes."""
        return _KINDS.get((self.type, self.bits, self.signed), "other")


class ArrowPart(NamedTuple):
    """What a batch has of one field: its rows, its nulls, and where its buffers lie in the stream, as (first, behind the last). The first
    buffer is the validity; without nulls it says nothing."""

    length: int
    nulls: int
    buffers: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ArrowShape:
    """What is known of a valid stream: the metadata of its schema, its number of rows, its columns, and for each batch its parts: one for
    each field, children behind their parents."""

    metadata: dict[str, str]
    records: int
    fields: tuple[ArrowField, ...] = ()
    batches: tuple[tuple[ArrowPart, ...], ...] = ()


def arrow_shape(body: bytes, max_records: int, version: str) -> ArrowShape | str:
    """The shape of an Arrow IPC stream, or a text that says why the stream is not allowed in a frame.

    If its metadata has another version, only the metadata is read.

    >>> arrow_shape(b"", 10, "1")
    'is cut off'
    """
    try:
        return _stream(body, max_records, version)
    except Flaw as flaw:
        return str(flaw)


def _stream(body: bytes, max_records: int, version: str) -> ArrowShape:
    if not (size := _extent(body, 0)):
        raise Flaw("has trailing bytes" if len(body) > 8 else "has no schema")
    read = _read_schema if size > MOST_REMEMBERED else _known_schema
    metadata, fields = read(body[8 : 8 + size], version)
    if fields is None:
        return ArrowShape(metadata, 0)
    at, records = 8 + size, 0
    batches: list[tuple[ArrowPart, ...]] = []
    while size := _extent(body, at):
        kind, header, length = _message(body[at + 8 : at + 8 + size], len(body) - at - 8 - size)
        if kind == _SCHEMA:
            raise Flaw("does not begin with one schema")
        begin = at + 8 + size
        at = begin + length
        batch = _Batch(header, memoryview(body)[begin:at], begin, max_records - records)
        records += batch.length
        batches.append(batch.walk(fields))
    if at + 8 != len(body):
        raise Flaw("has trailing bytes")
    return ArrowShape(metadata, records, fields, tuple(batches))


MOST_REMEMBERED = 4096
"""Bytes of a schema that is read once for all frames that have it."""


def _read_schema(data: bytes, version: str) -> tuple[dict[str, str], tuple[ArrowField, ...] | None]:
    """The metadata and the fields in the first message of a stream. Without the fields if it has another version."""
    kind, header, _ = _message(data, 0)
    if kind != _SCHEMA:
        raise Flaw("does not begin with one schema")
    metadata = _metadata(header, 2)
    return metadata, _schema(header) if metadata.get(VERSION_OF) == version else None


_known_schema = lru_cache(maxsize=64)(_read_schema)
"""A stream between two stages repeats a handful of schemas, and walking one takes longer than reading a thousand rows."""


def _extent(body: bytes, at: int) -> int:
    """The size of the metadata of the message that begins at `at`; zero at the end of the stream."""
    if at + 8 > len(body):
        raise Flaw("is cut off")
    mark, size = struct.unpack_from("<Ii", body, at)
    if mark != _CONTINUED:
        raise Flaw("is no Arrow stream")
    if size < 0 or size % 8 or at + 8 + size > len(body):
        raise Flaw("is cut off")
    return size


def _message(data: bytes, most: int) -> tuple[int, FlatTable, int]:
    """The message with this metadata: its type, its header, and the length of its body, which is at most `most`."""
    message = root(data)
    kind, length = message.number(1, "<B"), message.number(3, "<q")
    if message.number(0, "<h") != _V5:
        raise Flaw("is not of metadata version 5")
    if kind not in (_SCHEMA, _RECORD_BATCH):
        raise Flaw("has a dictionary" if kind == _DICTIONARY else "has a message of an unknown type")
    if message.has(4):
        raise Flaw("has a message with metadata of its own")
    if length < 0 or length % 8 or (kind == _SCHEMA and length):
        raise Flaw("has a body of a wrong length")
    if length > most:
        raise Flaw("is cut off")
    return kind, message.table(2), length


# ---------------------------------------------------------------------------------------------------------------- schema


def _schema(schema: FlatTable) -> tuple[ArrowField, ...]:
    if schema.number(0, "<h") != _LITTLE:
        raise Flaw("is not little-endian")
    if schema.has(3):
        raise Flaw("asks for features")
    fields = _fields(schema, 1, ())
    _own_columns(fields)
    return fields


def _metadata(owner: FlatTable, field: int) -> dict[str, str]:
    pairs = [(one.text(0), one.text(1)) for one in owner.tables(field)] if owner.has(field) else []
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Flaw("has metadata twice")
    return found


def _fields(owner: FlatTable, field: int, path: tuple[str, ...]) -> tuple[ArrowField, ...]:
    """The fields of a schema, or the children of the field at `path`."""
    if len(path) > MAX_NESTING:
        raise Flaw(f"is nested deeper than {MAX_NESTING}")
    found = tuple(_field(one, path) for one in owner.tables(field))
    if len({one.name for one in found}) != len(found):
        raise Flaw("has two fields of one name")
    return found


def _field(field: FlatTable, above: tuple[str, ...]) -> ArrowField:
    name, type_ = field.text(0), field.number(2, "<B")
    path = (*above, name)
    field.number(1, "<B")
    if field.has(4):
        raise Flaw("has a dictionary")
    if any(key.startswith("ARROW:extension") for key in _metadata(field, 6)):
        raise Flaw("has an extension type")
    if type_ not in _KNOWN:
        raise Flaw(f"has a column of type {_REFUSED.get(type_, type_)}")
    own = field.table(3)
    children = _fields(field, 5, path)
    if len(children) != 1 if type_ in _LISTS else bool(children) != (type_ == _STRUCT):
        raise Flaw("has a field with a wrong number of children")
    signed = type_ == _INT and bool(own.number(1, "<B"))
    required = path == (TIMESTAMP,) or (path[0] == HEADERS and (len(path) == 2 or path[2:] == ("name",)))
    return ArrowField(name, type_, _bits(type_, own), signed, required, children)


def _bits(type_: int, own: FlatTable) -> int:
    if type_ == _INT:
        bits = own.number(0, "<i")
        if bits not in (8, 16, 32, 64):
            raise Flaw("has whole numbers of an unknown width")
        return bits
    if type_ == _FLOAT:
        precision = own.number(0, "<h")
        if precision not in (0, 1, 2):
            raise Flaw("has floats of an unknown width")
        return 16 << precision
    if type_ == _DATE:
        if own.number(0, "<h", _MILLISECONDS) != _DAYS:
            raise Flaw("has dates that are not days")
        return 32
    if type_ in (_TIMESTAMP, _DURATION):
        if own.number(0, "<h", _SECONDS if type_ == _TIMESTAMP else _MILLISECONDS) not in (0, 1, 2, 3):
            raise Flaw("has times of an unknown unit")
        if type_ == _TIMESTAMP and own.has(1):
            own.text(1)
        return 64
    return {_BOOL: 1, _STRUCT: 0, _BINARY: 32, _UTF8: 32, _LIST: 32}.get(type_, 64)


def _own_columns(fields: tuple[ArrowField, ...]) -> None:
    """Check the frame's own columns: keys and timestamps are required."""
    by_name = {one.name: one for one in fields}
    key, timestamp, headers = by_name.get(KEY), by_name.get(TIMESTAMP), by_name.get(HEADERS)
    if key is None or key.type != _BINARY:
        raise Flaw(f"has no column {KEY} of type binary")
    if timestamp is None or (timestamp.type, timestamp.bits, timestamp.signed) != (_INT, 64, True):
        raise Flaw(f"has no column {TIMESTAMP} of type int64")
    if headers is not None:
        parts = headers.children[0].children if headers.type == _LIST else ()
        if [(one.name, one.type) for one in parts] != [("name", _UTF8), ("value", _BINARY)]:
            raise Flaw(f"has a column {HEADERS} that is not a list of structs of name (utf8) and value (binary)")
    if len(by_name) == (2 if headers is None else 3):
        raise Flaw("has no column of values")
    if any(name.startswith("__") and name not in (KEY, TIMESTAMP, HEADERS) for name in by_name):
        raise Flaw("has an unknown column whose name begins with __")


# --------------------------------------------------------------------------------------------------------------- batches


class _Batch:
    """One record batch: its nodes and buffers, consumed in order as its fields need them."""

    def __init__(self, header: FlatTable, body: memoryview, begin: int, max_records: int) -> None:
        """`begin`: where the body begins in the stream."""
        if header.has(3):
            raise Flaw("is compressed")
        if header.has(4):
            raise Flaw("has views")
        self.length = header.number(0, "<q")
        if not 0 <= self.length <= max_records:
            raise Flaw("has too many records")
        self._body = body
        self._begin = begin
        self._parts: list[ArrowPart] = []
        self._nodes = header.pairs(1)
        self._buffers = header.pairs(2)
        self._free = 0
        """The lowest offset at which the next buffer may begin."""

    def walk(self, fields: tuple[ArrowField, ...]) -> tuple[ArrowPart, ...]:
        """Check all columns. Returns where they lie."""
        for field in fields:
            self._column(field, self.length, self.length)
        if next(self._nodes, None) is not None or next(self._buffers, None) is not None:
            raise Flaw("has more buffers than its columns")
        return tuple(self._parts)

    def _column(self, field: ArrowField, least: int, most: int | None) -> None:
        count, nulls = next(self._nodes, (-1, 0))
        if count < least or (most is not None and count > most):
            raise Flaw("has a column of a wrong length")
        if not 0 <= nulls <= (0 if field.required else count):
            raise Flaw("has nulls where none may be" if field.required else "has a wrong number of nulls")
        self._parts.append(ArrowPart(count, nulls, []))
        self._validity(count, nulls)
        if field.type in _FIXED:
            if 8 * len(self._buffer()) < count * field.bits:
                raise Flaw("has a buffer that is too short")
        elif field.type in _SIZED:
            self._sized(field, count)
        for child in field.children if field.type == _STRUCT else ():
            self._column(child, count, count)

    def _sized(self, field: ArrowField, count: int) -> None:
        offsets = self._offsets(count, field.bits // 8)
        if field.type in _LISTS:
            self._column(field.children[0], offsets.last, None)
            return
        data = self._buffer()
        if offsets.last > len(data):
            raise Flaw("has an offset behind its data")
        if field.type in _TEXTS:
            _check_texts(data, offsets)

    def _buffer(self) -> memoryview:
        offset, length = next(self._buffers, (-1, 0))
        if offset < 0 or length < 0 or offset % 8 or offset + length > len(self._body):
            raise Flaw("has a buffer outside of its body")
        if length:
            if offset < self._free:
                raise Flaw("has buffers that overlap")
            self._free = offset + length
        self._parts[-1].buffers.append((self._begin + offset, self._begin + offset + length))
        return self._body[offset : offset + length]

    def _validity(self, count: int, nulls: int) -> None:
        """Check the validity bitmap; without nulls, readers ignore it."""
        bitmap = self._buffer()
        if not nulls:
            return
        if 8 * len(bitmap) < count:
            raise Flaw("has a buffer that is too short")
        there = int.from_bytes(bitmap[: (count + 7) // 8], "little") & ((1 << count) - 1)
        if count - there.bit_count() != nulls:
            raise Flaw("has a wrong number of nulls")

    def _offsets(self, count: int, width: int) -> _Offsets:
        """The offsets: one more than there are values, never decreasing; without values the buffer may be empty."""
        buffer = self._buffer()
        if not count and not buffer:
            return _Offsets(0, 0, buffer, "")
        if len(buffer) < (count + 1) * width:
            raise Flaw("has a buffer that is too short")
        buffer = buffer[: (count + 1) * width]
        # compared as one large number: a difference that is negative sets the sign of its place
        signs = int.from_bytes((bytes(width - 1) + b"\x80") * count, "little")
        before, behind = int.from_bytes(buffer[:-width], "little"), int.from_bytes(buffer[width:], "little")
        if (before | behind) & signs or ((behind | signs) - before) & signs != signs or buffer[width - 1] & 0x80:
            raise Flaw("has offsets that do not rise")
        form = "i" if width == 4 else "q"
        first, last = (struct.unpack_from(f"<{form}", buffer, at)[0] for at in (0, count * width))
        return _Offsets(first, last, buffer, f"<{count + 1}{form}")


class _Offsets(NamedTuple):
    """Offsets that rise: the first, the last, and all of them in this form."""

    first: int
    last: int
    buffer: memoryview
    form: str


def _check_texts(data: memoryview, offsets: _Offsets) -> None:
    """Check that all texts are UTF-8, and that no text begins inside a character."""
    size = offsets.last - offsets.first
    try:
        text = str(data[offsets.first : offsets.last], "utf-8")
    except UnicodeDecodeError:
        raise Flaw("has text that is not UTF-8") from None
    ends: tuple[int, ...] = struct.unpack(offsets.form, offsets.buffer) if len(text) < size else ()
    if any(data[at] & 0xC0 == 0x80 for at in ends if at < offsets.last):
        raise Flaw("has text that is not UTF-8")
