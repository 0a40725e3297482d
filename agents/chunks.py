"""Chunks: runs of consecutive records of one partition, in columns, and the buffers that they are cut from.

What it decides: where a chunk ends. Promises:

- A chunk holds at most as many records as asked for; only a batch frame, which is taken whole, may make it larger.
- In a framed stream a control message, an Arrow frame and an unreadable frame are chunks of their own.
- `next_position` counts Kafka records and steps over what nobody may read (control, aborted, compacted-away).
- A column that nobody looks at is never built.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..core.frames import ArrowFrame, BatchFrame, ControlFrame, FrameError, UserFrame, decode, is_control
from ..core.names import StreamPartition
from .rawkafka import Batch

Bytes = bytes | None
Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class _Columns:
    """Records of a framed stream, whose batch frames have been unpacked."""

    values: list[Bytes]
    keys: list[Bytes]
    timestamps: list[int]
    offsets: list[int]
    headers: list[list[Header]]


class Chunk:
    """A run of records of one partition; the unit of all work. Columns have equal lengths.

    `control` (a control message), `arrow` (an Arrow frame's body) and `bad` (an unreadable frame) mark chunks of their own.
    """

    __slots__ = (
        "_columns",
        "_keys",
        "_records",
        "_stamps",
        "_values",
        "arrow",
        "at",
        "bad",
        "control",
        "next_position",
    )

    def __init__(
        self,
        at: StreamPartition,
        next_position: int,
        records: list[Any] | None = None,
        columns: _Columns | None = None,
        *,
        control: ControlFrame | None = None,
        arrow: bytes | None = None,
        bad: FrameError | None = None,
    ) -> None:
        self.at = at
        self.next_position = next_position
        self.control = control
        self.arrow = arrow
        self.bad = bad
        self._records: list[Any] = records if records is not None else []
        self._columns = columns
        self._values: list[Bytes] | None = None
        self._keys: list[Bytes] | None = None
        self._stamps: list[int] | None = None

    @classmethod
    def of(
        cls,
        at: StreamPartition,
        values: list[Bytes],
        *,
        keys: list[Bytes] | None = None,
        timestamps: list[int] | None = None,
        base: int = 0,
        next_position: int | None = None,
    ) -> Chunk:
        """A chunk from plain columns, for drivers without Kafka and for tests.

        >>> Chunk.of(StreamPartition("orders", 0), [b"a", b"b"], base=7).next_position
        9
        """
        size = len(values)
        columns = _Columns(
            values,
            keys if keys is not None else [None] * size,
            timestamps if timestamps is not None else [0] * size,
            list(range(base, base + size)),
            [[] for _ in values],
        )
        return cls(at, base + size if next_position is None else next_position, None, columns)

    def pick(self, first: int, behind: int) -> Chunk:
        """The records from `first` up to but not including `behind`, as a chunk that goes on where this one does."""
        part = slice(first, behind)
        columns = _Columns(
            self.values[part], self.keys[part], self.timestamps[part], self.offsets[part], self.headers[part]
        )
        return Chunk(self.at, self.next_position, None, columns)

    def __len__(self) -> int:
        return len(self._columns.values if self._columns is not None else self._records) if self.is_data else 0

    @property
    def is_data(self) -> bool:
        """Whether it holds records, and not one control, Arrow or unreadable frame."""
        return self.control is None and self.arrow is None and self.bad is None

    @property
    def has_keys(self) -> bool:
        """Whether any record has a key."""
        keys = self.keys
        return keys.count(None) != len(keys)

    @property
    def has_headers(self) -> bool:
        """Whether any record has headers."""
        if self._columns is not None:
            return any(self._columns.headers)
        return any(record.headers for record in self._records)

    @property
    def values(self) -> list[Bytes]:
        """The values; of a framed stream without their type bytes. Of an unreadable frame its raw bytes."""
        if self._columns is not None:
            return self._columns.values
        if self._values is None:
            self._values = [record.value for record in self._records]
        return self._values

    @property
    def keys(self) -> list[Bytes]:
        """The keys."""
        if self._columns is not None:
            return self._columns.keys
        if self._keys is None:
            self._keys = [record.key for record in self._records]
        return self._keys

    @property
    def timestamps(self) -> list[int]:
        """Milliseconds since the epoch."""
        if self._columns is not None:
            return self._columns.timestamps
        if self._stamps is None:
            self._stamps = [record.timestamp for record in self._records]
        return self._stamps

    @property
    def offsets(self) -> list[int]:
        """Kafka's offsets; all records of one batch frame have the frame's."""
        return self._columns.offsets if self._columns is not None else [record.offset for record in self._records]

    @property
    def headers(self) -> list[list[Header]]:
        """The headers of each record; records of a batch frame have none."""
        return (
            self._columns.headers if self._columns is not None else [list(record.headers) for record in self._records]
        )

    def __repr__(self) -> str:
        what = f"{len(self)} records"
        if not self.is_data:
            what = repr(self.control or self.bad or f"Arrow, {len(self.arrow or b'')} bytes")
        return f"Chunk({self.at}, {what}, next {self.next_position})"


class Buffer:
    """What has been fetched of one partition and not been handed out."""

    __slots__ = ("_batches", "_head", "_head_size", "_index", "_wanted", "at", "framed", "position", "size", "until")

    def __init__(self, at: StreamPartition, position: int, *, framed: bool = False, until: int | None = None) -> None:
        self.at = at
        self.framed = framed
        self.until = until
        self.clear(position)

    def clear(self, position: int) -> None:
        """Forget what is buffered; go on from here."""
        self.position = position
        self.size = 0
        self._batches: deque[tuple[Batch | None, int, int]] = deque()
        self._head: list[Any] = []
        self._head_size = 0
        self._index = 0
        self._wanted = position

    def put(self, batches: Iterable[Batch], start: int, following: int) -> None:
        """Batches that came in; records below `start` are not wanted, and reading goes on at `following`."""
        came = False
        for batch in batches:
            self._batches.append((batch, start, batch.next))
            self.size += batch.size
            came = True
        if came and self._batches[-1][2] >= following:
            return
        self._batches.append((None, start, following))
        self._settle()

    @property
    def empty(self) -> bool:
        """Nothing is left to hand out."""
        self._settle()
        return self._index >= len(self._head)

    @property
    def ended(self) -> bool:
        """The bound has been reached: everything below it has been handed out."""
        if self.until is None:
            return False
        if self.position >= self.until:
            return True
        return not self.empty and self._head[self._index].offset >= self.until

    @property
    def count(self) -> int:
        """Records that are buffered; of batches that were compacted an upper bound."""
        return len(self._head) - self._index + sum(b.count for b, _, _ in self._batches if b is not None)

    @property
    def buffered_to(self) -> int:
        """The position behind everything that is buffered."""
        if self._batches:
            return self._batches[-1][2]
        return max(self.position, self._wanted)

    def head(self) -> Any | None:
        """The next record, or None."""
        return None if self.empty else self._head[self._index]

    def _settle(self) -> None:
        """Make the next record the head; step over batches without readable records."""
        if self._index >= len(self._head) and self._head_size:
            self.size -= self._head_size
            self._head_size = 0
        while self._index >= len(self._head) and self._batches:
            batch, start, following = self._batches.popleft()
            if batch is None:
                self._head, self._index = [], 0
            else:
                records = batch.records()
                if records and records[0].offset < start:
                    records = [r for r in records if r.offset >= start]
                self._head, self._index = records, 0
                if records:
                    self._head_size = batch.size
                else:
                    self.size -= batch.size
            self._wanted = following
            if not self._head:
                self.position = max(self.position, following)

    def _after(self) -> int:
        """The position behind the records handed out so far."""
        if self._index < len(self._head):
            return self._head[self._index].offset
        while self._batches and self._batches[0][0] is None:
            self._wanted = max(self._wanted, self._batches.popleft()[2])
        return self._wanted

    def control(self) -> tuple[int, ControlFrame] | None:
        """The control message at the head, with its offset; it stays there until it is taken."""
        if not self.framed or self.empty or self.ended:
            return None
        record = self._head[self._index]
        if record.value is None or not is_control(record.value):
            return None
        try:
            frame = decode(record.value)
        except FrameError:
            return None
        return None if isinstance(frame, UserFrame | BatchFrame | ArrowFrame) else (record.offset, frame)

    def take(self, most: int, up_to_ms: int | None = None) -> Chunk | None:
        """The next chunk: at most so many records, none younger than `up_to_ms`; None when there is none."""
        if self.empty or self.ended or most <= 0:
            return None
        return self._take_framed(most, up_to_ms) if self.framed else self._take_plain(most, up_to_ms)

    def _run(self, most: int, up_to_ms: int | None) -> int:
        """The index behind the records of the head batch that may be handed out now."""
        head, start = self._head, self._index
        stop = min(len(head), start + most)
        if self.until is not None and head[stop - 1].offset >= self.until:
            stop = next(i for i in range(start, stop) if head[i].offset >= self.until)
        if up_to_ms is not None:
            stop = next((i for i in range(start, stop) if head[i].timestamp > up_to_ms), stop)
        return stop

    def _take_plain(self, most: int, up_to_ms: int | None) -> Chunk | None:
        got: list[Any] = []
        while len(got) < most and not self.empty:
            start = self._index
            stop = self._run(most - len(got), up_to_ms)
            if stop == start:
                break
            whole = start == 0 and stop == len(self._head)
            part = self._head if whole else self._head[start:stop]
            got = part if not got else got + part
            self._index = stop
            if stop < len(self._head):
                break
        if not got:
            return None
        self.position = self._after()
        return Chunk(self.at, self.position, got)

    def _take_framed(self, most: int, up_to_ms: int | None) -> Chunk | None:
        columns = _Columns([], [], [], [], [])
        while len(columns.values) < most and not self.empty:
            if self._run(1, up_to_ms) == self._index:
                break
            record = self._head[self._index]
            try:
                frame = decode(record.value or b"")
            except FrameError as error:
                return self._alone(columns, record, bad=error)
            if isinstance(frame, UserFrame):
                columns.values.append(frame.body)
                columns.keys.append(record.key)
                columns.timestamps.append(record.timestamp)
                columns.offsets.append(record.offset)
                columns.headers.append(list(record.headers))
            elif isinstance(frame, BatchFrame):
                if columns.values and len(columns.values) + len(frame.values) > most:
                    break
                _extend(columns, frame, record.offset)
            elif isinstance(frame, ArrowFrame):
                return self._alone(columns, record, arrow=frame.body)
            else:
                return self._alone(columns, record, control=frame)
            self._index += 1
            self.position = self._after()
        if not columns.values:
            return None
        return Chunk(self.at, self.position, None, columns)

    def _alone(self, before: _Columns, record: Any, **what: Any) -> Chunk:
        """A frame that is a chunk of its own; what stands before it goes first."""
        if before.values:
            return Chunk(self.at, self.position, None, before)
        self._index += 1
        self.position = self._after()
        return Chunk(self.at, self.position, [record], None, **what)


def _extend(columns: _Columns, frame: BatchFrame, offset: int) -> None:
    size = len(frame.values)
    columns.values.extend(frame.values)
    columns.keys.extend(frame.keys)
    columns.timestamps.extend(frame.timestamps)
    columns.offsets.extend([offset] * size)
    columns.headers.extend([[]] * size)
