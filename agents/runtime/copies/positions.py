"""Up to where a copy has read its topic: what is written with its rows, in one batch.

It decides whether a store still fits the topic. Promise: a copy goes on only where nothing is missing between its rows and what it reads
next; otherwise it is built anew, and it is known why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import msgpack


@dataclass(frozen=True, slots=True)
class CopyPositions:
    """The id of the topic, the next offset of each partition, and how many rows the table then has.

    >>> CopyPositions.unpacked(CopyPositions("t1", {0: 7}, 3).packed()) == CopyPositions("t1", {0: 7}, 3)
    True
    """

    topic: str = ""
    """Empty: the broker has no ids."""
    next: Mapping[int, int] = field(default_factory=dict[int, int])
    rows: int = 0

    def packed(self) -> bytes:
        """As it is stored."""
        return cast("bytes", msgpack.packb([self.topic, dict(sorted(self.next.items())), self.rows]))

    @classmethod
    def unpacked(cls, data: bytes) -> CopyPositions:
        """What was stored."""
        topic, following, rows = cast("Any", msgpack.unpackb(data, strict_map_key=False))
        return cls(topic, following, rows)


def unfit(kept: CopyPositions, topic: str, bounds: Mapping[int, tuple[int, int]]) -> str:
    """Why a store cannot go on; empty if it can. `bounds`: where the log of each partition starts and ends.

    >>> unfit(CopyPositions("t1", {0: 7}), "t1", {0: (5, 9), 1: (3, 3)})
    ''
    >>> unfit(CopyPositions("t1", {0: 7}), "t2", {0: (5, 9)})
    'the topic was deleted and re-created'
    >>> unfit(CopyPositions("t1", {0: 7}), "t1", {0: (9, 9)})
    'of partition 0, 2 records from offset 7 on were deleted before they were read'
    """
    if kept.topic and topic and kept.topic != topic:
        return "the topic was deleted and re-created"
    for partition, position in sorted(kept.next.items()):
        if partition not in bounds:
            return f"the topic has no partition {partition} any more: it was made again"
        start, end = bounds[partition]
        if position < start:
            return f"of partition {partition}, {start - position} records from offset {position} on were deleted before they were read"
        if position > end:
            return (
                f"partition {partition} ends at {end}, before the position {position}: the topic was made again or cut"
            )
    return ""
