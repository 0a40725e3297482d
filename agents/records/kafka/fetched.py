"""What has been fetched from a partition and not been decoded yet: a broker's answer, and record batches that are still bytes.

Promises: a batch is decoded once, into lists or into spans, when its records are first needed, and then lets go of its bytes (spans still
point into them). A batch that cannot be decoded raises `DamagedBatch` at every attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ....core.errors import EnvironmentFault
from ....core.names import StreamPartition
from ..limits import MOST_BYTES
from .columns import Columns, DamagedBatch, columns_of
from .spans import SpannedRecords, spanned

T = TypeVar("T")


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
    """One readable record batch. Its records are decoded once, when they are first needed."""

    __slots__ = ("_read", "_read_spans", "base", "count", "first_ms", "max_ms", "next", "size", "transactional")

    def __init__(
        self,
        read: Callable[[int], Columns],
        base: int,
        following: int,
        count: int,
        first_ms: int,
        max_ms: int,
        size: int,
        *,
        spans: Callable[[int], SpannedRecords] | None = None,
        transactional: bool = True,
    ) -> None:
        """`read` decodes it into lists, `spans` into spans; without the latter, spans are made of the lists. Both are given the most bytes
        that it may have once it is decompressed."""
        self._read = read
        self._read_spans = spans
        self.base = base
        self.next = following
        self.count = count
        self.first_ms = first_ms
        self.max_ms = max_ms
        self.size = size
        self.transactional = transactional
        """Whether it was written in a transaction; True if that is unknown."""

    @classmethod
    def of(cls, records: Sequence[Any], *, following: int | None = None, size: int = 0) -> RecordBatch:
        """A batch made of record objects."""
        base = records[0].offset if records else 0
        after = following if following is not None else records[-1].offset + 1
        return cls(lambda most: columns_of(records), base, after, len(records), 0, 0, size)

    def columns(self, most: int = MOST_BYTES) -> Columns:
        """The records as lists. Call it, or `spans`, once. Raises `DamagedBatch` at every call if they cannot be decoded, `OversizedBatch`
        if they have more bytes than `most`."""
        return self._once(self._read, most)

    def spans(self, most: int = MOST_BYTES) -> SpannedRecords:
        """The records as spans, as `columns` gives them as lists."""
        read, made = self._read, self._read_spans
        return self._once(made if made is not None else lambda most: spanned(read(most)), most)

    def _once(self, read: Callable[[int], T], most: int) -> T:
        self._read, self._read_spans = self._torn, None
        try:
            found = read(most)
        except DamagedBatch:
            raise
        except Exception as error:
            raise DamagedBatch(f"the batch at offset {self.base} cannot be read: {error!r}") from error
        self._read = _nothing
        return found

    def _torn(self, most: int) -> Columns:
        raise DamagedBatch(f"the batch at offset {self.base} cannot be read, as was said before")


def _nothing(most: int) -> Columns:
    return Columns([], [], 0)
