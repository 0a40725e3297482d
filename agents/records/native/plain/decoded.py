"""What all decoders of records have in common, and the prefixes of records that name their schemas: as `decoded.c` and `heads.c`."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

from ...layout import Buffer, column_made, kind_of, longs
from ...limits import MOST_TEXT

CUT, MISSING, WRONG_TYPE, OUT_OF_RANGE, MORE, NO_SCHEMA = 1, 3, 5, 6, 7, 8
"""Why a record is bad."""
MOST_HEADS, DEEPEST_PLACE = 64, 64


class FoundFlaw(Exception):
    """A bad record: why, and which column that concerns."""


def decoded(
    kinds: bytes, buffer: Buffer, offsets: Buffer, lengths: Buffer, read: Callable[[int, bytes], list[Any]]
) -> tuple[Any, ...]:
    """Records as columns: how many rows, the columns, bad records (index, flaw, column), those without a value, and the record of each row
    (None: all). `read`: the values of one record; it raises `FoundFlaw`."""
    starts, sizes, view = longs(offsets), longs(lengths), memoryview(buffer).cast("B")
    if len(starts) != len(sizes):
        raise ValueError("offsets and lengths are not of one length")
    rows, found = list[int](), list[list[Any]]()
    bad, tombstones = list[tuple[int, int, int]](), list[int]()
    for index, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        if size == -1:
            tombstones.append(index)
            continue
        if start < 0 or size < 0 or start + size > len(view):
            raise ValueError(f"record {index} lies outside of the buffer")
        try:
            found.append(read(index, bytes(view[start : start + size])))
            rows.append(index)
        except FoundFlaw as flaw:
            bad.append((index, *flaw.args))
    by_column: list[Any] = list(map(list, zip(*found, strict=True))) if found else [[] for _ in kinds]
    columns = [column_made(kind_of(kind), one) for kind, one in zip(kinds, by_column, strict=True)]
    if any(len(one[0]) > MOST_TEXT for kind, one in zip(kinds, columns, strict=True) if kind_of(kind) == "text"):
        raise ValueError("more than 2 GiB of text in one column")
    return len(rows), columns, bad, tombstones, None if len(rows) == len(starts) else array("q", rows).tobytes()


def record_heads(
    mark: bytes | None, buffer: Buffer, offsets: Buffer, lengths: Buffer
) -> tuple[list[bytes], bytes] | None:
    """The prefixes of records that name their schemas, and which of them each record has: -1 without a value, -2 without a prefix. None
    for too many prefixes. With a mark, the place of a message belongs to a prefix; where that is the mark, the number is 0 or 1, as its
    first byte says, and the others begin with 2."""
    view, known, numbers = memoryview(buffer).cast("B"), dict[bytes, int](), array("q")
    starts, sizes, own = longs(offsets), longs(lengths), 0 if mark is None else 2
    if len(starts) != len(sizes):
        raise ValueError("offsets and lengths are not of one length")
    for index, (start, length) in enumerate(zip(starts, sizes, strict=True)):
        if length == -1:
            numbers.append(-1)
            continue
        if start < 0 or length < 0 or start + length > len(view):
            raise ValueError(f"record {index} lies outside of the buffer")
        data = bytes(view[start : start + length])
        size = {0: 5, 1: 17}.get(data[0], 0) if data else 0
        if not size or length < size:
            numbers.append(-2)
            continue
        if mark is not None:
            if data[size : size + len(mark)] == mark:
                numbers.append(data[0])
                continue
            size = _place_end(data, size)
            if size < 0:
                numbers.append(-2)
                continue
        numbers.append(known.setdefault(data[:size], len(known) + own))
        if len(known) > MOST_HEADS:
            return None
    return list(known), numbers.tobytes()


def _place_end(data: bytes, at: int) -> int:
    """Where the place of a message ends; -1 if it is none."""
    at, count = _place_number(data, at)
    if count > DEEPEST_PLACE:
        return -1
    while at >= 0 and count > 0:
        at, _ = _place_number(data, at)
        count -= 1
    return at


def _place_number(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(data[at : at + 5]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return (-1, 0) if value & 1 else (at + place + 1, value >> 1)
    return -1, 0
