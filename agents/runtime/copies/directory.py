"""Chooses the directory in which a worker opens the store of a copy, if several workers of the job share a disk.

The stores of a table's copies lie in `copies/<table>/1`, `copies/<table>/2` … below the directory of the job. A worker takes the first
whose lock is free. So it finds the one that it had, or one that another worker has left: each holds its own positions, and only the
difference is read.

Promise: two processes never share a directory, and none is removed while a process has it open.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from pathlib import Path

from ....core.names import task_directory
from ...state.directory import COPIES
from ...state.rocks import RocksStore, StoreMemory, open_rocks, wipe
from ...state.store import MemoryStore, Owner, Store, StoreHeld


class CopyDirectory:
    """Where the stores of one table's copies lie."""

    def __init__(self, job: Path, table: str, memory: StoreMemory) -> None:
        self._all = job / COPIES / task_directory(table)
        self._opened = self._all / "1"
        self._memory = memory

    def open(self, owner: Owner, tables: Iterable[str]) -> Store:
        """The first store that no other process has open, or a new one. Raises `StoreUnusable` if that must be wiped."""
        for number in count(1):
            self._opened = self._all / str(number)
            try:
                return self._open(owner, tables)
            except StoreHeld:
                continue
        raise AssertionError("there is always a next number")

    def _open(self, owner: Owner, tables: Iterable[str]) -> RocksStore:
        return open_rocks(self._opened, self._memory, owner, tables)

    def wipe(self) -> None:
        """Remove the store that was opened last, or could not be. It must be closed."""
        wipe(self._opened)


class NoDirectory:
    """Stores in memory: each opening starts empty."""

    def open(self, owner: Owner, tables: Iterable[str]) -> Store:
        """See `CopyDirectory`."""
        return MemoryStore(owner)

    def wipe(self) -> None:
        """See `CopyDirectory`."""
