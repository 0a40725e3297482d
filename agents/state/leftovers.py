"""Removes the stores that tasks have left behind on this disk when they moved to another worker, and copies of tables that no worker here
uses any more.

Who calls says which tasks run elsewhere. Promises:

- A store that is in use is never removed: that happens only under its lock, and another opener meanwhile gets `StoreHeld`.
- Only a store of this job, and of this task or of a copy, is removed. One of another job, or that cannot say whose it is, is left alone.
- How long it has been unused is read of its files, which its owner touches once a minute. So no restart, and no other owner in between,
  begins the delay anew, and a clock that goes back only makes it longer.
- An error of the disk is raised as `OSError`, and nothing is half removed that could still be opened: without its database, a directory is
  an empty store.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ...core.names import task_directory
from .directory import copies_of, stores_of
from .rocks import DATABASE, REMOVED, StoreMemory, open_rocks
from .store import Owner, StoreHeld, StoreUnusable


@dataclass(frozen=True, slots=True)
class RemovedStore:
    """A store that is gone. `unused_s`: how long nothing had been written to it."""

    task: str
    path: Path
    size: int
    unused_s: float


def remove_left(
    job: Path, owner: Owner, memory: StoreMemory, is_over: Callable[[float], bool], now_s: float, foreign: set[Path]
) -> list[RemovedStore]:
    """Remove the stores of a task that runs elsewhere, if they have been unused for long enough. `now_s`: the time since 1970.

    `foreign` remembers, from one call to the next, the stores that are not this owner's, so that they are not opened each time.
    """

    def removed(path: Path) -> str:
        open_rocks(path, memory, owner).remove()
        return owner.task

    return _removed(stores_of(job, task_directory(owner.task)), removed, is_over, now_s, foreign)


def remove_copies(
    job: Path, job_uuid: str, memory: StoreMemory, is_over: Callable[[float], bool], now_s: float, foreign: set[Path]
) -> list[RemovedStore]:
    """The same for the stores of copies, of whichever table: a worker fewer on this disk leaves one, and so does a table that the job does
    not have any more.
    """

    def removed(path: Path) -> str:
        store = open_rocks(path, memory, None)
        if store.meta.owner.job_uuid not in (
            "",
            job_uuid,
        ):  # empty: what was here was half removed when its process was killed
            store.close()
            raise StoreUnusable(str(path), "it is of another life of the job")
        store.remove()
        return store.meta.owner.task or path.parent.name

    return _removed(copies_of(job), removed, is_over, now_s, foreign)


def _removed(
    paths: Iterable[Path],
    remove: Callable[[Path], str],
    is_over: Callable[[float], bool],
    now_s: float,
    foreign: set[Path],
) -> list[RemovedStore]:
    """What is gone. `remove` says whose it was; it raises `StoreHeld` for a store in use, and `StoreUnusable` for one that is not ours."""
    gone: list[RemovedStore] = []
    for path in paths:
        files = [*_files(path / DATABASE), *_files(path / REMOVED)]
        unused_s = now_s - max((one.st_mtime for one in files), default=now_s)
        if path in foreign or not files or not is_over(unused_s):
            continue
        try:
            task = remove(path)
        except StoreHeld:
            continue
        except StoreUnusable:
            foreign.add(path)
            continue
        gone.append(RemovedStore(task, path, sum(one.st_size for one in files), unused_s))
    return gone


def _files(directory: Path) -> list[os.stat_result]:
    """The files there. Others may create and remove some, or all, meanwhile."""
    found: list[os.stat_result] = []
    with contextlib.suppress(FileNotFoundError):
        for file in directory.iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.append(file.stat())
    return found
