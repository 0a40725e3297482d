"""Disks: their contents outlive a process, and what a process has open is locked while it lives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headgate.agents.state.marks import Marks, NoMarks
from headgate.agents.state.store import MemoryStore, Owner, StoreBusy, StoreMeta, StoreUnusable, foreign

if TYPE_CHECKING:
    from .process import Process


SYNCED = 0.15
"""The share of the writes that the operating system writes out soon."""


class Files:
    """One directory: what a store has written."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[bytes, bytes]] = {}
        self.meta: StoreMeta | None = None
        self.holder: SimStore | None = None
        self.synced: tuple[dict[str, dict[bytes, bytes]], StoreMeta] | None = None
        """What a power cut leaves; kept only where the power may fail."""

    @property
    def held(self) -> bool:
        """Whether a living process has it open."""
        return self.holder is not None and self.holder.process.alive


class Location:
    """The disk of one location."""

    def __init__(self) -> None:
        self.files: dict[tuple[str, str], list[Files]] = {}
        """By job and task, the existing directories; the first is the task's own."""
        self.full = False
        self.busy = False
        self.may_fail = False
        """Whether its machine may lose its power."""

    def power_cut(self) -> None:
        """What was not synced is gone. Nothing has a directory open any more."""
        for there in self.files.values():
            for one in there:
                if one.synced is None:
                    one.tables, one.meta = {}, None
                else:
                    tables, one.meta = one.synced
                    one.tables = {name: dict(rows) for name, rows in tables.items()}


class SimStore(MemoryStore):
    """A store over files. A write is atomic, even if the process is killed."""

    def __init__(self, process: Process, location: Location, files: Files, owner: Owner) -> None:
        super().__init__(owner)
        self.process = process
        self._location = location
        self._files = files
        self._tables = files.tables
        if files.meta is None:
            files.meta = self._meta
        self._meta = files.meta
        files.holder = self

    def _put(self, changes: Any, meta: StoreMeta) -> None:
        world = self.process.world
        if self._location.busy:
            world.took_effect("busy-disk")
            raise StoreBusy("the disk has not followed")
        if self._location.full or (world.refusing_writes > 0 and changes):
            if not self._location.full:
                world.refusing_writes -= 1
            world.took_effect("full-disk" if self._location.full else "refused-write")
            raise OSError(28, "No space left on device")
        super()._put(changes, meta)
        self._files.meta = meta
        if self._location.may_fail and world.rng.random() < SYNCED:
            self._files.synced = {name: dict(rows) for name, rows in self._tables.items()}, meta

    def close(self) -> None:
        """Release the lock; what is written stays."""
        super().close()
        if self._files.holder is self:
            self._files.holder = None


class TaskDisk:
    """See `agents.state.store.Disk`: the directories of one task at one location, handled as in `agents.state.directory`."""

    def __init__(self, process: Process, location: Location, task: str) -> None:
        self._process = process
        self._location = location
        self._name = (process.job.name, task)
        self._opened: Files | None = None

    def open(self, owner: Owner, tables: Iterable[str] = ()) -> SimStore:
        """Open the store that is furthest in the log, among those that nobody holds; remove the others."""
        there = self._location.files.setdefault(self._name, [])
        free = [one for one in there if not one.held]
        if len(free) < len(there):
            self._process.world.took_effect("store-held")
        best = max(free, key=lambda one: (one.meta.position or -1) if one.meta is not None else -1, default=None)
        if best is None:
            best = Files()
        self._location.files[self._name] = [*(one for one in there if one.held), best]
        if best.meta is not None and (reason := foreign(best.meta.owner, owner)):
            raise StoreUnusable("its directory", reason)
        self._opened = best
        return SimStore(self._process, self._location, best, owner)

    def marks(self, grant: int) -> Marks:
        """See `agents.state.store.Disk`: a death in the middle of a letter is not modelled."""
        return NoMarks()

    def wipe(self) -> None:
        """See `agents.state.store.Disk`."""
        self._process.world.wiped += 1
        there = self._location.files.setdefault(self._name, [])
        self._location.files[self._name] = [one for one in there if one is not self._opened]
