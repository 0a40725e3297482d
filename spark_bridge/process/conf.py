"""The settings with which a session starts: those that mattered in measurements of small, frequent batches, then the user's.

Memory is bounded in each kind of process. `spark.driver.memory` is the heap of this worker's JVM, which is the executor, too, on a local
master; `spark.executor.memory` is that of an executor on a cluster. `spark.executor.pyspark.memory` is the address space of each Python
worker on a local master; on a cluster it is that of all Python workers of an executor, of which Spark runs one for each of its cores.
"""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
from collections.abc import Mapping

from . import standard_error

CONF: Mapping[str, str] = {
    "spark.app.name": "headgate",
    "spark.ui.enabled": "false",
    # if the pages are on, no one ends a batch there: its task would take that for a failure
    "spark.ui.killEnabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # rows in a local relation are planned row by row: ten times slower with a million rows
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.python.unix.domain.socket.enabled": "true",
    # further calls to the JVM for each operation on a column, so that an error of the plan names its line, which its traceback does, too
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # a Python worker whose job was cancelled would delay the next batch by two seconds
    "spark.python.task.killTimeout": "100ms",
    # what Spark broadcasts for itself, and nothing refers to any more, goes when the JVM collects: every 30 minutes by default
    "spark.cleaner.periodicGC.interval": "5min",
    "spark.scheduler.mode": "FAIR",
    "spark.driver.memory": "1g",
}
"""For every session with a JVM of its own."""
HERE: Mapping[str, str] = {
    "spark.executor.pyspark.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
"""For a local master: no one else connects to it, and its Python workers share the machine with this one."""
THERE: Mapping[str, str] = {
    "spark.executor.memory": "1g",
    # heartbeats say how much memory an executor and its Python workers take
    "spark.executor.processTreeMetrics.enabled": "true",
    # what a task is sent: a part of a batch, which is at most half of spark.batch-memory
    "spark.rpc.message.maxSize": "512",
}
"""For executors on a cluster."""
YARN: Mapping[str, str] = {
    # the temporary directory of a container, where these sockets are, has a path that is too long for the address of one
    "spark.python.unix.domain.socket.enabled": "false",
}
"""For executors in containers of YARN, unless `spark.python.unix.domain.socket.dir` names another directory."""
BOUNDS = ("spark.driver.memory", "spark.executor.memory", "spark.executor.pyspark.memory")
"""The settings that bound memory."""
PYTHON_GIB = 2
"""What each Python worker may take, in GiB."""
JAVA = (
    # a JVM that is out of memory is in no defined state; another one takes its place
    "-XX:+ExitOnOutOfMemoryError"
)
CATALOG = "spark.sql.catalogImplementation"
LONGEST_SOCKET = 100
"""A longer path is no address of a Unix domain socket."""


def is_local(master: str) -> bool:
    """Whether the executor is in this worker's JVM.

    >>> is_local("local[*]"), is_local("spark://host:7077"), is_local("local-cluster[2,1,1024]")
    (True, False, False)
    """
    return master == "local" or master.startswith("local[")


def for_jvm(master: str, given: Mapping[str, str], directory: str) -> dict[str, str]:
    """All settings of a session with a JVM of its own, whose temporary files are in this directory."""
    place = HERE if is_local(master) else {**THERE, "spark.executor.pyspark.memory": _python_memory(given)}
    if master == "yarn" and "spark.python.unix.domain.socket.dir" not in given:
        place = {**place, **YARN}
    # the catalog in memory ends with the JVM; its first use would make a directory for tables wherever the worker was started
    tables = {} if given.get(CATALOG) == "hive" else {"spark.sql.warehouse.dir": f"{directory}/warehouse"}
    conf = {**CONF, **place, **tables, **given, "spark.master": master, "spark.local.dir": directory}
    if (heap := bytes_of(conf["spark.driver.memory"])) is not None:
        # a result that fills the heap ends the JVM; one that is refused says so
        conf.setdefault("spark.driver.maxResultSize", f"{max(1, heap >> 21)}m")
    java = [
        JAVA,
        f"-Djava.io.tmpdir={directory}",
        *standard_error.options(directory, given),
        given.get("spark.driver.defaultJavaOptions", ""),
    ]
    conf["spark.driver.defaultJavaOptions"] = " ".join(filter(None, java))
    if len(directory) + len("/.") + 36 + len(".sock") > LONGEST_SOCKET:
        conf["spark.python.unix.domain.socket.enabled"] = "false"
    return conf


def _python_memory(given: Mapping[str, str]) -> str:
    """For the Python workers of an executor on a cluster: as many as it has cores."""
    cores = given.get("spark.executor.cores", "1")
    return f"{PYTHON_GIB * int(cores) if cores.isdecimal() else PYTHON_GIB}g"


def bytes_of(text: str) -> int | None:
    """A size as Spark writes it, in bytes; a number without a unit is in MiB. None for anything else.

    >>> bytes_of("1g"), bytes_of("512m"), bytes_of("300"), bytes_of("1536 kb"), bytes_of("much")
    (1073741824, 536870912, 314572800, 1572864, None)
    """
    match = re.fullmatch(r"(\d+)\s*([bkmgtp]?)b?", text.strip().lower())
    return None if match is None else int(match[1]) << (10 * "bkmgtp".index(match[2] or "m"))


def for_connect(given: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The settings of a session of Spark Connect, and those of the given ones that only the server itself can have."""
    session = {name: value for name, value in {**CONF, **given}.items() if name.startswith("spark.sql.")}
    return session, sorted(name for name in given if name not in session)


def memory(conf: Mapping[str, str]) -> dict[str, str]:
    """The bounds of memory that are set, by the name of their setting."""
    return {name: conf[name] for name in BOUNDS if name in conf}


def code_paths() -> list[str]:
    """Directories of code that is not installed. Spark's Python workers must find it, too."""
    installed = {os.path.abspath(path) for path in (*sysconfig.get_paths().values(), *site.getsitepackages())}
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    found = dict.fromkeys(os.path.abspath(path) for path in [*given, *sys.path] if path and os.path.isdir(path))
    return [path for path in found if path not in installed and not path.endswith("lib-dynload")]
