"""Rows with keys as batch frames for each partition of a stream, and back, in Python alone: as `spread.c`."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgpack

from ...layout import Buffer, longs
from .spans import split

_library = cast("Any", msgpack)
_packb, _Unpacker = _library.packb, _library.Unpacker
_BYTES = {bytes, type(None)}


def spread(
    keys: list[bytes | None],
    times: list[int],
    values: list[bytes | None],
    offsets: Buffer | None,
    partitions: int,
    turn: int,
    most_rows: int,
    most_bytes: int,
    head: bytes,
    tail: bytes,
) -> tuple[list[tuple[int, int, bytes, bytes | None]], bool]:
    """Partition, first time, frame and offsets of each frame; and whether a key was None: these rows go to `turn`."""
    came = None if offsets is None else longs(offsets)
    if not len(keys) == len(times) == len(values) == (len(keys) if came is None else len(came)):
        raise ValueError("columns differ in length, or there is no such partition")
    if not _BYTES.issuperset(map(type, keys)) or not _BYTES.issuperset(map(type, values)):
        raise TypeError("bytes are wanted")
    if not {int}.issuperset(map(type, times)):
        raise TypeError("a time is a whole number")
    stamps = array("q", times)
    parts, some_null = ([[*range(len(keys))]], None in keys) if partitions == 1 else split(keys, partitions, turn)
    found: list[tuple[int, int, bytes, bytes | None]] = []
    for partition, part in enumerate(parts):
        sizes = [len(keys[row] or b"") + len(values[row] or b"") for row in part]
        for start, stop in cuts(sizes, most_rows, most_bytes):
            rows = part[start:stop]
            columns = [[column[row] for row in rows] for column in (keys, stamps, values)]
            frame = b"".join((head, *map(_packb, columns), tail))
            own = None if came is None else array("q", [came[row] for row in rows]).tobytes()
            found.append((partition, stamps[rows[0]], frame, own))
    return found, some_null


def cuts(sizes: Sequence[int], most_rows: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    """The rows of each frame, as (first, behind the last), by the bytes of each row. A row over `most_bytes` has a frame of its own."""
    for first in range(0, len(sizes), most_rows):
        behind = min(first + most_rows, len(sizes))
        if sum(sizes[first:behind]) > most_bytes:
            size = 0
            for index in range(first, behind):
                if size + sizes[index] > most_bytes and index > first:
                    yield first, index
                    first, size = index, 0
                size += sizes[index]
        yield first, behind


def gather(
    data: bytes, head: bytes, most_rows: int
) -> tuple[list[bytes | None], list[int], list[bytes | None], int] | None:
    """Keys, times and values of a batch frame, and where what stands behind them begins. None for whatever else begins with `head`, and for
    damaged bytes: `frames.decode` says what is wrong with them.
    """
    if not data.startswith(head):
        return None
    walk = _Unpacker(max_buffer_size=max(len(data), 1), max_array_len=most_rows, max_map_len=0, max_ext_len=0)
    try:
        walk.feed(data[len(head) :])
        keys, times, values = walk.unpack(), walk.unpack(), walk.unpack()
    except (ValueError, msgpack.exceptions.UnpackException):
        return None
    if not type(keys) is type(times) is type(values) is list or not len(keys) == len(times) == len(values):
        return None
    if not _BYTES.issuperset(map(type, keys)) or not _BYTES.issuperset(map(type, values)):
        return None
    if not {int}.issuperset(map(type, times)) or any(time >= 1 << 63 for time in times):
        return None
    return keys, times, values, len(head) + walk.tell()
