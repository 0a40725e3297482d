"""Chunks: runs of consecutive records of one partition, in columns, and the buffers that they are cut from.

What it decides: where a chunk ends. Promises:

- A chunk holds at most as many records as requested. In a framed stream a record is a frame, which is taken whole, and the rows of a
  chunk's frames are bounded, too; only a single frame with more rows makes it larger.
- A chunk that is read in spans also holds at most as many bytes of records as requested, but always one record. It ends at a batch whose
  records do not fit any more.
- All records of a chunk are rows, or all are partial states of one aggregate plan.
- In a framed stream, each control message and each unreadable frame is a chunk of its own. User records, batch frames and Arrow frames
  may share a chunk. Where the reader works in columns, Arrow frames stay columns: then consecutive ones of one schema are a chunk.
- `next_position` is a Kafka offset; it skips what cannot be read (control batches, aborted and compacted records).
- A column that is not used is never built. Of records that are read in spans, no object is made until somebody asks for a list.
- Reading properties changes nothing: only `put`, `take` and `clear` move a buffer. A batch that cannot be decoded stays in place as
  `damaged`, and nothing behind it is handed out. One that is too large once it is decompressed is a chunk of its own, with one record,
  the batch as it was received: it is bad data.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ....core.errors import DataError
from ....core.names import StreamPartition
from ....core.progress.came_from import ROWS_HEADER, came_from
from ....core.progress.frames import (
    FROM_HEADER,
    HEADER,
    NO_TIME,
    ArrowFrame,
    BatchFrame,
    ControlFrame,
    FrameError,
    UserFrame,
    decode,
    is_control,
    said_of,
)
from ..kafka.columns import Bytes, Columns, DamagedBatch, Header, OversizedBatch, joined
from ..kafka.fetched import RecordBatch
from ..kafka.spans import SpannedColumns, joined_spans
from ..layout import longs
from ..limits import MOST_BYTES
from ..memory.longs import first_above
from ..values.serdes import Serde
from .arrow_columns import ArrivedColumns, in_vectors
from .arrow_rows import as_batch
from .frame_origins import FrameOrigins, frame_origins
from .framing import rows_in

FetchedRecords = Columns | SpannedColumns


class Next(NamedTuple):
    """The record that is handed out next."""

    offset: int
    timestamp: int
    value: Bytes


class Chunk:
    """A run of records of one partition; the unit of all work. Its columns have equal lengths.

    `control` is set if the chunk is a control message, `bad` if it is an unreadable frame or a batch that is too large. `plan` is the
    digest of the aggregate plan whose partial states the values are; None for rows.
    """

    __slots__ = (
        "_frames",
        "_origins",
        "at",
        "bad",
        "columns",
        "control",
        "followed",
        "next_position",
        "now_ms",
        "plan",
        "skipped",
        "so_far_ms",
        "taken_ns",
    )

    def __init__(
        self,
        at: StreamPartition,
        next_position: int,
        columns: FetchedRecords | ArrivedColumns,
        *,
        control: ControlFrame | None = None,
        bad: DataError | None = None,
        plan: int | None = None,
        frames: Sequence[tuple[int, FetchedRecords, int]] = (),
    ) -> None:
        self.at = at
        self.plan = plan
        self._origins: list[FrameOrigins | None] = []
        """Of which records the rows of its frames were made; empty while no one has asked."""
        self._frames = frames
        """By offset: where the record of each of its frames lies."""
        self.next_position = next_position
        self.columns = columns
        self.control = control
        self.bad = bad
        self.skipped = frozenset[int]()
        """The rows that an operator wants left out."""
        self.now_ms: int | None = None
        """The broker's time when it was cut, by which its event times are judged; None if it is unknown."""
        self.followed = False
        """Whether its task could take more when it was cut."""
        self.taken_ns = 0
        """How long it took to choose and cut it."""
        self.so_far_ms: int | None = None
        """The greatest event time of its partition before it; None if there is none yet."""

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
        stamps = timestamps if timestamps is not None else [0] * size
        own = keys if keys is not None and keys.count(None) < size else None
        return cls(at, base + size if next_position is None else next_position, Columns(values, stamps, base, own))

    def pick(self, first: int, behind: int) -> Chunk:
        """The records from `first` up to but not including `behind`, as a chunk with the same next position."""
        cut = self.columns.cut(first, behind)
        picked = Chunk(self.at, self.next_position, cut, plan=self.plan, frames=self._frames)
        picked.now_ms, picked.so_far_ms = self.now_ms, self.so_far_ms
        if self._frames:
            known = self.origins
            part = None if known is None else known._replace(numbers=bytes(longs(known.numbers)[first:behind]))
            picked._origins = [part]
        picked.skipped = frozenset(row - first for row in self.skipped if first <= row < behind)
        return picked

    def __len__(self) -> int:
        return len(self.columns) if self.is_data else 0

    def made_of(self, offset: int, row: int) -> str:
        """The record of which this row of the frame at this offset was made, or the records of which all of its rows were made, as its
        writer says; empty if it does not say it."""
        for at, head, index in self._frames:
            if at == offset and head.headers is not None:
                own = dict(head.headers[index])
                return came_from(said_of(own.get(FROM_HEADER)), own.get(ROWS_HEADER), row)
        return ""

    @property
    def framed(self) -> bool:
        """Whether its rows came in frames."""
        return bool(self._frames)

    def named(self, name: str) -> list[Bytes]:
        """The values of headers of this name: those of the records of its frames, or of its own records."""
        if self._frames:
            every = [head.headers[index] for _, head, index in self._frames if head.headers is not None]
        else:
            every = (self.columns.headers or []) if self.has_headers else []
        return [value for headers in every for key, value in headers if key == name]

    @property
    def size(self) -> int:
        """How many bytes its values have; of columns, their frames."""
        columns = self.columns
        if isinstance(columns, SpannedColumns):
            return columns.bytes_of(0, len(columns))
        return columns.size if isinstance(columns, ArrivedColumns) else sum(len(one or b"") for one in columns.values)

    @property
    def origins(self) -> FrameOrigins | None:
        """Of which records of inputs its rows were made; None if the writers of its frames do not say it of all."""
        if not self._origins:
            headers = (None if head.headers is None else dict(head.headers[index]) for _, head, index in self._frames)
            self._origins.append(frame_origins(headers, len(self.columns)))
        return self._origins[0]

    @property
    def is_data(self) -> bool:
        """Whether it holds records, and not a control message or an unreadable frame."""
        return self.control is None and self.bad is None

    @property
    def has_keys(self) -> bool:
        """Whether any record has a key."""
        return self.columns.has_keys

    @property
    def has_headers(self) -> bool:
        """Whether any record has headers."""
        return self.columns.has_headers

    @property
    def values(self) -> list[Bytes]:
        """The values; in a framed stream without their type bytes. For an unreadable frame, its raw bytes."""
        return self.columns.values

    @property
    def keys(self) -> list[Bytes]:
        """The keys."""
        keys = self.columns.keys
        return [None] * len(self.columns) if keys is None else keys

    @property
    def timestamps(self) -> list[int]:
        """Milliseconds since the epoch."""
        return self.columns.timestamps

    @property
    def offsets(self) -> list[int]:
        """Kafka's offsets; all records of one batch frame have the frame's."""
        return self.columns.every_offset()

    @property
    def headers(self) -> list[list[Header]]:
        """The headers of each record."""
        headers = self.columns.headers
        return [[] for _ in range(len(self.columns))] if headers is None else headers

    def __repr__(self) -> str:
        what = f"{len(self)} records"
        if not self.is_data:
            what = repr(self.control or self.bad)
        return f"Chunk({self.at}, {what}, next {self.next_position})"


class FetchBuffer:
    """What has been fetched of one partition and not been handed out yet."""

    __slots__ = (
        "_batches",
        "_count",
        "_head",
        "_head_size",
        "_index",
        "_most_bytes",
        "_oversized",
        "_stamps",
        "_times",
        "_waiting",
        "_wanted",
        "at",
        "damaged",
        "framed",
        "position",
        "size",
        "spanned",
        "until",
    )

    def __init__(
        self,
        at: StreamPartition,
        position: int,
        *,
        framed: Serde[Any] | None = None,
        until: int | None = None,
        times: Callable[[FetchedRecords], list[int]] | None = None,
        spanned: bool = False,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """`framed`: the serde of the values, if the stream holds frames. `spanned`: the records are read in spans; of frames, those of
        columns stay columns. `most_bytes`: how large a batch may be once it is decompressed.

        `times`: computes the times that the chooser uses, if they are not Kafka's timestamps.
        """
        self.at = at
        self._times = times
        self.framed = framed
        self.spanned = spanned
        self.until = until
        self._most_bytes = most_bytes
        self.clear(position)

    def clear(self, position: int) -> None:
        """Drop what is buffered, and continue at this position."""
        self.position = position
        self.size = 0
        self.damaged: tuple[DamagedBatch, int] | None = None
        """Why the batch at the position cannot be decoded, and where the next one begins."""
        self._batches: deque[tuple[RecordBatch | None, int, int]] = deque()
        self._head: FetchedRecords = _EMPTY
        self._oversized: DataError | None = None
        """Why the head is a batch that was not decompressed."""
        self._stamps: Sequence[int] = []
        self._head_size = 0
        self._count = 0
        self._index = 0
        self._wanted = position
        self._waiting = 0
        """The records in the batches behind the head."""

    def put(self, batches: Iterable[RecordBatch], start: int, following: int) -> None:
        """Add fetched batches. Records below `start` are skipped; reading continues at `following`."""
        came = False
        for batch in batches:
            self._batches.append((batch, start, batch.next))
            self.size += batch.size
            self._waiting += batch.count
            came = True
        if not came or self._batches[-1][2] < following:
            self._batches.append((None, start, following))
        self._settle()

    @property
    def empty(self) -> bool:
        """Whether nothing is left to hand out."""
        return self._index >= self._count

    @property
    def ended(self) -> bool:
        """Whether the bound has been reached: everything below it has been handed out."""
        if self.until is None:
            return False
        if self.position >= self.until:
            return True
        return not self.empty and self._head.offset(self._index) >= self.until

    @property
    def count(self) -> int:
        """How many records are buffered; an upper bound if batches were compacted. Zero while the next batch is damaged."""
        if self.damaged is not None:
            return 0
        return self._count - self._index + self._waiting

    @property
    def buffered_to(self) -> int:
        """The position behind everything that is buffered."""
        if self._batches:
            return self._batches[-1][2]
        return max(self.position, self._wanted)

    @property
    def drains_to(self) -> int:
        """Where a drain ends: what is buffered is processed."""
        return self.buffered_to

    def head(self) -> Next | None:
        """The next record, or None."""
        if self.empty:
            return None
        head, index = self._head, self._index
        return Next(head.offset(index), self._stamps[index], head.value(index))

    def _settle(self) -> None:
        """Make the next record the head. Skip batches without readable records; stop at a damaged one. An answer of which all records have
        been handed out is not kept."""
        self._forget()
        while self._index >= self._count and self._batches and self.damaged is None:
            batch, start, following = self._batches[0]
            head: FetchedRecords = _EMPTY
            if batch is not None:
                try:
                    spanned, most = self.spanned and self.framed is None, self._most_bytes
                    head = SpannedColumns(batch.spans(most)) if spanned else batch.columns(most)
                except OversizedBatch as error:
                    head = self._whole(error, start)
                except DamagedBatch as error:
                    self.damaged = error, following
                    return
            self._batches.popleft()
            self._waiting -= 0 if batch is None else batch.count
            self._head, self._index, self._count = head, head.index_from(start), len(head)
            self._stamps = self._when(head) if self._oversized is None else head.timestamps
            if batch is not None and self._index < self._count:
                self._head_size = batch.size
            elif batch is not None:
                self.size -= batch.size
            self._wanted = following
            if self._index >= self._count:
                self.position = max(self.position, following)
        self._forget()

    def _whole(self, error: OversizedBatch, start: int) -> Columns:
        """A batch that is not decompressed, as one record."""
        first = max(error.base, start)
        self._oversized = error.as_data(f"{self.at.stream}[{self.at.partition}]", first)
        return Columns([error.packed], [error.greatest_ms], first)

    def _forget(self) -> None:
        if self._index >= self._count:
            self._oversized = None
            self.size -= self._head_size
            self._head, self._stamps, self._head_size, self._index, self._count = _EMPTY, [], 0, 0, 0

    def _when(self, head: FetchedRecords) -> Sequence[int]:
        """The times that choosers see. A control message has none, so that nothing delays it."""
        if self._times is not None:
            return self._times(head)
        if isinstance(head, SpannedColumns):
            return longs(head.spans.timestamps)
        if self.framed is None:
            return head.timestamps
        return [
            NO_TIME if value is not None and is_control(value) else stamp
            for value, stamp in zip(head.values, head.timestamps, strict=True)
        ]

    def _after(self) -> int:
        """The position behind the records that have been handed out."""
        if self._index < self._count:
            return self._head.offset(self._index)
        while self._batches and self._batches[0][0] is None:
            self._wanted = max(self._wanted, self._batches.popleft()[2])
        return self._wanted

    def control(self) -> tuple[int, ControlFrame] | None:
        """The control message at the head, with its offset; `take` removes it."""
        if self.framed is None or self.empty or self.ended or self._oversized is not None:
            return None
        value = self._head.values[self._index]
        if value is None or not is_control(value):
            return None
        try:
            frame = decode(value)
        except FrameError:
            return None
        if isinstance(frame, UserFrame | BatchFrame | ArrowFrame):
            return None
        return self._head.offset(self._index), frame

    def take(
        self, most: int, up_to_ms: int | None = None, most_bytes: int | None = None, most_rows: int | None = None
    ) -> Chunk | None:
        """The next chunk: at most `most` records, none later than `up_to_ms`; None if there is none. `most_bytes` bounds a chunk that is
        read in spans, or holds frames of columns; `most_rows` bounds the rows of frames (None: `most`)."""
        if self.empty or self.ended or most <= 0:
            return None
        framed = self.framed
        if self._oversized is not None:
            chunk = self._own(bad=self._oversized)
        elif framed is None:
            chunk = self._take_plain(most, up_to_ms, most_bytes)
        else:
            rows = _Rows(most if most_rows is None else most_rows, most_bytes)
            chunk = self._take_framed(framed, most, up_to_ms, rows)
        self._settle()
        return chunk

    def _run(self, most: int, up_to_ms: int | None) -> int:
        """The index behind those records of the head batch that may be handed out now."""
        head, start = self._head, self._index
        stop = min(self._count, start + most)
        if self.until is not None:
            stop = min(stop, head.index_from(self.until))
        if up_to_ms is not None:
            stamps = self._stamps
            if isinstance(stamps, memoryview):
                return first_above(stamps, start, stop, up_to_ms)
            stop = next((i for i in range(start, stop) if stamps[i] > up_to_ms), stop)
        return stop

    def _take_plain(self, most: int, up_to_ms: int | None, room: int | None) -> Chunk | None:
        parts: list[FetchedRecords] = []
        left = most
        while left > 0 and not self.empty:
            start = self._index
            stop = self._run(left, up_to_ms)
            if stop <= start:
                break
            if room is not None and isinstance(self._head, SpannedColumns):
                fits = self._head.within(start, stop, room)
                if parts and fits < stop:
                    break
                stop = max(fits, start + 1)
                room -= self._head.bytes_of(start, stop)
            whole = start == 0 and stop == self._count
            parts.append(self._head if whole else self._head.cut(start, stop))
            left -= stop - start
            self._index = stop
            if stop < self._count:
                break
            self._settle()
            if self._oversized is not None:
                break
        if not parts:
            return None
        self.position = self._after()
        return Chunk(self.at, self.position, _joined(parts))

    def _take_framed(self, serde: Serde[Any], most: int, up_to_ms: int | None, rows: _Rows) -> Chunk | None:
        for _ in range(most):
            if self.empty:
                break
            index = self._index
            if self._run(1, up_to_ms) == index:
                break
            head = self._head
            try:
                data = head.values[index] or b""
                frame = rows_in(data) or decode(data)
                if isinstance(frame, ArrowFrame) and not (self.spanned and in_vectors(frame)):
                    frame = as_batch(frame, serde)
            except FrameError as error:
                return self._alone(rows, bad=error)
            if isinstance(frame, ArrowFrame):
                taken = rows.columns(frame, head, index)
            elif isinstance(frame, BatchFrame):
                taken = rows.batch(frame, head, index, len(data))
            elif isinstance(frame, UserFrame):
                taken = rows.user(frame.body, head, index)
            else:
                return self._alone(rows, control=frame)
            if not taken:
                break
            self._index += 1
            self._settle()
            self.position = self._after()
            if self._oversized is not None:
                break
        return rows.chunk(self.at, self.position, serde) if len(rows) else None

    def _alone(self, before: _Rows, *, control: ControlFrame | None = None, bad: DataError | None = None) -> Chunk:
        """A frame that is a chunk of its own; records collected before it are returned first."""
        if len(before):
            return before.chunk(self.at, self.position, self.framed)
        return self._own(control=control, bad=bad)

    def _own(self, *, control: ControlFrame | None = None, bad: DataError | None = None) -> Chunk:
        """The record at the head, as a chunk of its own."""
        own = self._head.cut(self._index, self._index + 1)
        self._index += 1
        self.position = self._after()
        if bad is self._oversized is not None and self.until is not None:
            self.position = min(self.position, self.until)
        return Chunk(self.at, self.position, own, control=control, bad=bad)


class _Rows:
    """Records of a framed stream, collected from frames of one kind: user and batch frames, or frames of columns."""

    __slots__ = (
        "_frames",
        "_from",
        "_length",
        "_most",
        "_room",
        "headers",
        "keys",
        "offsets",
        "plan",
        "stamps",
        "values",
    )

    def __init__(self, most: int, room: int | None) -> None:
        """`most`: rows, `room`: bytes; the first frame is taken in any case."""
        self._most = most
        self._room = room
        self.values: list[Bytes] = []
        self.keys: list[Bytes] = []
        self.stamps: list[int] = []
        self.offsets: list[int] = []
        self.headers: list[list[Header]] | None = None
        self.plan: int | None = None
        self._frames: list[tuple[ArrowFrame, int]] = []
        self._from: list[tuple[int, FetchedRecords, int]] = []
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def _fits(self, plan: int | None, records: int, size: int) -> bool:
        """Whether so many records of this kind may be added."""
        if self._length and (plan != self.plan or self._length + records > self._most):
            return False
        if self._room is not None:
            if self._length and size > self._room:
                return False
            self._room -= size
        self.plan = plan
        self._length += records
        return True

    def _more_headers(self, more: list[list[Header]]) -> None:
        if self.headers is None:
            self.headers = [[] for _ in self.values]
        self.headers += more

    def user(self, body: bytes, head: FetchedRecords, index: int) -> bool:
        """Add the record of a user frame. Its headers are those of the Kafka record, without the one that repeats the type."""
        if self._frames or not self._fits(None, 1, len(body)):
            return False
        own = [] if head.headers is None else [one for one in head.headers[index] if one[0] != HEADER]
        if own or self.headers is not None:
            self._more_headers([own])
        self.values.append(body)
        self.keys.append(None if head.keys is None else head.keys[index])
        self.stamps.append(head.timestamps[index])
        self.offsets.append(head.offset(index))
        return True

    def batch(self, frame: BatchFrame, head: FetchedRecords, index: int, bytes_: int) -> bool:
        """Add the records of a batch frame; they share the frame's offset."""
        size, offset = len(frame.values), head.offset(index)
        if self._frames or not self._fits(frame.plan, size, bytes_):
            return False
        if frame.headers is not None or self.headers is not None:
            self._more_headers([[] for _ in range(size)] if frame.headers is None else frame.headers)
        self.values += frame.values
        self.keys += frame.keys
        self.stamps += frame.timestamps
        self.offsets += [offset] * size
        self._from.append((offset, head, index))
        return True

    def columns(self, frame: ArrowFrame, head: FetchedRecords, index: int) -> bool:
        """Add the rows of a frame of columns."""
        if not frame.records:
            return True
        if self.values or (self._frames and self._frames[0][0].fields != frame.fields):
            return False
        if not self._fits(frame.plan, frame.records, len(frame.body)):
            return False
        self._frames.append((frame, head.offset(index)))
        self._from.append((head.offset(index), head, index))
        return True

    def chunk(self, at: StreamPartition, next_position: int, serde: Any) -> Chunk:
        """The collected records as a chunk. `serde`: that of the stream."""
        if self._frames:
            return Chunk(at, next_position, ArrivedColumns(self._frames, serde), plan=self.plan, frames=self._from)
        keys = None if self.keys.count(None) == len(self.keys) else self.keys
        columns = Columns(self.values, self.stamps, self.offsets[0], keys, self.offsets, self.headers)
        return Chunk(at, next_position, columns, plan=self.plan, frames=self._from)


def _joined(parts: list[FetchedRecords]) -> FetchedRecords:
    spans = [part.spans for part in parts if isinstance(part, SpannedColumns)]
    return SpannedColumns(joined_spans(spans)) if spans else joined([p for p in parts if isinstance(p, Columns)])


_EMPTY = Columns([], [], 0)
