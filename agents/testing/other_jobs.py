"""The jobs that write a shared stream that a driver's job reads: what tests send there travels in frames, with control messages.

Each job has one producer. It says as its watermark the greatest time that was sent, and at the end that it has ended. A test of both jobs
copies the frames of the other driver instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...core.names import StreamPartition
from ...core.progress.frames import (
    HEADER,
    NO_TIME,
    ArrowFrame,
    BatchFrame,
    ControlFrame,
    EndOfStream,
    UserFrame,
    Watermark,
    decode,
    encode,
    header_value,
)
from ..records.frames.arrow_rows import as_batch
from ..records.values.serdes import json
from .logs import Logs, Stored

TASK = "Partition 0"
RUN = "run-1"
EPOCH = 1


class OtherJobs:
    """The jobs that write one stream."""

    def __init__(self, topic: str, jobs: Sequence[str], logs: Logs) -> None:
        self._topic = topic
        self._jobs = jobs
        self._logs = logs
        self._ts = NO_TIME
        self._copied: dict[tuple[int, int], int] = {}
        """By the logs of another driver and partition: the next offset to copy."""

    def rows(self, partition: int, rows: Iterable[tuple[Any, bytes | None, int, Sequence[Any]]]) -> None:
        """Write these records in one frame."""
        keys, values, stamps, headers = map(list, zip(*rows, strict=True))
        self._ts = max(self._ts, *stamps)
        self._write(partition, BatchFrame(keys, stamps, values, headers if any(headers) else None, None))

    def watermark(self) -> None:
        """All producers say the greatest time that was sent."""
        self._say(lambda job: Watermark(job, RUN, TASK, 1, EPOCH, self._ts, False))

    def end(self) -> None:
        """All producers say that they have ended."""
        self._say(lambda job: EndOfStream(job, RUN, TASK, 1, EPOCH))

    def copy(self, logs: Logs) -> None:
        """Write the frames that have come into the same stream of other logs since the last call."""
        for partition in range(self._logs.width(self._topic)):
            at, place = StreamPartition(self._topic, partition), (id(logs), partition)
            for one in logs.records(at):
                if one.offset >= self._copied.get(place, 0):
                    self._logs.write(at, [one.key], [one.value], [one.timestamp], [one.headers])
                    self._copied[place] = one.offset + 1

    def _say(self, frame: Any) -> None:
        for partition in range(self._logs.width(self._topic)):
            for job in self._jobs:
                self._write(partition, frame(job))

    def _write(self, partition: int, frame: BatchFrame | ControlFrame) -> None:
        headers = [[(HEADER, header_value(frame))]]
        self._logs.write(StreamPartition(self._topic, partition), None, [encode(frame)], [0], headers)


def rows_of_frame(one: Stored) -> list[Stored]:
    """The records in a frame; none in a control message."""
    frame = decode(one.value or b"")
    if isinstance(frame, UserFrame):
        return [one._replace(value=frame.body)]
    if isinstance(frame, ArrowFrame):  # only columns that are JSON as rows are written so
        frame = as_batch(frame, json())
    if not isinstance(frame, BatchFrame):
        return []
    headers = frame.headers or [[] for _ in frame.values]
    return [
        Stored(one.offset, stamp, key, value, list(own), one.partition)
        for stamp, key, value, own in zip(frame.timestamps, frame.keys, frame.values, headers, strict=True)
    ]
