"""Batches that Spark works on, beside the letters of their task."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.agents.operators.batches.spark_runs import Runs, TookTooLong


@pytest.mark.asyncio
async def test_a_batch_that_takes_too_long_is_called_off_and_has_failed() -> None:
    """A hung job of Spark held its task, a release and a drain for ever."""
    called_off = asyncio.Event()

    async def hangs(*_: Any) -> list[Any]:
        try:
            await asyncio.Event().wait()
        finally:
            called_off.set()
        return []

    bridge: Any = SimpleNamespace(run=hangs)
    batch: Any = SimpleNamespace(number=1, whole=False)
    named: Any = SimpleNamespace(id="Partition 0/s/1", rows=30)
    runs = Runs(bridge, [], lambda _, attempt: named, lambda _: [], lambda: None, lambda: 0.01)
    runs.start([batch], 1)
    async with asyncio.timeout(20):
        with pytest.raises(TookTooLong, match=r"Spark took longer for its 30 rows than spark.batch-timeout, 0.01 s"):
            await runs.result(1)
        await called_off.wait()
    assert not runs.has(1)  # so it can be begun again
