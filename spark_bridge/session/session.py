"""Batches through PySpark: one warm session for each worker, a limited number of threads, typed errors, and no batch lost with a dead JVM.

No call to Spark runs on the event loop's thread. A batch goes in and comes back as Arrow. A batch whose Python worker, executor or session
died runs again at once; while a cluster or a Connect server is unavailable, it waits. Cancelling a batch cancels its jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import structlog

from ...core.batching.batch_progress import AtSpark
from ...core.batching.batches import BatchInfo, BatchOutcome, Contents, SparkStage
from ...core.batching.failing import RowError
from ...core.batching.publishing import SparkWrite, Undone
from ...core.batching.ranges import RangeRead, Ranges
from ..base.errors import (
    SparkAway,
    SparkDown,
    SparkError,
    SparkFunctionError,
    SparkLost,
    SparkRowError,
    cause_of,
    lost_session,
    typed,
)
from ..base.jobs import Jobs
from ..base.threads import Threads
from ..data import columns, ranges, released, writing
from ..data.handover import forget, own_session
from ..data.poison import Bad, bad_row, good_rows, without_poison
from ..data.results import take_result
from ..data.shape import shaped
from ..data.spool import Spool
from ..data.tables import Carrier, frame_of, is_small
from ..data.terms import Terms
from ..process import standard_error
from ..process.connect import Remote
from ..process.jvm import Sessions
from ..process.watch import Watch, Watched
from .turns import Turns

log = structlog.get_logger("headgate.spark")
ATTEMPTS = 3
CANCEL_S = 10.0
"""How long a cancelled batch may take to return."""
CANCEL_EVERY_S = 2.0
AWAY_S = (0.25, 5.0)
"""The first and the longest pause before a cluster that is unavailable is tried again."""
BATCH_MEMORY = 256 << 20
FUNCTION_S = (0.5, 2.0)
"""The pauses before a batch whose function has raised on the driver runs again."""
KILLER = (
    "a row or a function of this batch ends the process that runs it, or needs more memory than it has: make smaller batches, "
    "or raise spark.driver.memory, spark.executor.memory or spark.executor.pyspark.memory"
)
PUBLISHING = 2
"""How many batches are published at a time, alongside those at Spark."""

Finish = Callable[[Any, Any], Any]
"""What is done with a result: `(session, DataFrame)`."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What Spark is asked for: the function's result for these rows, in a schema, and what is done with it."""

    fn: Callable[[Any, Any], Any]
    rows: Any
    batch: BatchInfo
    schema: Any
    finish: Finish


class Spark:
    """Runs batches. It implements `core.batching.batches.Bridge` with Arrow tables.

    `remote`: a Spark Connect server, instead of a master. `session`: a session of the caller, which is never stopped or replaced.
    `java_home` is called when a JVM is started. `carrier` says how much memory batches may take, and where larger ones go.
    `kafka`: the import path of a client with which executors read ranges of offsets, and its arguments.
    """

    def __init__(
        self,
        master: str = "local[*]",
        *,
        remote: str = "",
        conf: Mapping[str, str] | None = None,
        terms: Terms | None = None,
        threads: int = 8,
        session: Any = None,
        java_home: Callable[[], str] | None = None,
        carrier: Carrier | None = None,
        kafka: tuple[str, tuple[Any, ...]] | None = None,
    ) -> None:
        standard_error.expect_harmless()
        self.carrier = carrier or Carrier(BATCH_MEMORY, Spool())
        self.watch = Watch(remote or master)
        self.sessions: Any = (
            Remote(remote, conf or {}, terms=terms, watch=self.watch)
            if remote and session is None
            else Sessions(master, conf or {}, lent=session, java_home=java_home, terms=terms, watch=self.watch)
        )
        self.patience_s = (terms or Terms()).executors_s
        self._threads = Threads(threads)
        self._publishing = Threads(PUBLISHING)
        self._kafka = kafka
        self._orders = Threads(2, "spark-orders")
        """Threads that cancel and stop; so no batch can be in their way."""
        self._turns = Turns()
        self._leaving: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------------------------------------------------------- columns

    def select(self, batch: Any, picked: Any) -> Any:
        """The rows at these places (None: all) of columns that speak the Arrow capsule interface, as a table."""
        return columns.select(batch, picked)

    def take(self, table: Any, places: Any) -> Any:
        """The rows of a table at these places."""
        return columns.take(table, places)

    def alike(self, table: Any, other: Any) -> bool:
        """Whether both have the same columns."""
        return table.schema.equals(other.schema)

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
        return columns.rows_of(columns.decode(block))

    # --------------------------------------------------------------------------------------------------------------- a batch

    async def warm(self) -> None:
        """Start the session, so that the first batch does not wait for it. If that fails, it is logged, and the first batch tries again."""
        with contextlib.suppress(SparkDown):
            await self._threads.call(self.sessions.get)

    def seen(self) -> AtSpark:
        """What is known of the session and the attempts under way."""
        return self.watch.seen()

    async def run(self, batch: BatchInfo, contents: Contents, stages: Sequence[SparkStage]) -> list[BatchOutcome]:
        """Run the batch through each of its stages. Raises `SparkError`, which names the stage."""
        try:
            first, *others = await self._stages(batch, contents, stages)
            return [replace(first, retried=self.watch.over(batch)), *others]
        except SparkError as error:
            error.retried = self.watch.over(batch)
            raise
        finally:
            self.watch.over(batch)

    async def _stages(self, batch: BatchInfo, contents: Contents, stages: Sequence[SparkStage]) -> list[BatchOutcome]:
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
        assert self._kafka is not None, "a session that gets ranges needs the settings of Kafka"
        return contextlib.nullcontext(ranges.Unfetched(contents, ranges.Connect(*self._kafka)))

    async def _stage(self, batch: BatchInfo, table: Any, stage: SparkStage) -> BatchOutcome:
        if stage.write is not None:
            return await self._written(batch, table, stage)

        async def attempt(rows: Any) -> Any:
            return await self.apply(stage.fn, rows, batch, stage.schema, stage.name)

        try:
            result, bad = await _again(lambda: attempt(table)), []
        except SparkRowError as error:
            if not stage.keeps_going:
                raise
            result, bad = await without_poison(attempt, table, error)
        result, read = _parted(result)
        left_out = await asyncio.to_thread(_left_out, table, bad) if bad else []
        if result is None:
            return BatchOutcome([], 0, left_out, read=read)
        return BatchOutcome(result, result.rows, left_out, largest=result.largest, read=read)

    async def _written(self, batch: BatchInfo, table: Any, stage: SparkStage) -> BatchOutcome:
        """Spark writes the result. While rows that make it fail are looked for, nothing is written."""

        async def attempt(rows: Any, finish: Finish) -> Any:
            return await self.apply(stage.fn, rows, batch, stage.schema, stage.name, finish)

        def save(session: Any, frame: Any) -> str:
            return writing.save(session, frame, batch, stage)

        try:
            written, read = _parted(await _again(lambda: attempt(table, save)))
            return BatchOutcome([], 0, attempt=written, read=read)
        except SparkRowError as error:
            if not stage.keeps_going:
                raise
            _, bad = await without_poison(lambda rows: attempt(rows, _try_out), table, error)
        good = good_rows(table, bad)
        written, read = _parted("" if good is None else await attempt(good, save))
        return BatchOutcome([], 0, await asyncio.to_thread(_left_out, table, bad), written, read=read)

    def _take(self, session: Any, frame: Any) -> Any:
        return take_result(frame, self.carrier.memory, self.carrier.spool)

    async def publish(self, write: SparkWrite, number: int, attempt: str, undone: Undone) -> None:
        """Publish the files of the attempt that counts, alongside the batches."""
        local = write.path.startswith("file:")
        forgotten, deleted = await self._publishing.call(
            lambda: writing.publish(None if local else self.sessions.get(), write, number, attempt, undone)
        )
        if forgotten or deleted:
            log.info("old batches are forgotten", path=write.path, batches=forgotten, files_deleted_of=deleted)

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
        over, error = 0, ""
        for number in range(1, ATTEMPTS + 1):
            alone = over == ATTEMPTS - 1
            run = replace(batch, attempt=(batch.attempt - 1) * ATTEMPTS + number)
            try:
                with self.watch.begin(batch, stage, number=number, rows=rows.num_rows, error=error) as watched:
                    async with self._turns.alone() if alone else self._turns.with_others(again=number > 1):
                        return await self._once(Demand(fn, rows, run, schema, finish or self._take), watched)
            except SparkLost as lost:
                over += lost.session
                if number == ATTEMPTS:
                    raise _given_up(lost, batch, alone) from lost.__cause__
                error = lost.what
        raise AssertionError("unreachable")

    async def _once(self, demand: Demand, watched: Watched) -> Any:
        """One attempt, which waits while Spark is unavailable."""
        give_up = time.monotonic() + self.patience_s
        pause, longest = AWAY_S
        while True:
            jobs = Jobs(demand.batch.id, demand.batch.task)
            work = self._threads.call(self._work, demand, jobs, watched)
            try:
                return await asyncio.shield(work)
            except SparkAway:
                if time.monotonic() + pause > give_up:
                    raise
                await asyncio.sleep(pause)
                pause = min(2 * pause, longest)
            except asyncio.CancelledError:
                jobs.called_off = True
                leaving = asyncio.get_running_loop().create_task(
                    self._call_off(work, jobs), name="spark batch is cancelled"
                )
                self._leaving.add(leaving)
                leaving.add_done_callback(self._leaving.discard)
                await asyncio.shield(leaving)
                raise

    async def _call_off(self, work: asyncio.Future[Any], jobs: Jobs) -> None:
        """Cancel the jobs of an attempt, and wait until its thread has returned, up to a limit."""
        give_up = time.monotonic() + CANCEL_S
        while not work.done() and time.monotonic() < give_up:
            order = self._orders.call(jobs.cancel)
            await asyncio.wait([work], timeout=min(CANCEL_EVERY_S, CANCEL_S))
            if not order.done():
                self._orders.give_up(order)  # whoever should be told does not answer
            elif not order.cancelled():
                order.exception()
        if not work.done():
            self._threads.give_up(work)  # the user's function hangs outside of Spark: nothing can end it
        elif not work.cancelled():
            work.exception()

    def _work(self, demand: Demand, jobs: Jobs, watched: Watched) -> Any:
        session: Any = None
        try:
            if not jobs.called_off:
                session = self.sessions.get()
                jobs.begin(session)
            if jobs.called_off:
                raise SparkLost("cancelled")
            watched.at_work(session, jobs.group)
            with released.noted(session) as left:
                return self._in_own_session(demand, session, left)
        except Exception as error:  # noqa: BLE001 - raised again as a typed error
            found = self._why(error, session)
            raise found from cause_of(found, error)

    def _in_own_session(self, demand: Demand, session: Any, left: released.Left) -> Any:
        own = own_session(session, as_it_is=self.sessions.lent)
        released.belongs(left, own)
        try:
            if isinstance(demand.rows, ranges.Unfetched):
                return demand.rows.result(own, partial(_made, demand, own, left))
            frame = frame_of(own, demand.rows)
            return _made(demand, own, left, frame, small=is_small(demand.rows))
        finally:
            released.let_go(own, session)

    def _why(self, error: Exception, session: Any) -> SparkError:
        """The typed error. If the session has ended, PySpark may raise anything, so neither plan nor rows are to blame."""
        found = typed(error)
        if session is not None and (complaint := self.sessions.complaint(session)):
            return lost_session(complaint)
        if session is None or isinstance(found, SparkDown) or (isinstance(found, SparkLost) and found.session):
            return found
        if self.sessions.is_alive(session):
            return found
        return lost_session(f"the session ended during the batch: {found.what}")

    async def close(self) -> None:
        """Stop the session, unless it was lent."""
        await self._orders.call(self.sessions.stop)
        await self._orders.call(ranges.close_links)
        self._threads.close()
        self._orders.close()
        self._publishing.close()
        await asyncio.to_thread(self.carrier.close)


def _made(demand: Demand, session: Any, left: released.Left, frame: Any, *, small: bool = False) -> Any:
    """What is made of the function's result for these rows. `small`: one task takes them."""
    try:
        result = demand.fn(frame.coalesce(1) if small else frame, demand.batch)
        return demand.finish(session, shaped(demand.fn, result, demand.schema))
    finally:
        forget(session, frame)
        released.forget_views(left, session, frame)


async def _again(attempt: Callable[[], Awaitable[Any]]) -> Any:
    """What an attempt gives. One whose function raises on the driver is repeated: what the function asks may be away for a moment."""
    for pause in FUNCTION_S:
        try:
            return await attempt()
        except SparkFunctionError:
            await asyncio.sleep(pause)
    return await attempt()


def _given_up(lost: SparkLost, batch: BatchInfo, alone: bool) -> SparkError:
    """The error of a batch that was lost as often as it was tried."""
    how = ", the last time with no other batch running" if alone else ""
    what = f"batch {batch.id} was lost {ATTEMPTS} times{how}: {lost.what}"
    if lost.session:
        return lost_session(what, remedy=lost.remedy or KILLER)
    # every time these rows came to a Python worker or an executor it died: they are to blame, as if they had raised
    return SparkRowError(what, remedy=lost.remedy or KILLER)


def _parted(result: Any) -> tuple[Any, Sequence[RangeRead]]:
    """A result, and what was seen of a batch by reference."""
    return (result.table, result.seen) if isinstance(result, ranges.Found) else (result, ())


def _left_out(table: Any, bad: Bad) -> list[tuple[int, Any, RowError]]:
    places = sorted(bad, key=lambda one: one[0])
    return [(place, bad_row(table, place, error), error) for place, error in places]


def _try_out(session: Any, frame: Any) -> Any:
    writing.try_out(frame)
