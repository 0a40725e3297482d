"""The steps `.batch(...)` and `.spark(...)` in a task: rows wait in the task's own state, close into batches, and go to Spark.

A batch is closed in a transaction of its own letter, and only what is durable is given to Spark: a retry, or the next owner of the
task, gives the same rows under the same id. Spark runs beside the task's letters; its result comes in as a letter, in the order of
the batches, and one transaction takes it: the rows go out, the batch's blocks are deleted. Until then the batch can be run again.
"""

from __future__ import annotations

import asyncio
from typing import Any

from .batch import SparkBatch, from_arrow, to_arrow
from .errors import SparkError

META = "meta"
BLOCK_ROWS = 5_000


class Batches:
    """The batches of one task and stage, as rows of an internal table: `meta`, and blocks of rows by batch number.

    `batching`: the step (max_rows, max_bytes, max_age_ms); `table`: the task's table of that step; `env`: what operators get.
    """

    def __init__(self, step: Any, env: Any) -> None:
        self.step = step
        self.env = env
        self.table = env.table(step.name)

    def meta(self) -> dict[str, Any]:
        """The open batch (`open` is its number), and the closed ones that are not done: [number, blocks, rows, why, latest]."""
        (found,) = self.table.get_many([META])
        return (
            dict(found) if found is not None else {"open": 1, "blocks": 0, "rows": 0, "since": 0, "ts": 0, "closed": []}
        )

    def add(self, values: list[Any], latest: int) -> bool:
        """Put rows into the open batch, closing it as often as it is full; whether one was closed."""
        meta = self.meta()
        most = self.step.max_rows or 10**9
        closed = False
        at = 0
        while at < len(values):
            take = values[at : at + min(most - meta["rows"], BLOCK_ROWS)]
            at += len(take)
            self.table.update({f"{meta['open']:012d}.{meta['blocks']:06d}": take})
            meta["since"] = meta["since"] or self.env.now_ms()
            meta |= {"blocks": meta["blocks"] + 1, "rows": meta["rows"] + len(take), "ts": max(meta["ts"], latest)}
            if meta["rows"] >= most:
                meta = self._closed(meta, "rows")
                closed = True
        self.table.update({META: meta})
        return closed

    @staticmethod
    def _closed(meta: dict[str, Any], why: str) -> dict[str, Any]:
        done = [meta["open"], meta["blocks"], meta["rows"], why, meta["ts"]]
        return {
            "open": meta["open"] + 1,
            "blocks": 0,
            "rows": 0,
            "since": 0,
            "ts": 0,
            "closed": [*meta["closed"], done],
        }

    def close(self, why: str) -> bool:
        """Close the open batch, if it has rows."""
        meta = self.meta()
        if not meta["rows"]:
            return False
        self.table.update({META: self._closed(meta, why)})
        return True

    def rows(self, number: int, blocks: int) -> list[Any]:
        """The contents of a closed batch."""
        found = self.table.get_many([f"{number:012d}.{block:06d}" for block in range(blocks)])
        return [row for block in found for row in (block or ())]

    def forget(self, number: int, blocks: int) -> None:
        """The first closed batch is done."""
        meta = self.meta()
        meta["closed"] = [done for done in meta["closed"] if done[0] != number]
        self.table.delete_many([f"{number:012d}.{block:06d}" for block in range(blocks)])
        self.table.update({META: meta})


class Runs:
    """Spark at work on the closed batches of one task and stage, a bounded number at a time."""

    def __init__(self, spark: Any, steps: list[Any], stage: str, task: str, poke: Any, *, in_flight: int) -> None:
        self.spark = spark
        self.steps = steps
        self.stage = stage
        self.task = task
        self.poke = poke
        self.in_flight = in_flight
        self._running: dict[int, asyncio.Task[list[list[dict[str, Any]]]]] = {}

    def start(self, batches: Batches, closed: list[list[Any]]) -> None:
        """Begin with those that are durable and not begun."""
        for number, blocks, rows, why, _ in closed:
            if number not in self._running and len(self._running) < self.in_flight:
                batch = SparkBatch(self.task, self.stage, number, rows, why)
                values = batches.rows(number, blocks)
                task = asyncio.get_running_loop().create_task(self._run(values, batch), name=f"spark {batch.id}")
                task.add_done_callback(lambda _: self.poke())
                self._running[number] = task

    async def _run(self, values: list[Any], batch: SparkBatch) -> list[list[dict[str, Any]]]:
        table = await asyncio.to_thread(to_arrow, values)
        results: list[list[dict[str, Any]]] = []
        for step in self.steps:
            result = await self.spark.run(step.fn, table, batch, step.schema)
            results.append(await asyncio.to_thread(from_arrow, result))
        return results

    def ready(self, number: int) -> bool:
        """Whether this batch's result (or failure) is there."""
        run = self._running.get(number)
        return run is not None and run.done()

    async def result(self, number: int) -> list[list[dict[str, Any]]]:
        """Its result; a failure is raised, and forgotten, so that the next asking runs it again."""
        run = self._running[number]
        try:
            return await asyncio.shield(run)
        except SparkError:
            self._running.pop(number, None)
            raise

    def forget(self, number: int) -> None:
        """It was taken."""
        self._running.pop(number, None)

    async def stop(self) -> None:
        """Cancel what runs, and its jobs."""
        running, self._running = list(self._running.values()), {}
        for run in running:
            run.cancel()
        if running:
            await asyncio.wait(running, timeout=30.0)
