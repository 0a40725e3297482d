"""What a JVM of Spark writes on standard error.

It logs errors only, from its first line on: Spark's own defaults begin with warnings, and with lines about the defaults themselves, before
`spark.log.level` is known. A user's own configuration of log4j is used instead, if there is one. Everything else that the JVM and its
Python workers write goes on to standard error of this process, as it is, except for lines that say nothing (`HARMLESS`).
"""

from __future__ import annotations

import os
import re
import threading
import warnings
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import IO

LOGGED = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
# PySpark's gateway counts as a shell, which has a level of its own; where it is another one, a paragraph on standard error says so
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""
NAME = "log4j2.properties"
OWN = "log4j2.configurationFile", "log4j.configurationFile"
"""With these a user's options of Java name another configuration."""
HARMLESS = re.compile(
    # Spark's launcher gives each JVM this module, and Java warns of it, whatever a job does with it
    rb"WARNING: Using incubator modules: jdk\.incubator\.vector\n"
    # a Python worker obeys `spark.executor.pyspark.memory`; an empty line follows
    rb"|(?P<empty>(Current mem limits:|Setting mem limits to) \S+ of max \S+\n)"
)
"""Lines that say nothing: every JVM, or every Python worker, writes them when it begins."""
TRACEBACK = b"Traceback (most recent call last):\n"
LEFT_ALONE = re.compile(
    rb"Traceback \(most recent call last\):\n|  File \"[^\n]*/pyspark/daemon\.py\"[^\n]*\n?|    [^\n]*\n?|BrokenPipeError: [^\n]*\n?"
)
"""A line of what PySpark's daemon says when the JVM has closed the connection of a Python worker, because its batch was cancelled or Spark
stops. The JVM may end in the middle of it, and several workers may say it at once, a line of one between two of another.
"""


def options(directory: str, given: Mapping[str, str]) -> tuple[str, ...]:
    """Options of Java that name the configuration in this directory; none, if the user has one."""
    java = [text for name, text in given.items() if name.endswith("JavaOptions")]
    java.append(os.environ.get("SPARK_SUBMIT_OPTS", ""))
    if any(one in text for text in java for one in OWN) or _conf_has_one():
        return ()
    return (f"-D{OWN[0]}={directory}/{NAME}",)


def _conf_has_one() -> bool:
    """Whether the directory with Spark's settings has one."""
    home = os.environ.get("SPARK_HOME", "")
    conf = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else "")
    return bool(conf) and any(Path(conf).glob("log4j2*"))


def expect_harmless() -> None:
    """PySpark warns of pandas 3 wherever it tests for pandas: on imports, and for functions of Arrow, which do not use it. headgate is
    tested with the versions that it installs; `docs/spark.md` passes the advice on to those whose functions use pandas.
    """
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)


def write(directory: Path) -> None:
    """Write the configuration for the JVM of this directory."""
    (directory / NAME).write_text(LOGGED)


def passed_on(said: IO[bytes] | None) -> None:
    """Pass on what a JVM writes, alongside everything else, until neither it nor its Python workers can write any more."""
    assert said is not None, "the JVM was begun with a pipe"
    threading.Thread(target=_pass_on, args=(said,), name="spark-said", daemon=True).start()


def silence(said: IO[bytes] | None) -> None:
    """Pass on no more of this JVM, which is being ended: its Python workers complain of that, with tracebacks that are cut off."""
    if said is not None:
        _silenced.add(said)


_silenced: weakref.WeakSet[IO[bytes]] = weakref.WeakSet()


def _pass_on(said: IO[bytes]) -> None:
    empty, lines, begun = 0, list[bytes](), 0
    with said:
        for line in said:
            if said in _silenced:
                lines.clear()
                begun = 0
                continue
            if line == TRACEBACK or begun:
                lines.append(line)
                begun += line == TRACEBACK
                begun -= not line.startswith((b" ", TRACEBACK))
                if not begun:
                    _tell(lines)
            elif (harmless := HARMLESS.fullmatch(line)) is not None:
                empty += harmless["empty"] is not None
            elif line == b"\n" and empty:
                empty -= 1
            else:
                _write(line)
    _tell(lines)


def _tell(lines: list[bytes]) -> None:
    """Pass on tracebacks, which stand between each other's lines if several workers wrote at once, unless they are all harmless."""
    if not all(map(LEFT_ALONE.fullmatch, lines)):
        _write(b"".join(lines))
    lines.clear()


def _write(line: bytes) -> None:
    try:
        while line:
            line = line[os.write(2, line) :]
    except OSError:
        pass  # standard error is closed: the JVM must not wait for it
