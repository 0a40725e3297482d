"""Runs the closed batches of one task and stage in Spark: a bounded number at a time, beside the task's letters.

What it promises: a batch is begun once, until it is forgotten or has failed. Nothing here blocks the event loop. An attempt that takes
longer than `spark.batch-timeout` is cancelled and has failed. `stop` cancels the running batches, and returns when their jobs are
cancelled or after a bounded time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from ....core.batching.batches import BatchInfo, BatchOutcome, BatchStage, Bridge, Closed, Contents
from ....core.errors import EnvironmentFault
from .batches_seen import BatchesSeen

STOP_S = 30.0
HOUR_S = 3600.0


class Runs:
    """The running batches, by number. `poke` is called when one has finished."""

    def __init__(
        self,
        bridge: Bridge,
        stages: Sequence[BatchStage],
        name: Callable[[Closed, int], BatchInfo],
        contents: Callable[[Closed], Contents],
        poke: Callable[[], None],
        timeout_s: Callable[[], float] = lambda: HOUR_S,
        seen: BatchesSeen | None = None,
        who: str = "Spark",
    ) -> None:
        """`name` gets a batch and the number of its attempt. `timeout_s`: how long an attempt may take; called when it begins.
        `seen` is told of each attempt. `who`: who runs the batches, for messages."""
        self.bridge = bridge
        self._seen = seen
        self._who = who
        self.stages = stages
        self._name = name
        self._contents = contents
        self._poke = poke
        self._timeout_s = timeout_s
        self._running: dict[int, asyncio.Task[list[BatchOutcome]]] = {}
        self._attempts: dict[int, int] = {}
        """How often each batch was begun."""

    def start(self, closed: Iterable[Closed], most: int) -> None:
        """Begin batches that have not begun, while fewer than `most` run."""
        for one in closed:
            if len(self._running) >= most:
                return
            if one.number not in self._running and not one.whole:
                self._attempts[one.number] = attempt = self._attempts.get(one.number, 0) + 1
                info = self._name(one, attempt)
                work = self.bridge.run(info, self._contents(one), self.stages)
                bounded = self._bounded(work, info)
                task = asyncio.get_running_loop().create_task(bounded, name=f"spark {info.id}")
                task.add_done_callback(partial(self._came_back, one.number))
                self._running[one.number] = task
                if self._seen is not None:
                    self._seen.began(one.number)

    async def _bounded(self, work: Awaitable[list[BatchOutcome]], info: BatchInfo) -> list[BatchOutcome]:
        """Run an attempt. If it takes too long, cancel it together with its jobs; it has then failed."""
        limit = self._timeout_s()
        bound = asyncio.timeout(limit)
        try:
            async with bound:
                return await work
        except TimeoutError:
            if not bound.expired():
                raise
            raise TookTooLong(
                f"batch {info.id} was cancelled: {self._who} took longer for its {info.rows} rows than spark.batch-timeout, {limit:g} s",
                remedy="make smaller batches, check what it is waiting for, or increase spark.batch-timeout",
            ) from None

    def _came_back(self, number: int, task: asyncio.Task[list[BatchOutcome]]) -> None:
        if not task.cancelled():
            error = task.exception()  # marks it as retrieved, because no one may ask for the result any more
            if self._seen is not None and error is None:
                self._seen.returned(number, task.result())
            elif self._seen is not None and error is not None:
                self._seen.failed(number, error)
            self._poke()

    def has(self, number: int) -> bool:
        """Whether this batch was begun."""
        return number in self._running

    def ready(self, number: int) -> bool:
        """Whether this batch has a result or has failed."""
        run = self._running.get(number)
        return run is not None and run.done()

    async def result(self, number: int) -> list[BatchOutcome]:
        """Wait for the result of a batch. A failure is raised and forgotten, so that the batch can be begun again."""
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
        """Forget all other finished batches: their results were taken."""
        wanted = set(numbers)
        for number in [number for number, run in self._running.items() if number not in wanted and run.done()]:
            del self._running[number]
        self._attempts = {number: attempt for number, attempt in self._attempts.items() if number in wanted}

    async def stop(self) -> None:
        """Cancel the running batches, and wait until their jobs are cancelled, up to a limit."""
        running, self._running = list(self._running.values()), {}
        for run in running:
            run.cancel()
        if running:
            await asyncio.wait(running, timeout=STOP_S)


class TookTooLong(EnvironmentFault):
    """Spark did not finish a batch in time."""


class Stopped(Exception):
    """The batch was cancelled because its task was released."""
