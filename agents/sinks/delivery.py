"""Gives closed batches to sinks: what `spark_bridge` is for Spark's functions. It implements `core.batching.batches.Bridge`.

    rows in blocks → one Arrow table → the sink's transaction           (see `sink`)
                                     → files of an attempt → published   (see `files`)

What it promises:

- Nothing runs on the event loop's thread. One batch of a task and stage is written at a time, in order.
- Each stage has its own threads: one whose target hangs takes none from the others. A call that is cancelled, and does not return, takes
  none from its own.
- Rows that the target refuses are found by halving, in transactions that are rolled back. The batch is then committed once, without them,
  and which they were stands in the note that is committed with it: an owner that did not hear of the commit leaves out the same rows.
- A sink that has only promised to write (a coroutine, a generator) has failed (`own`).
- After any failure the sink is closed, and the next attempt opens a new one.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol

from ...core.batching.batch_progress import AT_WORK, QUEUED, AtSpark, SparkAttempt
from ...core.batching.batches import BatchInfo, BatchOutcome, Contents, Inline, SinkStage
from ...core.batching.origins import bounds
from ...core.batching.publishing import SparkWrite, Undone
from ...core.batching.sinking import SinkBatch, SinkOwner, left_out_of, note_of
from ...core.errors import HeadgateError
from ..logger import Logger
from .own import returned
from .sink import RowsRefused, Sink

log = Logger("headgate.sinks")
THREADS = 8
"""How many batches of one stage a worker writes at a time."""
CLOSE_S = 10.0
"""How long sinks may take to close when the worker ends."""


class Delivers(Protocol):
    """A step, which says whether a sink runs it."""

    delivers: ClassVar[bool]


class Delivery:
    """Writes batches of all tasks of a worker. `job`: the id of the job, where it has none of its own."""

    def __init__(self, job: str = "") -> None:
        from ...spark_bridge.base.threads import Threads
        from ...spark_bridge.data import columns

        self._job = job
        self._columns = columns
        self._made = lambda: Threads(THREADS, "sinks")
        self._threads: dict[str, Any] = {}
        """The threads by stage, and of files also by the path where they are published."""
        self._under_way: dict[str, _Attempt] = {}
        """By the id of the batch."""
        self._open: dict[tuple[str, str], tuple[SinkOwner, Sink]] = {}
        """The open sink of each task and stage that is not at work."""

    # ------------------------------------------------------------------------------------------------------------- columns

    def select(self, batch: Any, picked: Any) -> Any:
        """The rows at these places (None: all) of columns that speak the Arrow capsule interface, as a table."""
        return self._columns.select(batch, picked)

    def take(self, table: Any, places: Any) -> Any:
        """The rows of a table at these places."""
        return self._columns.take(table, places)

    def alike(self, table: Any, other: Any) -> bool:
        """Whether both have the same columns."""
        return table.schema.equals(other.schema)

    def split(self, table: Any, rows: int | None, size: int | None) -> tuple[Any, int, int, Any]:
        """As many rows as fit, their number and bytes, and the rest."""
        return self._columns.split(table, rows, size)

    def encode(self, tables: Sequence[Any]) -> bytes:
        """A block with the rows of these tables."""
        return self._columns.encode(tables)

    def table(self, block: bytes) -> Any:
        """The table of a block."""
        return self._columns.decode(block)

    def decode(self, block: bytes) -> list[dict[str, Any]]:
        """The rows of a block."""
        return self._columns.rows_of(self._columns.decode(block))

    # ------------------------------------------------------------------------------------------------------------- a batch

    async def run(self, batch: BatchInfo, contents: Contents, stages: Sequence[SinkStage]) -> list[BatchOutcome]:
        """Write the batch with each of its stages."""
        assert isinstance(contents, Inline), "batches by reference are Spark's"
        outcomes: list[BatchOutcome] = []
        attempt = self._under_way[batch.id] = _Attempt(stages[0].name)
        try:
            table = await self._called(attempt, self._whole, contents)
            for stage in stages:
                attempt.stage = stage.name
                try:
                    outcomes.append(await self._written(batch, table, contents, stage, attempt))
                except HeadgateError as error:
                    error.stage = stage.name  # type: ignore[attr-defined]
                    raise
        finally:
            if self._under_way.get(batch.id) is attempt:
                del self._under_way[batch.id]
        return outcomes

    async def _called(self, attempt: _Attempt, fn: Callable[..., Any], *arguments: Any) -> Any:
        """Run a call in a thread of the stage, and note when it begins."""
        threads = self._of(attempt.stage)
        future = threads.call(attempt.begins, fn, *arguments)
        try:
            return await future
        except asyncio.CancelledError:
            if attempt.doing == AT_WORK:
                threads.give_up(future)
            raise
        finally:
            attempt.doing = QUEUED

    def _of(self, place: str) -> Any:
        """The threads of a stage."""
        if place not in self._threads:
            self._threads[place] = self._made()
        return self._threads[place]

    def _whole(self, contents: Inline) -> Any:
        return self._columns.together([self._columns.decode(block) for block in contents.blocks])

    async def _written(
        self, batch: BatchInfo, table: Any, contents: Inline, stage: SinkStage, attempt: _Attempt
    ) -> BatchOutcome:
        owner = stage.owner
        assert owner is not None, "the task has said who it is"
        owner = replace(owner, uuid=self._job or owner.uuid)
        if stage.write is not None:
            from .files import staged

            return BatchOutcome(
                [], 0, attempt=await self._called(attempt, staged, stage.write, table, batch, stage.name)
            )
        came_from = () if stage.transactional else await self._called(attempt, contents.came_from)
        offsets = bounds(came_from)
        known = SinkBatch(f"{owner.series}/{batch.turn}", batch.turn, batch.rows, batch.closed_by, offsets)
        call = _Call(owner, stage.make, known, attempt)
        try:
            note = await self._called(attempt, self._once, call, table, "")
        except RowsRefused as error:
            if not (stage.keeps_going and stage.transactional):
                raise
            note = await self._without_refused(call, table, error)
        bad = [(place, RowsRefused(why)) for place, why in left_out_of(note)]
        return BatchOutcome([], 0, [(place, table.slice(place, 1).to_pylist()[0], why) for place, why in bad])

    async def _without_refused(self, call: _Call, table: Any, error: RowsRefused) -> str:
        from ...spark_bridge.data.poison import good_rows, without_poison

        async def attempt(rows: Any) -> Any:
            return await self._called(call.attempt, self._once, call, rows, None)

        _, bad = await without_poison(attempt, table, error)
        note = note_of(sorted((place, one.what) for place, one in bad))
        good = good_rows(table, bad)
        return await self._called(call.attempt, self._once, call, table.slice(0, 0) if good is None else good, note)

    def _once(self, call: _Call, rows: Any, note: str | None) -> str:
        """Write rows in one transaction, and commit it with this note; None: only try. Returns the note that the target has."""
        sink = self._taken(call)
        try:
            known: str | None = returned(sink, "begin", sink.begin(call.batch))
            if known is None and rows.num_rows:
                returned(sink, "write", sink.write(rows, call.batch))
            if known is not None or note is None:
                returned(sink, "rollback", sink.rollback())
            else:
                returned(sink, "commit", sink.commit(note))
        except BaseException:
            _close(sink)
            raise
        self._give_back(call, sink)
        return known if known is not None else note or ""

    def _taken(self, call: _Call) -> Sink:
        """The open sink of the task and stage. While it is at work, no one else has it: a call that was given up keeps its own."""
        owner, sink = self._open.pop(call.at, (None, None))
        if sink is not None and owner == call.owner:
            return sink
        if sink is not None:
            _close(sink)
        made = call.make()
        try:
            returned(made, "open", made.open(call.owner))
        except BaseException:
            _close(made)
            raise
        return made

    def _give_back(self, call: _Call, sink: Sink) -> None:
        _, other = self._open.pop(call.at, (None, None))
        self._open[call.at] = call.owner, sink
        if other is not None:
            _close(other)

    # -------------------------------------------------------------------------------------------------------------- the rest

    def seen(self) -> AtSpark:
        """The batches that sinks write now, or that wait for a thread. Nothing is known of Spark."""
        return AtSpark(attempts={name: one.seen() for name, one in self._under_way.items()})

    async def publish(self, write: SparkWrite, number: int, attempt: str, undone: Undone) -> None:
        """Publish the files of the attempt that counts."""
        from .files import published

        forgotten, deleted = await self._of(write.path).call(published, write, number, attempt, undone)
        if forgotten or deleted:
            log.info("old batches are forgotten", path=write.path, batches=forgotten, files_deleted_of=deleted)

    async def warm(self) -> None:
        """Sinks open with their first batch."""

    async def close(self) -> None:
        """Close what is open."""
        sinks, self._open = [(stage, sink) for (_, stage), (_, sink) in self._open.items()], {}
        if sinks:
            await asyncio.wait([self._of(stage).call(_close, sink) for stage, sink in sinks], timeout=CLOSE_S)
        for threads in self._threads.values():
            threads.close()


class _Call:
    """What one attempt is about."""

    def __init__(self, owner: SinkOwner, make: Callable[[], Sink], batch: SinkBatch, attempt: _Attempt) -> None:
        self.owner, self.make, self.batch, self.attempt = owner, make, batch, attempt
        self.at = owner.task, owner.stage


class _Attempt:
    """What a batch is doing that was given to a sink: it waits for a thread, or it is written since then."""

    def __init__(self, stage: str) -> None:
        self.stage, self.doing, self.since_ms = stage, QUEUED, _now_ms()

    def begins(self, fn: Callable[..., Any], *arguments: Any) -> Any:
        """Called in the thread."""
        self.doing, self.since_ms = AT_WORK, _now_ms()
        return fn(*arguments)

    def seen(self) -> SparkAttempt:
        """It for people."""
        return SparkAttempt(self.stage, doing=self.doing, since_ms=self.since_ms)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _close(sink: Sink) -> None:
    """Close a sink that is not needed any more. It cannot fail a batch."""
    try:
        returned(sink, "close", sink.close())
    except Exception as error:  # noqa: BLE001 - a user's code, and nothing depends on it
        log.warning("a sink did not close", sink=type(sink).__name__, error=f"{type(error).__name__}: {error}")


def delivery_for(steps: Iterable[Delivers], *, of_test: bool = False) -> Delivery | None:
    """What delivers the batches of a job; None if it has no sinks. `of_test`: each one is a job of its own, whose batches are all new."""
    job = uuid.uuid4().hex if of_test else ""
    return Delivery(job) if any(step.delivers for step in steps) else None
