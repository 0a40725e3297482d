"""A task's log: what a commit writes to it, and how a store is restored from it.

What it decides: what each record of the log means. Promises:

- A commit writes each changed key once, and the checkpoint last, all to one partition, in the same transaction as the outputs.
- `restore` reads committed records only, from the store's position to the log's end. It writes them in batches, each together with the
  position that it reaches. An interrupted restore continues from there, and the store does not count as having reached the end.
- `restore` reports its progress, also when an open transaction blocks it.
- A record that is not an entry of a task log (written by hand, or by a newer version) is skipped and reported.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...core.errors import CheckpointError, EnvironmentFault
from ...core.names import StreamPartition
from ...core.task.checkpoint import CHECKPOINT_KEY, parse_log_key, table_prefix
from ..port.port import Port
from ..records.chunks import Chunk
from ..records.spans import SpannedRecords
from ..state.expiry_index import IndexRows, indexed
from ..state.packed_rows import PackedRows
from ..state.store import Store, write_in_turn
from .buffer import LogWrite
from .intake import Intake, PartitionSource

LOOK_S = 0.5
"""How often a restore checks its progress when no records arrive."""
RESTORE_RECORDS = 20_000
"""The most records in one write to the store."""


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


class _Replay:
    """The records of one chunk of the log, folded for one write: of each key the last value, in the order of the keys. RocksDB takes
    rows in order at a fraction of the cost.
    """

    def __init__(self, chunk: Chunk) -> None:
        self.changes: dict[str, IndexRows] = {}
        self.unread: tuple[int, int, str] | None = None
        """How many records are not entries of a task log, the offset of the last of them, and the reason."""
        keys = chunk.keys
        latest = dict(zip(keys, chunk.values, strict=True))
        self.checkpoint = latest.pop(CHECKPOINT_KEY, None)
        ordered = sorted(key or b"" for key in latest)
        bad: dict[bytes, str] = {}
        at = 0
        while at < len(ordered):
            try:
                table = parse_log_key(ordered[at]).table or ""
            except CheckpointError as error:
                bad[ordered[at]] = error.what
                at += 1
                continue
            at = self._fold(table, latest, ordered, at)
        if bad:
            places = [index for index, key in enumerate(keys) if (key or b"") in bad]
            self.unread = len(places), chunk.columns.offset(places[-1]), bad[keys[places[-1]] or b""]

    def _fold(self, table: str, latest: dict[bytes | None, bytes | None], ordered: list[bytes], at: int) -> int:
        """Take the rows of the table whose first key is at this index. Returns the index behind its last key."""
        split = ordered[at][1] + 2
        behind = bisect_right(ordered, ordered[at][:split], at, key=lambda key: key[:split])
        own = ordered[at:behind]
        self.changes[table] = dict(zip([key[split:] for key in own], map(latest.__getitem__, own), strict=True))
        return behind


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
    clock = port.clock
    began = last = clock.now().mono
    followed = clock.now().wall
    records, position = 0, start
    checkpoint = store.meta.checkpoint
    # an interrupted restore has not reached the end: what the store held before is as old as it was
    unsure = followed if store.meta.position is None else store.meta.followed_until_ms
    if start >= end:
        await write_in_turn(store, {}, position=start, followed_until_ms=followed)
        return RestoreResult(start, checkpoint, 0, 0.0)
    intake = Intake(
        port,
        [PartitionSource(at, start)],
        name=f"restore-{at}",
        buffer_bytes=16 << 20,
        fetch_bytes=4 << 20,
        max_wait_ms=100,
        raw=raw,
    )
    try:
        await intake.start(deadline_s=deadline_s)
        while position < end:
            await intake.fill(LOOK_S)
            head = intake.head(at)
            if head.lost is not None:
                raise head.lost
            while (chunk := intake.take(at, RESTORE_RECORDS)) is not None:
                replay = _Replay(chunk)
                if replay.unread is not None:
                    unread(*replay.unread)
                records += len(chunk)
                checkpoint = replay.checkpoint or checkpoint
                await write_in_turn(
                    store,
                    indexed(replay.changes),
                    position=chunk.next_position,
                    checkpoint=replay.checkpoint,
                    followed_until_ms=unsure,
                )
            now = clock.now().mono
            reached = intake.positions()[at]
            if reached > position:
                position, last = reached, now
            blocked = position < end and intake.head(at).blocked
            progress(LogProgress(position, end, records, now - began, blocked))
            if now - last > deadline_s:
                why = (
                    "an open transaction blocks it" if blocked else head.degraded or "the broker sends no more records"
                )
                raise EnvironmentFault(
                    f"the task log {at} cannot be read up to {end}, only to {position}: {why}",
                    remedy="an open transaction ends with its timeout; otherwise check the brokers",
                )
    finally:
        await intake.stop()
    await write_in_turn(store, {}, position=position, followed_until_ms=followed)
    return RestoreResult(position, checkpoint, records, clock.now().mono - began)
