"""One warm Spark session per worker process, started when the first task that needs it restores, and made anew when it died.

No call into Spark runs on the event loop's thread. Settings are those that were measured to matter for small, frequent batches;
anything may be overridden by `spark.conf`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .errors import SparkError, SparkLost, typed

CONF: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # rows in a local relation are planned row by row: ten times slower at a million rows
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.scheduler.mode": "FAIR",
}
ATTEMPTS = 3
SMALL_ROWS = 20_000


class Spark:
    """Runs functions of PySpark on Arrow tables. `session`: somebody else's session, which is never stopped or replaced."""

    def __init__(
        self,
        master: str = "local[*]",
        *,
        conf: Mapping[str, str] | None = None,
        threads: int = 2,
        session: Any = None,
        java_home: str = "",
    ) -> None:
        self.master = master
        self.java_home = java_home
        self.conf = {**CONF, **(conf or {})}
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="spark")
        self._lock = threading.Lock()
        self._session = session
        self._lent = session is not None

    async def warm(self) -> None:
        """Start the session, so that the first batch does not wait for it."""
        await asyncio.get_running_loop().run_in_executor(self._pool, self.session)

    def session(self) -> Any:
        """The session, started or restarted if need be. Not on the loop's thread."""
        with self._lock:
            if self._lent or (self._session is not None and self._alive()):
                return self._session
            self._forget()
            if self.java_home:
                os.environ["JAVA_HOME"] = self.java_home  # Spark's launcher looks nowhere else
            from pyspark.sql import SparkSession

            builder: Any = SparkSession.builder
            builder = builder.master(self.master).appName("headgate")
            for name, value in self.conf.items():
                builder = builder.config(name, value)
            self._session = builder.getOrCreate()
            started: Any = self._session
            started.sparkContext.setLogLevel("ERROR")
            return self._session

    def _alive(self) -> bool:
        try:
            context = self._session.sparkContext
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

        gateway: Any = SparkContext._gateway
        for close in (lambda: gateway.shutdown(), lambda: gateway.proc.kill(), lambda: gateway.proc.wait(5)):
            with contextlib.suppress(Exception):
                close()
        context: Any = SparkContext
        context._active_spark_context = context._gateway = context._jvm = None
        session: Any = SparkSession
        session._instantiatedSession = None
        self._session = None

    async def run(self, fn: Callable[[Any, Any], Any], rows: Any, batch: Any, schema: Any) -> Any:
        """`fn(df, batch)` on an Arrow table; the result as an Arrow table of that schema. Raises `SparkError`.

        A lost session is replaced and the batch run again. Cancelling cancels Spark's jobs.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._once(fn, rows, batch, schema)
            except SparkLost:
                if attempt == ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    async def _once(self, fn: Callable[[Any, Any], Any], rows: Any, batch: Any, schema: Any) -> Any:
        group = f"headgate-{uuid.uuid4().hex[:12]}"
        state: dict[str, Any] = {}
        work = asyncio.get_running_loop().run_in_executor(self._pool, self._work, fn, rows, batch, schema, group, state)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            state["cancelled"] = True
            # a job group that has not submitted anything yet cannot be cancelled, so it is until the thread has come back
            while not work.done():
                context = state.get("context")
                if context is not None:
                    with contextlib.suppress(Exception):
                        await asyncio.to_thread(context.cancelJobGroup, group)
                await asyncio.wait([work], timeout=0.25)
            work.exception()
            raise

    def _work(self, fn: Any, rows: Any, batch: Any, schema: Any, group: str, state: dict[str, Any]) -> Any:
        try:
            session = self.session()
            state["context"] = context = session.sparkContext
            context.setJobGroup(group, f"headgate batch {batch.id}", interruptOnCancel=True)
            context.setLocalProperty("spark.scheduler.pool", batch.task)
            if state.get("cancelled"):
                raise SparkError("cancelled")
            frame = session.createDataFrame(rows)
            if rows.num_rows <= SMALL_ROWS:
                frame = frame.coalesce(1)
            result = fn(frame, batch)
            return (result.to(_struct(schema)) if schema is not None else result).toArrow()
        except Exception as error:
            raise typed(error) from error

    async def close(self) -> None:
        """Stop the session, unless it was lent."""
        session, self._session = self._session, None
        if session is not None and not self._lent:
            with contextlib.suppress(Exception):
                await asyncio.to_thread(session.stop)
        self._pool.shutdown(wait=False, cancel_futures=True)


def _struct(schema: Any) -> Any:
    """A StructType from a DDL text, or as it is."""
    if not isinstance(schema, str):
        return schema
    from pyspark.sql.types import StructType

    return StructType.fromDDL(schema)
