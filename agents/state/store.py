"""The state of a task on its worker: tables of bytes, and their position in the task log. Defines the interface, and a store in memory.

The task log is authoritative; a store is its cache. A store may be discarded at any time, and must report when it has to be.

Promises of every store:

- `write` is atomic: it applies all changes, the position, the checkpoint and the time, or nothing.
- A store that has refused a write accepts no more writes until it is reopened, because the next commit must not follow a missing one. Its
  contents stay as they were at its position, so the next opener replays what it lacks.
- Reads return what was written last. The keys of a range come in the order of their bytes.
- After `close` the store holds no resources, and the directory can be reopened at once. Later reads raise `StoreUnreadable`, also in the
  middle of a range; they never return an empty result.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from traceback import clear_frames
from typing import Protocol

from ...core.errors import EnvironmentFault, StoreUnreadable
from .marks import Marks, NoMarks

Changes = Mapping[str, Mapping[bytes, bytes | None]]
"""By table: key to value; None deletes."""
FORMAT = 1
BUSY_S = 0.02
"""The wait before a write to a busy store is tried again."""


class StoreUnusable(EnvironmentFault):
    """A store that cannot be used and must be wiped and restored from the task log. `reason` says why, in a few words."""

    def __init__(self, where: str, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"the store in {where} cannot be used: {reason}", remedy="none needed: it is restored from the task log"
        )


class StoreHeld(EnvironmentFault):
    """Another process holds the directory."""


class StoreBusy(EnvironmentFault):
    """A store has accepted more than its disk has written. It did nothing of this write; the same write succeeds later."""


class WriteRefused(EnvironmentFault):
    """A store has refused a write, now or earlier. It keeps its position and accepts nothing until it is reopened."""


def refused(where: str, why: object) -> WriteRefused:
    """The disk of a store does not take what is written."""
    return WriteRefused(
        f"the store {where} accepts no write: {why}", remedy="free some disk space, or move state.dir to another disk"
    )


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose store it is: a task of a job, and its partition of the task log. A store is used by its owner alone."""

    job_uuid: str = ""
    task: str = ""
    partition: int = -1


def foreign(found: Owner, owner: Owner) -> str:
    """Why a store is not this owner's; empty if it is.

    >>> foreign(Owner("u1", "Partition 1", 1), Owner("u1", "Partition 2", 2))
    "it belongs to the task 'Partition 1' (partition 1 of the log), and this one is 'Partition 2' (partition 2)"
    """
    if found.job_uuid != owner.job_uuid:
        return f"it belongs to the job {found.job_uuid}, and this one is {owner.job_uuid}"
    if found == owner:
        return ""
    return (
        f"it belongs to the task {found.task!r} (partition {found.partition} of the log), "
        f"and this one is {owner.task!r} (partition {owner.partition})"
    )


@dataclass(frozen=True, slots=True)
class StoreMeta:
    """The metadata of a store. `position`: its position in the task log; None if nothing was applied yet."""

    owner: Owner
    position: int | None = None
    followed_until_ms: int | None = None
    checkpoint: bytes | None = None
    format: int = FORMAT


class Store(Protocol):
    """The state of one task."""

    @property
    def meta(self) -> StoreMeta:
        """As of the last write."""
        ...

    def get(self, table: str, key: bytes) -> bytes | None:
        """The value of a key."""
        ...

    def get_many(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of many keys, in the same order."""
        ...

    def range(
        self, table: str, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Rows with keys from `start` up to, but not including, `end`; with `reverse` in descending order."""
        ...

    def write(
        self,
        changes: Changes,
        *,
        position: int | None = None,
        followed_until_ms: int | None = None,
        checkpoint: bytes | None = None,
    ) -> None:
        """Write everything in one step. Arguments that are None keep their value."""
        ...

    def tables(self) -> list[str]:
        """The tables that were ever written to, or were to be."""
        ...

    def clear(self, table: str) -> None:
        """Remove all keys of a table."""
        ...

    def size(self) -> int:
        """The approximate size in bytes."""
        ...

    def flush(self) -> None:
        """Write to the disk what is only in memory, so that closing takes no time. It may take long and runs in a thread; others read and
        write meanwhile. It must have ended before the store is closed."""
        ...

    def figure(self, name: str) -> int:
        """What RocksDB says of itself under this name; 0 where there is none, or it is closed."""
        ...

    def close(self) -> None:
        """Release all resources. Closing twice is allowed."""
        ...


class Disk(Protocol):
    """Where the store of one task is kept. Both calls may take long and run in a thread."""

    def open(self, owner: Owner, tables: Iterable[str] = ()) -> Store:
        """The existing store, or a new one. Raises `StoreUnusable` if the store must be wiped. `tables` will be written to: what the first
        write to one takes is done here, not on the loop."""
        ...

    def wipe(self) -> None:
        """Remove the store. It must be closed."""
        ...

    def marks(self, grant: int) -> Marks:
        """Where the letters of the task are marked while they run, with what earlier processes have left there."""
        ...


class GuardedStore(ABC):
    """The common part of all stores: the only way to change one, and the memory of a refused write."""

    def __init__(self, meta: StoreMeta) -> None:
        self._meta = meta
        self._refusal = ""
        self._closed = False

    @property
    def meta(self) -> StoreMeta:
        """As of the last write."""
        return self._meta

    def write(
        self,
        changes: Changes,
        *,
        position: int | None = None,
        followed_until_ms: int | None = None,
        checkpoint: bytes | None = None,
    ) -> None:
        """Write everything in one step. Arguments that are None keep their value. Never waits for the disk.

        Raises `StoreBusy` if the write must be tried again later. Raises `WriteRefused`, and then for every later write too.
        """
        meta = stamped(self._meta, position, followed_until_ms, checkpoint)
        with self._guarded():
            self._put(changes, meta)
        self._meta = meta

    def clear(self, table: str) -> None:
        """Remove all keys of a table."""
        with self._guarded():
            self._forget(table)

    def figure(self, name: str) -> int:
        """See `Store`."""
        return 0

    def _must_be_open(self) -> None:
        """Raise `StoreUnreadable` for a reader that comes too late."""
        if self._closed:
            raise StoreUnreadable(self._where().removeprefix("in "), "it is closed")

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        if self._closed:
            raise WriteRefused(f"the store {self._where()} is closed", remedy="none needed: the task is shutting down")
        if self._refusal:
            raise WriteRefused(
                f"the store {self._where()} has refused a write, and accepts no more until it is reopened: {self._refusal}",
                remedy="restart the task: missing changes are replayed from the task log",
            )
        try:
            yield
        except StoreBusy:
            raise
        except Exception as error:
            self._refusal = repr(error)
            clear_frames(error.__traceback__)  # they hold handles, and a handle holds the database's own lock
            raise refused(self._where(), error) from error
        except BaseException as error:  # it is not known what was written
            self._refusal = repr(error)
            raise

    @abstractmethod
    def _where(self) -> str: ...

    @abstractmethod
    def _put(self, changes: Changes, meta: StoreMeta) -> None: ...

    @abstractmethod
    def _forget(self, table: str) -> None: ...


async def write_in_turn(
    store: Store,
    changes: Changes,
    *,
    position: int | None = None,
    followed_until_ms: int | None = None,
    checkpoint: bytes | None = None,
) -> None:
    """Write; while the store is busy, let other coroutines run and try again. RocksDB does not signal when it is ready, so this polls."""
    while True:
        try:
            store.write(changes, position=position, followed_until_ms=followed_until_ms, checkpoint=checkpoint)
            return
        except StoreBusy:
            await asyncio.sleep(BUSY_S)


class MemoryStore(GuardedStore):
    """A store that loses everything when the process ends: for drivers, tests, and jobs with little state."""

    def __init__(self, owner: Owner | None = None) -> None:
        super().__init__(StoreMeta(owner or Owner()))
        self._tables: dict[str, dict[bytes, bytes]] = {}
        self._order: dict[str, list[bytes]] = {}

    def get(self, table: str, key: bytes) -> bytes | None:
        """The value of a key."""
        self._must_be_open()
        return self._tables.get(table, {}).get(key)

    def get_many(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of many keys."""
        self._must_be_open()
        get = self._tables.get(table, {}).get
        return [get(key) for key in keys]

    def range(
        self, table: str, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """A stable view: later writes are not visible in it."""
        self._must_be_open()
        rows, order = self._tables.get(table, {}), self._sorted(table)
        low = 0 if start is None else bisect_left(order, start)
        high = len(order) if end is None else bisect_left(order, end)
        found = [(key, rows[key]) for key in order[low:high]]
        return iter(found[::-1] if reverse else found)

    def _sorted(self, table: str) -> list[bytes]:
        order = self._order.get(table)
        if order is None:
            order = self._order[table] = sorted(self._tables.get(table, {}))
        return order

    def _where(self) -> str:
        return "in memory"

    def _put(self, changes: Changes, meta: StoreMeta) -> None:
        for table, rows in changes.items():
            kept = self._tables.setdefault(table, {})
            order = self._order.get(table) if len(rows) < 16 else self._order.pop(table, None) and None
            for key, value in rows.items():
                if value is None:
                    if kept.pop(key, None) is not None and order is not None:
                        del order[bisect_left(order, key)]
                else:
                    if order is not None and key not in kept:
                        insort(order, key)
                    kept[key] = value

    def tables(self) -> list[str]:
        """The tables that were ever written to."""
        self._must_be_open()
        return sorted(self._tables)

    def _forget(self, table: str) -> None:
        self._tables.pop(table, None)
        self._order.pop(table, None)

    def flush(self) -> None:
        """Nothing of it lies on a disk."""

    def size(self) -> int:
        """The bytes of keys and values."""
        self._must_be_open()
        return sum(len(k) + len(v) for rows in self._tables.values() for k, v in rows.items())

    def close(self) -> None:
        """Drop all rows."""
        self._closed = True
        self._tables, self._order = {}, {}


class NoDisk:
    """Stores in memory: each opening starts empty."""

    def open(self, owner: Owner, tables: Iterable[str] = ()) -> Store:
        """See `Disk`."""
        return MemoryStore(owner)

    def wipe(self) -> None:
        """See `Disk`."""

    def marks(self, grant: int) -> Marks:
        """See `Disk`."""
        return NoMarks()


def stamped(
    meta: StoreMeta, position: int | None, followed_until_ms: int | None, checkpoint: bytes | None
) -> StoreMeta:
    """The metadata after a write. Arguments that are None keep their value."""
    return StoreMeta(
        meta.owner,
        meta.position if position is None else position,
        meta.followed_until_ms if followed_until_ms is None else followed_until_ms,
        meta.checkpoint if checkpoint is None else checkpoint,
        meta.format,
    )
