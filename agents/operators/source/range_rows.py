"""Decodes fetch answers into columns where no task runs: in Spark's executors, which read a batch that is given by reference.

It has the rules of `column_source`: strict types, null values are no rows, a record without a readable time is bad. Bad records are left
out and named; whoever reads the range decides about them.

A record of an intermediate stream is a frame. Frames of columns and of rows become columns; control messages are no rows.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ....core.batching.ranges import RangeBroken, UndecodedRecord
from ....core.columns.schema import ColumnSchema, ColumnSpec
from ....core.errors import EnvironmentFault
from ....core.progress.frames import ArrowFrame, BatchFrame, FrameError, UserFrame, decode
from ...records.columns.decoder import DecodedColumns, Decoder
from ...records.columns.fitting import why_bad
from ...records.columns.logical_arrow import logical_in
from ...records.columns.object_columns import ObjectColumns
from ...records.frames.arrow_columns import ArrivedColumns, in_vectors
from ...records.frames.arrow_rows import as_batch
from ...records.kafka.columns import OversizedBatch
from ...records.kafka.spans import SpannedRecords, headers_of
from ...records.kafka.visible import FetchedRange
from ...records.layout import Buffer, longs
from ...records.limits import MOST_BYTES
from ...records.memory.longs import extremes
from ...records.memory.record_spans import packed, piece, pieces
from ...records.memory.vectors import VectorBatch
from ...records.values.nesting import nesting
from ...records.values.serdes import json
from .column_times import ColumnTimes
from .event_times import EventLimits


class RangeRows(NamedTuple):
    """What a fetch answer has brought."""

    position: int
    """Where reading continues."""
    batch: VectorBatch | ObjectColumns | None = None
    """The rows, which speak the Arrow capsule interface; None if there are none."""
    rows: int = 0
    tombstones: int = 0
    greatest_ms: int | None = None
    """The greatest event time of the rows."""
    bad: tuple[UndecodedRecord, ...] = ()
    frames: tuple[tuple[int, VectorBatch | ObjectColumns], ...] = ()
    """Of a stream of frames, instead of `batch`: the offset and the rows of each frame that has any."""


class RangeDecoder:
    """Decodes the answers of one topic."""

    def __init__(
        self,
        columns: Iterable[tuple[Any, ...]],
        when: Any,
        most: int = MOST_BYTES,
        limits: Sequence[Any] = (),
        *,
        checked: bool = True,
    ) -> None:
        """`columns`: as `ColumnSpec.plain` has them. `when`: the column of the event time; None for Kafka's timestamps.
        `most`: how many bytes a record batch may have once it is decompressed. `limits`: of the event times, when the batch was closed."""
        self._limits = EventLimits(*limits)
        schema = ColumnSchema(tuple(ColumnSpec.of_plain(*one) for one in columns))
        self._decoder = Decoder(schema.columns, nested=True)
        self._shaped = _shape(schema)
        self._times = ColumnTimes(when, framed=False, schema=schema)
        self._read = partial(_visible, checked=checked, most=most)

    def __call__(
        self, topic: str, partition: int, raw: bytes, position: int, behind: int, aborted: Iterable[tuple[int, int]]
    ) -> RangeRows:
        """The rows of an answer to a fetch at `position`, below the offset `behind`.."""
        position, records, whole = self._read(topic, partition, raw, position, behind, aborted)
        if records is None:
            return RangeRows(position, bad=tuple(whole))
        bad: dict[int, UndecodedRecord] = {}
        found, times = self._decoded(records, bad, topic, partition)
        rows = found.columns.length
        return RangeRows(
            position,
            self._shaped(found.columns) if rows else None,
            rows,
            len(found.tombstones),
            extremes(times)[1] if rows else None,
            (*whole, *(bad[index] for index in sorted(bad))),
        )

    def _decoded(
        self, records: SpannedRecords, bad: dict[int, UndecodedRecord], topic: str, partition: int
    ) -> tuple[DecodedColumns, Buffer]:
        """The rows and their event times, without bad records. `bad` gets these, by their index."""

        def leave_out(index: int, cause: BaseException) -> None:
            bad[index] = _unreadable(records, index, cause, topic, partition)

        found = self._decoder.decode(*records.values)
        for one in found.bad:
            leave_out(one.record, why_bad(one, piece(records.values, one.record) or b"", self._decoder.kinds))
        kept = records if found.rows is None else records.picked(found.rows)
        vectors = dict(zip(found.columns.names, found.columns.vectors, strict=True))
        times, late = self._times.of(vectors, kept, self._limits)
        if not late:
            return found, times
        places = range(len(records)) if found.rows is None else longs(found.rows)
        for row, cause in late:
            leave_out(places[row], cause)
        left = array("q", [index for index in places if index not in bad])
        tombstones = found.tombstones
        kept = records.picked(left)
        found = self._decoder.decode(*kept.values)
        found.tombstones = tombstones
        vectors = dict(zip(found.columns.names, found.columns.vectors, strict=True))
        return found, self._times.of(vectors, kept, self._limits)[0]


class FrameDecoder:
    """Decodes the answers of an intermediate stream. It finds the rows that the task has found."""

    def __init__(self, columns: Iterable[tuple[Any, ...]], most: int = MOST_BYTES, *, checked: bool = True) -> None:
        """`columns`, `most`: as in `RangeDecoder`."""
        self._schema = ColumnSchema(tuple(ColumnSpec.of_plain(*one) for one in columns))
        self._decoder = Decoder(self._schema.columns, stored=True)
        self._shaped = _shape(self._schema)
        self._serde = json()
        self._read = partial(_visible, checked=checked, most=most)

    def __call__(
        self, topic: str, partition: int, raw: bytes, position: int, behind: int, aborted: Iterable[tuple[int, int]]
    ) -> RangeRows:
        """As `RangeDecoder`."""
        position, records, bad = self._read(topic, partition, raw, position, behind, aborted)
        if records is None:
            return RangeRows(position, bad=tuple(bad))
        frames: list[tuple[int, VectorBatch | ObjectColumns]] = []
        count = 0
        for index, value in enumerate(pieces(records.values)):
            try:
                rows, flaws = self._rows(value or b"")
            except FrameError as error:
                rows, flaws = None, [str(error)]
            bad += [_unreadable(records, index, why, topic, partition) for why in flaws]
            if rows is not None and rows.length:
                frames.append((_offset(records, index), self._shaped(rows)))
                count += rows.length
        return RangeRows(position, rows=count, bad=tuple(bad), frames=tuple(frames))

    def _rows(self, value: bytes) -> tuple[VectorBatch | None, list[str]]:
        """The rows of a frame (None: it has none), and what is wrong with those that are left out."""
        frame = decode(value)
        if isinstance(frame, UserFrame):
            return self._decoded([frame.body])
        if not isinstance(frame, ArrowFrame | BatchFrame):
            return None, []
        if frame.plan is not None:
            raise FrameError("partial states instead of rows", remedy="only the job itself may write this stream")
        if isinstance(frame, ArrowFrame):
            columns = ArrivedColumns([(frame, 0)], self._serde) if frame.records and in_vectors(frame) else None
            if columns is not None and (found := columns.declared(self._schema)) is not None:
                return found, []
            frame = as_batch(frame, self._serde)
        return self._decoded(frame.values)

    def _decoded(self, values: list[bytes | None]) -> tuple[VectorBatch, list[str]]:
        spans = packed(values)
        found = self._decoder.decode(*spans)
        return found.columns, [str(why_bad(one, piece(spans, one.record) or b"", {})) for one in found.bad]


def _shape(schema: ColumnSchema) -> Callable[[VectorBatch], VectorBatch | ObjectColumns]:
    """What makes structs of the columns of nested objects, and Arrow's types of logical ones."""
    if not (schema.nested or schema.logical):
        return lambda batch: batch
    of, logical = nesting(schema.columns), logical_in(schema.columns)
    return lambda batch: ObjectColumns(batch, of, logical)


def _visible(
    topic: str,
    partition: int,
    raw: bytes,
    position: int,
    behind: int,
    aborted: Iterable[tuple[int, int]],
    *,
    checked: bool,
    most: int,
) -> tuple[int, SpannedRecords | None, list[UndecodedRecord]]:
    """Where reading continues behind an answer, the records that a reader may see in it, and the batches that are too large."""
    answer = FetchedRange(raw, position, aborted, checked=checked, most=most)
    try:
        records = answer.records(behind)
    except EnvironmentFault as error:
        raise RangeBroken(f"{topic}[{partition}]: {error.what}", remedy=error.remedy) from error
    return answer.position, records, [_whole(topic, partition, position, one) for one in answer.oversized]


def _whole(topic: str, partition: int, position: int, error: OversizedBatch) -> UndecodedRecord:
    """A batch that is not decompressed, as one record."""
    first = max(position, error.base)
    why = str(error.as_data(f"{topic}[{partition}]", first))
    return UndecodedRecord(topic, partition, first, error.greatest_ms, None, error.packed, (), why)


def _offset(records: SpannedRecords, index: int) -> int:
    return records.base + index if records.offsets is None else longs(records.offsets)[index]


def _unreadable(
    records: SpannedRecords, index: int, cause: BaseException | str, topic: str, partition: int
) -> UndecodedRecord:
    return UndecodedRecord(
        topic,
        partition,
        _offset(records, index),
        longs(records.timestamps)[index],
        None if records.keys is None else piece(records.keys, index),
        piece(records.values, index),
        tuple(headers_of(None if records.headers is None else piece(records.headers, index))),
        str(cause),
    )
