"""The Spark session of this process on a Spark Connect server: no JVM here, and a server that serves others, too.

What differs from a JVM of its own:

- A server that was restarted knows nothing of its sessions, and its clients learn that with the next call. The session is then replaced.
- PySpark's client tries again for ten minutes before it says that the server is unavailable, and up to a minute passes between two tries.
  Here it gives up after a few seconds; the batch runs again as soon as there is a server.
- A server that hangs cannot be killed from here. The probe closes the connection, so that whoever waits for it goes on.
- Settings of the server's own (memory, masters) are the server's business; only `spark.sql.*` can be set for a session.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
from collections.abc import Mapping
from typing import Any

import structlog

from ..base.errors import SparkAway, SparkDown, first_lines, said
from ..base.threads import off_the_loop
from ..data.terms import Terms
from . import cluster, conf, package
from .home import Home
from .watch import Watch
from .watchdog import Watchdog

log = structlog.get_logger("headgate.spark")
TRIES = 6
FIRST_MS, MOST_MS = 50, 1_000
"""A call that finds no server is tried again so often, after pauses between these: less than five seconds in all."""
STOP_S = 5.0
MODE = "SPARK_CONNECT_MODE_ENABLED"
"""With this variable, `pyspark.sql.functions` are those of Spark Connect."""


class Remote:
    """The session of this process on a server. As `jvm.Sessions`."""

    def __init__(
        self, url: str, given: Mapping[str, str], *, terms: Terms | None = None, watch: Watch | None = None
    ) -> None:
        self.url = url
        self.terms = terms or Terms()
        self.watch = watch or Watch()
        """Is notified of what becomes of the session."""
        self.started = 0
        """How many sessions were started here."""
        self.lent = False
        self._conf, self._theirs = conf.for_connect(given)
        self._lock = threading.Lock()
        self._session: Any = None
        self._home: Home | None = None
        self._probe: Watchdog | None = None
        self._ended: tuple[Any, str] = (None, "")
        """The session that the watchdog has ended, and why."""

    @property
    def where(self) -> str:
        """The address of the server, without what may be secret in it."""
        return self.url.partition("/;")[0].partition(";")[0]

    def get(self) -> Any:
        """The session, which was alive a moment ago. Raises `SparkDown` if none can be started."""
        off_the_loop()
        with self._lock:
            if self._session is not None and self.is_alive(self._session):
                return self._session
            why = ""
            if self._session is not None:
                why = self.complaint(self._session) or "the server does not know the session any more"
                self.watch.is_lost(why)
                self._forget()
            self.watch.starts(self.where, why)
            try:
                self._session = self._begin()
            except SparkDown as error:
                self.watch.does_not_start(error)
                raise
            self.watch.is_ready(self._session, _bounds(self._session))
            self.started += 1
            return self._session

    def is_alive(self, session: Any) -> bool:
        """Whether this is still the current session, and its server knows it."""
        if self._session is not session or session.client.is_closed:
            return False
        try:
            _knock(session)
        except Exception:  # noqa: BLE001 - any error means that it is over
            return False
        return True

    def complaint(self, session: Any) -> str:
        """Why the watchdog has ended this session; empty if it has not."""
        ended, why = self._ended
        return why if ended is session else ""

    def stop(self) -> None:
        """Release the session, if its server answers."""
        off_the_loop()
        self.watch.close()
        with self._lock:
            session = self._session
            if session is None:
                return
            if self._probe is not None:
                self._probe.end()
            _leave(session)
            self._forget()
        os.environ.pop(MODE, None)

    def _forget(self) -> None:
        if self._probe is not None:
            self._probe.end()
        if self._session is not None:
            _cut(self._session)
        if self._home is not None:
            self._home.delete()
        self._session = self._home = self._probe = None

    def _begin(self) -> Any:
        _need_client()
        cluster.reachable(self.url)
        cluster.brokers(self.terms)
        from pyspark.sql.connect.session import SparkSession

        os.environ[MODE] = "1"
        session: Any = None
        try:
            session = SparkSession(connection=self.url)
            _bound(session)
            _knock(session)
            session._active_session.session = session
            type(session)._default_session = session
            self._watch(session)
            for name, value in self._conf.items():
                session.conf.set(name, value)
            said_there = self._equip(session)
        except Exception as error:
            if self._probe is not None:
                self._probe.end()
            if self._home is not None:
                self._home.delete()
                self._home = None
            if isinstance(error, SparkDown):
                _leave(session)  # the server answers, and would keep the session for an hour
            if session is not None:
                _cut(session)
            if isinstance(error, SparkDown):
                raise
            raise SparkAway(
                f"no session on the Spark Connect server {self.where}: {first_lines(said(error))[:500]}",
                remedy="see what the server logs",
            ) from None
        if self._theirs:
            log.warning("settings that only the Connect server itself can have are not applied", settings=self._theirs)
        log.info("the executors of the Connect server are ready", executors=said_there)
        return session

    def _equip(self, session: Any) -> list[str]:
        """Ship the code that the executors need, and see what they have."""
        self._home = home = Home()
        if shipped := package.shippable(self.terms.package, home.path):
            session.addArtifacts(*shipped, pyfile=True)
        package.travel_with_functions(self.terms.package)
        return cluster.check(session, self.terms, self.where)

    def _watch(self, session: Any) -> None:
        def over(why: str) -> None:
            self._ended = session, why
            log.error("the session on the Connect server is abandoned, and replaced", why=why)
            _cut(session)

        self._probe = Watchdog(lambda: _knock(session), over, self.terms.probe_s)


def _need_client() -> None:
    missing = [name for name in ("grpc", "grpc_status", "google.rpc", "zstandard", "pandas") if not _has(name)]
    if missing:
        raise SparkDown(f"Spark Connect's client needs {', '.join(missing)}", remedy="pip install 'headgate[connect]'")


def _has(name: str) -> bool:
    from importlib.util import find_spec

    with contextlib.suppress(ModuleNotFoundError):
        return name in sys.modules or find_spec(name) is not None
    return False


def _bound(session: Any) -> None:
    """Let calls that find no server fail within seconds, and without remarks on standard error."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    policy: Any = DefaultPolicy(max_retries=TRIES, initial_backoff=FIRST_MS, max_backoff=MOST_MS)
    policy.max_server_retry_delay = MOST_MS
    session.client.set_retry_policies([policy])
    session.client._max_retry_exception_elapsed_time = STOP_S
    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")


def _knock(session: Any) -> None:
    """A call that the server must answer."""
    session.conf.get("spark.sql.session.timeZone")


def _bounds(session: Any) -> dict[str, str]:
    """What bounds the memory of the server and of its executors, as far as it was set there."""
    found = {name: session.conf.get(name, "") for name in conf.BOUNDS}
    return {name: value for name, value in found.items() if value}


def _cut(session: Any) -> None:
    """Close the connection at once: every call that waits for the server fails. PySpark's own way waits for the server."""
    with contextlib.suppress(Exception):
        session.client._channel.close()
    with contextlib.suppress(Exception):
        session.client._closed = True
    kind: Any = type(session)
    if kind._default_session is session:
        kind._default_session = None


def _leave(session: Any) -> None:
    """Tell the server that the session is over, if it answers."""

    def release() -> None:
        with contextlib.suppress(Exception):
            session.client.release_session()

    leaving = threading.Thread(target=release, name="spark-stop", daemon=True)
    leaving.start()
    leaving.join(STOP_S)
