"""Arithmetic on buffers of 64-bit integers, and memory: as `longs.c` and `memory.c`."""

from __future__ import annotations

from array import array
from typing import Any

from ...layout import Buffer, longs

_MASK = 2**64 - 1


def gathered(of: Buffer, rows: Buffer) -> Buffer:
    """The integers at these indexes."""
    view, wanted = longs(of), longs(rows)
    if len(wanted) and min(wanted) < 0:
        raise IndexError("outside of the column")
    return array("q", [view[row] for row in wanted])


def scattered(of: Buffer, rows: Buffer, length: int, rest: int) -> Buffer:
    """So many integers: `rest`, but at these indexes."""
    made, view, wanted = array("q", [rest]) * length, longs(of), longs(rows)
    if length < 0 or len(view) != len(wanted):
        raise ValueError("a row for each integer, and a length are wanted")
    if len(wanted) and min(wanted) < 0:
        raise IndexError("outside of the column")
    for row, one in zip(wanted, view, strict=True):
        made[row] = one
    return made


def scaled(of: Buffer, add: int, factor: int, divisor: int) -> Buffer:
    """`(each + add) * factor // divisor`."""
    return array("q", [(one + add) * factor // divisor for one in longs(of)])


def extremes(of: Buffer) -> tuple[int, int]:
    """The least and the greatest."""
    view = longs(of)
    return min(view), max(view)


def listed_extremes(of: list[Any]) -> tuple[int, int] | None:
    """The least and the greatest of a list."""
    if not of or set(map(type, of)) != {int}:
        return None
    least, greatest = min(of), max(of)
    return (least, greatest) if least >= -(2**63) and greatest < 2**63 else None


def first_above(of: Buffer, start: int, stop: int, limit: int) -> int:
    """Where the first integer above a limit is."""
    view = longs(of)
    return next((index for index in range(start, stop) if view[index] > limit), stop)


def summed(of: bytes) -> Buffer | None:
    """The integers that distances are of."""
    made = array("q")
    total = number = shift = 0
    for byte in of:
        number |= (byte & 0x7F) << shift & _MASK
        shift += 7
        if byte & 0x80:
            if shift >= 70:
                return None
            continue
        total = (total + ((number >> 1) ^ -(number & 1))) & _MASK
        made.append(total - 2**64 if total >= 2**63 else total)
        number = shift = 0
    return None if shift else made


def distances(of: Buffer, start: int) -> bytes:
    """How far each integer is from the one before it."""
    made = bytearray()
    for value in longs(of):
        far = (value - start) & _MASK
        number, start = ((far << 1) & _MASK) ^ (-(far >> 63) & _MASK), value
        while number >= 0x80:
            made.append(number & 0x7F | 0x80)
            number >>= 7
        made.append(number)
    return bytes(made)


def fresh(size: int) -> memoryview:
    """Memory for so many bytes. None is kept."""
    return memoryview(bytearray(size))
