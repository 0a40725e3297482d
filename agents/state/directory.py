"""Chooses the directory in which a task's store is opened, if more than one process has used it.

A task has one directory, `tasks/<task>` below that of its job. A process that was fenced while it was frozen may still hold its lock. Its
successor then opens a spare one, `spares/<task>/1`. The next process takes the one whose store is furthest in the task log, among those
whose lock is free, and removes the others.

Promise: two tasks never share a directory, whatever their names are (`core.names.task_directory`), and the spare of one is never taken for
the store of another.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from ...core.names import task_directory
from ..logger import Logger
from .marks import Marks, opened
from .rocks import RocksStore, StoreMemory, open_rocks, wipe
from .store import Owner, StoreHeld, StoreUnusable

log = Logger("headgate.store")
OWN, SPARES, COPIES = "tasks", "spares", "copies"


class Directory:
    """See `store.Disk`: the directory of one task below that of its job, or the spare one that was opened."""

    def __init__(self, job: Path, task: str, memory: StoreMemory) -> None:
        name = task_directory(task)
        self._own = job / OWN / name
        self._spares = job / SPARES / name
        self._letters = job / "letters" / name
        self._opened = self._own
        self._memory = memory

    def open(self, owner: Owner, tables: Iterable[str] = ()) -> RocksStore:
        """See `store.Disk`."""
        found = open_best(self._own, self._spares, self._memory, owner, tables)
        self._opened = found.path
        return found

    def wipe(self) -> None:
        """See `store.Disk`."""
        wipe(self._opened)

    def marks(self, grant: int) -> Marks:
        """See `store.Disk`."""
        return opened(self._letters, grant)


def open_best(own: Path, spares: Path, memory: StoreMemory, owner: Owner, tables: Iterable[str]) -> RocksStore:
    """Open the best store. Raises `StoreUnusable` if the task's own directory is the only one and cannot be used, and `WriteRefused` for a
    disk that takes no files."""
    best: RocksStore | None = None
    broken: StoreUnusable | None = None
    held = False
    for candidate in (own, *_numbered(spares)):
        try:
            found = open_rocks(candidate, memory, owner, tables)
        except StoreHeld:
            held = True
            log.warning("a store is locked by another process", path=str(candidate))
            continue
        except StoreUnusable as error:
            if candidate == own:
                broken = error
            else:
                log.warning("a store is removed", path=str(candidate), why=error.reason)
                shutil.rmtree(candidate, ignore_errors=True)
            continue
        except BaseException:  # such as a full disk, on which no store is judged
            if best is not None:
                best.close()
            raise
        if best is None or _upto(found) > _upto(best):
            best, found = found, best
        if found is not None:
            _remove(found, "another store is further along in the task log")
    if best is not None:
        return best
    if broken is not None and not held:
        raise broken
    return open_rocks(_fresh(spares), memory, owner, tables)


def _upto(store: RocksStore) -> int:
    """Its position in the task log; -1 if nothing was applied yet."""
    return -1 if store.meta.position is None else store.meta.position


def stores_of(job: Path, name: str) -> list[Path]:
    """The directories that may hold a store of the task with this name of a directory: its own, and its spare ones."""
    return [job / OWN / name, *_numbered(job / SPARES / name)]


def copies_of(job: Path) -> list[Path]:
    """The directories that may hold a store of a copy of any table."""
    return [path for table in _numbered(job / COPIES) for path in _numbered(table)]


def _numbered(spares: Path) -> list[Path]:
    return sorted(spares.iterdir()) if spares.exists() else []


def _fresh(spares: Path) -> Path:
    number = 1
    while (fresh := spares / str(number)).exists():
        number += 1
    return fresh


def _remove(store: RocksStore, why: str) -> None:
    log.info("a store is removed", path=str(store.path), why=why)
    try:
        store.remove()
    except OSError as error:
        log.warning("a store cannot be removed", path=str(store.path), why=str(error))
