"""How columns lie in memory, as Apache Arrow has it: what vectors, the compiled part and its plain twin agree on.

`int64` and `float64` take eight bytes a row, `bool` one bit, `text` its UTF-8 with `offsets` of 32 bits. `validity` has one bit a row, and
is None if no row is null. `number` is no type of a declared column: it takes an int64 or a float64 a row, as states of rows do, and
`offsets` has one tag a row that says which, or that the row is null. Nor is `json`: when it is written, `offsets` says where the JSON of
each row begins in `data`, and `validity` how long it is, as 64-bit integers; a row without length is null. When a record is read, such a
field becomes a `text`, the JSON as it stands there.

What it decides: nothing. A column is given to the compiled part, and to its twin, as its `Parts`; what they make is `Made`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Literal

from ...core.columns.schema import ColumnKind

Kind = ColumnKind | Literal["number", "json"]
KINDS: tuple[ColumnKind, ...] = ("int64", "float64", "bool", "text")
"""The types of a column, in the order of the numbers that the compiled part uses."""
NUMBER, OBJECT, JSON = 6, 7, 8
"""The numbers that the compiled part has for the type `number`, for an object whose fields are columns, and for the type `json`."""
NOTHING, WHOLE, FRACTION = 0, 1, 2
"""The tags of a `number`: null, an int64, a float64."""

Buffer = Any
"""Anything with the buffer protocol: bytes, bytearray, memoryview, array."""
Parts = tuple[int, Buffer, Buffer | None, Buffer | None]
"""A column: the number of its type, data, offsets, validity."""
Made = tuple[Buffer, Buffer | None, Buffer | None, int]
"""A new column: data, offsets, validity, and how many rows are null."""


def number_of(kind: Kind) -> int:
    """The number of a type in the compiled part."""
    return NUMBER if kind == "number" else JSON if kind == "json" else KINDS.index(kind)


def kind_of(number: int) -> Kind:
    """The type with this number."""
    return "number" if number == NUMBER else "json" if number == JSON else KINDS[number]


def longs(buffer: Buffer) -> memoryview:
    """A buffer of 64-bit integers, to be read item by item.

    >>> longs(b"\\x07" + bytes(7)).tolist()
    [7]
    """
    view = memoryview(buffer)
    return view if view.format == "q" else view.cast("B").cast("q")


def column_made(kind: Kind, values: Sequence[Any]) -> Made:
    """A column of these values; None is null. The values have been checked: an int of 64 bits, a float, a bool, or text, which may be
    encoded already.

    >>> column_made("text", ["a", None, b"c"])[0]
    b'ac'
    """
    nulls = values.count(None)
    validity = _bits([value is not None for value in values]) if nulls else None
    if kind == "text":
        parts = [b"" if one is None else one.encode() if isinstance(one, str) else one for one in values]
        offsets, end = array("i", [0]), 0
        for part in parts:
            end += len(part)
            offsets.append(end)
        return b"".join(parts), offsets, validity, nulls
    if kind == "bool":
        return _bits(values), None, validity, nulls
    if kind == "number":
        filled = [0 if value is None else value for value in values]
        parts = [array("q" if type(value) is int else "d", [value]).tobytes() for value in filled]
        tags = bytes(NOTHING if one is None else WHOLE if type(one) is int else FRACTION for one in values)
        return b"".join(parts), tags, None, nulls
    code = "q" if kind == "int64" else "d"
    return array(code, [0 if value is None else value for value in values] if nulls else values), None, validity, nulls


def numbers_of_column(data: Buffer, tags: Buffer | None, length: int) -> list[Any]:
    """The values of a `number`."""
    whole, fractions = (memoryview(data).cast("B").cast(code) for code in ("q", "d"))
    said = memoryview(tags or b"").cast("B")
    return [(None, whole[at], fractions[at])[said[at]] for at in range(length)]


def bits(flags: Buffer, length: int) -> list[bool]:
    """A bit a row."""
    view = memoryview(flags).cast("B")
    return [bool(view[index >> 3] >> (index & 7) & 1) for index in range(length)]


def bit(flags: Buffer, index: int) -> bool:
    """The bit of one row."""
    return bool(memoryview(flags).cast("B")[index >> 3] >> (index & 7) & 1)


def both(one: Buffer, other: Buffer, size: int) -> bytes:
    """The bits that are set in both, in so many bytes.

    >>> both(bytes([6, 1]), bytes([3, 1]), 1)
    b'\\x02'
    """
    first, second = (int.from_bytes(memoryview(part).cast("B")[:size], "little") for part in (one, other))
    return (first & second).to_bytes(size, "little")


def _bits(flags: Sequence[Any]) -> bytearray:
    made = bytearray((len(flags) + 7) // 8)
    for index, flag in enumerate(flags):
        if flag:
            made[index >> 3] |= 1 << (index & 7)
    return made
