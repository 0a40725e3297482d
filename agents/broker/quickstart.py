"""Class data archives for Kafka and Spark, which Java maps into memory, so that a broker starts with half of the CPU time.

Measured on two busy cores: 1.3 s of CPU time until it serves, instead of 2.2 s. Decides: the archive is created once for each combination
of Java and class path, by a broker that is started for this and discarded. It is deleted when a file of its class path is gone, or when it
was not used for a month. Promise: if the archive cannot be created, or Java rejects it, the broker starts without it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from ...core.errors import HeadgateError
from .java import Java
from .places import cache_dir

UNUSED_S = 30 * 86_400.0
"""For so long an archive (50 MB for Kafka, 150 MB for Spark) is kept for the next program that uses it."""

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
                _make(archive, jars, say, train)
        return using(archive)
    except OSError:
        return []  # no space, no permission: start more slowly


def archive_of(program: str, java: Java, jars: str) -> Path:
    """Where the archive of a program is, if it has been created. An empty file: this Java cannot create one."""
    return cache_dir() / program / "archives" / f"{_key(java, jars)}.jsa"


def using(archive: Path) -> list[str]:
    """The Java options that use an archive."""
    with contextlib.suppress(OSError):
        os.utime(archive)  # the time of its last use
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"] if archive.stat().st_size else []


def prepare(archive: Path, jars: str) -> None:
    """Note what an archive that is about to be created is for, and delete those that no one needs any more."""
    archive.with_suffix(".for").write_text(jars)
    for one in archive.parent.glob("*.jsa"):
        purpose = one.with_suffix(".for")
        gone = purpose.exists() and not all(Path(jar).exists() for jar in purpose.read_text().split(":"))
        if gone or time.time() - one.stat().st_mtime > UNUSED_S:
            one.unlink(missing_ok=True)
            purpose.unlink(missing_ok=True)


def _make(archive: Path, jars: str, say: Callable[[str], None], train: Train) -> None:
    """Create the archive, or an empty file if this Java cannot create one."""
    if archive.exists():
        return
    say("Preparing faster starts of Kafka with this Java (once, a few seconds)")
    prepare(archive, jars)
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


def _key(java: Java, jars: str) -> str:
    """A key that changes with everything that Java checks before it uses an archive, and not with the way in which that Java was found."""
    parts = [java.home]
    for path in [f"{java.home}/lib/modules", *jars.split(":")]:
        try:
            state = Path(path).stat()
            parts.append(f"{path} {state.st_size} {state.st_mtime_ns}")
        except OSError:
            parts.append(path)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
