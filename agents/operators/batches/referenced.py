"""Batches by reference: a batch step cuts ranges of offsets, executors read the records, and what they saw comes back with the result.

    r<number>   the ranges of a batch: topic, partition, first offset, offset behind the last one, and the topic's id where it is known
    g<number>   of an input: the greatest event time that its records may have, as of its last offsets

Of an input only offsets are known. Of an intermediate stream the task has seen the rows, too, and keeps how many there are and their times.

Promises:

- Nothing of a record enters the task log. A batch of an input has at most `max_rows` offsets, so it has at most as many rows; one of an
  intermediate stream has whole frames, and more than `max_rows` only if its single frame has.
- A range of an intermediate stream contains every frame between its ends that the step was given, and executors must find as many rows as
  the task has seen, or the task fails. Until a batch is durably done, `needed` names its offsets, which no one trims.
- A result has the greatest event time of the rows that were read. What was read of a partition counts for its watermark in the transaction
  of the result, so no watermark passes a result that is still to come.
- A batch whose offsets hold no readable row has no result.
- Records that cannot be decoded are counted, or become dead letters, in the transaction of the result; no retry counts them twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from ....core.batching import origins
from ....core.batching.batches import ROWS, BatchOutcome, Closed, Limits
from ....core.batching.ranges import Range, RangeBroken, RangeGone, Ranges, UndecodedRecord, taken_for, together
from ....core.errors import DataError
from ....core.names import StreamPartition
from ....core.progress.frames import NO_TIME
from ...job.steps.batches import ByReference
from ...logger import Logger
from ...records.frames.chunks import Chunk
from ...records.kafka.columns import Columns
from ...records.layout import Buffer, longs
from ...records.memory.longs import extremes
from ..base.bad_records import BadRecord
from ..failures.failures import dead_letter
from ..failures.letters import bury
from ..source.event_times import EventLimits, Guard
from .batch_rows import BatchRows

if TYPE_CHECKING:
    from ..base.stateless import Operator

log = Logger("headgate.referenced")
DECODER, OF_FRAMES = (
    f"headgate.agents.operators.source.range_rows:{name}" for name in ("RangeDecoder", "FrameDecoder")
)
NAMED = 20
"""So many skipped records of a batch are named in the log; all are counted."""


def range_key(number: int) -> str:
    """Where the ranges of a batch are stored."""
    return f"r{number:012d}"


def latest_key(number: int) -> str:
    """Where the greatest event time that the records of a batch may have is stored."""
    return f"g{number:012d}"


class Referenced:
    """The batches of a step whose records are not here."""

    def __init__(self, rows: BatchRows, operator: Operator) -> None:
        step = operator.step
        assert step.ranges is not None, "only a batch by reference has ranges"
        self._rows = rows
        self._env: Any = operator.env
        self._name = step.name
        self._step = step
        self._how: ByReference = step.ranges
        self._noted = {number: self.ranges(number) for number in rows.kept.undone().numbers}
        """The ranges of the batches that are not done, for those who look when the store may be closed. What a letter that failed has added
        stays until the batch gets its next offsets."""

    @property
    def framed(self) -> bool:
        """Whether the records are frames of an intermediate stream, which the task reads, too."""
        return self._how.framed

    # -------------------------------------------------------------------------------------------------------- offsets come in

    def add(self, found: Range, limits: Limits, latest_ms: int) -> None:
        """Add offsets to the open batch; whenever it is full, close it and open the next one. `latest_ms`: the greatest event time
        that their records may have."""
        left: Range | None = found
        while left is not None:
            book = self._rows.book
            room, _ = book.room(limits)
            head = left if room is None else replace(left, behind=min(left.behind, left.first + max(room, 1)))
            left = replace(left, first=head.behind) if head.behind < left.behind else None
            number = book.opened().number
            self._noted[number] = ranges = _extended(self.ranges(number), head)
            grown = book.with_rows(None, head.size, 0, now_ms=self._env.now_ms(), times=(0, 0))
            stored = {range_key(number): [list(one) for one in map(_packed, ranges)], latest_key(number): latest_ms}
            self._rows.write(grown.when_full(limits), stored)

    def add_rows(self, at: StreamPartition, offsets: Sequence[int], times: Buffer, limits: Limits) -> None:
        """Add rows of frames to the open batch: the offset of the frame of each, and their times."""
        stamps = longs(times)
        start = 0
        for offset, some in groupby(offsets):
            behind = start + sum(1 for _ in some)
            self._add_frame(
                Range(*at, offset, offset + 1, self._env.topic_id(at)), behind - start, stamps[start:behind], limits
            )
            start = behind

    def _add_frame(self, frame: Range, rows: int, times: Buffer, limits: Limits) -> None:
        book = self._rows.book
        room, _ = book.room(limits)
        if room is not None and rows > room and book.opened().rows:
            self._rows.write(book.close(ROWS))
            book = self._rows.book
        number = book.opened().number
        self._noted[number] = ranges = _reaching(self.ranges(number), frame)
        grown = book.with_rows(None, rows, 0, now_ms=self._env.now_ms(), times=extremes(times))
        self._rows.write(grown.when_full(limits), {range_key(number): [list(one) for one in map(_packed, ranges)]})

    def needed(self) -> dict[StreamPartition, int]:
        """By partition, the first offset of the batches that are not done, as of the complete letters."""
        if not self.framed:
            return {}
        found: dict[StreamPartition, int] = {}
        for one in chain.from_iterable(self._unfinished().values()):
            at = StreamPartition(one.topic, one.partition)
            found[at] = min(found.get(at, one.first), one.first)
        return found

    def shown(self, number: int) -> Sequence[Range]:
        """The offsets of a batch that is not done, for people. The store is not read: it may be closed."""
        return self._unfinished().get(number, ())

    def _unfinished(self) -> dict[int, list[Range]]:
        undone = self._rows.kept.undone()
        self._noted = {number: ranges for number, ranges in self._noted.items() if not undone.done(number)}
        return self._noted

    def ranges(self, number: int) -> list[Range]:
        """The offsets of a batch."""
        (found,) = self._rows.table.get_many([range_key(number)])
        return [Range(*one) for one in found or ()]

    def _limits(self, number: int) -> EventLimits:
        """The event times that the records of a batch may have: the same at each attempt."""
        (latest_ms,) = self._rows.table.get_many([latest_key(number)])
        how = self._how
        return Guard(how.earliest_ms, how.max_future_ms, how.when is None).until(latest_ms)

    def contents(self, one: Closed) -> Ranges:
        """What Spark is given. A topic that was adopted holds the records of its range under another id."""
        adopted = self._env.adopted()
        parts = tuple(replace(part, topic_id=taken_for(part.topic_id, adopted)) for part in self.ranges(one.number))
        if self.framed:
            return Ranges(
                parts,
                self._how.columns,
                OF_FRAMES,
                (self._env.batch_max_bytes,),
                keeps_bad=self._how.on_bad_data != "fail",
                rows=one.rows,
            )
        return Ranges(
            parts,
            self._how.columns,
            DECODER,
            (self._how.when, self._env.batch_max_bytes, tuple(self._limits(one.number))),
            keeps_bad=self._how.on_bad_data != "fail",
        )

    def owed_ms(self, watermark: int | None) -> int | None:
        """What is read of the offsets that wait has at least the time that the step was told, or is late."""
        book = self._rows.kept
        if self.framed:
            return book.owed_ms()
        if not book.closed and not book.open:
            return None
        return NO_TIME if watermark is None else watermark

    def lost(self, one: Closed, cause: RangeGone) -> RangeGone:
        """The error for a batch whose records are gone, and what is left to do. `on_lost` decides about positions alone: a batch that is
        closed never becomes smaller."""
        job = self._env.declared.app.job
        again = (
            ""
            if self.framed
            else f"; `headgate seek {job} STREAM:PARTITION --to OFFSET` reads again what is left of them"
        )
        return RangeGone(
            f"batch {one.info(self._env.task, self._name).id}: {cause.what}",
            remedy=f"{cause.remedy}. What is gone cannot come back: note what `headgate batches {job}` shows, stop all workers, and forget "
            f"the unfinished batches of this step: `headgate tables clear {job} {self._name}`{again}",
        )

    # ----------------------------------------------------------------------------------------------------- results come in

    def known(self, outcomes: Sequence[BatchOutcome]) -> dict[str, int]:
        """What a closed batch is, now that it was read."""
        if self.framed:
            return {}
        read = outcomes[0].read
        return {"rows": sum(one.rows for one in read), "latest_ms": max(together(read).values(), default=0)}

    def arrived(self, first: Closed, outcomes: list[BatchOutcome]) -> tuple[Closed, list[BatchOutcome]]:
        """The first closed batch was read and has a result: the batch as it is now known, and the result, which is empty without rows."""
        if self.framed:
            for one in outcomes:
                if one.read and (rows := sum(part.rows for part in one.read)) != first.rows:
                    raise _other_rows(first.info(self._env.task, self._name).id, first.rows, rows)
            return first, outcomes
        first = replace(first, **self.known(outcomes))
        if not first.rows:
            outcomes = [replace(one, blocks=[], rows=0, attempt="") for one in outcomes]
        return first, outcomes

    def origins(self, first: Closed) -> list[origins.Origin]:
        """The offsets of a batch, in the order in which they are counted."""
        return [
            run
            for one in self.ranges(first.number)
            for run in origins.runs_of(one.topic, one.partition, range(one.first, one.behind))
        ]

    def topic_id(self, first: Closed, at: StreamPartition, offset: int) -> str:
        """The id of the topic that this record of a batch was read from; empty if it is not known, or two of its topics had that offset."""
        found = {
            one.topic_id
            for one in self.ranges(first.number)
            if (one.topic, one.partition) == at and one.first <= offset < one.behind
        }
        return found.pop() if len(found) == 1 else ""

    def finished(self, first: Closed, outcomes: Sequence[BatchOutcome]) -> None:
        """The result of the batch is taken in, in this letter."""
        if self.framed:  # the task itself has seen the times, the null values and the bad records
            return
        read = outcomes[0].read
        for (topic, partition), greatest in together(read).items():
            self._env.saw(StreamPartition(topic, partition), greatest)
        self._env.count("tombstones_dropped", sum(one.tombstones for one in read))
        bad = [record for one in read for record in one.bad]
        for place, record in enumerate(bad):
            self._env.failed(self._step, DataError(record.why))
            if self._how.on_bad_data == "dead_letter":
                self._bury(first, record)
                continue
            self._env.count("records_skipped")
            if place < NAMED:
                at = StreamPartition(record.topic, record.partition)
                log.warning("record is skipped", at=str(at), offset=record.offset, why=record.why)

    def _bury(self, first: Closed, record: UndecodedRecord) -> None:
        self._env.count("dead_letters")
        columns = Columns([record.value], [record.timestamp], record.offset, [record.key], None, [list(record.headers)])
        at = StreamPartition(record.topic, record.partition)
        chunk = Chunk(at, record.offset + 1, columns)
        error = BadRecord(0, DataError(record.why))
        topic_id = self.topic_id(first, at, record.offset)
        key, value, headers = dead_letter(chunk, 0, error, self._env.task, topic_id=topic_id)
        batch = first.info(self._env.task, self._name).id
        bury(self._env, key, value, [*headers, ("hg-batch", batch.encode())])


def _packed(one: Range) -> tuple[str | int, ...]:
    return one.topic, one.partition, one.first, one.behind, *([one.topic_id] if one.topic_id else [])


def _place(one: Range) -> tuple[str, int, str]:
    return one.topic, one.partition, one.topic_id


def _other_rows(batch: str, seen: int, read: int) -> RangeBroken:
    return RangeBroken(
        f"batch {batch}: the task saw {seen} rows in its frames, and Spark's executors read {read} there",
        remedy="the intermediate stream was changed: only the job itself may write it, and no one may compact or re-create it",
    )


def _reaching(ranges: list[Range], frame: Range) -> list[Range]:
    """The ranges with a further frame. What lies between the frames of a partition is no row of a batch: control messages, markers of
    transactions, aborted records.

    >>> _reaching([Range("t", 0, 5, 9)], Range("t", 0, 12, 13))
    [Range(topic='t', partition=0, first=5, behind=13, topic_id='')]
    """
    for place, one in enumerate(ranges):
        if _place(one) == _place(frame) and one.behind <= frame.first:
            return [*ranges[:place], replace(one, behind=frame.behind), *ranges[place + 1 :]]
        if _place(one) == _place(frame) and one.behind == frame.behind:
            return ranges
    return [*ranges, frame]


def _extended(ranges: list[Range], found: Range) -> list[Range]:
    """The ranges with a further one, which usually continues one of them.

    >>> _extended([Range("t", 0, 5, 9)], Range("t", 0, 9, 12))
    [Range(topic='t', partition=0, first=5, behind=12, topic_id='')]
    """
    for place, one in enumerate(ranges):
        if (_place(one), one.behind) == (_place(found), found.first):
            return [*ranges[:place], replace(one, behind=found.behind), *ranges[place + 1 :]]
    return [*ranges, found]
