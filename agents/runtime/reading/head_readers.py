"""What a chooser sees of records that are still buffered: the event time that the input declares, and the decoded value.

Kafka's timestamp says when a record was written; the input's `timestamp=` says when the event happened, and choosers align by that time.
It is known only from the decoded value, so only choosers that use the time or the value pay for decoding. A record that cannot be decoded
has no time (nothing waits for it) and no value; one before `earliest=`, or whose time is no event time, has no time. How it is handled is
decided when it is taken. A record without a value has no time of its own, either, and none whose schema is not known yet: the letter that
takes it learns it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ....core.progress.frames import NO_TIME, ArrowFrame, BatchFrame, Frame, FrameError, UserFrame, decode
from ...job.derive.declaration import Declared
from ...job.steps.sources import InputStep
from ...job.types.timestamps import BadTimestamp, timestamps_of
from ...learning import MustLearn
from ...operators.source.decode import serde_of
from ...operators.source.event_times import guard_of
from ...records.frames.arrow_rows import as_batch
from ...records.frames.chunks import FetchedRecords

ReadTimes = Callable[["FetchedRecords | OneRecord"], list[int]]
Time = Callable[[bytes | None, int], int]
Value = Callable[[bytes | None], Any]


class OneRecord(NamedTuple):
    """A record as columns."""

    values: list[bytes | None]
    timestamps: list[int]


def event_times(declared: Declared) -> dict[str, ReadTimes]:
    """For each input that declares a `timestamp=`, and each stream of other jobs: a function that returns the event times of its records;
    a frame has that of its first row."""
    inputs = declared.inputs.values()
    times = {step.topic: _times(step) for step in inputs if step.timestamp is not None}
    return times | {step.topic: _times_of_frames(step.serde) for step in inputs if step.producers}


def head_times(declared: Declared, streams: frozenset[str]) -> dict[str, Time]:
    """For each of these inputs that declares a `timestamp=`: a function that returns the event time of one record."""
    return {stream: _time(read) for stream, read in event_times(declared).items() if stream in streams}


def head_values(declared: Declared) -> dict[str, Value]:
    """For each stream that the job reads: a function that returns the value of one record. Of a batch frame or an Arrow frame it is the
    value of the first row; of a control message it is None."""
    return {
        topic: _framed(serde_of(step)) if step.framed else _plain(step.serde)
        for topic, step in declared.sources.items()
    }


def _times(step: InputStep) -> ReadTimes:
    assert step.timestamp is not None
    serde, extract, limits = step.serde, timestamps_of(step.timestamp), guard_of(step).limits(None)

    def judged(times: list[int]) -> list[int]:
        for place, _ in limits.outside(times):
            times[place] = NO_TIME
        return times

    def times(columns: FetchedRecords | OneRecord) -> list[int]:
        try:
            read = serde.loads_many(columns.values)
        except MustLearn:
            return [NO_TIME] * len(columns.values)
        if not read.bad:
            try:
                return judged(list(extract(read.values, [NO_TIME] * len(read.values))))
            except BadTimestamp:
                pass
        bad = {index for index, _ in read.bad}
        found: list[int] = []
        for index, value in enumerate(read.values):
            try:
                found.append(NO_TIME if index in bad else extract([value], [NO_TIME])[0])
            except BadTimestamp:
                found.append(NO_TIME)
        return judged(found)

    return times


def _frame(data: bytes | None, serde: Any) -> Frame | None:
    """The frame, its columns as rows; None if it cannot be read."""
    try:
        frame = decode(data or b"")
        return as_batch(frame, serde) if isinstance(frame, ArrowFrame) else frame
    except FrameError:
        return None


def _times_of_frames(serde: Any) -> ReadTimes:
    def time(data: bytes | None) -> int:
        frame = _frame(data, serde)
        return frame.timestamps[0] if isinstance(frame, BatchFrame) and frame.timestamps else NO_TIME

    return lambda columns: [time(data) for data in columns.values]


def _time(read: ReadTimes) -> Time:
    def time(data: bytes | None, kafka_ms: int) -> int:
        return read(OneRecord([data], [kafka_ms]))[0]

    return time


def _plain(serde: Any) -> Value:
    def value(data: bytes | None) -> Any:
        try:
            read = serde.loads_many([data])
        except MustLearn:
            return None
        return None if read.bad else read.values[0]

    return value


def _framed(serde: Any) -> Value:
    plain = _plain(serde)

    def value(data: bytes | None) -> Any:
        frame = _frame(data, serde)
        if isinstance(frame, UserFrame):
            return plain(frame.body)
        return plain(frame.values[0]) if isinstance(frame, BatchFrame) and frame.values else None

    return value
