"""Avro records as columns: as `avro_read.c`. A program is run an instruction at a time, and means the same."""

from __future__ import annotations

import math
import struct
from enum import IntEnum
from typing import Any, NamedTuple

from ...layout import Buffer, kind_of, longs
from .decoded import CUT, MORE, NO_SCHEMA, OUT_OF_RANGE, FoundFlaw, decoded

STRIDE, DEEPEST_BLOCK = 4, 64
Op = IntEnum(
    "Op",
    "END SKIP_LONG SKIP_TEXT SKIP_BYTES SKIP_FIXED SKIP_ENUM UNION JUMP BLOCK AGAIN LONG LONG_DOUBLE FLOAT DOUBLE BOOLEAN STRING ENUM TIME "
    "DATE DECIMAL BYTES RAW RAW_END NO_VALUE FLAW THERE SAME_LONG SAME_DOUBLE SAME_BOOL SAME_TEXT",
    start=0,
)
"""The instructions, in the order of the compiled part."""
_FIRST_TIME, _LAST_TIME = -62_135_596_800_000_000, 253_402_300_799_999_999
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896


class AvroProgram(NamedTuple):
    """What reads the records of one schema."""

    code: list[tuple[int, ...]]
    longs: list[int]
    texts: list[bytes]
    kinds: bytes


def avro_program(code: Buffer, constants: Buffer, texts: list[bytes], kinds: Buffer) -> AvroProgram:
    """What `avro_decode` runs. It has been made by `registry.avro_columns`, so it is believed."""
    numbers = memoryview(code).cast("B").cast("i").tolist()
    if not numbers or len(numbers) % STRIDE or numbers[-STRIDE] != Op.END:
        raise ValueError("no such program")
    rows = [tuple(numbers[at : at + STRIDE]) for at in range(0, len(numbers), STRIDE)]
    return AvroProgram(rows, longs(constants).tolist(), list(texts), bytes(kinds))


def avro_decode(
    kinds: Buffer,
    programs: list[tuple[AvroProgram | None, int]],
    which: Buffer,
    buffer: Buffer,
    offsets: Buffer,
    lengths: Buffer,
) -> tuple[Any, ...]:
    """Avro records as columns: how many rows, the columns, bad records (index, flaw, column), those without a value, and the record of each
    row (None: all). `programs`: each with the number of bytes in front of a value; `which`: by record, the number of its program."""
    numbers, types = longs(which), bytes(kinds)
    if len(numbers) != len(longs(offsets)):
        raise ValueError("offsets, lengths and programs are not of one length")
    if any(program is not None and program.kinds != types for program, _ in programs):
        raise ValueError("a program of other columns")

    def read(index: int, data: bytes) -> list[Any]:
        if numbers[index] >= len(programs):
            raise ValueError(f"record {index} has no such program")
        program, skipped = programs[numbers[index]] if numbers[index] >= 0 else (None, 0)
        if program is None:
            raise FoundFlaw(NO_SCHEMA, -1)
        if len(data) < skipped:
            raise FoundFlaw(CUT, -1)
        return _Row(program, data[skipped:]).read()

    return decoded(types, buffer, offsets, lengths, read)


class _Row:
    """Reads one record."""

    def __init__(self, program: AvroProgram, data: bytes) -> None:
        self._program, self._data, self._at = program, data, 0
        self._blocks: list[int] = []
        empty: dict[str, Any] = {"int64": 0, "float64": 0.0, "bool": False, "text": b""}
        self._values: list[Any] = [empty[kind_of(kind)] for kind in program.kinds]

    def read(self) -> list[Any]:
        code, at = self._program.code, 0
        while (op := code[at][0]) != Op.END:
            at = self._flow(op, at, *code[at][1:]) if op < Op.LONG else self._fill(op, at, *code[at][1:])
        if self._at != len(self._data):
            raise FoundFlaw(MORE, -1)
        return self._values

    def _flow(self, op: int, at: int, _: int, x: int, y: int) -> int:
        """Run what fills no column; the place of the next instruction."""
        match op:
            case Op.SKIP_LONG:
                self._long()
            case Op.SKIP_TEXT:
                self._text()
            case Op.SKIP_BYTES:
                self._bytes(-1)
            case Op.SKIP_FIXED:
                self._bytes(x)
            case Op.SKIP_ENUM:
                self._number(x)
            case Op.UNION:
                return at + 1 + self._number(x)
            case Op.JUMP:
                return x
            case Op.BLOCK:
                return at + 1 if self._block() else x
            case _:
                self._blocks[-1] -= 1
                if self._blocks[-1]:
                    return x + 1
                self._blocks.pop()
                return x
        return at + 1

    def _fill(self, op: int, at: int, slot: int, x: int, y: int) -> int:
        """Run what fills a column; the place of the next instruction."""
        if op == Op.FLAW:
            raise FoundFlaw(x, slot)
        self._values[slot] = self._value(op, slot, x, y)
        return at + 1

    def _value(self, op: int, slot: int, x: int, y: int) -> Any:
        match op:
            case Op.LONG:
                return self._long()
            case Op.LONG_DOUBLE:
                return float(self._long())
            case Op.FLOAT | Op.DOUBLE:
                found = struct.unpack("<f" if op == Op.FLOAT else "<d", self._bytes(4 if op == Op.FLOAT else 8))[0]
                return self._checked(found, slot, math.isfinite(found))
            case Op.BOOLEAN:
                return self._bytes(1) != b"\0"
            case Op.STRING:
                return self._text()
            case Op.ENUM:
                return self._program.texts[x + self._number(y)]
            case Op.TIME:
                found = self._long() * x
                return self._checked(found, slot, _FIRST_TIME <= found <= _LAST_TIME)
            case Op.DATE:
                found = self._long()
                return self._checked(found, slot, _FIRST_DAY <= found <= _LAST_DAY)
            case Op.DECIMAL:
                found = int.from_bytes(self._bytes(x), "big", signed=True)
                return self._checked(found, slot, abs(found) < 10**y)
            case Op.BYTES:
                return self._bytes(x)
            case Op.RAW:
                return self._at  # until it is known where it ends
            case Op.RAW_END:
                return self._data[self._values[slot] : self._at]
            case _:
                return self._constant(op, x)

    def _constant(self, op: int, x: int) -> Any:
        match op:
            case Op.NO_VALUE:
                return None
            case Op.THERE:
                return True
            case Op.SAME_LONG:
                return self._program.longs[x]
            case Op.SAME_DOUBLE:
                return struct.unpack("<d", struct.pack("<q", self._program.longs[x]))[0]
            case Op.SAME_BOOL:
                return bool(x)
            case _:
                return self._program.texts[x]

    def _checked(self, value: Any, slot: int, fits: bool) -> Any:
        if not fits:
            raise FoundFlaw(OUT_OF_RANGE, slot)
        return value

    def _block(self) -> int:
        """How many follow, each of a byte at least."""
        if len(self._blocks) == DEEPEST_BLOCK:
            raise FoundFlaw(CUT, -1)
        count = self._long()
        if count < 0:
            self._long()  # the size of the block, for those who skip it
            count = -count
        if count > len(self._data) - self._at:
            raise FoundFlaw(CUT, -1)
        if count:
            self._blocks.append(count)
        return count

    def _number(self, most: int) -> int:
        found = self._long()
        if not 0 <= found < most:
            raise FoundFlaw(CUT, -1)
        return found

    def _long(self) -> int:
        value = shift = 0
        while shift < 70 and self._at < len(self._data):
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 64:
                    break
                return value >> 1 ^ -(value & 1)
            shift += 7
        raise FoundFlaw(CUT, -1)

    def _bytes(self, size: int) -> bytes:
        if size < 0:
            size = self._long()
        if not 0 <= size <= len(self._data) - self._at:
            raise FoundFlaw(CUT, -1)
        self._at += size
        return self._data[self._at - size : self._at]

    def _text(self) -> bytes:
        found = self._bytes(-1)
        try:
            found.decode()
        except UnicodeDecodeError:
            raise FoundFlaw(CUT, -1) from None
        return found
