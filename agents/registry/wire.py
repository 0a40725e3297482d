"""The bytes in front of a value that say with which schema it was written, as Confluent's serializers write them.

    00  id (4 bytes, big-endian)          the schema's id in its registry
    01  GUID (16 bytes)                   its name in every registry; newer serializers put these bytes into a header instead
    … then, for Protobuf, the place of the message in its file: how many numbers, then each, as zigzag varints; `00` is the first message

All of it stands in front of the value (by the id), or is a header of the record (by the GUID) whose value has nothing in front.

What it decides: which bytes are such a prefix. Promises: `parse` never reads beyond the bytes, and raises `DataError` for all that is no
prefix; what `prefix` and `path` write is read back as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ...core.errors import DataError, DeclarationError
from ...core.settings import offer

BY_ID, BY_GUID = 0, 1
SIZES = {BY_ID: 5, BY_GUID: 17}
"""By the first byte: how long a prefix is."""
HEADERS = {"value": "__value_schema_id", "key": "__key_schema_id"}
"""The headers in which newer serializers put the prefix of a value or of a key."""
DEEPEST = 64
"""How deeply messages may be nested in each other."""
FIRST = (0,)
PREFIX, HEADER = "prefix", "header"
"""Where the schema is named: in front of the bytes, or in a header."""


def prefix(schema: int | UUID) -> bytes:
    """The bytes that name a schema.

    >>> prefix(258).hex(" ")
    '00 00 00 01 02'
    """
    if isinstance(schema, UUID):
        return b"\x01" + schema.bytes
    return b"\x00" + schema.to_bytes(4, "big")


def head_of(data: bytes) -> bytes:
    """The prefix with which bytes begin; raises `DataError` if they begin with none.

    >>> head_of(b"\\0\\0\\0\\0\\7abc")
    b'\\x00\\x00\\x00\\x00\\x07'
    """
    size = SIZES.get(data[0], 0) if data else 0
    if not size or len(data) < size:
        what = f"they begin with {data[:5].hex(' ')}" if data else "there are none"
        raise DataError(
            f"the bytes name no schema of a registry: {what}",
            remedy="a serializer of a registry writes 00 and four bytes in front; plain JSON is read by hg.json()",
        )
    return data[:size]


def schema_of(head: bytes) -> int | UUID:
    """The schema that a prefix names.

    >>> schema_of(prefix(7))
    7
    """
    return UUID(bytes=head[1:17]) if head[0] == BY_GUID else int.from_bytes(head[1:5], "big")


def path(indexes: Sequence[int]) -> bytes:
    """The place of a message in its file.

    >>> path((0,)), path((1, 0))
    (b'\\x00', b'\\x04\\x02\\x00')
    """
    if tuple(indexes) == FIRST:
        return b"\x00"
    return b"".join(_varint(number << 1) for number in (len(indexes), *indexes))


def read_path(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """The place of a message that stands at `at`, and where it ends; raises `DataError`.

    >>> read_path(b"\\x04\\x02\\x00rest", 0)
    ((1, 0), 3)
    """
    count, at = _read_varint(data, at)
    if count == 0:
        return FIRST, at
    if not 0 < count <= DEEPEST:
        raise _no_path(f"{count} numbers")
    found: list[int] = []
    for _ in range(count):
        number, at = _read_varint(data, at)
        if number < 0:
            raise _no_path(f"the number {number}")
        found.append(number)
    return tuple(found), at


def checked_place(place: str, verb: str) -> str:
    """Refuse a place that schemas are not named in."""
    if place not in (PREFIX, HEADER):
        raise DeclarationError(
            f"{verb}(schema_id={place!r}): {offer(str(place), (PREFIX, HEADER))}",
            remedy=f"{PREFIX!r}: an id in front of the bytes; {HEADER!r}: a GUID in a header",
        )
    return place


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            raise _no_path("too few bytes")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at
    raise _no_path("a number of more than 32 bits")


def _no_path(what: str) -> DataError:
    return DataError(
        f"the bytes behind the schema's id do not say which message they are: {what}",
        remedy="a Protobuf serializer of a registry writes the message's place in its file there",
    )
