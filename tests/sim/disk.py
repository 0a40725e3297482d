"""Disks: their contents outlive a process, and what a process has open is locked while it lives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.agents.state.store import MemoryStore, StoreBusy, StoreMeta, StoreUnusable

if TYPE_CHECKING:
    from .process import Process


class Files:
    """One directory: what a store has written."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[bytes, bytes]] = {}
        self.meta: StoreMeta | None = None
        self.holder: SimStore | None = None

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


class SimStore(MemoryStore):
    """A store over files. A write is atomic, even if the process is killed."""

    def __init__(self, process: Process, location: Location, files: Files, job_uuid: str) -> None:
        super().__init__(job_uuid)
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

    def open(self, job_uuid: str) -> SimStore:
        """Open the store that is furthest in the log, among those that nobody holds; remove the others."""
        there = self._location.files.setdefault(self._name, [])
        free = [one for one in there if not one.held]
        if len(free) < len(there):
            self._process.world.took_effect("store-held")
        best = max(free, key=lambda one: (one.meta.position or -1) if one.meta is not None else -1, default=None)
        if best is None:
            best = Files()
        self._location.files[self._name] = [*(one for one in there if one.held), best]
        if best.meta is not None and best.meta.job_uuid != job_uuid:
            raise StoreUnusable(
                "its directory", f"it belongs to the job {best.meta.job_uuid}, and this one is {job_uuid}"
            )
        self._opened = best
        return SimStore(self._process, self._location, best, job_uuid)

    def wipe(self) -> None:
        """See `agents.state.store.Disk`."""
        self._process.world.wiped += 1
        there = self._location.files.setdefault(self._name, [])
        self._location.files[self._name] = [one for one in there if one is not self._opened]
