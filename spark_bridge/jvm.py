"""One Spark session in this process: started when it is first needed, and started again when its JVM has died.

Promises: whenever the JVM dies, even while its session starts, nothing of it remains that would disturb the next session. After a failure,
the caller can ask whether the session was alive.

Nothing here may run on an event loop's thread. The settings are those that mattered in measurements of small, frequent batches.
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
from .errors import SparkDown, SparkLost, first_lines, said
from .watch import Watch

BEGINS = 3
"""How many JVMs may die while a session starts before an error is raised."""
REMEDY = "Spark needs Java 17 or newer (the extra headgate[java] provides it), and spark.master must be reachable"
CONF: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # rows in a local relation are planned row by row: ten times slower with a million rows
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.python.unix.domain.socket.enabled": "true",
    # a Python worker whose job was cancelled would delay the next batch by two seconds
    "spark.python.task.killTimeout": "100ms",
    "spark.scheduler.mode": "FAIR",
}


class Sessions:
    """The session of this process. `lent`: a session of the caller, which is never stopped or replaced."""

    def __init__(
        self,
        master: str,
        conf: Mapping[str, str],
        *,
        lent: Any = None,
        java_home: Callable[[], str] | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.master = master
        self.conf = {**CONF, **conf}
        self.java_home = java_home
        self.watch = watch or Watch()
        """Is told what becomes of the session."""
        self.started = 0
        """How many sessions were started here."""
        self._lock = threading.Lock()
        self._session = lent
        self._process: Any = None
        """The JVM of a session that was started here."""
        self._lent = lent is not None

    def get(self) -> Any:
        """The session, which was alive a moment ago. Raises `SparkDown` if none can be started."""
        with self._lock:
            if self._lent or (self._session is not None and self._answers(self._session)):
                return self._session
            why = ""
            if self._session is not None:
                self._session, why = None, "the session before it has died"
                self.watch.is_lost(why)
                let_go()
            self.watch.starts(self.master, why)
            try:
                self._session = self._new()
            except SparkDown as error:
                self.watch.is_lost(error.what)
                raise
            self.watch.is_ready(self._session)
            self.started += 1
            return self._session

    def lives(self, session: Any) -> bool:
        """Whether this is still the current session, and alive. If not, that may be the reason of a failure.

        This does not take the lock, because starting the next session may take long.
        """
        return self._session is session and self._answers(session)

    def _answers(self, session: Any) -> bool:
        try:
            dead = self._process is not None and self._process.poll() is not None
            return not dead and not session.sparkContext._jsc.sc().isStopped()
        except Exception:  # noqa: BLE001 - any error means that it is not alive
            return False

    def _new(self) -> Any:
        """Start a session, even if a JVM or two die meanwhile."""
        for left in reversed(range(BEGINS)):
            try:
                return self._begin()
            except SparkDown:
                raise
            except (SparkLost, EnvironmentFault) as error:
                if not left:
                    raise SparkDown(error.what, remedy=error.remedy) from error
        raise AssertionError("unreachable")

    def _begin(self) -> Any:
        """Start a session. If that fails, nothing of it remains, so that the next attempt starts its own JVM.

        Raises `SparkLost` if the JVM died, and `SparkDown` if Spark itself reported why it does not start.
        """
        if self.java_home is not None:
            os.environ["JAVA_HOME"] = self.java_home()  # Spark's launcher looks nowhere else
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ["PYTHONPATH"] = os.pathsep.join(code_paths())
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        context: Any = SparkContext
        process = _process()
        if process is not None and process.poll() is not None:
            let_go()  # somebody else's, and dead
        own = context._gateway is None
        builder: Any = SparkSession.builder
        builder = builder.master(self.master).appName("headgate")
        for name, value in self.conf.items():
            builder = builder.config(name, value)
        try:
            session = builder.getOrCreate()
            self._process = _process()
            return session
        except Exception as error:
            what = f"Spark does not start on {self.master}: {first_lines(said(error))[:500]}"
            kind = SparkDown if _spark_says(error) else SparkLost
            if own:
                let_go()
            raise kind(what, remedy=REMEDY) from error

    def stop(self) -> None:
        """Stop the session, unless it was lent or is dead."""
        with self._lock:
            session, self._session = self._session, None
            if session is not None and not self._lent:
                with contextlib.suppress(Exception):
                    session.stop()


def let_go() -> None:
    """End this process's JVM, and make PySpark forget it; PySpark itself would keep talking to a dead one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context: Any = SparkContext
    gateway: Any = context._gateway
    for close in (
        lambda: gateway.shutdown(),
        lambda: gateway.proc.kill(),
        lambda: gateway.proc.wait(5),
        lambda: context._active_spark_context._accumulatorServer.shutdown(),  # a thread, and a socket in /tmp
    ):
        with contextlib.suppress(Exception):
            close()
    context._active_spark_context = context._gateway = context._jvm = None
    session: Any = SparkSession
    session._instantiatedSession = None


def _process() -> Any:
    """The JVM that PySpark started in this process, if any."""
    from pyspark import SparkContext

    context: Any = SparkContext
    return None if context._gateway is None else vars(context._gateway).get("proc")


def _spark_says(error: Exception) -> bool:
    """Whether a living JVM reported this error. All others come from a JVM that died."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return isinstance(error, Py4JJavaError | PySparkException) and "JAVA_GATEWAY_EXITED" not in said(error)


def code_paths() -> list[str]:
    """Directories of code that is not installed. Spark's Python workers must find it, too."""
    installed = {os.path.abspath(path) for path in (*sysconfig.get_paths().values(), *site.getsitepackages())}
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    found = dict.fromkeys(os.path.abspath(path) for path in [*given, *sys.path] if path and os.path.isdir(path))
    return [path for path in found if path not in installed and not path.endswith("lib-dynload")]
