"""Spark at work on the closed batches of one task and stage: a bounded number at a time, beside the task's letters.

What it promises: a batch is begun once, until it is forgotten or has failed; nothing here blocks the loop; an attempt that takes longer
than `spark.batch-timeout` is called off and has failed; `stop` cancels what runs, and comes back when its jobs are off, or soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from ...core.batches import BatchInfo, BatchOutcome, Bridge, Closed, SparkStage
from ...core.errors import EnvironmentFault

STOP_S = 30.0
HOUR_S = 3600.0


class Runs:
    """What runs, by the number of its batch. `poke` is called when one has come back."""

    def __init__(
        self,
        bridge: Bridge,
        stages: Sequence[SparkStage],
        name: Callable[[Closed], BatchInfo],
        blocks: Callable[[Closed], Sequence[bytes]],
        poke: Callable[[], None],
        timeout_s: Callable[[], float] = lambda: HOUR_S,
    ) -> None:
        """`timeout_s`: how long one attempt may take, asked when it begins."""
        self.bridge = bridge
        self.stages = stages
        self._name = name
        self._blocks = blocks
        self._poke = poke
        self._timeout_s = timeout_s
        self._running: dict[int, asyncio.Task[list[BatchOutcome]]] = {}

    def start(self, closed: Iterable[Closed], most: int) -> None:
        """Begin with those that are not begun, while there is room."""
        for one in closed:
            if len(self._running) >= most:
                return
            if one.number not in self._running and not one.whole:
                info = self._name(one)
                work = self.bridge.run(info, self._blocks(one), self.stages)
                bounded = self._bounded(work, info)
                task = asyncio.get_running_loop().create_task(bounded, name=f"spark {info.id}")
                task.add_done_callback(self._came_back)
                self._running[one.number] = task

    async def _bounded(self, work: Awaitable[list[BatchOutcome]], info: BatchInfo) -> list[BatchOutcome]:
        """An attempt that takes too long is called off, its jobs with it, and has failed."""
        limit = self._timeout_s()
        bound = asyncio.timeout(limit)
        try:
            async with bound:
                return await work
        except TimeoutError:
            if not bound.expired():
                raise
            raise TookTooLong(
                f"batch {info.id} was cancelled: Spark took longer for its {info.rows} rows than spark.batch-timeout, {limit:g} s",
                remedy="make smaller batches, check what the function is waiting for, or increase spark.batch-timeout",
            ) from None

    def _came_back(self, task: asyncio.Task[list[BatchOutcome]]) -> None:
        if not task.cancelled():
            task.exception()  # whoever asks for the result gets it; nobody may ask any more
            self._poke()

    def has(self, number: int) -> bool:
        """Whether it was begun."""
        return number in self._running

    def ready(self, number: int) -> bool:
        """Whether its result, or failure, is there."""
        run = self._running.get(number)
        return run is not None and run.done()

    async def result(self, number: int) -> list[BatchOutcome]:
        """Its result. A failure is raised and forgotten, so that the batch can be begun again."""
        run = self._running[number]
        await asyncio.wait([run])
        if run.cancelled():
            raise Stopped(f"batch {number} was cancelled")
        try:
            return run.result()
        except Exception:
            self._running.pop(number, None)
            raise

    def keep(self, numbers: Iterable[int]) -> None:
        """Forget all others: their results were taken."""
        wanted = set(numbers)
        for number in [number for number, run in self._running.items() if number not in wanted and run.done()]:
            del self._running[number]

    async def stop(self) -> None:
        """Cancel what runs, and wait until its jobs are off."""
        running, self._running = list(self._running.values()), {}
        for run in running:
            run.cancel()
        if running:
            await asyncio.wait(running, timeout=STOP_S)


class TookTooLong(EnvironmentFault):
    """Spark has not come back with a batch in time."""


class Stopped(Exception):
    """The task goes, and with it what it had Spark do."""
