"""The jars of the embedded broker: which ones, where they are, and whether they are intact.

Decides: Kafka's own jars come from the user's cache, where each is checked against the SHA-256 sum in `jars.json`; missing and damaged jars
are fetched again. The others are PySpark's, found by name, because their versions differ between PySpark releases.

Promise: a jar is in the cache completely or not at all (fetched alongside it, checked, then moved), even if several processes start at
once.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import hashlib
import importlib.util
import json
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ...core.errors import EnvironmentFault
from .ivy import Jar, fetch
from .java import Java
from .places import cache_dir


@dataclass(frozen=True, slots=True)
class Bill:
    """The broker's bill of materials: the content of `jars.json`."""

    kafka: str
    bootstrap_checkpoint: bytes
    """The file that `kafka-storage format` would write for this version: its feature levels."""
    jars: tuple[Jar, ...]
    from_pyspark: tuple[str, ...]


@cache
def bill() -> Bill:
    """The bill of materials in the package."""
    raw = json.loads((Path(__file__).parent / "jars.json").read_text())
    jars = tuple(Jar(**jar) for jar in raw["jars"])
    return Bill(raw["kafka"], base64.b64decode(raw["bootstrap_checkpoint"]), jars, tuple(raw["from_pyspark"]))


def classpath(java: Java, say: Callable[[str], None] = lambda _: None) -> str:
    """The class path of the broker. Fetches missing jars, and says so."""
    own = ensure(java, say)
    shipped = pyspark_jars()
    return ":".join(str(path) for path in [*own, *(_shipped(shipped, name) for name in bill().from_pyspark)])


def ensure(java: Java, say: Callable[[str], None] = lambda _: None) -> list[Path]:
    """The paths of Kafka's jars in the cache. Fetches missing and damaged ones."""
    home = cache_dir() / "kafka" / bill().kafka
    try:
        home.mkdir(parents=True, exist_ok=True)
        with (home / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _complete(home, java, say)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise EnvironmentFault(
                f"the disk of {home} is full",
                remedy="free some space, or set HEADGATE_CACHE to a directory on another disk",
            ) from error
        raise EnvironmentFault(
            f"cannot use the cache {home}: {error.strerror}", remedy="set HEADGATE_CACHE to a directory that you own"
        ) from error
    return [home / jar.file for jar in bill().jars]


def _complete(home: Path, java: Java, say: Callable[[str], None]) -> None:
    missing = [jar for jar in bill().jars if not (home / jar.file).exists()]
    damaged = [jar for jar in bill().jars if jar not in missing and not whole(home / jar.file, jar)]
    wanted = missing + damaged
    if not wanted:
        return
    if damaged:
        say(f"Damaged in the cache, downloading again: {', '.join(jar.file for jar in damaged)}")
    say(
        f"Fetching {len(wanted)} jars of Apache Kafka {bill().kafka} ({sum(jar.size for jar in wanted) / 1e6:.1f} MB) into {home}"
    )
    draft = Path(tempfile.mkdtemp(prefix=".fetch-", dir=home))
    try:
        fetch(wanted, draft, java=java, ivy_jar=ivy_jar())
        for jar in wanted:
            if not whole(draft / jar.file, jar):
                raise EnvironmentFault(
                    f"{jar.file} as downloaded does not have the expected SHA-256 sum ({jar.sha256})",
                    remedy="the repository or mirror serves something else under this name: check its configuration",
                )
        for jar in wanted:
            (draft / jar.file).replace(home / jar.file)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def whole(path: Path, jar: Jar) -> bool:
    """Whether the file at `path` has the bytes of `jar`."""
    if path.stat().st_size != jar.size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256


def pyspark_jars() -> Path:
    """The jar directory of the installed PySpark, found without importing it."""
    spec = importlib.util.find_spec("pyspark")
    for root in (spec.submodule_search_locations or []) if spec else []:
        if (Path(root) / "jars").is_dir():
            return Path(root) / "jars"
    raise EnvironmentFault(
        "the installed PySpark has no jars", remedy="pip install 'pyspark>=4.0,<5' (not pyspark-client)"
    )


def ivy_jar() -> Path:
    """PySpark's Ivy, which fetches the others."""
    return _shipped(pyspark_jars(), "ivy")


def _shipped(directory: Path, name: str) -> Path:
    pattern = re.compile(rf"{re.escape(name)}(_2\.13)?-\d[\w.\-]*\.jar")
    found = sorted(path for path in directory.iterdir() if pattern.fullmatch(path.name))
    if not found:
        raise EnvironmentFault(
            f"PySpark at {directory} has no {name}-*.jar, which the broker needs",
            remedy="install a PySpark that headgate knows: pip install 'pyspark>=4.0,<5'",
        )
    return found[-1]
