"""The Java of a worker's Spark session, and what makes its JVM start quickly.

Decides: Spark's JVM maps an archive of its classes, which halves the CPU time until its first result. The first worker on a machine creates
it, alongside its own work and with the least priority, and never beyond its own end; from the next start on it is used. Whoever starts
workers that end sooner creates it before them: `python -m headgate.agents.worker.spark_jvm`. The options are set in the environment
variables of Spark's launcher, so that a user's own settings of Spark and its JVM stay as they are. Promise: whatever goes wrong costs time
only.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

from ..broker import quickstart
from ..broker.jars import pyspark_jars
from ..broker.java import Java, find_java
from ..logger import Logger

log = Logger("headgate.spark")
QUIET = "-Xlog:cds*=off"
"""Java does not say that an archive does not fit."""
LAUNCHER = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of the program that only builds the command line of Spark's JVM."""
_training: list[Popen[bytes]] = []
_found: list[Java] = []
"""The Java of this process."""


def _java() -> Java:
    """It is looked for once: a JVM that takes the place of one that died waits for no `java -version`."""
    if not _found or not Path(_found[0].path).exists():
        _found[:] = [find_java()]
    return _found[0]


def archive_of_spark() -> Path:
    """Where the archive of Spark's classes is, if it has been created."""
    return quickstart.archive_of("spark", _java(), _jars())


def _jars() -> str:
    return ":".join(sorted(map(str, pyspark_jars().glob("*.jar"))))


def java_home() -> str:
    """The directory of the Java that Spark uses."""
    java, archive = _java(), archive_of_spark()
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", LAUNCHER)
    with contextlib.suppress(OSError):
        before = os.environ.get("SPARK_SUBMIT_OPTS", "")
        if archive.exists():
            found = quickstart.using(archive)
            if found and "SharedArchiveFile" not in before:
                os.environ["SPARK_SUBMIT_OPTS"] = " ".join([*before.split(), *found, QUIET])
        elif not _training:
            made = _begin(archive, java)
            _training.append(made)
            log.info("preparing faster starts of Spark with this Java, once", pid=made.pid, archive=str(archive))
    return str(java.home)


def prepare() -> None:
    """Create the archive at once, unless it is there, and wait until it has been created."""
    archive = archive_of_spark()
    if not archive.exists():
        print("Preparing faster starts of Spark with this Java (once, half a minute)", file=sys.stderr, flush=True)
        with _begin(archive, _java(), "--at-once") as made:
            made.wait()


def _begin(archive: Path, java: Java, *more: str) -> Popen[bytes]:
    archive.parent.mkdir(parents=True, exist_ok=True)
    quickstart.prepare(archive, _jars())
    # it and its JVM end with this process, whose end closes its standard input
    return Popen(
        [sys.executable, "-m", "headgate.spark_bridge.session.training", str(archive), *more],
        env={**os.environ, "JAVA_HOME": str(java.home)},
        stdin=PIPE,
        stdout=DEVNULL,
        stderr=DEVNULL,
        start_new_session=True,
    )


if __name__ == "__main__":
    prepare()
