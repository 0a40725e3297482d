"""What a fetch answer shows to a reader that reads committed records: for readers that hold an answer's bytes, such as Spark's executors.

Promises:

- A batch that is returned has passed its checksum, is no control batch, and belongs to no aborted transaction.
- No offset is passed over silently. The batches of a log that no one has compacted follow one another without a gap; a gap, or a batch with
  fewer records than offsets, raises `NotWhole`.
- A batch that is cut off at the end of the answer is left to the next fetch.
- A batch that is too large once it is decompressed is left out, and named in `oversized`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ....core.errors import EnvironmentFault
from ..layout import longs
from ..limits import MOST_BYTES
from .columns import CHECKED_FROM, HEAD, DamagedBatch, OversizedBatch, crc32c
from .spans import SpannedRecords, joined_spans, read_run, read_spans

TRANSACTIONAL, CONTROL = 0x10, 0x20
_LENGTH_FROM = 12
"""The length in a batch's header counts from here."""
_ABORT = b"\x00\x00"


class NotWhole(EnvironmentFault):
    """The log lacks records between two offsets."""

    def __init__(self, expected: int, found: int) -> None:
        super().__init__(
            f"the log has no records at the offsets {expected} to {found - 1}",
            remedy="the topic is compacted, or records were deleted: read it without by='reference'",
        )


class FetchedRange:
    """The bytes of one partition in a fetch answer. Iterate over it once; `position` is behind everything that was looked at."""

    def __init__(
        self,
        raw: bytes,
        position: int,
        aborted: Iterable[tuple[int, int]] = (),
        *,
        checked: bool = True,
        most: int = MOST_BYTES,
    ) -> None:
        """`position`: the offset that was asked for. `aborted`: producer and first offset of each aborted transaction in the answer.
        `most`: how many bytes a batch may have once it is decompressed."""
        self.position = position
        self.oversized: list[OversizedBatch] = []
        self._most = most
        self._raw = raw
        self._aborts = sorted(aborted, key=lambda one: one[1])
        self._aborting: set[int] = set()
        self._checked = checked

    def records(self, behind: int) -> SpannedRecords | None:
        """The visible records from the position on, below the offset `behind`; None if there are none."""
        first = before = self.position
        found: list[SpannedRecords] = []
        for spans in self._batches(behind):
            low, high = _index_from(spans, first), _index_from(spans, behind)
            if low < high:
                found.append(spans.cut(low, high) if (low, high) != (0, len(spans)) else spans)
        if self._raw and self.position == before < behind:  # a broker sends the first batch whole
            raise DamagedBatch(
                f"the batch at offset {before} cannot be read: its {len(self._raw)} bytes are not all of it"
            )
        self.position = min(self.position, behind)
        return joined_spans(found) if found else None

    def _batches(self, behind: int) -> Iterator[SpannedRecords]:
        raw, end = self._raw, 0
        while end + HEAD.size <= len(raw) and self.position < behind:
            start, end = end, end + _LENGTH_FROM + int.from_bytes(raw[end + 8 : end + 12], "big", signed=True)
            if end > len(raw):
                return
            if end < start + HEAD.size:
                raise DamagedBatch(
                    f"the batch behind offset {self.position - 1} cannot be read: it claims {end - start} bytes"
                )
            if (run := read_run(raw, start)) is not None:
                end, following, spans = run
                if len(spans) != following - spans.base:
                    raise _gap(spans, following)
                self._follows(spans.base, following)
                yield spans
            elif (spans := self._batch(start, end)) is not None:
                yield spans

    def _batch(self, start: int, end: int) -> SpannedRecords | None:
        """The records of one batch; None if no one may see them."""
        raw = self._raw
        base, _, _, magic, crc, attributes, last, _, _, producer, _, _, count = HEAD.unpack_from(raw, start)
        if magic != 2:
            raise DamagedBatch(
                f"the batch at offset {base} cannot be read: its format {magic} is older than Kafka 0.11"
            )
        if self._checked and crc != crc32c(raw, start + CHECKED_FROM, end):
            raise DamagedBatch(f"the batch at offset {base} cannot be read: its checksum is wrong")
        if count != last + 1 and not attributes & CONTROL:
            raise NotWhole(base, base + last + 1)
        self._follows(base, base + last + 1)
        if self._hidden(start, end, base, attributes, producer):
            return None
        try:
            return read_spans(raw, start, end, self._most)
        except OversizedBatch as error:
            self.oversized.append(error)
            return None

    def _hidden(self, start: int, end: int, base: int, attributes: int, producer: int) -> bool:
        """Whether this is a control batch, or one of an aborted transaction."""
        while self._aborts and self._aborts[0][1] <= base:
            self._aborting.add(self._aborts.pop(0)[0])
        if attributes & CONTROL:
            if self._ends_abort(start, end):
                self._aborting.discard(producer)
            return True
        return bool(attributes & TRANSACTIONAL) and producer in self._aborting

    def _ends_abort(self, start: int, end: int) -> bool:
        """Whether this control batch ends an aborted transaction. One that the log cleaner has emptied ended the transaction before it."""
        records = read_spans(self._raw, start, end).columns()
        return not len(records) or records.keys is None or (records.keys[0] or b"")[2:4] == _ABORT

    def _follows(self, base: int, following: int) -> None:
        """Note a batch with these offsets; the first one may begin before the position."""
        if base > self.position:
            raise NotWhole(self.position, base)
        self.position = max(self.position, following)


def _gap(spans: SpannedRecords, following: int) -> NotWhole:
    offsets = [*longs(spans.every_offset()), following]
    expected = next(spans.base + n for n, offset in enumerate(offsets) if offset != spans.base + n)
    return NotWhole(expected, offsets[expected - spans.base])


def _index_from(spans: SpannedRecords, offset: int) -> int:
    return max(0, min(offset - spans.base, len(spans)))
