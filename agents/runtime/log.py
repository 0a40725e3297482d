"""A task's log: what a commit writes into it, and how a store is made from it.

What it decides: which records of the log mean what. Promises:

- A commit writes each changed key once, and the checkpoint last, all to one partition, in the transaction of the outputs.
- `restore` reads committed records only, from the store's position to the log's end, in batches that are written with the
  position they reach: cut short, it goes on where it stood, and the store is not said to have stood at the end.
- It says how far it is, and says so when an open transaction blocks it.
- A record that is no entry of a task's log (somebody's by hand, a newer version's kind) is passed, and told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...core.errors import CheckpointError, EnvironmentFault
from ...core.names import StreamPartition
from ...core.task.checkpoint import CHECKPOINT_KEY, parse_log_key, table_prefix
from ..port.port import Port
from ..records.chunks import Chunk
from ..state.expiry_index import IndexRows, indexed
from ..state.store import Store, write_in_turn
from .buffer import LogWrite
from .intake import Intake, PartitionSource

LOOK_S = 0.5
"""How often a restore looks how far it is, when nothing comes."""
RESTORE_RECORDS = 20_000
"""At most so many records in one write to the store."""


def log_write(
    task: str, at: StreamPartition, changes: Mapping[str, IndexRows], checkpoint: bytes | None, *, now_ms: int
) -> LogWrite:
    """The records of one task in one commit."""
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    for table, rows in changes.items():
        prefix = table_prefix(table)
        keys.extend([prefix + key for key in rows])
        values.extend(rows.values())
    if checkpoint is not None:
        keys.append(CHECKPOINT_KEY)
        values.append(checkpoint)
    return LogWrite(task, at, keys, values, now_ms)


@dataclass(frozen=True, slots=True)
class LogProgress:
    """How far a restore is."""

    position: int
    end: int
    records: int
    seconds: float
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """Where the store stands, and how many records it took. `checkpoint`: the last one, from this replay or from the store."""

    position: int
    checkpoint: bytes | None
    records: int
    seconds: float


class _Replay:
    """Records of the log, gathered for one write."""

    def __init__(self) -> None:
        self.changes: dict[str, IndexRows] = {}
        self.unread: tuple[int, int, str] | None = None
        """How many records are no entries of a task's log, where the last of them stands, and why."""
        self.checkpoint: bytes | None = None
        self._by_prefix: dict[bytes, IndexRows] = {}

    def add(self, chunk: Chunk) -> None:
        by_prefix = self._by_prefix
        for index, (key, value) in enumerate(zip(chunk.keys, chunk.values, strict=True)):
            if key == CHECKPOINT_KEY:
                self.checkpoint = value
                continue
            split = key[1] + 2 if key is not None and len(key) > 1 else 0
            rows = by_prefix.get(key[:split]) if key is not None and split else None
            if rows is None or key is None:
                try:
                    found = parse_log_key(key or b"")
                except CheckpointError as error:
                    self.unread = (self.unread[0] if self.unread else 0) + 1, chunk.columns.offset(index), error.what
                    continue
                rows = by_prefix[(key or b"")[:split]] = self.changes.setdefault(found.table or "", {})
            rows[(key or b"")[split:]] = value


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
    """Read the log from `start` until the position reaches `end`. `deadline_s` bounds the time without any advance."""
    clock = port.clock
    began = last = clock.now().mono
    followed = clock.now().wall
    records, position = 0, start
    checkpoint = store.meta.checkpoint
    # cut short, this restore has not stood at the end: what was there before is as old as it was
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
                replay = _Replay()
                replay.add(chunk)
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
