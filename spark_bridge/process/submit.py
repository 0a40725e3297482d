"""The command line of `spark-submit`, without secrets: every local user may list the command lines of processes.

A setting that is or holds a secret goes into a file of Spark's properties, which only the worker's user can read. Java options of the
driver would come from there onto the command line of the JVM itself; those with secrets stand in a file that the JVM reads (`@file`).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from ...core.settings import is_secret, secrets_in
from ..base.errors import SparkPlanError

JAVA = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")
"""Settings that are the command line of the driver's JVM."""
_ESCAPED = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"})
_IN_NAMES = str.maketrans({one: f"\\{one}" for one in " :=#!"})


def options(conf: Mapping[str, str], directory: Path) -> list[str]:
    """The arguments for these settings. What is secret is written into files of this directory, which is private."""
    found: list[str] = []
    held: dict[str, str] = {}
    for name, value in conf.items():
        if not is_secret(name) and not secrets_in(name, value):
            found += ["--conf", f"{name}={value}"]
        elif name in JAVA:
            path = directory / name
            _write(path, java_arguments(name, value))
            found += ["--conf", f"{name}=@{path}"]
        else:
            held[name] = value
    if held:
        path = directory / "held.properties"
        _write(path, (property_line(name, value) for name, value in held.items()))
        found += ["--load-spark-defaults", "--properties-file", str(path)]
    return found


def java_arguments(name: str, value: str) -> list[str]:
    """Java options in the form of a file of arguments, an option on each line.

    >>> java_arguments("spark.driver.extraJavaOptions", "-Dx.password='a b' -Dy=1")
    ['"-Dx.password=a b"', '"-Dy=1"']
    """
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise SparkPlanError(f"{name} cannot be read: {error}", remedy="close its quotes") from None
    return ['"' + word.translate(_ESCAPED).replace('"', '\\"') + '"' for word in words]


def property_line(name: str, value: str) -> str:
    """A line of Java's properties.

    >>> property_line("spark.hadoop.fs.s3a.secret.key", "hunter2")
    'spark.hadoop.fs.s3a.secret.key=hunter2'
    """
    text = value.translate(_ESCAPED)
    text = "\\" + text if text.startswith(" ") else text
    units = text.encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return name.translate(_IN_NAMES) + "=" + "".join(chr(c) if c < 127 else f"\\u{c:04x}" for c in codes)


def _write(path: Path, lines: Iterable[str]) -> None:
    with os.fdopen(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as file:
        file.writelines(f"{line}\n" for line in lines)
