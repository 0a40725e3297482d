"""Arithmetic on buffers of 64-bit integers (indexes, places in bytes, times), a buffer at a time.

What it decides: nothing. Promise: the compiled part (`longs.c`) and Python give the same.
"""

from __future__ import annotations

from array import array

from ..native import compiled_part
from .vectors import Buffer, longs

_MASK = 2**64 - 1


def gathered(of: Buffer, rows: Buffer) -> Buffer:
    """The integers at these indexes. Raises `IndexError` for an index outside.

    >>> longs(gathered(array("q", [5, 6, 7]), array("q", [2, 0]))).tolist()
    [7, 5]
    """
    if compiled_part.compiled is not None:
        return compiled_part.compiled.gathered(of, rows)
    view, wanted = longs(of), longs(rows)
    if len(wanted) and min(wanted) < 0:
        raise IndexError("outside of the column")
    return array("q", [view[row] for row in wanted])


def scaled(of: Buffer, *, add: int = 0, factor: int = 1, divisor: int = 1) -> Buffer:
    """`(each + add) * factor // divisor`. The caller knows that nothing leaves 64 bits.

    >>> longs(scaled(array("q", [-1, 2500]), divisor=1000)).tolist()
    [-1, 2]
    """
    if compiled_part.compiled is not None:
        return compiled_part.compiled.scaled(of, add, factor, divisor)
    return array("q", [(one + add) * factor // divisor for one in longs(of)])


def extremes(of: Buffer) -> tuple[int, int]:
    """The least and the greatest of them; there is at least one.

    >>> extremes(array("q", [3, -1, 2]))
    (-1, 3)
    """
    if compiled_part.compiled is not None:
        return compiled_part.compiled.extremes(of)
    view = longs(of)
    return min(view), max(view)


def first_above(of: Buffer, start: int, stop: int, limit: int) -> int:
    """The index of the first integer from `start` on that is greater than `limit`; `stop` if there is none before it.

    >>> first_above(array("q", [1, 9, 3]), 0, 3, 5), first_above(array("q", [1, 9, 3]), 2, 3, 5)
    (1, 3)
    """
    if compiled_part.compiled is not None:
        return compiled_part.compiled.first_above(of, start, stop, limit)
    view = longs(of)
    return next((index for index in range(start, stop) if view[index] > limit), stop)


def summed(of: bytes) -> Buffer | None:
    """The integers that these `distances` from 0 are of, modulo 2^64; None if they are none.

    >>> longs(summed(bytes([14, 0, 1]))).tolist(), summed(bytes([0x80]))
    ([7, 7, 6], None)
    """
    if compiled_part.compiled is not None:
        return compiled_part.compiled.summed(of)
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
    """How far each is from the one before it, and the first from `start`, in Kafka's varints, modulo 2^64.

    >>> list(distances(array("q", [1207, 1207, 1206]), 1200))
    [14, 0, 1]
    """
    if compiled_part.compiled is not None:
        return compiled_part.compiled.distances(of, start)
    made = bytearray()
    for value in longs(of):
        far = (value - start) & _MASK
        number, start = ((far << 1) & _MASK) ^ (-(far >> 63) & _MASK), value
        while number >= 0x80:
            made.append(number & 0x7F | 0x80)
            number >>= 7
        made.append(number)
    return bytes(made)
