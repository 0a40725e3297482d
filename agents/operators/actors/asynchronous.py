"""The operators that may await: `map_async`, sinks and the user's agents.

They never run on their own: a push defers the work to the task's actor, which awaits it before the chunk counts as complete. So the
letters of a task still run one at a time, in order, and nothing is awaited inside a transaction.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from ....core.errors import cause_for
from ...cancellation import Unasked, passes, said
from ...job.declare.actors import Batches
from ...job.steps.ends import AgentStep, SinkStep
from ...job.steps.rows import MapAsyncStep
from ...job.steps.step import Step
from ...job.types.arguments import shown
from ...patience import Patience
from ...records.columns.batch import Batch, ColumnBatch
from ...records.columns.logical_arrow import logical_in
from ...records.columns.records import Records
from ...records.columns.selecting import lacking
from ...records.memory.taking import take_batch
from ...records.values.record import Record
from ..base.schema_headers import SchemaHeaders
from ..base.stateless import (
    VALUES,
    Env,
    Operator,
    UserCodeError,
    blaming,
    encode,
    encode_keys,
    rows_of,
    rows_of_results,
)
from ..base.together import together


class MapAsyncOp(Operator):
    """Awaits a coroutine for each row, a bounded number at a time. Results keep the order of the rows."""

    awaits = True

    def __init__(self, step: MapAsyncStep, env: Env) -> None:
        super().__init__(step, env)
        self.map = step
        self.rows_at_once = step.concurrency
        self.wants_keys = VALUES if step.with_record else ""

    def push(self, rows: Records) -> None:
        self.env.defer(lambda: self._run(self.user_rows(rows)))

    async def _run(self, rows: Records) -> None:
        items = list(rows.records()) if self.map.with_record else rows.values
        results: list[Any] = [_MISSING] * len(items)
        fn, step, patience, name = self.map.fn, self.step, self.env.patience, shown(self.map.fn)
        place = step.place
        failed: list[UserCodeError] = []

        async def work(one: tuple[int, Any]) -> bool:
            index, item = one
            try:
                answer = fn(item)
                if not inspect.isawaitable(answer):
                    raise TypeError(f"{shown(fn)} gave {type(answer).__name__}, which cannot be awaited: use map()")
                results[index] = await patience.within(name, answer, place)
            except BaseException as cause:
                if passes(cause):
                    raise
                error = UserCodeError(step, cause, index, lacking((), rows.values[index : index + 1])(cause))
                error.__cause__ = cause
                failed.append(error)
                return False
            return True

        await together(list(enumerate(items)), self.map.concurrency, work, self.env.meter)
        if failed:
            first = min(failed, key=lambda one: one.index or 0)
            raise first from cause_for(first, first.__cause__)
        for index, result in enumerate(results):
            if result is _MISSING:  # the function has cancelled itself, which a TaskGroup does not report
                cause = Unasked(shown(fn))
                raise UserCodeError(step, cause, index) from cause
        self.forward(rows_of_results(step, rows, results))


_MISSING = object()
"""Marks a missing result; None is a valid one."""


class SinkOp(Operator):
    """Calls a function with each chunk, at least once."""

    awaits = True
    wants_keys = VALUES

    def __init__(self, step: SinkStep, env: Env) -> None:
        super().__init__(step, env)
        self.fn = step.fn
        self.schema = step.schema

    def push(self, rows: Records) -> None:
        at = self.env.origin()
        if self.schema is None:
            self._give(Batch(at.stream, at.partition, rows, at.offsets, at.meta))
        else:
            columns = take_batch(*rows.batch(self.schema))
            self._give(ColumnBatch(at.stream, at.partition, columns, at.meta, logical_in(self.schema.columns)))

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        return behind if self.schema is None else frozenset(self.schema.names)

    def _give(self, batch: Batch[Any, Any] | ColumnBatch) -> None:
        self.env.defer(lambda: call(self.step, self.env.patience, self.fn, batch))


async def call(step: Step, patience: Patience | None, fn: Callable[..., Any], *args: Any) -> Any:
    """Call a plain or async user function, and await its result within these limits."""
    with blaming(step):
        result = fn(*args)
        if not inspect.isawaitable(result):
            return result
        return await result if patience is None else await patience.within(shown(fn), result, step.place)


class AgentOp(Operator):
    """Runs a user-defined async generator beside the task's actor, but only while it processes a chunk.

    The two take turns: the actor passes a batch in and takes the yielded lists out. When the generator asks for the next batch, the
    previous one is complete. An exception fails the chunk and ends the generator; the next chunk starts a new one.
    """

    awaits = True
    wants_keys = VALUES

    def __init__(self, step: AgentStep, env: Env) -> None:
        super().__init__(step, env)
        self.agent = step
        self.running: _Running | None = None
        self.schemas = SchemaHeaders(step.sink_serde, step.sink_key_serde)

    def push(self, rows: Records) -> None:
        at = self.env.origin()
        batch: Batch[Any, Any] = Batch(at.stream, at.partition, rows, at.offsets, at.meta)
        self.env.defer(lambda: self._give(batch))

    async def _give(self, batch: Batch[Any, Any]) -> None:
        try:
            with blaming(self.step):
                if self.running is None:
                    self.running = _Running(self.agent.fn, self.env.table, self.env)
                await self.env.patience.within(shown(self.agent.fn), self._take(self.running, batch), self.step.place)
        except BaseException as cause:
            try:
                await self.env.patience.within(shown(self.agent.fn), self.close())
            except Exception as error:  # noqa: BLE001 - the failure matters more than an error while closing
                cause.add_note(f"and when it was closed: {said(error)}")
            raise

    async def _take(self, running: _Running, batch: Batch[Any, Any]) -> None:
        async for result in running.give(batch):
            self._emit(result, batch)

    def _emit(self, result: Any, batch: Batch[Any, Any]) -> None:
        if result is None:
            return
        assert self.agent.sink is not None
        items = result if isinstance(result, list | tuple) else [result]
        latest = max(batch.rows.timestamps, default=0)
        records = [item if isinstance(item, Record) else Record(None, item, latest) for item in items]
        rows = rows_of(self.step, records, [latest] * len(records))
        if rows.values:
            keys = None if rows.keys is None else encode_keys(self.step, self.agent.sink_key_serde, rows.keys)
            values = encode(self.step, self.agent.sink_serde, rows.values)
            headers = self.schemas.of_rows(keys, values, rows.headers)
            self.env.emit(self.agent.sink, None, keys, values, rows.timestamps, headers)

    async def close(self) -> None:
        """End the generator. Its `finally` blocks run."""
        running, self.running = self.running, None
        if running is not None:
            await running.close()


class _Running:
    """One run of an agent function, as an asyncio task that waits whenever it is not its turn."""

    def __init__(self, fn: Callable[..., Any], tables: Callable[[str], Any], env: Env) -> None:
        self._inbox: asyncio.Queue[Batch[Any, Any]] = asyncio.Queue(1)
        self._outbox: asyncio.Queue[tuple[str, Any]] = asyncio.Queue(1)
        self._asked = False
        self._closing = False
        batches: Batches[Any, Any] = Batches(self._feed(), tables, env.task)
        work = env.meter.measured(lambda: self._run(fn(batches)))
        self._task = asyncio.get_running_loop().create_task(work, name=f"agent of {env.task}")

    async def _feed(self) -> AsyncIterator[Batch[Any, Any]]:
        while not self._closing:  # a function that catches its cancellation and continues gets no more batches
            if self._asked:
                await self._outbox.put(("asked", None))
            self._asked = True
            yield await self._inbox.get()

    async def _run(self, body: Any) -> None:
        try:
            if inspect.isasyncgen(body):
                async for result in body:
                    await self._outbox.put(("result", result))
            else:
                await body
            await self._outbox.put(("returned", None))
        except BaseException as error:  # whatever user code raises, even a cancellation, fails the current chunk
            if self._closing or (isinstance(error, GeneratorExit) and passes(error)):
                raise
            await self._outbox.put(("raised", error))

    async def give(self, batch: Batch[Any, Any]) -> AsyncIterator[Any]:
        await self._inbox.put(batch)
        while True:
            kind, what = await self._outbox.get()
            if kind == "asked":
                return
            if kind == "raised":
                raise what
            if kind == "returned":
                raise RuntimeError("the agent function returned: iterate over its batches until they end")
            yield what

    async def close(self) -> None:
        """Cancel the agent function; re-raise the error that it ends with, if any."""
        self._closing = True
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            raise error


Deferred = Callable[[], Awaitable[None]]
