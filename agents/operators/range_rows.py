"""Decodes fetch answers into columns where no task runs: in Spark's executors, which read a batch that is given by reference.

It has the rules of `column_source`: strict types, null values are no rows, a record without a readable time is bad. Bad records are left
out and named; whoever reads the range decides about them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, NamedTuple

from ...core.columns.schema import ColumnSchema, ColumnSpec
from ...core.errors import EnvironmentFault
from ...core.ranges import RangeBroken, UndecodedRecord
from ..records.column_chunk import why_bad
from ..records.decoder import DecodedColumns, Decoder
from ..records.longs import extremes
from ..records.spans import SpannedRecords, headers_of, piece
from ..records.vectors import Buffer, VectorBatch, longs
from ..records.visible import FetchedRange
from .column_times import ColumnTimes


class RangeRows(NamedTuple):
    """What a fetch answer has brought."""

    position: int
    """Where reading continues."""
    batch: VectorBatch | None = None
    """The rows, which speak the Arrow capsule interface; None if there are none."""
    rows: int = 0
    tombstones: int = 0
    greatest_ms: int | None = None
    """The greatest event time of the rows."""
    bad: tuple[UndecodedRecord, ...] = ()


class RangeDecoder:
    """Decodes the answers of one topic."""

    def __init__(self, columns: Iterable[tuple[str, Any, bool]], when: Any, *, checked: bool = True) -> None:
        """`columns`: name, type and whether it may be null. `when`: the column of the event time; None for Kafka's timestamps."""
        schema = ColumnSchema(tuple(ColumnSpec(*one) for one in columns))
        self._decoder = Decoder(schema.columns)
        self._times = ColumnTimes(when)
        self._checked = checked

    def __call__(
        self, topic: str, partition: int, raw: bytes, position: int, behind: int, aborted: Iterable[tuple[int, int]]
    ) -> RangeRows:
        """The rows of an answer to a fetch at `position`, below the offset `behind`.."""
        answer = FetchedRange(raw, position, aborted, checked=self._checked)
        try:
            records = answer.records(behind)
        except EnvironmentFault as error:
            raise RangeBroken(f"{topic}[{partition}]: {error.what}", remedy=error.remedy) from error
        if records is None:
            return RangeRows(answer.position)
        bad: dict[int, UndecodedRecord] = {}
        found, times = self._decoded(records, bad, topic, partition)
        rows = found.columns.length
        return RangeRows(
            answer.position,
            found.columns if rows else None,
            rows,
            len(found.tombstones),
            extremes(times)[1] if rows else None,
            tuple(bad[index] for index in sorted(bad)),
        )

    def _decoded(
        self, records: SpannedRecords, bad: dict[int, UndecodedRecord], topic: str, partition: int
    ) -> tuple[DecodedColumns, Buffer]:
        """The rows and their event times, without bad records. `bad` gets these, by their index."""

        def leave_out(index: int, cause: BaseException) -> None:
            bad[index] = _unreadable(records, index, cause, topic, partition)

        found = self._decoder.decode(*records.values)
        for one in found.bad:
            leave_out(one.record, why_bad(one, piece(records.values, one.record) or b""))
        kept = records if found.rows is None else records.picked(found.rows)
        vectors = dict(zip(found.columns.names, found.columns.vectors, strict=True))
        times, late = self._times.of(vectors, kept.timestamps)
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
        return found, self._times.of(vectors, kept.timestamps)[0]


def _unreadable(
    records: SpannedRecords, index: int, cause: BaseException, topic: str, partition: int
) -> UndecodedRecord:
    offset = records.base + index if records.offsets is None else longs(records.offsets)[index]
    return UndecodedRecord(
        topic,
        partition,
        offset,
        longs(records.timestamps)[index],
        None if records.keys is None else piece(records.keys, index),
        piece(records.values, index),
        tuple(headers_of(None if records.headers is None else piece(records.headers, index))),
        str(cause),
    )
