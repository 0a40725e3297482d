"""Batches through PySpark: one warm session for each worker, a limited number of threads, typed errors, and no batch lost with a dead JVM.

No call to Spark runs on the event loop's thread. A batch goes in and comes back as Arrow. A dead session is started again, and the batch
runs again; so does a batch whose Python worker or executor died. Cancelling a batch cancels its jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.batch_progress import AtSpark
from ..core.batches import BatchInfo, BatchOutcome, Contents, SparkStage
from ..core.errors import cause_for
from ..core.publishing import SparkWrite, Undone
from ..core.ranges import RangeRead, Ranges
from ..core.settings import did_you_mean
from . import columns, ranges, writing
from .errors import SparkDown, SparkError, SparkLost, SparkPlanError, SparkRowError, first_lines, said, typed
from .jvm import Sessions
from .poison import without_poison
from .results import take_result
from .spool import Spool
from .tables import Carrier, frame_of
from .threads import Threads
from .watch import Watch, Watched

ATTEMPTS = 3
CANCEL_S = 20.0
"""How long a cancelled batch may take to return."""
SMALL_ROWS = 20_000
BATCH_MEMORY = 256 << 20
PUBLISHING = 2
"""How many batches are published at a time, beside those at Spark."""

Finish = Callable[[Any, Any], Any]
"""What is done with a result: `(session, DataFrame)`."""


class Spark:
    """Runs batches. It implements `core.batches.Bridge` with Arrow tables.

    `session`: a session of the caller, which is never stopped or replaced. `java_home` is called when a JVM is started. `carrier` says how
    much memory batches may take, and where larger ones go.
    """

    def __init__(
        self,
        master: str = "local[*]",
        *,
        conf: Mapping[str, str] | None = None,
        threads: int = 4,
        session: Any = None,
        java_home: Callable[[], str] | None = None,
        carrier: Carrier | None = None,
        kafka: tuple[str, tuple[Any, ...]] | None = None,
    ) -> None:
        """`kafka`: the import path of a client with which executors read ranges of offsets, and its arguments."""
        self.carrier = carrier or Carrier(BATCH_MEMORY, Spool())
        self.watch = Watch(master)
        self.sessions = Sessions(master, conf or {}, lent=session, java_home=java_home, watch=self.watch)
        self._threads = Threads(threads)
        self._publishing = Threads(PUBLISHING)
        self._kafka = kafka

    # ------------------------------------------------------------------------------------------------------------- columns

    def pack(self, rows: Sequence[Any]) -> Any:
        """Rows as a table."""
        return columns.pack(rows)

    def select(self, batch: Any, picked: Any) -> Any:
        """The rows at these places (None: all) of columns that speak the Arrow capsule interface, as a table."""
        return columns.select(batch, picked)

    def take(self, table: Any, places: Any) -> Any:
        """The rows of a table at these places."""
        return columns.take(table, places)

    def fits(self, kind: Any, table: Any) -> Any:
        """The schema that fits both."""
        return columns.unite(kind, table)

    def kind_of(self, blocks: Sequence[bytes]) -> Any:
        """The common schema of these blocks."""
        return columns.kind_of(blocks)

    def split(self, table: Any, rows: int | None, size: int | None) -> tuple[Any, int, int, Any]:
        """As many rows as fit, their number and bytes, and the rest."""
        return columns.split(table, rows, size)

    def encode(self, tables: Sequence[Any]) -> bytes:
        """A block with the rows of these tables."""
        return columns.encode(tables)

    def table(self, block: bytes) -> Any:
        """The table of a block."""
        return columns.decode(block)

    def decode(self, block: bytes) -> list[dict[str, Any]]:
        """The rows of a block."""
        return columns.decode(block).to_pylist()

    # --------------------------------------------------------------------------------------------------------------- a batch

    async def warm(self) -> None:
        """Start the session, so that the first batch does not wait for it."""
        await self._threads.call(self.sessions.get)

    def seen(self) -> AtSpark:
        """What is known of the session and the attempts under way."""
        return self.watch.seen()

    async def run(self, batch: BatchInfo, contents: Contents, stages: Sequence[SparkStage]) -> list[BatchOutcome]:
        """Run the batch through each of its stages. Raises `SparkError`, which names the stage."""
        outcomes: list[BatchOutcome] = []
        async with self._rows(contents) as rows:
            for stage in stages:
                try:
                    outcomes.append(await self._stage(batch, rows, stage))
                except SparkError as error:
                    error.stage = stage.name
                    raise
        return outcomes

    def _rows(self, contents: Contents) -> contextlib.AbstractAsyncContextManager[Any]:
        if not isinstance(contents, Ranges):
            return self.carrier.rows(contents)
        assert self._kafka is not None, "whoever passes ranges says how to reach Kafka"
        return contextlib.nullcontext(ranges.Unfetched(contents, ranges.Connect(*self._kafka)))

    async def _stage(self, batch: BatchInfo, table: Any, stage: SparkStage) -> BatchOutcome:
        if stage.write is not None:
            return await self._written(batch, table, stage)

        async def attempt(rows: Any) -> Any:
            return await self.apply(stage.fn, rows, batch, stage.schema, stage.name)

        try:
            result, bad = await attempt(table), []
        except SparkRowError as error:
            if not stage.keeps_going:
                raise
            result, bad = await without_poison(attempt, table, error)
        result, read = _parted(result)
        return await asyncio.to_thread(_outcome, table, result, bad, read)

    async def _written(self, batch: BatchInfo, table: Any, stage: SparkStage) -> BatchOutcome:
        """Spark writes the result. While rows that make it fail are looked for, nothing is written."""

        async def attempt(rows: Any, finish: Finish) -> Any:
            return await self.apply(stage.fn, rows, batch, stage.schema, stage.name, finish)

        def save(session: Any, frame: Any) -> str:
            return writing.save(session, frame, batch, stage)

        try:
            written, read = _parted(await attempt(table, save))
            return BatchOutcome([], 0, attempt=written, read=read)
        except SparkRowError as error:
            if not stage.keeps_going:
                raise
            _, bad = await without_poison(lambda rows: attempt(rows, _try_out), table, error)
        good = columns.without(table, [place for place, _ in bad])
        written, read = _parted(await attempt(good, save) if good.num_rows else "")
        return BatchOutcome([], 0, await asyncio.to_thread(_left_out, table, bad), written, read=read)

    def _take(self, session: Any, frame: Any) -> Any:
        return take_result(frame, self.carrier.memory, self.carrier.spool)

    async def publish(self, write: SparkWrite, number: int, attempt: str, undone: Undone) -> None:
        """Publish the files of the attempt that counts, beside the batches."""
        local = write.path.startswith("file:")
        await self._publishing.call(
            lambda: writing.publish(None if local else self.sessions.get(), write, number, attempt, undone)
        )

    async def apply(
        self,
        fn: Callable[[Any, Any], Any],
        rows: Any,
        batch: BatchInfo,
        schema: Any,
        stage: str = "",
        finish: Finish | None = None,
    ) -> Any:
        """`fn(df, batch)` on rows. Returns the blocks of the result, which has the given schema, or what `finish` makes of the result."""
        error = ""
        for number in range(1, ATTEMPTS + 1):
            try:
                with self.watch.begin(batch, stage, number=number, rows=rows.num_rows, error=error) as watched:
                    return await self._once(fn, rows, batch, schema, watched, finish or self._take)
            except SparkLost as lost:
                if number == ATTEMPTS:
                    raise
                error = lost.what
        raise AssertionError("unreachable")

    async def _once(
        self, fn: Callable[[Any, Any], Any], rows: Any, batch: BatchInfo, schema: Any, watched: Watched, finish: Finish
    ) -> Any:
        group = f"headgate-{uuid.uuid4().hex[:12]}"
        state: dict[str, Any] = {}
        work = self._threads.call(self._work, fn, rows, batch, schema, group, state, watched, finish)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            state["cancelled"] = True
            # a job group that has submitted nothing yet cannot be cancelled, so repeat this until the thread has returned
            give_up = time.monotonic() + CANCEL_S
            while not work.done() and time.monotonic() < give_up:
                context = state.get("context")
                if context is not None:
                    with contextlib.suppress(Exception):
                        await asyncio.to_thread(context.cancelJobGroup, group)
                await asyncio.wait([work], timeout=0.25)
            if not work.done():
                self._threads.give_up()  # the user's function hangs outside of Spark: nothing can end it
            elif not work.cancelled():
                work.exception()
            raise

    def _work(
        self,
        fn: Any,
        rows: Any,
        batch: BatchInfo,
        schema: Any,
        group: str,
        state: dict[str, Any],
        watched: Watched,
        finish: Finish,
    ) -> Any:
        session = None
        try:
            session = self.sessions.get()
            state["context"] = context = session.sparkContext
            context.setJobGroup(group, f"headgate batch {batch.id}", interruptOnCancel=True)
            context.setLocalProperty("spark.scheduler.pool", batch.task)
            if state.get("cancelled"):
                raise SparkLost("cancelled")
            watched.at_work(session, group)
            if isinstance(rows, ranges.Unfetched):
                return rows.result(session, lambda frame: finish(session, _shaped(fn, fn(frame, batch), schema)))
            frame = frame_of(session, rows)
            if rows.num_rows <= SMALL_ROWS:
                frame = frame.coalesce(1)  # no exchange: saves a stage, about 25 ms
            return finish(session, _shaped(fn, fn(frame, batch), schema))
        except Exception as error:  # noqa: BLE001 - raised again as a typed error
            found = self._why(error, session)
            raise found from cause_for(found, error)

    def _why(self, error: Exception, session: Any) -> SparkError:
        """The typed error. If the session has ended, PySpark may raise anything, so neither plan nor rows are to blame."""
        found = typed(error)
        if session is None or isinstance(found, SparkLost | SparkDown) or self.sessions.lives(session):
            return found
        return SparkLost(f"the session ended during the batch: {found.what}")

    async def close(self) -> None:
        """Stop the session, unless it was lent."""
        await asyncio.to_thread(self.sessions.stop)
        await asyncio.to_thread(ranges.close_links)
        self._threads.close()
        self._publishing.close()
        await asyncio.to_thread(self.carrier.close)
        self.watch.close()


def _outcome(table: Any, result: Any, bad: Sequence[tuple[int, SparkError]], read: Sequence[RangeRead]) -> BatchOutcome:
    left_out = _left_out(table, bad)
    if result is None:
        return BatchOutcome([], 0, left_out, read=read)
    return BatchOutcome(result, result.rows, left_out, largest=result.largest, read=read)


def _parted(result: Any) -> tuple[Any, Sequence[RangeRead]]:
    """A result, and what was seen of a batch by reference."""
    return (result.table, result.seen) if isinstance(result, ranges.Found) else (result, ())


def _left_out(table: Any, bad: Sequence[tuple[int, SparkError]]) -> list[tuple[int, Any, SparkError]]:
    places = sorted(bad, key=lambda one: one[0])
    return [(place, table.slice(place, 1).to_pylist()[0], error) for place, error in places]


def _try_out(session: Any, frame: Any) -> Any:
    writing.try_out(frame)


def _shaped(fn: Any, result: Any, schema: Any) -> Any:
    """The result in the declared schema (a DDL text or a StructType). Spark itself would fill a missing column with NULL."""
    from pyspark.errors import AnalysisException

    named = getattr(fn, "__qualname__", repr(fn))
    if not callable(getattr(result, "toArrow", None)):
        raise SparkPlanError(
            f"{named}() returned {_kind(result)}, not a DataFrame",
            remedy="return the result that the function computes from df"
            if result is None
            else "return a PySpark DataFrame",
        )
    if isinstance(schema, str):
        from pyspark.sql.types import StructType

        schema = StructType.fromDDL(schema)
    missing = [name for name in schema.names if name not in result.columns]
    if missing:
        raise SparkPlanError(
            f"the result of {named}() has no column {', '.join(map(repr, missing))}; it has {', '.join(map(repr, result.columns))}",
            remedy=f"{did_you_mean(missing[0], result.columns)}; fix the function or the schema= of .spark()".lstrip(
                "; "
            ),
        )
    try:
        return result.to(schema)
    except AnalysisException as error:
        has = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in result.schema.fields)
        raise SparkPlanError(
            f"the result of {named}() does not match the schema {schema.simpleString()}; it is {has}: {first_lines(said(error))}",
            remedy="cast() the column in the function, or fix the schema= of .spark()",
        ) from error


def _kind(result: Any) -> str:
    return "None" if result is None else f"a {type(result).__module__.partition('.')[0]} {type(result).__name__}"
