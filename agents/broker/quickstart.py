"""Class data archives for Kafka and Spark, which Java maps into memory, so that a broker starts with half of the CPU time.

Measured on two busy cores: 1.3 s of CPU time until it serves, instead of 2.2 s. Decides: the archive is created once for each combination
of Java and class path, by a broker that is started for this and discarded. Promise: if the archive cannot be created, or Java rejects it,
the broker starts without it.
"""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Callable
from pathlib import Path

from ...core.errors import HeadgateError
from .java import Java
from .places import cache_dir

KEPT = 4
"""The number of archives (50 MB each) to keep: one for each Java in use."""

Train = Callable[[list[str]], None]
"""Starts a broker with these Java options, waits until it serves, and ends it."""


def options(java: Java, jars: str, say: Callable[[str], None], train: Train) -> list[str]:
    """The Java options for a quick start; empty without an archive."""
    archive = archive_of("kafka", java, jars)
    try:
        if not archive.exists():
            home = archive.parent
            home.mkdir(parents=True, exist_ok=True)
            with (home / ".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                _make(archive, say, train)
        return using(archive)
    except OSError:
        return []  # no space, no permission: start more slowly


def archive_of(program: str, java: Java, jars: str) -> Path:
    """Where the archive of a program is, if it has been created. An empty file: this Java cannot create one."""
    return cache_dir() / program / "archives" / f"{_key(java, jars)}.jsa"


def using(archive: Path) -> list[str]:
    """The Java options that use an archive."""
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"] if archive.stat().st_size else []


def _make(archive: Path, say: Callable[[str], None], train: Train) -> None:
    """Create the archive, or an empty file if this Java cannot create one."""
    if archive.exists():
        return
    say("Preparing faster starts of Kafka with this Java (once, a few seconds)")
    draft = archive.with_suffix(".new")
    draft.unlink(missing_ok=True)
    try:
        train([f"-XX:ArchiveClassesAtExit={draft}", "-Xlog:disable"])
    except HeadgateError as error:
        # Not remembered: if the broker cannot start at all, the real start gives the reason.
        say(f"That failed, but is not required: {error.what.splitlines()[0]}")
        return
    if not draft.exists():
        draft.touch()
    draft.replace(archive)
    for old in sorted(archive.parent.glob("*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
        old.unlink(missing_ok=True)


def _key(java: Java, jars: str) -> str:
    """A key that changes with everything that Java checks before it uses an archive."""
    told = [java.path]
    for path in [f"{java.home}/lib/modules", *jars.split(":")]:
        try:
            state = Path(path).stat()
            told.append(f"{path} {state.st_size} {state.st_mtime_ns}")
        except OSError:
            told.append(path)
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]
