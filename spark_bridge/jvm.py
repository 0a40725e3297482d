"""One Spark session in this process: begun when it is first asked for, and begun anew when its JVM has died.

Nothing here may run on an event loop's thread. Settings are those that were measured to matter for small, frequent batches.
"""

from __future__ import annotations

import contextlib
import os
import site
import sys
import sysconfig
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ..core.errors import EnvironmentFault

CONF: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # rows in a local relation are planned row by row: ten times slower at a million rows
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.python.unix.domain.socket.enabled": "true",
    # a Python worker whose job was cancelled would hold up the next batch for two seconds
    "spark.python.task.killTimeout": "100ms",
    "spark.scheduler.mode": "FAIR",
}


class Sessions:
    """The session of this process. `lent`: somebody else's session, which is never stopped or replaced."""

    def __init__(
        self, master: str, conf: Mapping[str, str], *, lent: Any = None, java_home: Callable[[], str] | None = None
    ) -> None:
        self.master = master
        self.conf = {**CONF, **conf}
        self.java_home = java_home
        self.started = 0
        """How many sessions were begun here."""
        self._lock = threading.Lock()
        self._session = lent
        self._lent = lent is not None

    def get(self) -> Any:
        """The session, alive a moment ago."""
        with self._lock:
            if self._lent or (self._session is not None and self._alive()):
                return self._session
            self._forget()
            self._session = self._begin()
            self.started += 1
            return self._session

    def _begin(self) -> Any:
        if self.java_home is not None:
            os.environ["JAVA_HOME"] = self.java_home()  # Spark's launcher looks nowhere else
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ["PYTHONPATH"] = os.pathsep.join(code_paths())
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        builder: Any = SparkSession.builder
        builder = builder.master(self.master).appName("headgate")
        for name, value in self.conf.items():
            builder = builder.config(name, value)
        try:
            return builder.getOrCreate()
        except (PySparkException, OSError) as error:
            raise EnvironmentFault(
                f"Spark does not start on {self.master}: {str(error).strip()[:500]}",
                remedy="Spark needs Java 17 or newer (the extra headgate[java] brings one), and spark.master must be reachable",
            ) from error

    def _alive(self) -> bool:
        try:
            session: Any = self._session  # None is not alive, either
            context = session.sparkContext
            process = getattr(context._gateway, "proc", None)
            return process is not None and process.poll() is None and not context._jsc.sc().isStopped()
        except Exception:  # noqa: BLE001 - whatever it says, it is not alive
            return False

    def _forget(self) -> None:
        """Let go of a session whose JVM is dead, so that the next one gets a JVM of its own."""
        if self._session is None:
            return
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        context: Any = SparkContext
        gateway: Any = context._gateway
        for close in (lambda: gateway.shutdown(), lambda: gateway.proc.kill(), lambda: gateway.proc.wait(5)):
            with contextlib.suppress(Exception):
                close()
        context._active_spark_context = context._gateway = context._jvm = None
        session: Any = SparkSession
        session._instantiatedSession = None
        self._session = None

    def stop(self) -> None:
        """Stop it, unless it was lent or is dead."""
        with self._lock:
            session, self._session = self._session, None
            if session is not None and not self._lent:
                with contextlib.suppress(Exception):
                    session.stop()


def code_paths() -> list[str]:
    """Where this process finds code that is not installed: Python workers of Spark must find it, too."""
    installed = {os.path.abspath(path) for path in (*sysconfig.get_paths().values(), *site.getsitepackages())}
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    found = dict.fromkeys(os.path.abspath(path) for path in [*given, *sys.path] if path and os.path.isdir(path))
    return [path for path in found if path not in installed and not path.endswith("lib-dynload")]
