"""Which record a row of a frame was made of: what the writer of the frame says of it, exactly where it is known.

`hg-from` names the records that the writer had before it: a range of offsets, or several. `hg-rows` names the record of each row by its
number among all records of these ranges, one behind the other: as the distance to that of the row before it, the first one's to 0, in
Kafka's varints. It is written where each row was made of one record of an input, also if a record made several rows or none, and however
many shuffles lie between. Elsewhere (the results of a join of streams) the frames that the writer had before it are the nearest truth.
Results of aggregates and windows are made of many chunks: their frames have neither.

Both are shown to people, and anyone may have written them. Promise: any bytes give a text, and an offset only if it lies in a range.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

ROWS_HEADER = "hg-rows"
"""The Kafka header of a frame of rows that says of which record each of them was made."""
_RANGE = re.compile(r"(?P<at>.+\[\d+\]) offsets? (?P<first>\d{1,19})(?: to (?P<last>\d{1,19}))?")
_MASK = 2**64 - 1
BETWEEN = ", "
"""Separates ranges. No name of a topic contains it."""


class OffsetRange(NamedTuple):
    """Consecutive offsets of one partition."""

    at: str
    first: int
    last: int

    @property
    def size(self) -> int:
        """How many offsets there are."""
        return self.last - self.first + 1

    def __str__(self) -> str:
        which = f"offset {self.first}" if self.first == self.last else f"offsets {self.first} to {self.last}"
        return f"{self.at} {which}"


def ranges_of(said: str) -> list[OffsetRange]:
    """The ranges that a header `hg-from` names; none if it is not only ranges.

    >>> [str(one) for one in ranges_of("orders[3] offsets 1200 to 1711, orders[1] offset 7")], ranges_of("soon")
    (['orders[3] offsets 1200 to 1711', 'orders[1] offset 7'], [])
    """
    found: list[OffsetRange] = []
    for part in said.split(BETWEEN):
        match = _RANGE.fullmatch(part)
        one = (
            None
            if match is None
            else OffsetRange(match["at"], int(match["first"]), int(match["last"] or match["first"]))
        )
        if one is None or one.last < one.first:
            return []
        found.append(one)
    return found


def listed(ranges: Iterable[OffsetRange]) -> str:
    """What a header `hg-from` says of these ranges."""
    return BETWEEN.join(map(str, ranges))


def came_from(said: str, distances: bytes | None, row: int) -> str:
    """What a row was made of. `said`: the records of its frame, as `said_of` gives them; `distances`: the header `hg-rows`.

    >>> came_from("orders[3] offsets 1200 to 1711", bytes([14, 0, 20]), 2), came_from("orders[3] offset 7", None, 0)
    ('orders[3] offset 1217', 'orders[3] offset 7')
    """
    number = None if distances is None else _sum(distances, row + 1)
    if number is None or number < 0:
        return said
    for one in ranges_of(said):
        if number < one.size:
            return f"{one.at} offset {one.first + number}"
        number -= one.size
    return said


def _sum(distances: bytes, count: int) -> int | None:
    """The sum of the first numbers; None if there are not so many."""
    total = number = shift = 0
    for byte in distances:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte & 0x80:
            if shift > 63:
                return None
            continue
        number &= _MASK
        total += (number >> 1) ^ -(number & 1)
        count -= 1
        if count == 0:
            return total
        number = shift = 0
    return None
