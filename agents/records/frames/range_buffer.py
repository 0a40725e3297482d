"""Offsets of a partition whose records no one here fetches: batches by reference are cut of them.

`RangeBuffer` stands in for `FetchBuffer`. It knows up to which offset the log is readable, and hands out chunks that are ranges of offsets.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from ....core.names import StreamPartition
from ....core.progress.frames import NO_TIME
from ..kafka.columns import Columns
from ..kafka.fetched import RecordBatch
from .chunks import Chunk, Next


class UnreadRecords(Columns):
    """The offsets of records, in the place of records. Some of them may have none: markers of transactions, aborted records."""

    def __init__(self, base: int, count: int) -> None:
        super().__init__([], [], base)
        self.count = count

    def __len__(self) -> int:
        return self.count

    def offset_column(self) -> Sequence[int]:
        """All offsets."""
        return range(self.base, self.base + self.count)

    def cut(self, first: int, behind: int) -> UnreadRecords:
        """The offsets from index `first` up to, but not including, `behind`."""
        return UnreadRecords(self.base + first, max(0, behind - first))


class RangeBuffer:
    """The offsets of one partition that have not been handed out yet."""

    framed = None
    spanned = False
    damaged = None
    size = 0
    """It holds no bytes, so it is never full."""

    def __init__(
        self, at: StreamPartition, position: int, *, until: int | None = None, most: int = sys.maxsize
    ) -> None:
        """`most`: the most offsets of a chunk."""
        self.at = at
        self.most = most
        self.until = until
        self.clear(position)

    def clear(self, position: int) -> None:
        """Continue at this position."""
        self.position = position
        self.buffered_to = position
        """The log is known to be readable up to this offset."""

    def put(self, batches: Iterable[RecordBatch], start: int, following: int) -> None:
        """The log is readable up to `following`."""
        self.buffered_to = max(self.buffered_to, following)

    @property
    def drains_to(self) -> int:
        """Where a drain ends: nothing is fetched yet, so what is known of the log need not be processed."""
        return self.position

    @property
    def ended(self) -> bool:
        """Whether the bound has been reached."""
        return self.until is not None and self.position >= self.until

    @property
    def count(self) -> int:
        """How many offsets can be handed out."""
        behind = self.buffered_to if self.until is None else min(self.buffered_to, self.until)
        return max(0, behind - self.position)

    def head(self) -> Next | None:
        """The next offset. Its record is not known, and has no time that something could wait for."""
        return Next(self.position, NO_TIME, None) if self.count else None

    def control(self) -> None:
        """There are no control messages: the stream holds no frames."""

    def take(
        self, most: int, up_to_ms: int | None = None, most_bytes: int | None = None, most_rows: int | None = None
    ) -> Chunk | None:
        """The next offsets, at most so many. Times and bytes are not known, so they bound nothing."""
        count = min(most, self.most, self.count)
        if count <= 0:
            return None
        chunk = Chunk(self.at, self.position + count, UnreadRecords(self.position, count))
        self.position += count
        return chunk
