"""Runs the closed batches of one task and stage in Spark: a bounded number at a time, beside the task's letters.

What it promises: a batch is begun once, until it is forgotten or has failed. Nothing here blocks the event loop. An attempt that takes
longer than `spark.batch-timeout` is cancelled and has failed. `stop` cancels the running batches, and returns when their jobs are
cancelled or after a bounded time. A batch whose target is away is begun again after a pause, for as long as it takes, and keeps its place:
those behind it are not begun meanwhile.
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
FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 1_000, 30_000
"""The pause before the second attempt at a target that is away, doubled with each of them up to the longest."""


class TargetPauses:
    """The work, by number, whose target is away, and when it is begun again."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._pauses: dict[int, tuple[int, int]] = {}
        """The last pause, and its end."""

    def begin(self, number: int) -> int:
        """Its target is away. Returns when it is begun again."""
        last_ms, _ = self._pauses.get(number, (0, 0))
        pause_ms = min(max(FIRST_PAUSE_MS, 2 * last_ms), LONGEST_PAUSE_MS)
        self._pauses[number] = pause_ms, self._now_ms() + pause_ms
        return self._pauses[number][1]

    def end_ms(self, number: int) -> int | None:
        """When it is begun again; None if its target was not away."""
        return self._pauses[number][1] if number in self._pauses else None

    def lasts(self, number: int) -> bool:
        """Whether it is not to be begun yet."""
        return number in self._pauses and self._now_ms() < self._pauses[number][1]

    async def over(self, number: int) -> None:
        """Wait until it is to be begun again."""
        if self.lasts(number):
            await asyncio.sleep((self._pauses[number][1] - self._now_ms()) / 1000)
            self._pauses[number] = self._pauses[number][0], self._now_ms()

    def forget(self, number: int) -> None:
        """Its target is back."""
        self._pauses.pop(number, None)

    def keep(self, numbers: Iterable[int]) -> None:
        """Forget all others."""
        self._pauses = {number: self._pauses[number] for number in numbers if number in self._pauses}


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
        outlasts: Callable[[BaseException], bool] = lambda _: False,
        pauses: TargetPauses | None = None,
    ) -> None:
        """`name` gets a batch and the number of its attempt. `timeout_s`: how long an attempt may take; called when it begins.
        `seen` is told of each attempt. `who`: who runs the batches, for messages. `outlasts`: whether an error says that the target is
        away, which is waited for."""
        self.bridge = bridge
        self._seen = seen
        self._who = who
        self.stages = stages
        self._name = name
        self._contents = contents
        self._poke = poke
        self._timeout_s = timeout_s
        self._outlasts = outlasts
        self._pauses = pauses or TargetPauses(lambda: 0)
        self._running: dict[int, asyncio.Task[list[BatchOutcome]]] = {}
        self._attempts: dict[int, int] = {}
        """How often each batch was begun."""
        self._stopped = False

    def start(self, closed: Iterable[Closed], most: int) -> None:
        """Begin batches that have not begun, while fewer than `most` run or wait for their target."""
        pausing = 0
        for one in closed:
            if self._stopped or len(self._running) + pausing >= most:
                return
            if one.number not in self._running and self._pauses.lasts(one.number):
                pausing += 1
            elif one.number not in self._running and not one.whole:
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
            again_ms = None
            if error is None:
                self._pauses.forget(number)
            elif self._running.get(number) is task and self._outlasts(error):
                del self._running[number]
                again_ms = self._pauses.begin(number)
            if self._seen is not None and error is None:
                self._seen.returned(number, task.result())
            elif self._seen is not None and error is not None:
                self._seen.failed(number, error, again_ms)
            self._poke()

    def has(self, number: int) -> bool:
        """Whether this batch was begun."""
        return number in self._running

    def ready(self, number: int) -> bool:
        """Whether this batch has a result or has failed."""
        run = self._running.get(number)
        return run is not None and run.done()

    async def result(self, number: int) -> list[BatchOutcome]:
        """Wait for the result of a batch that was begun. A failure is raised and forgotten, so that the batch can be begun again."""
        run = self._running.get(number)
        if run is not None:
            await asyncio.wait([run])
        if run is None or run.cancelled():
            raise Stopped(f"batch {number} was cancelled")
        try:
            return run.result()
        except Exception:
            if self._running.get(number) is run:
                del self._running[number]
            raise

    def keep(self, numbers: Iterable[int]) -> None:
        """Forget all other finished batches: their results were taken."""
        wanted = set(numbers)
        for number in [number for number, run in self._running.items() if number not in wanted and run.done()]:
            del self._running[number]
        self._attempts = {number: attempt for number, attempt in self._attempts.items() if number in wanted}

    async def stop(self) -> None:
        """Cancel the running batches, and wait until their jobs are cancelled, up to a limit."""
        self._stopped = True
        running, self._running = list(self._running.values()), {}
        for run in running:
            run.cancel()
        if running:
            await asyncio.wait(running, timeout=STOP_S)


class TookTooLong(EnvironmentFault):
    """Spark did not finish a batch in time."""


class Stopped(Exception):
    """The batch was cancelled because its task was released."""
