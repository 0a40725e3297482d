"""Of which records of inputs the rows of a chunk of frames were made, as the writers of the frames say.

What it decides: the headers `hg-from` and `hg-rows` of all frames give one list of ranges, and for each row the number of its record in it:
what the next writer says of its own rows (`core.progress.came_from`). Ranges of one partition are joined, unless a frame has several.
Promises: nothing is known rather than something wrong if a frame does not say it, or says it of another number of rows; there is no object
for a row where the compiled part is built.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ....core.progress.came_from import ROWS_HEADER, OffsetRange, listed, ranges_of
from ....core.progress.frames import FROM_HEADER, MOST_FROM, said_of
from ..layout import Buffer, longs
from ..memory.longs import extremes, scaled, summed

MOST_BYTES = 10
"""A varint of 64 bits has at most so many bytes."""


class FrameOrigins(NamedTuple):
    """Of which records the rows of a chunk were made."""

    said: str
    """Their ranges, as a header `hg-from` names them."""
    numbers: Buffer
    """Of each row, the number of its record among those of the ranges."""


def frame_origins(headers: Iterable[Mapping[str, Any] | None], rows: int) -> FrameOrigins | None:
    """What the headers of consecutive frames say of this number of rows; None if they do not say all of it."""
    frames: list[tuple[list[OffsetRange], Buffer]] = []
    for one in headers:
        if one is None:
            return None
        ranges, packed = ranges_of(said_of(one.get(FROM_HEADER))), one.get(ROWS_HEADER) or b""
        named = ranges and 0 < len(packed) <= MOST_BYTES * rows  # anybody may have written them
        numbers = summed(packed) if named else None
        if numbers is None:
            return None
        least, greatest = extremes(numbers)
        if least < 0 or greatest >= sum(part.size for part in ranges):
            return None
        frames.append((ranges, numbers))
    if sum(len(longs(numbers)) for _, numbers in frames) != rows:
        return None
    return _joined(frames)


def _joined(frames: list[tuple[list[OffsetRange], Buffer]]) -> FrameOrigins | None:
    whole: dict[str, OffsetRange] = {}
    """By partition, what the frames of a single range cover of it."""
    several: dict[tuple[OffsetRange, ...], None] = {}
    for ranges, _ in frames:
        if len(ranges) > 1:
            several[tuple(ranges)] = None
            continue
        (one,) = ranges
        known = whole.get(one.at, one)
        whole[one.at] = OffsetRange(one.at, min(known.first, one.first), max(known.last, one.last))
    said = listed([*whole.values(), *(one for ranges in several for one in ranges)])
    if len(said) > MOST_FROM:
        return None
    begins, start = dict[Any, int](), 0
    for key, covers in [*((at, (one,)) for at, one in whole.items()), *((ranges, ranges) for ranges in several)]:
        begins[key] = start
        start += sum(one.size for one in covers)
    if start >= 2**62:
        return None
    made = bytearray()
    for ranges, numbers in frames:
        (one, *more) = ranges
        add = begins[tuple(ranges)] if more else begins[one.at] + one.first - whole[one.at].first
        made += memoryview(scaled(numbers, add=add)).cast("B")
    return FrameOrigins(said, bytes(made))
