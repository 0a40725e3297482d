"""A stand-in for Spark: stages are functions of an Arrow table, run at once. It shows what an operator does around them, without a JVM."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from headgate.core.batches import BatchInfo, BatchOutcome, Inline, SparkStage
from headgate.spark_bridge.session import Spark

Rows = list[dict[str, Any]]


class WithoutSpark(Spark):
    """Blocks and columns are those of the real bridge."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[BatchInfo] = []
        """The batches that were begun, in order."""
        self.gate: asyncio.Event | None = None
        """While it is not set, no batch comes back."""

    async def warm(self) -> None:
        """There is nothing to start."""

    async def run(self, batch: BatchInfo, contents: Inline, stages: Sequence[SparkStage]) -> list[BatchOutcome]:
        """Run the batch through its stages."""
        self.ran.append(batch)
        rows = [row for block in contents.blocks for row in self.decode(block)]
        if self.gate is not None:
            await self.gate.wait()
        return [self._outcome(stage.fn, rows, batch) for stage in stages]

    def _outcome(self, fn: Callable[[Any, Any], Any], rows: Rows, batch: BatchInfo) -> BatchOutcome:
        made: Rows = fn(rows, batch)
        return BatchOutcome([self.encode(pa.Table.from_pylist(made))] if made else [], len(made))

    async def close(self) -> None:
        """There is nothing to stop."""
