"""The state of one task on this worker: its directory, its store, its tables, and its partition of the task log.

It carries out the machine's instructions for them, and answers with events.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from ....core.errors import EnvironmentFault
from ....core.names import StreamPartition
from ....core.task import protocol as t
from ....core.task.stored.checkpoint import CONTROL_TABLE, Checkpoint, decode_checkpoint, encode_checkpoint
from ....core.task.stored.rows import pack_rows, unpack_rows
from ...cancellation import CalledOff
from ...job.derive.declaration import Declared
from ...job.types.schemas import CLOSED
from ...logger import Logger
from ...operators.joins.joined import BOUND
from ...operators.windows.floors import FLOOR_ROWS
from ...port.port import Port
from ...state.cache_memory import CacheMemory
from ...state.marks import Marks
from ...state.opening import OWN, open_tables, unowned_text
from ...state.store import Disk, Owner, Store, StoreBusy, StoreUnusable
from ...state.table import NOTHING_EXPIRED, Expired, Table
from ...state.tables import TaskTables
from ..writing.buffer import LogWrite
from .followers import TakenStore
from .log import LogProgress, log_write, restore

log = Logger("headgate.state")
LogEndsOf = Callable[[StreamPartition], Any]
Take = Callable[[str], Awaitable[TakenStore | None]]
"""Gives the open store of a task whose log was followed here."""


async def _nothing(_: str) -> TakenStore | None:
    return None


ROW_OVERHEAD = 512
"""The bytes that a record of the task log takes beside its row's key and value, including the batch header and the table's name."""


def tables_of(declared: Declared) -> tuple[str, ...]:
    """The tables that the store of a task is opened with."""
    return (*(spec.name for spec in declared.tables()), *OWN)  # the first ones get filters, as far as there is memory


class TaskStore:
    """The store and the tables of one task. `disk`: where its store lies; `decoded`: the memory for decoded rows of its tables."""

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
        take: Take = _nothing,
        log_limit: int | None = None,
        unread: Callable[..., None] = lambda *_, **__: None,
    ) -> None:
        self.port = port
        self.declared = declared
        self.task = task
        self.log = log
        self.owner = Owner(job_uuid, task, log.partition)
        self._disk = disk
        self._decoded = decoded
        self.clock = clock
        self.ends = ends
        self._take = take
        self.log_limit = log_limit
        """max.message.bytes of the task log."""
        self.unread = unread
        """Called for records of the log that cannot be read, with topic, partition, offset, reason and count."""
        self.store: Store | None = None
        self.tables: TaskTables | None = None
        self.views: Mapping[str, Table[Any, Any]] = {}
        """What the task reads of tables of which its worker keeps one copy, by name."""
        self.unowned: Mapping[str, str] = {}
        """Tables that the code no longer declares, each with what it may have been."""
        self.progress: LogProgress | None = None
        self.replayed = 0
        self.prepared = False
        """Whether the store was followed here before the task was granted."""
        self._checkpoints: list[tuple[bytes, int]] = []
        self._opening: asyncio.Task[Store] | None = None
        self._restoring: asyncio.Task[Any] | None = None
        self._wiping: asyncio.Task[None] | None = None
        self._writing_out: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    async def open(self) -> t.StoreOpened | t.StoreBroken:
        """Open the store on disk."""
        try:
            self.store = await self._opened()
        except StoreUnusable as error:
            return t.StoreBroken(error.reason)
        meta = self.store.meta
        return t.StoreOpened(meta.position, meta.owner.job_uuid, meta.followed_until_ms)

    async def _opened(self) -> Store:
        """Open the store in a thread. A thread cannot be cancelled: `close` waits for it, and closes the store that it opened."""
        self._opening = asyncio.get_running_loop().create_task(self._followed_or_opened(), name=f"{self.task}: open")
        found = await asyncio.shield(self._opening)
        if self._closing is not None:
            raise CalledOff(f"opening the store of {self.task}")
        self._opening = None
        return found

    async def _followed_or_opened(self) -> Store:
        taken = await self._take(self.task)
        if taken is not None and taken.store.meta.owner == self.owner:
            self._disk, self.prepared = taken.disk, True
            return taken.store
        if taken is not None:
            await self.port.in_thread(taken.store.close)
        return await self.port.in_thread(partial(self._disk.open, self.owner, tables_of(self.declared)))

    async def marks(self, grant: int) -> Marks:
        """Where the letters of this task are marked while they run."""
        return await self.port.in_thread(partial(self._disk.marks, grant))

    async def log_ends(self) -> t.LogEnds:
        """Ask the broker for the start and the end of the task's log partition."""
        start, end, retention_ms = await self.ends(self.log)
        return t.LogEnds(start, end, retention_ms)

    async def wipe(self) -> None:
        """Replace the store by an empty one. This runs in threads, which cannot be cancelled: `close` waits for them."""
        self._wiping = asyncio.get_running_loop().create_task(self._wiped(), name=f"{self.task}: wipe")
        await asyncio.shield(self._wiping)
        self._wiping = None
        if self._closing is not None:
            raise CalledOff(f"opening the store of {self.task}")
        opened = await self.open()
        if isinstance(opened, t.StoreBroken):
            raise EnvironmentFault(
                f"the store of {self.task} was wiped, and an empty one cannot be opened: {opened.why}",
                remedy="see the disk of state.dir, or move it to another one",
            )

    async def _wiped(self) -> None:
        if self.store is not None:
            store, self.store = self.store, None
            await self.port.in_thread(store.close)
        await self.port.in_thread(self._disk.wipe)

    async def restore(self, order: t.Restore, tell: Callable[[t.RestoreProgress], object]) -> t.Restored:
        """Replay the log into the store, and open the tables on it."""
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
            result.position, self._checkpoint(result.checkpoint), self._rows(), unowned_text(self.unowned)
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
        logger = log.bind(task=self.task)
        for line in opened.news:
            logger.warning("the schema of state has changed", what=line)
        if opened.unowned:
            logger.warning("state that no code declares", what=unowned_text(opened.unowned))

    def begin_run(self, *, reopens: bool) -> None:
        """Clear the record of closed streams: it belongs to one run, and a new run starts with none. `reopens`: also clear up to where
        windows are closed, because records are read again."""
        closed = self.table(CLOSED)
        closed.delete_many(list(closed))
        if reopens:
            for step in self.declared.steps:
                if step.closes:
                    floor = self.table(step.name)
                    floor.delete_many([name for name in (*FLOOR_ROWS, BOUND) if name in floor])
        self.complete()

    def prepare(self) -> None:
        """Encode what the letter changed. If something cannot be encoded, raises and changes nothing."""
        if self.tables is not None:
            self.tables.prepare()

    def table(self, name: str) -> Any:
        """A table by name."""
        if name in self.views:
            return self.views[name]
        assert self.tables is not None, "tables exist once the task is restored"
        return self.tables.table(name)

    def complete(self) -> None:
        """The letter is complete: keep its changes."""
        if self.tables is not None:
            self.tables.complete()
        for view in self.views.values():
            view.complete()

    def drop(self) -> None:
        """The letter failed: discard its changes."""
        if self.tables is not None:
            self.tables.drop()
        for view in self.views.values():
            view.drop()

    def suspend(self) -> Any:
        """Set the current chunk's changes aside while a transaction is sealed."""
        return self.tables.suspend() if self.tables is not None else None

    def resume(self, aside: Any) -> None:
        """Restore the changes that `suspend` set aside."""
        if self.tables is not None:
            self.tables.resume(aside)

    def seal(self, order: t.Contribute, now_ms: int) -> list[LogWrite]:
        """The changes and the checkpoint for the transaction that is being sealed."""
        assert self.tables is not None
        self.tables.raw(CONTROL_TABLE, pack_rows(order.rows))
        checkpoint = encode_checkpoint(order.checkpoint)
        self._checkpoints.append((checkpoint, now_ms))
        return [log_write(self.task, self.log, self.tables.seal(), checkpoint, now_ms=now_ms)]

    def applied(self, position: int) -> None:
        """The oldest sealed changes are durable: write them into the store. When they were sealed, no other task had written the log since;
        when the acknowledgement is read, in a process that was stopped meanwhile, one may have."""
        assert self.tables is not None
        sealed = self._checkpoints.pop(0)
        try:
            self.tables.applied(position, checkpoint=sealed[0], followed_until_ms=sealed[1])
        except StoreBusy:
            self._checkpoints.insert(0, sealed)
            raise

    def expire(self) -> Expired:
        """Delete some expired rows with the next commit, and rewrite some rows that only a migration function can read."""
        if self.tables is None:
            return NOTHING_EXPIRED
        found = self.tables.expire(self.clock())
        rewritten = self.tables.rewrite()
        for name in rewritten.through:
            log.warning("every row was written again; remove migrate= from the code", task=self.task, table=name)
        seen = found.seen + rewritten.rows + len(rewritten.through)
        return Expired(found.gone, seen, found.more or rewritten.more)

    @property
    def settled(self) -> bool:
        """Whether everything that was sealed has been applied: no commit is under way."""
        return not self._checkpoints

    def refresh(self, known_ms: int) -> None:
        """If nothing waits to be applied, record that the store stands at the end of its log. `known_ms`: until when it is known that no
        other task could write this log."""
        if self.store is not None and self.settled and known_ms > (self.store.meta.followed_until_ms or 0):
            with contextlib.suppress(StoreBusy):  # the next refresh will do
                self.store.write({}, followed_until_ms=known_ms)

    async def write_out(self) -> None:
        """The task will be released soon: write out what its store holds in memory. This runs in a thread: `close` waits for it."""
        if self.store is None or self.tables is None or self._writing_out is not None or self._closing is not None:
            return
        self._writing_out = asyncio.get_running_loop().create_task(
            self._flushed(self.store), name=f"{self.task}: flush"
        )
        await asyncio.shield(self._writing_out)
        self._writing_out = None

    async def _flushed(self, store: Store) -> None:
        await self.port.in_thread(store.flush)

    async def close(self) -> None:
        """Close the store; it stays on disk. An open, wipe or restore that is still running ends first.

        Cancelling the caller does not stop it: a store that is never closed locks its directory until the process ends.
        """
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(), name=f"{self.task}: close")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        tables, self.tables = self.tables, None
        if tables is not None:
            tables.close()
        views, self.views = self.views, {}
        for view in views.values():
            view.close()
        if self._wiping is not None:
            await asyncio.wait([self._wiping])
        if self._writing_out is not None:
            await asyncio.wait([self._writing_out])
        if self._restoring is not None:
            self._restoring.cancel()
            await asyncio.wait([self._restoring])
        if self._opening is not None:
            await asyncio.wait([self._opening])
            if not self._opening.cancelled() and self._opening.exception() is None:
                self.store = self._opening.result()
        store, self.store = self.store, None
        if store is not None:
            await self.port.in_thread(store.close)
