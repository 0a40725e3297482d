"""Chooses the directory in which a task's store is opened, if more than one process has used it.

A task has one directory. A process that was fenced while it was frozen may still hold its lock. Its successor then opens a new directory
beside it (`Partition-3.1`). The next process takes the one whose store is furthest in the task log, among those whose lock is free, and
removes the others.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import structlog

from .rocks import RocksStore, StoreMemory, open_rocks, wipe
from .store import StoreHeld, StoreUnusable

log = structlog.get_logger("headgate.store")


class Directory:
    """See `store.Disk`: the directory of one task, or the one beside it that was opened."""

    def __init__(self, path: Path, memory: StoreMemory) -> None:
        self._path = path
        self._memory = memory

    def open(self, job_uuid: str) -> RocksStore:
        """See `store.Disk`."""
        found = open_best(self._path, self._memory, job_uuid)
        self._path = found.path
        return found

    def wipe(self) -> None:
        """See `store.Disk`."""
        wipe(self._path)


def open_best(path: Path, memory: StoreMemory, job_uuid: str) -> RocksStore:
    """Open the best store. Raises `StoreUnusable` if the task's own directory is the only one and cannot be used."""
    best: RocksStore | None = None
    broken: StoreUnusable | None = None
    held = False
    for candidate in (path, *_beside(path)):
        try:
            found = open_rocks(candidate, memory, job_uuid)
        except StoreHeld:
            held = True
            log.warning("a store is held by another process", path=str(candidate))
            continue
        except StoreUnusable as error:
            if candidate == path:
                broken = error
            else:
                log.warning("a store is removed", path=str(candidate), why=error.reason)
                shutil.rmtree(candidate, ignore_errors=True)
            continue
        if best is None or (found.meta.position or -1) > (best.meta.position or -1):
            best, found = found, best
        if found is not None:
            _remove(found, "another store is further along in the task log")
    if best is not None:
        return best
    if broken is not None and not held:
        raise broken
    return open_rocks(_fresh(path), memory, job_uuid)


def _beside(path: Path) -> list[Path]:
    if not path.parent.exists():
        return []
    name = re.compile(re.escape(path.name) + r"\.\d+")
    return sorted(other for other in path.parent.iterdir() if name.fullmatch(other.name))


def _fresh(path: Path) -> Path:
    number = 1
    while (fresh := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    return fresh


def _remove(store: RocksStore, why: str) -> None:
    log.info("a store is removed", path=str(store.path), why=why)
    path = store.path
    store.close()
    shutil.rmtree(path, ignore_errors=True)
