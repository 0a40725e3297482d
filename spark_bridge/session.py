"""Batches through PySpark: one warm session for a worker, a bounded number of threads, typed errors, and no batch lost to a dead JVM.

No call into Spark runs on the event loop's thread. A batch goes in as Arrow and comes back as Arrow. A session that died is begun
anew, and the batch runs again; so does a batch whose Python worker or executor died. Cancelling a batch cancels its jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..core.batches import BatchInfo, Outcome, Stage
from ..core.errors import cause_for
from . import columns
from .errors import SparkDown, SparkError, SparkLost, SparkPlanError, SparkRowError, typed
from .jvm import Sessions
from .poison import without_poison

ATTEMPTS = 3
SMALL_ROWS = 20_000
BLOCK_ROWS = 5_000
"""Rows of a block of results: what one step of a letter sends."""


class Spark:
    """Runs batches. It is `core.batches.Bridge`, and speaks of tables as Arrow does.

    `session`: somebody else's session, which is never stopped or replaced. `java_home` is asked when a JVM is started.
    """

    def __init__(
        self,
        master: str = "local[*]",
        *,
        conf: Mapping[str, str] | None = None,
        threads: int = 4,
        session: Any = None,
        java_home: Callable[[], str] | None = None,
    ) -> None:
        self.sessions = Sessions(master, conf or {}, lent=session, java_home=java_home)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="spark")

    # ------------------------------------------------------------------------------------------------------------- columns

    def pack(self, rows: Sequence[Any]) -> Any:
        """Rows as a table."""
        return columns.pack(rows)

    def fits(self, kind: Any, table: Any) -> Any:
        """The schema that holds both."""
        return columns.unite(kind, table)

    def kind_of(self, blocks: Sequence[bytes]) -> Any:
        """The schema that these blocks make together."""
        return columns.kind_of(blocks)

    def split(self, table: Any, rows: int | None, size: int | None) -> tuple[Any, int, int, Any]:
        """As much as has room, its rows and bytes, and the rest."""
        return columns.split(table, rows, size)

    def encode(self, table: Any, *before: bytes) -> bytes:
        """A block with the rows of the blocks before, and then these."""
        return columns.encode(columns.together([*map(columns.decode, before), table]))

    def decode(self, block: bytes) -> list[dict[str, Any]]:
        """The rows of a block."""
        return columns.decode(block).to_pylist()

    # --------------------------------------------------------------------------------------------------------------- a batch

    async def warm(self) -> None:
        """Begin the session, so that the first batch does not wait for it."""
        await asyncio.get_running_loop().run_in_executor(self._pool, self.sessions.get)

    async def run(self, batch: BatchInfo, blocks: Sequence[bytes], stages: Sequence[Stage]) -> list[Outcome]:
        """The batch, through each of its stages. Raises `SparkError`."""
        table = await asyncio.to_thread(_table, blocks)
        return [await self._stage(batch, table, stage) for stage in stages]

    async def _stage(self, batch: BatchInfo, table: Any, stage: Stage) -> Outcome:
        async def attempt(rows: Any) -> Any:
            return await self.apply(stage.fn, rows, batch, stage.schema)

        try:
            result, bad = await attempt(table), []
        except SparkRowError as error:
            if not stage.keeps_going:
                raise
            result, bad = await without_poison(attempt, table, error)
        return await asyncio.to_thread(_outcome, table, result, bad)

    async def apply(self, fn: Callable[[Any, Any], Any], rows: Any, batch: BatchInfo, schema: Any) -> Any:
        """`fn(df, batch)` on an Arrow table; the result as an Arrow table of that schema."""
        for left in reversed(range(ATTEMPTS)):
            try:
                return await self._once(fn, rows, batch, schema)
            except SparkLost:
                if not left:
                    raise
        raise AssertionError("unreachable")

    async def _once(self, fn: Callable[[Any, Any], Any], rows: Any, batch: BatchInfo, schema: Any) -> Any:
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
            if not work.cancelled():
                work.exception()
            raise

    def _work(self, fn: Any, rows: Any, batch: BatchInfo, schema: Any, group: str, state: dict[str, Any]) -> Any:
        session = None
        try:
            session = self.sessions.get()
            state["context"] = context = session.sparkContext
            context.setJobGroup(group, f"headgate batch {batch.id}", interruptOnCancel=True)
            context.setLocalProperty("spark.scheduler.pool", batch.task)
            if state.get("cancelled"):
                raise SparkLost("cancelled")
            frame = session.createDataFrame(rows)
            if rows.num_rows <= SMALL_ROWS:
                frame = frame.coalesce(1)  # no exchange: saves a stage, about 25 ms
            return _shaped(fn(frame, batch), schema).toArrow()
        except Exception as error:  # noqa: BLE001 - raised as what it means
            found = self._why(error, session)
            raise found from cause_for(found, error)

    def _why(self, error: Exception, session: Any) -> SparkError:
        """What went wrong. A session that is over makes PySpark raise anything: no plan and no row is to blame for that."""
        found = typed(error)
        if session is None or isinstance(found, SparkLost | SparkDown) or self.sessions.lives(session):
            return found
        return SparkLost(f"the session ended under the batch: {found.what}")

    async def close(self) -> None:
        """Stop the session, unless it was lent."""
        await asyncio.to_thread(self.sessions.stop)
        self._pool.shutdown(wait=False, cancel_futures=True)


def _table(blocks: Sequence[bytes]) -> Any:
    return columns.together([columns.decode(block) for block in blocks])


def _outcome(table: Any, result: Any, bad: Sequence[tuple[int, SparkError]]) -> Outcome:
    left_out = [(table.slice(place, 1).to_pylist()[0], error) for place, error in sorted(bad, key=lambda one: one[0])]
    if result is None:
        return Outcome([], 0, left_out)
    rows = result.num_rows
    blocks = [columns.encode(result.slice(at, BLOCK_ROWS)) for at in range(0, rows, BLOCK_ROWS)]
    return Outcome(blocks, rows, left_out)


def _shaped(result: Any, schema: Any) -> Any:
    """The result in the declared schema (a DDL text or a StructType); Spark itself would fill a missing column with NULL."""
    if isinstance(schema, str):
        from pyspark.sql.types import StructType

        schema = StructType.fromDDL(schema)
    missing = [name for name in schema.names if name not in result.columns]
    if missing:
        raise SparkPlanError(
            f"the result has no column {', '.join(missing)}; it has {', '.join(result.columns)}",
            remedy="correct the function or the schema= of .spark()",
        )
    return result.to(schema)
