"""What has been fetched of a partition, before anything is made of it: a broker's answer, and record batches that are still bytes.

Promises: a batch becomes columns once, when they are asked for, and lets its bytes go; what cannot be read is a `DamagedBatch`, each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...core.errors import EnvironmentFault
from ...core.names import StreamPartition
from .columns import Columns, DamagedBatch, columns_of


class OutOfRange(EnvironmentFault):
    """The log does not reach to the position, or begins behind it."""


@dataclass(slots=True)
class FetchAnswer:
    """What a broker last answered for one partition, and when (monotonic clock)."""

    at_s: float
    error: str
    """What it refuses with; nothing when it does not."""
    high_watermark: int
    stable: int
    """The read-committed end: what stands behind it belongs to an open transaction."""
    log_start: int


@dataclass(slots=True)
class Taken:
    """What came out of a consumer for one partition: readable batches, where reading goes on, or why there are none."""

    at: StreamPartition
    start: int
    """Records below this offset, in a batch that began before it, are not wanted."""
    batches: list[RecordBatch] = field(default_factory=list)
    next_position: int = 0
    error: EnvironmentFault | None = None
    """`OutOfRange`, `DamagedBatch`, or whatever else keeps this partition, and no other, from being read."""


class RecordBatch:
    """One readable record batch. Its records become columns when they are asked for, once."""

    __slots__ = ("_read", "base", "count", "first_ms", "max_ms", "next", "size")

    def __init__(
        self, read: Callable[[], Columns], base: int, following: int, count: int, first_ms: int, max_ms: int, size: int
    ) -> None:
        self._read = read
        self.base = base
        self.next = following
        self.count = count
        self.first_ms = first_ms
        self.max_ms = max_ms
        self.size = size

    @classmethod
    def of(cls, records: Sequence[Any], *, following: int | None = None, size: int = 0) -> RecordBatch:
        """A batch of records that are objects already."""
        base = records[0].offset if records else 0
        after = following if following is not None else records[-1].offset + 1
        return cls(partial(columns_of, records), base, after, len(records), 0, 0, size)

    def columns(self) -> Columns:
        """The records. The bytes that they come from are let go. `DamagedBatch` for what cannot be decoded, each time."""
        read, self._read = self._read, self._torn
        try:
            found = read()
        except DamagedBatch:
            raise
        except Exception as error:
            raise DamagedBatch(f"the batch at offset {self.base} cannot be read: {error!r}") from error
        self._read = _nothing
        return found

    def _torn(self) -> Columns:
        raise DamagedBatch(f"the batch at offset {self.base} cannot be read, as was said before")


def _nothing() -> Columns:
    return Columns([], [], 0)
