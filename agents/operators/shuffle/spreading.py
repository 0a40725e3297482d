"""Rows on their way into a stream of frames: each goes to the partition of its key, in frames of bounded size.

Promise: rows of one key stay in their order.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ....core.progress.came_from import ROWS_HEADER
from ....core.progress.frames import BATCH, FROM_HEADER, HEADER, TRACE_HEADER, TYPE_NAMES, BatchFrame, batch_ends
from ....core.progress.frames import encode as encode_frame
from ...records.columns.records import Records
from ...records.frames.arrow_frames import COLUMN_FRAME_RECORDS, FrameRecord, FrameWriter
from ...records.frames.framing import FRAME_BYTES, FRAME_RECORDS, frame_cuts
from ...records.kafka.columns import pick
from ...records.kafka.partitioner import Partitioner
from ...records.limits import NO_TIMESTAMP
from ...records.memory.longs import distances

BATCH_TYPE = TYPE_NAMES[BATCH].encode()


class Before(NamedTuple):
    """The records that a task had before it when it wrote a frame."""

    said: str
    """Which they are."""
    records: str
    """The records of inputs that the rows were made of, if the record of each is known."""
    first: int
    """What the number of a row's record is the distance to, for the first row."""


class Spread:
    """Writes rows to the partitions of the streams of one task."""

    def __init__(
        self, widths: Mapping[str, int], emit: Callable[..., None], before: Callable[[], Before | None]
    ) -> None:
        """`widths`: the number of partitions of each stream. `emit` writes records to a partition, as `Env.emit` does. `before` names the
        records that the running rows are made of; None for a letter that is not a chunk."""
        self.widths = widths
        self.most: Mapping[str, int] = {}
        """How many rows a frame of a stream may have. A stream that another job reads is not named."""
        self.trace: bytes | None = None
        """The span in which frames are written, as a header names it; None if it is not traced."""
        self._emit = emit
        self._before = before
        self._partitioners: dict[str, Partitioner] = {}

    def rows(
        self,
        topic: str,
        everyone: bool,
        keys: list[Any],
        timestamps: list[int],
        values: list[Any],
        headers: list[Any] | None,
        plan: int | None,
        offsets: Sequence[int] | None = None,
    ) -> None:
        """Write rows, or partial states of a plan, in batch frames. `offsets`: those of the records that the rows were made of."""
        partitioner = self._partitioner(topic, 1 if everyone else self.widths[topic])
        came = None if offsets is None else array("q", offsets)
        most = min(self.most.get(topic, FRAME_RECORDS), FRAME_RECORDS)
        if headers is None or not any(headers):
            bounds, ends = (most, FRAME_BYTES), batch_ends(plan)
            for partition, first_ms, body, places in partitioner.spread(keys, timestamps, values, came, bounds, ends):
                self._frame(topic, partition, FrameRecord(body, BATCH_TYPE, first_ms, places))
            return
        for partition, at in enumerate(partitioner.split(keys)):
            own_keys, own_times, own_values, own_headers = (
                pick(column, at) for column in (keys, timestamps, values, headers)
            )
            places = None if came is None else array("q", map(came.__getitem__, at))
            for start, stop in frame_cuts(own_keys, own_values, own_headers, most):
                own = own_headers[start:stop] if any(own_headers[start:stop]) else None
                frame = BatchFrame(own_keys[start:stop], own_times[start:stop], own_values[start:stop], own, plan)
                body, first_ms = encode_frame(frame), own_times[start]
                self._frame(
                    topic,
                    partition,
                    FrameRecord(body, BATCH_TYPE, first_ms, None if places is None else places[start:stop]),
                )

    def columns(self, topic: str, everyone: bool, writer: FrameWriter, of: Records) -> None:
        """Write rows in columns, in frames of this writer."""
        width = self.widths[topic]
        parts = [of]
        if not everyone and width > 1 and of.key_spans is not None:
            parts = [of.kept(rows) for rows in self._partitioner(topic, width).split_spans(of.key_spans, of.picked)]
        for partition, part in enumerate(parts):
            for one in writer.records(part, self.most.get(topic, COLUMN_FRAME_RECORDS)):
                self._frame(topic, partition, one)

    def _partitioner(self, topic: str, width: int) -> Partitioner:
        found = self._partitioners.get(topic)
        if found is None:
            found = self._partitioners[topic] = Partitioner(width)
        return found

    def _frame(self, topic: str, partition: int, frame: FrameRecord) -> None:
        # event times before 1970 are valid, but Kafka does not accept them
        first = max(frame.first_ms, NO_TIMESTAMP)
        headers = [(HEADER, frame.type)]
        if (before := self._before()) is not None:
            known = frame.offsets is not None
            headers.append((FROM_HEADER, (before.records if known else before.said).encode()))
            if frame.offsets is not None:
                headers.append((ROWS_HEADER, distances(frame.offsets, before.first)))
        if self.trace is not None:
            headers.append((TRACE_HEADER, self.trace))
        self._emit(topic, partition, None, [frame.value], [first], [headers])
