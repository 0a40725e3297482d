"""A stand-in for Spark: stages are functions of an Arrow table, run at once. It shows what an operator does around them, without a JVM."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from headgate.core.batching.batches import BatchInfo, BatchOutcome, Inline, SparkStage
from headgate.core.batching.manifest import ManifestEntry
from headgate.core.batching.publishing import SeriesPaths, SparkWrite, Undone
from headgate.spark_bridge.data.files import LocalFiles
from headgate.spark_bridge.data.publish import Publisher
from headgate.spark_bridge.session.session import Spark

Rows = list[dict[str, Any]]


class WithoutSpark(Spark):
    """Blocks and columns are those of the real bridge."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[BatchInfo] = []
        """The batches that were begun, in order."""
        self.kinds: list[dict[str, str]] = []
        """The types of the columns of each."""
        self.gate: asyncio.Event | None = None
        """While it is not set, no batch comes back."""
        self.published: list[tuple[str, int, str]] = []
        """What was begun to be published: where, the number of the batch, the attempt."""
        self.poison: Callable[[dict[str, Any]], bool] = lambda row: False
        """The rows that the bridge leaves out, as if Spark had failed on them."""
        self.failures: list[Exception] = []
        """What the next attempts to publish raise."""

    async def warm(self) -> None:
        """There is nothing to start."""

    async def run(self, batch: BatchInfo, contents: Inline, stages: Sequence[SparkStage]) -> list[BatchOutcome]:
        """Run the batch through its stages."""
        self.ran.append(batch)
        schema = self.table(contents.blocks[0]).schema
        self.kinds.append({field.name: str(field.type) for field in schema})
        rows = [row for block in contents.blocks for row in self.decode(block)]
        if self.gate is not None:
            await self.gate.wait()
        return [
            self._outcome(stage.fn, rows, batch)
            if stage.write is None
            else self._write(stage, stage.write, rows, batch)
            for stage in stages
        ]

    def _write(self, stage: SparkStage, write: SparkWrite, rows: Rows, batch: BatchInfo) -> BatchOutcome:
        """Files as Spark would write them: JSON, a file for each value of the first column of `partition_by`."""
        made: Rows = stage.fn(rows, batch)
        if write.save is not None:
            write.save(made, batch)
            return BatchOutcome([], 0)
        files, attempt = LocalFiles(), f"a{len(self.ran)}"
        where = SeriesPaths(write.path, write.series).attempt(batch.number, attempt)
        for name in dict.fromkeys(row[write.partition_by[0]] for row in made):
            lines = [f"{json.dumps(row)}\n" for row in made if row[write.partition_by[0]] == name]
            files.put(f"{where}/{write.partition_by[0]}={name}/part-00000-x-c000.json", "".join(lines))
        entry = ManifestEntry(
            write.job, stage.name, batch.task, batch.id, batch.number, attempt, batch.rows, batch.closed_by
        )
        Publisher(files, write).seal(entry)
        return BatchOutcome([], 0, attempt=attempt)

    async def publish(self, write: SparkWrite, number: int, attempt: str, undone: Undone) -> None:
        """Publish for real, unless it is to fail."""
        self.published.append((write.path, number, attempt))
        if self.failures:
            raise self.failures.pop()
        await super().publish(write, number, attempt, undone)

    def _outcome(self, fn: Callable[[Any, Any], Any], rows: Rows, batch: BatchInfo) -> BatchOutcome:
        bad = [(at, row, ValueError(f"{row} is bad")) for at, row in enumerate(rows) if self.poison(row)]
        made: Rows = fn([row for row in rows if not self.poison(row)], batch)
        return BatchOutcome([self.encode([pa.Table.from_pylist(made)])] if made else [], len(made), bad)

    async def close(self) -> None:
        """There is nothing to stop."""
