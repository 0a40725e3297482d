"""How rows become the frames of an intermediate stream: cut by number and by size, so that each frame fits into a Kafka record."""

from __future__ import annotations

from collections.abc import Sequence

FRAME_RECORDS = 2000
FRAME_BYTES = 512 * 1024


def frame_cuts(values: Sequence[bytes | None]) -> list[tuple[int, int]]:
    """How rows are cut into frames: by number, and by size, so that one fits into a Kafka record.

    >>> frame_cuts([b"x" * 400_000] * 3)
    [(0, 1), (1, 2), (2, 3)]
    """
    cuts: list[tuple[int, int]] = []
    for first in range(0, len(values), FRAME_RECORDS):
        part = values[first : first + FRAME_RECORDS]
        sizes = [0 if value is None else len(value) for value in part]
        if sum(sizes) <= FRAME_BYTES:
            cuts.append((first, first + len(part)))
            continue
        start = size = 0
        for index, one in enumerate(sizes):
            if size + one > FRAME_BYTES and index > start:
                cuts.append((first + start, first + index))
                start, size = index, 0
            size += one
        cuts.append((first + start, first + len(part)))
    return cuts
