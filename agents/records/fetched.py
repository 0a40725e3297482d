"""What has been fetched from a partition and not been decoded yet: a broker's answer, and record batches that are still bytes.

Promises: a batch is decoded into columns once, when they are first needed, and then releases its bytes. A batch that cannot be decoded
raises `DamagedBatch` at every attempt.
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
    """The position is outside of the log: above its end, or below its start."""


@dataclass(slots=True)
class FetchAnswer:
    """A broker's last answer for one partition, and when it came (monotonic clock)."""

    at_s: float
    error: str
    """The broker's error; empty if there is none."""
    high_watermark: int
    stable: int
    """The last stable offset: records at or behind it belong to open transactions, or follow them."""
    log_start: int


@dataclass(slots=True)
class Taken:
    """What a consumer returned for one partition: readable batches and the next position, or an error."""

    at: StreamPartition
    start: int
    """Records below this offset, in a batch that begins before it, are to be skipped."""
    batches: list[RecordBatch] = field(default_factory=list)
    next_position: int = 0
    error: EnvironmentFault | None = None
    """`OutOfRange`, `DamagedBatch`, or another error that affects only this partition."""


class RecordBatch:
    """One readable record batch. Its records are decoded into columns once, when they are first needed."""

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
        """A batch made of record objects."""
        base = records[0].offset if records else 0
        after = following if following is not None else records[-1].offset + 1
        return cls(partial(columns_of, records), base, after, len(records), 0, 0, size)

    def columns(self) -> Columns:
        """The records; call it once, for their bytes are released. Raises `DamagedBatch` at every call if they cannot be decoded."""
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
