"""A task's state on its worker: tables of bytes, and where in the task log they stand. The interface, and memory as one of it.

The task log is the truth; a store is its cache. So a store may be thrown away at any time, and must say when it has to be.

Promises of every store:

- `write` is one step: all changes, the position, the checkpoint and the time, or nothing.
- A store that has refused a write is never written again in this life: the next commit must not land on top of one that is missing.
  What it holds stays as it was at its position, so whoever opens it next replays what it lacks.
- What is read is what was written last; keys of a range come in the order of their bytes.
- After `close` nothing of it is held, and the directory can be opened again at once. Nothing is read of it any more, also in the middle
  of a range: whoever asks gets `StoreUnreadable`, and never that there is nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from traceback import clear_frames
from typing import Protocol

from ...core.errors import EnvironmentFault, StoreUnreadable

Changes = Mapping[str, Mapping[bytes, bytes | None]]
"""By table: key to value; None deletes."""
FORMAT = 1
BUSY_S = 0.02
"""How long to wait before a store that is busy is asked again."""


class StoreUnusable(EnvironmentFault):
    """A store that cannot be used; it is to be wiped, and restored from the task log. `reason` in a few words."""

    def __init__(self, where: str, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"the store in {where} cannot be used: {reason}", remedy="none needed: it is restored from the task log"
        )


class StoreHeld(EnvironmentFault):
    """Another process holds the directory."""


class StoreBusy(EnvironmentFault):
    """A store has taken more than its disk has; nothing of this write was done, and the same write is taken later."""


class WriteRefused(EnvironmentFault):
    """A store has refused a write, now or before; it stands where it stood, and takes nothing more until it is opened anew."""


@dataclass(frozen=True, slots=True)
class StoreMeta:
    """What a store knows of itself. `position`: where it stands in the task log (None: nothing applied yet)."""

    job_uuid: str
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
        """One value."""
        ...

    def get_many(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Many values, in the order of the keys."""
        ...

    def range(
        self, table: str, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Keys from `start` up to but not including `end`; backwards from the last one below `end` with `reverse`."""
        ...

    def write(
        self,
        changes: Changes,
        *,
        position: int | None = None,
        followed_until_ms: int | None = None,
        checkpoint: bytes | None = None,
    ) -> None:
        """All of it in one step; what is None stays as it was."""
        ...

    def tables(self) -> list[str]:
        """The tables that have ever been written to."""
        ...

    def clear(self, table: str) -> None:
        """Forget all keys of a table."""
        ...

    def size(self) -> int:
        """Bytes that it takes, roughly."""
        ...

    def close(self) -> None:
        """Give everything back. Closing twice is allowed."""
        ...


class Disk(Protocol):
    """Where the store of one task lies. Both calls may take long, and are made beside."""

    def open(self, job_uuid: str) -> Store:
        """The store that is there, or a fresh one. Raises `StoreUnusable` for one that must be wiped."""
        ...

    def wipe(self) -> None:
        """Nothing is left of it; whoever had it open has closed it."""
        ...


class GuardedStore(ABC):
    """What every store is made of: the only way to change one, and the memory of a change that it has refused."""

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
        """All of it in one step; what is None stays as it was. Never waits for the disk.

        Raises `StoreBusy` instead: come again. Raises `WriteRefused`, and from then on always.
        """
        meta = stamped(self._meta, position, followed_until_ms, checkpoint)
        with self._guarded():
            self._put(changes, meta)
        self._meta = meta

    def clear(self, table: str) -> None:
        """Forget all keys of a table."""
        with self._guarded():
            self._forget(table)

    def _must_be_open(self) -> None:
        """Raise what a reader gets who comes too late."""
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
            clear_frames(error.__traceback__)  # they hold handles, and who holds one holds the database's own lock
            raise WriteRefused(
                f"the store {self._where()} accepts no write: {error}",
                remedy="free some disk space, or move state.dir to another disk",
            ) from error
        except BaseException as error:  # nobody knows what of it was done
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
    """Write, and while the disk has not followed let everybody else go on. RocksDB does not say when it is through, so it is asked."""
    while True:
        try:
            store.write(changes, position=position, followed_until_ms=followed_until_ms, checkpoint=checkpoint)
            return
        except StoreBusy:
            await asyncio.sleep(BUSY_S)


class MemoryStore(GuardedStore):
    """A store that forgets when the process ends; for drivers, tests, and jobs whose state is small."""

    def __init__(self, job_uuid: str = "") -> None:
        super().__init__(StoreMeta(job_uuid))
        self._tables: dict[str, dict[bytes, bytes]] = {}
        self._order: dict[str, list[bytes]] = {}

    def get(self, table: str, key: bytes) -> bytes | None:
        """One value."""
        self._must_be_open()
        return self._tables.get(table, {}).get(key)

    def get_many(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Many values."""
        self._must_be_open()
        get = self._tables.get(table, {}).get
        return [get(key) for key in keys]

    def range(
        self, table: str, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """A stable view: what is written meanwhile is not seen."""
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
        """The tables that have ever been written to."""
        self._must_be_open()
        return sorted(self._tables)

    def _forget(self, table: str) -> None:
        self._tables.pop(table, None)
        self._order.pop(table, None)

    def size(self) -> int:
        """Bytes of keys and values."""
        self._must_be_open()
        return sum(len(k) + len(v) for rows in self._tables.values() for k, v in rows.items())

    def close(self) -> None:
        """What it held is forgotten."""
        self._closed = True
        self._tables, self._order = {}, {}


class NoDisk:
    """Stores in memory: nothing of them is there when they are opened again."""

    def open(self, job_uuid: str) -> Store:
        """See `Disk`."""
        return MemoryStore(job_uuid)

    def wipe(self) -> None:
        """See `Disk`."""


def stamped(
    meta: StoreMeta, position: int | None, followed_until_ms: int | None, checkpoint: bytes | None
) -> StoreMeta:
    """The metadata after a write; what is None stays."""
    return StoreMeta(
        meta.job_uuid,
        meta.position if position is None else position,
        meta.followed_until_ms if followed_until_ms is None else followed_until_ms,
        meta.checkpoint if checkpoint is None else checkpoint,
        meta.format,
    )
