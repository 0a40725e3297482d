"""Which record a row of a frame was made of: what the writer of the frame says of it, exactly where it is known.

`hg-from` names the records that the writer had before it, `hg-rows` the record of each row: its offset as the distance to that of the row
before it, the first one's to the first offset in `hg-from`, in Kafka's varints. It is written where each row was made of one record of an
input, also if a record made several rows or none. Elsewhere (rows of a frame, a window, a join of streams) the range is the nearest truth.

Both are shown to people, and anybody may have written them. Promise: any bytes give a text, and an offset only if it lies in the range.
"""

from __future__ import annotations

import re

ROWS_HEADER = "hg-rows"
"""The Kafka header of a frame of rows that says of which record each of them was made."""
_RANGE = re.compile(r"(?P<at>.+\[\d+\]) offsets? (?P<first>\d{1,19})(?: to (?P<last>\d{1,19}))?")
_MASK = 2**64 - 1


def came_from(said: str, distances: bytes | None, row: int) -> str:
    """What a row was made of. `said`: the records of its frame, as `said_of` gives them; `distances`: the header `hg-rows`.

    >>> came_from("orders[3] offsets 1200 to 1711", bytes([14, 0, 20]), 2), came_from("orders[3] offset 7", None, 0)
    ('orders[3] offset 1217', 'orders[3] offset 7')
    """
    found = _RANGE.fullmatch(said)
    if found is None or distances is None:
        return said
    first = int(found["first"])
    last = int(found["last"] or first)
    offset = _sum(distances, row + 1)
    if offset is None or not first <= first + offset <= last:
        return said
    return f"{found['at']} offset {first + offset}"


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
