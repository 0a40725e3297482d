"""Rows on their way into a stream of frames: each goes to the partition of its key, in frames of bounded size.

Promise: rows of one key stay in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...core.progress.frames import FROM_HEADER, HEADER, BatchFrame, header_value
from ...core.progress.frames import encode as encode_frame
from ..records.arrow_frames import COLUMN_FRAME_RECORDS, FrameRecord, FrameRows, FrameWriter
from ..records.columns import pick
from ..records.framing import FRAME_RECORDS, frame_cuts
from ..records.partitioner import Partitioner
from ..records.writable import NO_TIMESTAMP


class Spread:
    """Writes rows to the partitions of the streams of one task."""

    def __init__(self, widths: Mapping[str, int], emit: Callable[..., None], made_of: Callable[[], bytes]) -> None:
        """`widths`: the number of partitions of each stream. `emit` writes records to a partition, as `Env.emit` does. `made_of` names the
        records that the running rows are made of; it is empty for a letter that is not a chunk."""
        self.widths = widths
        self.most: Mapping[str, int] = {}
        """How many rows a frame of a stream may have. A stream that another job reads is not named."""
        self._emit = emit
        self._made_of = made_of
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
    ) -> None:
        """Write rows, or partial states of a plan, in batch frames."""
        width = self.widths[topic]
        if everyone or width == 1:
            self._frames(topic, 0, keys, timestamps, values, headers, plan)
            return
        for partition, at in enumerate(self._partitioner(topic, width).split(keys)):
            if at:
                own = None if headers is None else pick(headers, at)
                self._frames(topic, partition, pick(keys, at), pick(timestamps, at), pick(values, at), own, plan)

    def columns(self, topic: str, everyone: bool, writer: FrameWriter, of: FrameRows) -> None:
        """Write rows in columns, in frames of this writer."""
        width = self.widths[topic]
        if everyone or width == 1 or of.keys is None:
            parts = [of.rows]
        else:
            parts = self._partitioner(topic, width).split_spans(of.keys, of.rows)
        for partition, rows in enumerate(parts):
            for one in writer.records(of._replace(rows=rows), self.most.get(topic, COLUMN_FRAME_RECORDS)):
                self._frame(topic, partition, one)

    def _partitioner(self, topic: str, width: int) -> Partitioner:
        found = self._partitioners.get(topic)
        if found is None:
            found = self._partitioners[topic] = Partitioner(width)
        return found

    def _frames(
        self,
        topic: str,
        partition: int,
        keys: list[Any],
        timestamps: list[int],
        values: list[Any],
        headers: list[Any] | None,
        plan: int | None,
    ) -> None:
        most = min(self.most.get(topic, FRAME_RECORDS), FRAME_RECORDS)
        for start, stop in frame_cuts(keys, values, headers, most):
            own = None if headers is None or not any(headers[start:stop]) else headers[start:stop]
            frame = BatchFrame(keys[start:stop], timestamps[start:stop], values[start:stop], own, plan)
            self._frame(topic, partition, FrameRecord(encode_frame(frame), header_value(frame), timestamps[start]))

    def _frame(self, topic: str, partition: int, frame: FrameRecord) -> None:
        # event times before 1970 are valid, but Kafka does not accept them
        first = max(frame.first_ms, NO_TIMESTAMP)
        headers = [(HEADER, frame.type)]
        if made_of := self._made_of():
            headers.append((FROM_HEADER, made_of))
        self._emit(topic, partition, None, [frame.value], [first], [headers])
