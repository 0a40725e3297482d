"""Whether the code of a job has changed: the times and sizes of the Python files below a directory, and of `headgate.toml` in it.

They are looked at a few times a second, which takes less than a millisecond for a project. A library that the kernel tells of changes would
be one more compiled package in every installation, for a verb that is not for production.

Promises: environments (`pyvenv.cfg`), hidden directories and caches are left out, so is what lies behind links to directories. An editor
that writes a file in several steps makes one change.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from .configuration import FILE

LOOK_S = 0.3
LEFT_OUT = frozenset({"__pycache__", "node_modules"})
CodeFiles = Mapping[str, tuple[int, int]]
"""For each file: when it was written, and its size."""


def files_of(directory: Path) -> CodeFiles:
    """The files that count now."""
    found: dict[str, tuple[int, int]] = {}
    for root, directories, names in os.walk(directory):
        if "pyvenv.cfg" in names:
            directories.clear()
            continue
        directories[:] = [one for one in directories if not one.startswith(".") and one not in LEFT_OUT]
        for name in names:
            if name.endswith(".py") or (name == FILE and Path(root) == directory):
                path = os.path.join(root, name)
                try:
                    stat = os.stat(path)
                except OSError:
                    continue  # it is gone since it was listed, which is what the next look sees
                found[path] = (stat.st_mtime_ns, stat.st_size)
    return found


def changed(before: CodeFiles, now: CodeFiles) -> list[str]:
    """The names of files that are new, gone or different.

    >>> changed({"a/job.py": (1, 10), "a/old.py": (1, 5)}, {"a/job.py": (2, 10)})
    ['job.py', 'old.py']
    """
    return sorted({Path(path).name for path in {*before, *now} if before.get(path) != now.get(path)})


async def until_changed(directory: Path, before: CodeFiles) -> list[str]:
    """Wait until files differ from what they were, and no more is being written. Returns their names."""
    now = files_of(directory)
    while True:
        await asyncio.sleep(LOOK_S)
        last, now = now, files_of(directory)
        if now == last and (names := changed(before, now)):
            return names
