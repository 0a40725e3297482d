"""Columns as Avro records: as `avro_write.c`. A program is run an instruction at a time, and means the same."""

from __future__ import annotations

import struct
from array import array
from enum import IntEnum
from typing import Any, NamedTuple

from ...layout import JSON, NUMBER, Buffer, Parts, longs, numbers_of_column
from .vectors import values

STRIDE = 4
WriteOp = IntEnum(
    "WriteOp",
    "END JUMP IF_VALID CONST LONG FLOAT DOUBLE BOOLEAN STRING SYMBOL TIME DECIMAL BYTES RAW REFUSE",
    start=0,
)
"""The instructions, in the order of the compiled part."""
_MOST_SINGLE = 3.4e38


class AvroWriteProgram(NamedTuple):
    """What writes the records of one schema."""

    code: list[tuple[int, ...]]
    texts: list[bytes]
    kinds: bytes


class _Refused(Exception):
    """The program does not write this value."""


def avro_writer(code: Buffer, texts: list[bytes], kinds: Buffer) -> AvroWriteProgram:
    """What `avro_encode` runs. It has been made by `registry.avro_write_program`, so it is believed."""
    numbers = memoryview(code).cast("B").cast("i").tolist()
    if not numbers or len(numbers) % STRIDE or numbers[-STRIDE] != WriteOp.END:
        raise ValueError("no such program")
    rows = [tuple(numbers[at : at + STRIDE]) for at in range(0, len(numbers), STRIDE)]
    return AvroWriteProgram(rows, list(texts), bytes(kinds))


def avro_encode(
    program: AvroWriteProgram, vectors: list[Parts], length: int, head: Buffer, rows: Buffer | None
) -> tuple[bytes, bytes, bytes, bytes]:
    """These rows as records: their bytes, where that of each row of the columns begins, how long it is, and the rows that the program does
    not write."""
    if bytes(one[0] for one in vectors) != program.kinds:
        raise ValueError("a program of other columns")
    columns = [_listed(one, length) for one in vectors]
    starts, sizes, refused = array("q", bytes(8 * length)), array("q", bytes(8 * length)), array("q")
    out, front = bytearray(), bytes(head)
    for row in range(length) if rows is None else longs(rows):
        if not 0 <= row < length:
            raise ValueError("a row lies outside of its column")
        try:
            made = front + _record(program, [column[row] for column in columns])
        except _Refused:
            refused.append(row)
            continue
        starts[row], sizes[row] = len(out), len(made)
        out += made
    return bytes(out), starts.tobytes(), sizes.tobytes(), refused.tobytes()


def _listed(parts: Parts, length: int) -> list[Any]:
    """The values of a column: text, and what is written as it is, as bytes."""
    kind, data, offsets, validity = parts
    if kind == JSON:
        view, places, sizes = memoryview(data).cast("B"), longs(offsets), longs(validity)
        if any(size >= 0 and not 0 <= start <= len(view) - size for start, size in zip(places, sizes, strict=True)):
            raise ValueError("a row lies outside of its column")
        return [None if n < 0 else bytes(view[at : at + n]) for at, n in zip(places[:length], sizes, strict=True)]
    if kind == NUMBER:
        return numbers_of_column(data, offsets, length)
    return [one.encode() if isinstance(one, str) else one for one in values(parts, length)]


def _record(program: AvroWriteProgram, row: list[Any]) -> bytes:
    out, at = bytearray(), 0
    while (op := program.code[at][0]) != WriteOp.END:
        _, slot, x, y = program.code[at]
        at += 1
        match op:
            case WriteOp.JUMP:
                at = x
            case WriteOp.IF_VALID:
                at = x if row[slot] is not None else at
            case WriteOp.CONST:
                out += program.texts[x]
            case WriteOp.REFUSE:
                raise _Refused
            case _:
                if row[slot] is None:
                    raise _Refused
                out += _value(program, op, row[slot], x, y)
    return bytes(out)


def _value(program: AvroWriteProgram, op: int, value: Any, x: int, y: int) -> bytes:
    match op:
        case WriteOp.LONG:
            return long_of(_checked(value, type(value) is int and (not x or -(2**31) <= value < 2**31)))
        case WriteOp.FLOAT:
            return struct.pack("<f", _checked(float(value), -_MOST_SINGLE <= value <= _MOST_SINGLE))
        case WriteOp.DOUBLE:
            return struct.pack("<d", value)
        case WriteOp.BOOLEAN:
            return b"\1" if value else b"\0"
        case WriteOp.STRING:
            return long_of(len(value)) + value
        case WriteOp.SYMBOL:
            symbols = program.texts[x : x + y]
            return long_of(symbols.index(_checked(value, value in symbols)))
        case WriteOp.TIME:
            return long_of(value // x)
        case WriteOp.DECIMAL:
            return _decimal(value, x, y)
        case WriteOp.BYTES:
            return _checked(value, x in (-1, len(value))) if x >= 0 else long_of(len(value)) + value
        case _:
            return value


def _decimal(value: int, size: int, digits: int) -> bytes:
    least = (abs(value).bit_length() + 8) // 8
    _checked(value, abs(value) < 10**digits and (size < 0 or least <= size))
    return (b"" if size >= 0 else long_of(least)) + value.to_bytes(size if size >= 0 else least, "big", signed=True)


def _checked(value: Any, fits: bool) -> Any:
    if not fits:
        raise _Refused
    return value


def long_of(value: int) -> bytes:
    """A number as Avro has it.

    >>> long_of(-65)
    b'\\x81\\x01'
    """
    left, made = (value << 1 ^ value >> 63) % 2**64, bytearray()
    while left >= 0x80:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*made, left])
