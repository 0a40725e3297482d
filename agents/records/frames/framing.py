"""Cuts rows into the frames of an intermediate stream, by number and by size, so that each frame fits into a Kafka record; and reads most
of these frames in one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add

from ....core.progress.frames import MAX_BATCH_RECORDS, BatchFrame, batch_ends, behind_rows
from ..kafka.columns import Bytes, Header
from ..native import chosen
from ..native.plain.spread import cuts

FRAME_RECORDS = 500
"""A frame is taken whole, so it must not hold the loop of its reader for long, even where a record takes a millisecond there."""
FRAME_BYTES = 512 * 1024
_HEAD = batch_ends(None)[0]


def rows_in(data: bytes) -> BatchFrame | None:
    """A batch whose rows have no headers. None for whatever else is a frame, or is none: `frames.decode` tells which."""
    found = chosen.part.gather(data, _HEAD, MAX_BATCH_RECORDS)
    if found is None:
        return None
    keys, times, values, end = found
    behind = behind_rows(data[end:])
    return None if behind is None else BatchFrame(keys, times, values, None, behind.plan)


def frame_cuts(
    keys: Sequence[Bytes],
    values: Sequence[Bytes],
    headers: Sequence[Sequence[Header]] | None = None,
    most: int = FRAME_RECORDS,
) -> list[tuple[int, int]]:
    """The rows of each frame, as (first, behind the last), at most `most`. A row over `FRAME_BYTES` has a frame of its own.

    >>> frame_cuts([None] * 3, [b"x" * 400_000] * 3)
    [(0, 1), (1, 2), (2, 3)]
    """
    sizes = list(map(add, _lengths(keys), _lengths(values)))
    if headers is not None:
        sizes = list(map(add, sizes, map(_size, headers)))
    return list(cuts(sizes, most, FRAME_BYTES))


def _lengths(column: Sequence[Bytes]) -> list[int]:
    try:
        return list(map(len, column))  # pyright: ignore[reportArgumentType] - None raises, and is handled below
    except TypeError:
        return [0 if one is None else len(one) for one in column]


def _size(headers: Sequence[Header]) -> int:
    """An upper bound of the bytes of one row's headers; a character of a name may take four bytes."""
    return sum(4 * len(name) + len(value or b"") for name, value in headers)
