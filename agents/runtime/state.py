"""The state of one task on this worker: its directory, its store, its tables, its partition of the task log.

It carries out what the task's machine says of them, and answers with the machine's facts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import structlog

from ...core.names import StreamPartition
from ...core.task import protocol as t
from ...core.task.checkpoint import CONTROL_TABLE, Checkpoint, decode_checkpoint, encode_checkpoint
from ...core.task.rows import pack_rows, unpack_rows
from ..cancellation import CalledOff
from ..job.declaration import Declared
from ..job.schemas import CLOSED
from ..port.port import Port
from ..state.cache_memory import CacheMemory
from ..state.opening import open_tables, told_unowned
from ..state.store import Disk, Store, StoreBusy, StoreUnusable
from ..state.table import NOTHING_EXPIRED, Expired
from ..state.tables import TaskTables
from .buffer import LogWrite
from .log import LogProgress, log_write, restore

log = structlog.get_logger("headgate.state")
LogEndsOf = Callable[[StreamPartition], Any]
ROW_OVERHEAD = 512
"""What a record of the task log takes beside the key and the value of its row, a batch's head and the table's name included."""


class TaskStore:
    """Store and tables of one task. `disk`: where its store lies; `decoded`: where its tables keep rows that are decoded."""

    def __init__(
        self,
        port: Port,
        declared: Declared,
        task: str,
        log: StreamPartition,
        *,
        job_uuid: str,
        disk: Disk,
        decoded: CacheMemory | None,
        clock: Callable[[], int],
        ends: LogEndsOf,
        log_limit: int | None = None,
        unread: Callable[..., None] = lambda *_, **__: None,
    ) -> None:
        self.port = port
        self.declared = declared
        self.task = task
        self.log = log
        self.job_uuid = job_uuid
        self._disk = disk
        self._decoded = decoded
        self.clock = clock
        self.ends = ends
        self.log_limit = log_limit
        """max.message.bytes of the task log."""
        self.unread = unread
        """Told of records of the log that cannot be read: topic, partition, offset, why, count."""
        self.store: Store | None = None
        self.tables: TaskTables | None = None
        self.unowned: Mapping[str, str] = {}
        """Tables that nobody declares any more, each with what it may have been."""
        self.progress: LogProgress | None = None
        self.replayed = 0
        self._checkpoints: list[bytes] = []
        self._opening: asyncio.Task[Store] | None = None
        self._restoring: asyncio.Task[Any] | None = None
        self._wiping: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    async def open(self) -> t.StoreOpened | t.StoreBroken:
        """Open what is there, whatever it is."""
        try:
            self.store = await self._opened()
        except StoreUnusable as error:
            return t.StoreBroken(error.reason)
        meta = self.store.meta
        return t.StoreOpened(meta.position, meta.job_uuid, meta.followed_until_ms)

    async def _opened(self) -> Store:
        """It is opened in a thread, which cannot be called off: whoever closes this state waits for it, and closes what it opened."""
        work = self.port.beside(partial(self._disk.open, self.job_uuid))
        self._opening = asyncio.get_running_loop().create_task(work, name=f"{self.task}: open")
        found = await asyncio.shield(self._opening)
        if self._closing is not None:
            raise CalledOff(f"opening the store of {self.task}")
        self._opening = None
        return found

    async def log_ends(self) -> t.LogEnds:
        """Start and end of the task's partition of the log, asked of the broker now."""
        start, end, retention_ms = await self.ends(self.log)
        return t.LogEnds(start, end, retention_ms)

    async def wipe(self) -> None:
        """An empty store instead. Threads do it, which cannot be called off: whoever closes this state waits for them."""
        self._wiping = asyncio.get_running_loop().create_task(self._wiped(), name=f"{self.task}: wipe")
        await asyncio.shield(self._wiping)
        self._wiping = None
        if self._closing is not None:
            raise CalledOff(f"opening the store of {self.task}")
        opened = await self.open()
        if isinstance(opened, t.StoreBroken):
            raise StoreUnusable(f"the store of {self.task}", f"a fresh store cannot be opened either: {opened.why}")

    async def _wiped(self) -> None:
        if self.store is not None:
            store, self.store = self.store, None
            await self.port.beside(store.close)
        await self.port.beside(self._disk.wipe)

    async def restore(self, order: t.Restore, tell: Callable[[t.RestoreProgress], None]) -> t.Restored:
        """Replay the log into the store, and put the tables on top."""
        assert self.store is not None
        self._restoring = asyncio.current_task()

        def heard(progress: LogProgress) -> None:
            self.progress = progress
            tell(t.RestoreProgress(progress.position, progress.blocked))

        result = await restore(
            self.port,
            self.log,
            self.store,
            start=order.start,
            end=order.end,
            progress=heard,
            unread=lambda count, offset, why: self.unread(*self.log, offset, why, count=count),
        )
        self._restoring = None
        self.replayed = result.records
        self._bind(self.store)
        return t.Restored(
            result.position, self._checkpoint(result.checkpoint), self._rows(), told_unowned(self.unowned)
        )

    def _checkpoint(self, data: bytes | None) -> Checkpoint | None:
        return decode_checkpoint(data) if data is not None else None

    def _rows(self) -> t.ControlRows:
        assert self.tables is not None
        return dict(unpack_rows(self.tables.raw_rows(CONTROL_TABLE)))

    def _bind(self, store: Store) -> None:
        most = None if self.log_limit is None else self.log_limit - ROW_OVERHEAD
        if self.tables is not None:
            self.tables.close()
        opened = open_tables(store, self.declared, clock=self.clock, most_bytes=most, memory=self._decoded)
        self.tables, self.unowned = opened.tables, opened.unowned
        told = log.bind(task=self.task)
        for line in opened.news:
            told.warning("the schema of state has changed", what=line)
        if opened.unowned:
            told.warning("state that no code declares", what=told_unowned(opened.unowned))

    def begin_run(self) -> None:
        """Which streams are closed, and what was flushed for it, belongs to a run: a new one begins with none."""
        closed = self.table(CLOSED)
        keys = list(closed)
        if keys:
            closed.delete_many(keys)
            self.complete()

    def prepare(self) -> None:
        """Encode what the letter changed; raises what cannot be encoded, with nothing changed."""
        if self.tables is not None:
            self.tables.prepare()

    def table(self, name: str) -> Any:
        """A table by name."""
        assert self.tables is not None, "tables exist once the task is restored"
        return self.tables.table(name)

    def complete(self) -> None:
        """The letter is complete."""
        if self.tables is not None:
            self.tables.complete()

    def drop(self) -> None:
        """The letter failed."""
        if self.tables is not None:
            self.tables.drop()

    def suspend(self) -> Any:
        """Put the running chunk's changes aside while a transaction is sealed."""
        return self.tables.suspend() if self.tables is not None else None

    def resume(self, aside: Any) -> None:
        """Give them back."""
        if self.tables is not None:
            self.tables.resume(aside)

    def seal(self, order: t.Contribute, now_ms: int) -> list[LogWrite]:
        """Changes and checkpoint for the transaction that closes."""
        assert self.tables is not None
        self.tables.raw(CONTROL_TABLE, pack_rows(order.rows))
        checkpoint = encode_checkpoint(order.checkpoint)
        self._checkpoints.append(checkpoint)
        return [log_write(self.task, self.log, self.tables.seal(), checkpoint, now_ms=now_ms)]

    def applied(self, position: int, now_ms: int) -> None:
        """The oldest seal is durable."""
        assert self.tables is not None
        checkpoint = self._checkpoints.pop(0)
        try:
            self.tables.applied(position, checkpoint=checkpoint, followed_until_ms=now_ms)
        except StoreBusy:
            self._checkpoints.insert(0, checkpoint)
            raise

    def expire(self) -> Expired:
        """Delete some of what has expired, with the next commit; and write some rows again that only a migration function can read."""
        if self.tables is None:
            return NOTHING_EXPIRED
        found = self.tables.expire(self.clock())
        rewritten = self.tables.rewrite()
        for name in rewritten.through:
            log.warning("every row was written again; remove migrate= from the code", task=self.task, table=name)
        seen = found.seen + rewritten.rows + len(rewritten.through)
        return Expired(found.gone, seen, found.more or rewritten.more)

    def refresh(self) -> None:
        """Nothing waits to be applied, and nobody else writes this log: the store stands at its end."""
        if self.store is not None and not self._checkpoints:
            with contextlib.suppress(StoreBusy):  # another time
                self.store.write({}, followed_until_ms=self.clock())

    async def close(self) -> None:
        """Close the store; it stays on disk. What still opens it, or writes what was restored, ends first.

        Called off, it goes on all the same: a store that nobody closes holds its directory until the process ends.
        """
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(), name=f"{self.task}: close")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        tables, self.tables = self.tables, None
        if tables is not None:
            tables.close()
        if self._wiping is not None:
            await asyncio.wait([self._wiping])
        if self._restoring is not None:
            self._restoring.cancel()
            await asyncio.wait([self._restoring])
        if self._opening is not None:
            await asyncio.wait([self._opening])
            if not self._opening.cancelled() and self._opening.exception() is None:
                self.store = self._opening.result()
        store, self.store = self.store, None
        if store is not None:
            await self.port.beside(store.close)
