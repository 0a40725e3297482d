"""The Spark session of this process, with a JVM of its own: started when it is first needed, and again when its JVM has died or hangs.

    local[*]                      the JVM is the executor, too
    spark://, k8s://, yarn        the JVM plans; executors are elsewhere, and are checked before the first batch

Promises: whenever the JVM dies, even while its session starts, nothing of it remains that would disturb the next session, neither in this
process nor on the disk. A JVM that does not answer for `spark.probe-timeout` is killed, and so is one whose cluster has taken away its last
executor while batches wait for one (a standalone master that was restarted knows nothing of its applications). After a failure, the caller
can ask whether the session was alive.

Nothing here may run on an event loop's thread.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from ...core.batching.batch_progress import SparkMemory
from ...core.errors import EnvironmentFault, cause_for
from ..base.errors import BrokersAway, SparkAway, SparkDown, SparkLost, first_lines, said
from ..base.threads import off_the_loop
from ..data.terms import Terms
from . import cluster, conf, gateway, memory, package
from .home import Home
from .watch import Watch
from .watchdog import Watchdog

log = structlog.get_logger("headgate.spark")
MEANWHILE = ("pandas", "pyspark.sql.functions", "pyspark.sql.pandas.serializers", "pyspark.sql.pandas.types")
"""Modules that the first batch needs: PySpark imports them when it gets there, and here nothing else is to be done until a JVM is up."""
BEGINS = 3
"""How many JVMs may die while a session starts before an error is raised."""
STOP_S = 10.0
"""How long a session may take to stop in good order."""
OVER = "Spark is stopped"
REMEDY = "Spark needs Java 17 or newer (the extra headgate[java] provides it), and spark.master must be reachable"


class Sessions:
    """The session of this process. `lent`: a session of the caller, which is never stopped or replaced."""

    def __init__(
        self,
        master: str,
        given: Mapping[str, str],
        *,
        lent: Any = None,
        java_home: Callable[[], str] | None = None,
        terms: Terms | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.master = master
        self.given = dict(given)
        self.java_home = java_home
        self.terms = terms or Terms()
        self.watch = watch or Watch()
        """Is notified of what becomes of the session."""
        self.started = 0
        """How many sessions were started here."""
        self._lock = threading.Lock()
        self._session = lent
        self._ready_there = False
        """Whether the executors of the last session had all they need, and the cluster was never away since."""
        self._waits: Any = None
        """A session that is complete, but for brokers that its executors do not reach."""
        self._process: Any = None
        """The JVM of a session that was started here."""
        self._own = False
        """Whether the JVM that PySpark talks to was started here."""
        self._leaving: list[threading.Thread] = []
        """Those that shut down what is left of sessions."""
        self._home: Home | None = None
        self._probe: Watchdog | None = None
        self.lent = lent is not None
        self._settings: Mapping[str, str] = {}
        """Those that the session was given."""
        self._ended: tuple[Any, str] = (None, "")
        """The session that the watchdog has ended, and why."""
        self._starting: Any = None
        """The JVM of a session that is about to start."""
        self._came_up_s: float | None = None
        """How long that JVM took until it could be spoken to."""
        self._over = False
        """No more sessions are started."""

    def get(self) -> Any:
        """The session, which was alive a moment ago. Raises `SparkDown` if none can be started."""
        off_the_loop()
        with self._lock:
            if self.lent or (self._session is not None and self._answers(self._session)):
                return self._session
            why = ""
            if self._session is not None:
                why = self.complaint(self._session) or "the previous session has died"
                self.watch.is_lost(why)
                self._forget()
            if self._over:
                raise SparkDown(OVER)
            self.watch.starts(self.master, why)
            try:
                self._session = self._new()
            except SparkDown as error:
                self._ready_there = False
                if not self._over:
                    self.watch.does_not_start(error)
                raise
            self._settle()
            measure = self._taken_by(self._session)
            self.watch.is_ready(self._session, conf.memory(self._settings), self._came_up_s, measure)
            self.started += 1
            return self._session

    def is_alive(self, session: Any) -> bool:
        """Whether this is still the current session, and alive. If not, that may be the reason of a failure.

        This does not take the lock, because starting the next session may take long.
        """
        return self._session is session and self._answers(session)

    def complaint(self, session: Any) -> str:
        """Why the watchdog has ended this session; empty if it has not."""
        ended, why = self._ended
        return why if ended is session else ""

    def stop(self) -> None:
        """Stop the session for good, unless it was lent. One that hangs, or is about to start, is killed, and nothing is said of it."""
        off_the_loop()
        self._over = True
        self.watch.close()
        if self._starting is not None:
            gateway.end(self._starting)
        if not self._lock.acquire(timeout=STOP_S):
            gateway.end(self._process)  # whoever has the lock waits for a JVM that hangs
            self._lock.acquire()
        try:
            session = self._waits if self._session is None else self._session
            if session is not None and not self.lent:
                if self._probe is not None:
                    self._probe.end()
                stopping = threading.Thread(target=_quietly, args=(session.stop,), name="spark-stop", daemon=True)
                stopping.start()
                stopping.join(STOP_S)
                self._forget()
            self._settle()
        finally:
            self._lock.release()

    # ------------------------------------------------------------------------------------------------------------ one session

    def _answers(self, session: Any) -> bool:
        try:
            dead = self._process is not None and self._process.poll() is not None
            return not dead and not session.sparkContext._jsc.sc().isStopped()
        except Exception:  # noqa: BLE001 - any error means that it is not alive
            return False

    def _forget(self) -> None:
        """Release the last session, so that the next one can start at once. What is left of it is shut down at the same time."""
        if self._probe is not None:
            self._probe.end()
        ours = self._own or self._session is not None
        shut_down, home = gateway.let_go() if ours else None, self._home
        self._session = self._waits = self._process = self._home = self._probe = None
        self._own = False

        def leave() -> None:
            if shut_down is not None:
                shut_down()
            if home is not None:
                home.delete()  # it is in use until its JVM has ended

        leaving = threading.Thread(target=leave, name="spark-leaves", daemon=True)
        leaving.start()
        self._leaving.append(leaving)

    def _settle(self) -> None:
        """Wait until nothing is left of former sessions."""
        while self._leaving:
            self._leaving.pop().join(STOP_S)

    def _new(self) -> Any:
        """A session that is fit for batches, even if a JVM or two die meanwhile."""
        for left in reversed(range(BEGINS)):
            try:
                return self._checked(self._waits if self._answers(self._waits) else self._begin())
            except SparkDown:
                raise
            except (SparkLost, EnvironmentFault) as error:
                if self._over:
                    raise SparkDown(OVER) from error
                if not left:
                    raise SparkDown(error.what, remedy=error.remedy) from error
        raise AssertionError("unreachable")

    def _begin(self) -> Any:
        """Start a session. If that fails, nothing of it remains, so that the next attempt starts its own JVM.

        Raises `SparkLost` if the JVM died, and `SparkDown` if Spark itself reported why it does not start.
        """
        if self._waits is not None:
            self._forget()
        self._surroundings()
        cluster.complete(self.master, self.given)
        cluster.reachable(self.master)
        if not conf.is_local(self.master):
            cluster.brokers(self.terms)  # asked first: a JVM is no use while no one knows them
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        context: Any = SparkContext
        process = gateway.process_of()
        if process is not None and process.poll() is not None:
            gateway.let_go()()  # someone else's, and dead
        self._own = context._gateway is None
        local = self.given.get("spark.local.dir") or os.environ.get("SPARK_LOCAL_DIRS", "")
        self._home = home = Home(local.partition(",")[0] or None)
        settings = conf.for_jvm(self.master, self.given, str(home.path))
        try:
            if self._own:
                began = time.monotonic()
                gateway.launch(settings, home, self._begun)
                self._came_up_s = time.monotonic() - began
            self._process = gateway.process_of()
            self._watch(context._jvm)
            builder: Any = SparkSession.builder
            session = builder.config(map=settings).getOrCreate()
            for path in package.shippable(self.terms.package, home.path):
                session.sparkContext.addPyFile(path)
        except Exception as error:  # noqa: BLE001 - raised again as a typed error
            found = self._failed(error)
            raise found from cause_for(found, error if isinstance(error, OSError) else None)
        self._settings = settings
        return session

    def _surroundings(self) -> None:
        """What Spark reads from the environment."""
        if self.java_home is not None:
            os.environ["JAVA_HOME"] = self.java_home()  # Spark's launcher looks nowhere else
        os.environ["PYSPARK_PYTHON"] = self.given.get("spark.pyspark.python") or os.environ.get(
            "PYSPARK_PYTHON", sys.executable
        )
        os.environ["PYTHONPATH"] = os.pathsep.join(conf.code_paths())

    def _failed(self, error: Exception) -> Exception:
        """The session did not come to be. Nothing of it remains. Returns the typed error."""
        found = self._why_not(error)
        self._starting = None
        self._forget()
        return found

    def _begun(self, process: Any) -> None:
        """This JVM was begun. If the session was stopped meanwhile, it is not needed."""
        self._starting = process
        if self._over:
            gateway.end(process)
            return
        for name in MEANWHILE:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)

    def _checked(self, session: Any) -> Any:
        """The session, once its executors have what they need. If they only lack a broker that is unavailable, the session waits for it; if
        anything else, nothing of the session remains. Who takes the place of a session that died has executors of the same cluster."""
        if not conf.is_local(self.master) and not self._ready_there:
            travelling = package.travel_with_functions(self.terms.package)
            try:
                said_there = cluster.check(session, self.terms, self.master)
            except BrokersAway:
                self._starting, self._waits = None, session
                raise
            except Exception as error:  # noqa: BLE001 - raised again as a typed error
                raise self._failed(error) from None
            self._ready_there = True
            log.info("the cluster's executors are ready", executors=said_there, modules_by_value=travelling)
        self._starting = self._waits = None
        return session

    def _why_not(self, error: Exception) -> Exception:
        if isinstance(error, SparkDown):
            return error
        what = f"Spark does not start on {self.master}: {first_lines(said(error))[:500]}"
        if _spark_says(error):
            away = "All masters are unresponsive" in said(error)
            return (SparkAway if away else SparkDown)(what, remedy=REMEDY)
        return SparkLost(what, remedy=REMEDY)

    def _taken_by(self, session: Any) -> Callable[[], tuple[SparkMemory, ...]] | None:
        """What finds how much memory this session takes."""
        process, settings = self._process, self._settings
        return None if process is None else lambda: memory.taken(session, process.pid, settings)

    # ----------------------------------------------------------------------------------------------------------------- probe

    def _watch(self, jvm: Any) -> None:
        """Watch this JVM from here on, and kill it when it hangs: whoever waits for it then hears that it is dead."""
        process, now = self._process, jvm.System.currentTimeMillis
        if process is None:
            return

        def over(why: str) -> None:
            if process.poll() is None:
                self._ended = self._session, why
                log.error("the JVM of Spark is killed, and replaced", why=why, jvm=process.pid)
            gateway.end(process)

        empty = _Executors(self.terms.executors_s) if not conf.is_local(self.master) else None

        def ask() -> str:
            now()
            return empty.complaint(self._session) if empty is not None and self._session is not None else ""

        self._probe = Watchdog(ask, over, self.terms.probe_s)


class _Executors:
    """Since when a cluster has given no executor while jobs wait."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._since: float | None = None

    def complaint(self, session: Any) -> str:
        """What is wrong; empty if nothing is."""
        context = session.sparkContext
        if cluster.executors_of(session) or not context.statusTracker().getActiveJobsIds():
            self._since = None
            return ""
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since < self._patience_s:
            return ""
        return f"its cluster has provided no executor for {self._patience_s:g} s (spark.executors-timeout)"


def _quietly(call: Callable[[], Any]) -> None:
    with contextlib.suppress(Exception):
        call()


def _spark_says(error: Exception) -> bool:
    """Whether a living JVM reported this error. All others come from a JVM that died."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return isinstance(error, Py4JJavaError | PySparkException) and "JAVA_GATEWAY_EXITED" not in said(error)
