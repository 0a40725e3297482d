"""A task's log: what a commit writes to it, and how a store is restored from it.

What it decides: what each record of the log means. Promises:

- A commit writes each changed key once, and the checkpoint last, all to one partition, in the same transaction as the outputs.
- `restore` reads committed records only, from the store's position to the log's end. It folds them in parts. The position behind a part
  goes into the store with the last of its rows, so an interrupted restore continues with the part that it has not finished. The store does
  not count as having reached the end.
- `restore` reports its progress, also when an open transaction blocks it.
- A record that is not an entry of a task log (written by hand, or by a newer version) is skipped and reported.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ....core.errors import CheckpointError, EnvironmentFault
from ....core.names import StreamPartition
from ....core.task.stored.checkpoint import CHECKPOINT_KEY, parse_log_key, table_prefix
from ...port.port import Port
from ...records.frames.chunks import Chunk
from ...records.kafka.spans import SpannedRecords, as_spans
from ...records.layout import longs
from ...records.memory.latest import latest_rows
from ...records.memory.longs import scaled
from ...records.memory.record_spans import RecordSpans, cut_spans, packed, picked_spans, piece
from ...state.expiry_index import indexed
from ...state.packed_rows import PackedRows
from ...state.store import Store, write_in_turn
from ..reading.intake import Intake, PartitionSource
from ..writing.buffer import LogWrite

LOOK_S = 0.5
"""How often a restore checks its progress when no records arrive."""
PART_RECORDS = 500_000
PART_BYTES = 8 << 20
"""The most records, and the most bytes of values, that are folded at once. The more there are, the nearer to each other are the rows that
RocksDB takes one after the other."""
WRITE_ROWS = 20_000
"""The most rows in one write to the store, which holds the interpreter's lock."""


def log_write(
    task: str,
    at: StreamPartition,
    changes: Mapping[str, Mapping[bytes, bytes | None]],
    checkpoint: bytes | None,
    *,
    now_ms: int,
) -> LogWrite:
    """The records that one commit writes to a task's log."""
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    spanned: list[SpannedRecords] = []
    for table, rows in changes.items():
        if isinstance(rows, PackedRows):
            spanned.append(SpannedRecords(rows.packed, array("q", [now_ms]) * len(rows), 0, rows.logged))
            continue
        prefix = table_prefix(table)
        keys.extend([prefix + key for key in rows])
        values.extend(rows.values())
    if checkpoint is not None:
        keys.append(CHECKPOINT_KEY)
        values.append(checkpoint)
    return LogWrite(task, at, keys, values, now_ms, spanned)


@dataclass(frozen=True, slots=True)
class LogProgress:
    """The progress of a restore."""

    position: int
    end: int
    records: int
    seconds: float
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """The position of the store, and how many records were replayed. `checkpoint`: the last one, from this replay or from the store."""

    position: int
    checkpoint: bytes | None
    records: int
    seconds: float


class FoldedLog(NamedTuple):
    """Records of a log, folded: of each key the last value, in the order of the keys. RocksDB takes rows in order at a fraction of the
    cost.
    """

    writes: list[dict[str, PackedRows]]
    """The rows by table, at most so many for each write to the store as were asked for."""
    checkpoint: bytes | None
    unread: tuple[int, int, str] | None
    """How many records are not entries of a task log, the offset of the last of them, and the reason."""


def folded(chunk: Chunk, most: int) -> FoldedLog:
    """Fold a chunk of the log, for writes of at most so many rows. Makes no object for a record."""
    records = as_spans(chunk.columns)
    named = records.keys or packed([None] * len(records))
    rows = latest_rows(named)
    keys, values = picked_spans(named, rows), picked_spans(records.values, rows)
    count, at, room = len(longs(rows)), 0, 0
    checkpoint: bytes | None = None
    bad: dict[bytes, str] = {}
    writes: list[dict[str, PackedRows]] = []
    while at < count:
        key = piece(keys, at) or b""
        try:
            table = parse_log_key(key).table
        except CheckpointError as error:
            bad[key] = error.what
            at += 1
            continue
        if table is None:
            checkpoint = piece(values, at)
            at += 1
            continue
        split = len(table_prefix(table))
        behind = bisect_right(range(count), key[:split], at, key=lambda row: (piece(keys, row) or b"")[:split])
        while at < behind:
            if not room:
                writes.append({})
                room = most
            stop = min(at + room, behind)
            writes[-1][table] = _rows(cut_spans(keys, at, stop), cut_spans(values, at, stop), split)
            room -= stop - at
            at = stop
    return FoldedLog(writes, checkpoint, _unread(chunk, bad) if bad else None)


def _rows(logged: RecordSpans, values: RecordSpans, split: int) -> PackedRows:
    keys = RecordSpans(logged.buffer, scaled(logged.offsets, add=split), scaled(logged.lengths, add=-split))
    return PackedRows(keys, logged, values, ordered=True)


def _unread(chunk: Chunk, bad: dict[bytes, str]) -> tuple[int, int, str]:
    keys = chunk.keys
    places = [index for index, key in enumerate(keys) if (key or b"") in bad]
    return len(places), chunk.columns.offset(places[-1]), bad[keys[places[-1]] or b""]


async def _write(store: Store, part: FoldedLog, before: int, behind: int, followed: int | None) -> None:
    """Write a part of the log, which begins at `before` and ends at `behind`. Between two writes the worker's other tasks run.

    Only the last write moves the store's position, so a restore that is interrupted before it reads the part again. The others write the
    position where the part begins: a store without a position counts as empty, and is used whatever its age.
    """
    for rows in part.writes[:-1]:
        await write_in_turn(store, indexed(rows), position=before, followed_until_ms=followed)
        await asyncio.sleep(0)
    rows = part.writes[-1] if part.writes else {}
    await write_in_turn(store, indexed(rows), position=behind, checkpoint=part.checkpoint, followed_until_ms=followed)
    await asyncio.sleep(0)


class Replay:
    """Reads a task's log into a store, from `start` on, up to one end after another. See `restore` for what it promises."""

    def __init__(
        self,
        port: Port,
        at: StreamPartition,
        store: Store,
        start: int,
        *,
        name: str = "restore",
        buffer_bytes: int = 16 << 20,
        fetch_bytes: int = 4 << 20,
        progress: Callable[[LogProgress], None] = lambda _: None,
        unread: Callable[[int, int, str], None] = lambda count, offset, why: None,
        raw: bool = True,
    ) -> None:
        """`unread` is called for records that are not entries of a task log: how many, the offset of the last, and the reason."""
        self._port = port
        self._at = at
        self._store = store
        self._progress = progress
        self._unread = unread
        self._began = port.clock.now().mono
        self._written = start
        self._intake = Intake(
            port,
            [PartitionSource(at, start, spanned=True)],
            name=f"{name}-{at}",
            buffer_bytes=buffer_bytes,
            fetch_bytes=fetch_bytes,
            max_wait_ms=100,
            raw=raw,
        )
        self.position = start
        self.records = 0
        self.checkpoint = store.meta.checkpoint
        # an interrupted restore has not reached the end: what the store held before is as old as it was
        self._unsure = port.clock.now().wall if store.meta.position is None else store.meta.followed_until_ms

    async def start(self, *, deadline_s: float = 60.0) -> None:
        """Connect to the brokers."""
        await self._intake.start(deadline_s=deadline_s)

    async def stop(self) -> None:
        """Stop reading. The store stays open."""
        await self._intake.stop()

    async def to(self, end: int, *, since_ms: int, deadline_s: float = 60.0) -> None:
        """Read until the position reaches `end`, which was the end of the log at `since_ms`. `deadline_s` bounds the time without
        progress."""
        clock, intake, at = self._port.clock, self._intake, self._at
        last = clock.now().mono
        while self.position < end:
            await intake.fill(LOOK_S)
            head = intake.head(at)
            if head.lost is not None:
                raise head.lost
            while (chunk := intake.take(at, PART_RECORDS, most_bytes=PART_BYTES)) is not None:
                await self._take(chunk)
            now = clock.now().mono
            reached = intake.positions()[at]
            if reached > self.position:
                self.position, last = reached, now
            blocked = self.position < end and intake.head(at).blocked
            self._progress(LogProgress(self.position, end, self.records, now - self._began, blocked))
            if now - last > deadline_s:
                why = (
                    "an open transaction blocks it" if blocked else head.degraded or "the broker sends no more records"
                )
                raise EnvironmentFault(
                    f"the task log {at} cannot be read up to {end}, only to {self.position}: {why}",
                    remedy="an open transaction ends with its timeout; otherwise check the brokers",
                )
        self._unsure = since_ms
        await write_in_turn(self._store, {}, position=self.position, followed_until_ms=since_ms)

    async def _take(self, chunk: Chunk) -> None:
        part = folded(chunk, WRITE_ROWS)
        if part.unread is not None:
            self._unread(*part.unread)
        self.records += len(chunk)
        self.checkpoint = part.checkpoint or self.checkpoint
        await _write(self._store, part, self._written, chunk.next_position, self._unsure)
        self._written = chunk.next_position

    @property
    def followed_ms(self) -> int | None:
        """When the store last was at the end of its log."""
        return self._store.meta.followed_until_ms

    @property
    def result(self) -> RestoreResult:
        """What was read so far."""
        return RestoreResult(self.position, self.checkpoint, self.records, self._port.clock.now().mono - self._began)


async def restore(
    port: Port,
    at: StreamPartition,
    store: Store,
    *,
    start: int,
    end: int,
    progress: Callable[[LogProgress], None] = lambda _: None,
    unread: Callable[[int, int, str], None] = lambda count, offset, why: None,
    deadline_s: float = 60.0,
    raw: bool = True,
) -> RestoreResult:
    """Read the log from `start` until the position reaches `end`. `deadline_s` bounds the time without progress."""
    since_ms = port.clock.now().wall
    if start >= end:
        await write_in_turn(store, {}, position=start, followed_until_ms=since_ms)
        return RestoreResult(start, store.meta.checkpoint, 0, 0.0)
    replay = Replay(port, at, store, start, progress=progress, unread=unread, raw=raw)
    try:
        await replay.start(deadline_s=deadline_s)
        await replay.to(end, since_ms=since_ms, deadline_s=deadline_s)
    finally:
        await replay.stop()
    return replay.result
