"""The event loop on which a test driver runs a job: it never sleeps. When nothing is left to do but wait, its clock jumps.

Only what really happens outside (a thread, a socket) is really waited for. There are two times here: that of the loop, by which user code
sleeps and which jumps, and that of the job (`clock`), which moves when the test says so.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

AT_SPARK = "spark "
"""How the names of tasks begin that wait for Spark."""


class Activity(Protocol):
    """Who knows whether something is under way."""

    @property
    def busy(self) -> bool: ...


class _Jumping(selectors.DefaultSelector):
    """Answers "nothing happened" at once, and says how long it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.jumped = 0.0
        self.outside = 0
        self.idle: Callable[[], bool] = lambda: False
        """Asked when nothing is ready; whether it has made something so."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found or timeout == 0 or self.idle():
            return found
        if timeout is None or self.outside or len(self.get_map()) > 1:
            found = super().select(timeout)
            if timeout is not None and not found:
                self.jumped += timeout  # it was really waited for
            return found
        self.jumped += timeout
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """`asyncio.sleep(3600)` takes no time on it. `ring` calls whoever waits for the job's time that is now."""

    def __init__(self, ring: Callable[[], bool]) -> None:
        self._jumping = _Jumping()
        self.at_spark = 0
        """How many batches Spark has."""
        super().__init__(self._jumping)
        self._ring = ring
        self._jumping.idle = ring

    def until_quiet(self, life: Activity, work: Awaitable[None] | None) -> None:
        """Do this, and run until nothing is under way and nobody waits for the time that is."""
        self.run_until_complete(self._quiet(life, work))

    async def _quiet(self, life: Activity, work: Awaitable[None] | None) -> None:
        if work is not None:
            await work
        quiet: asyncio.Future[None] = self.create_future()

        def idle() -> bool:
            if self._ring():
                return True
            if life.busy:
                return False
            if not quiet.done():
                quiet.set_result(None)
            return True

        self._jumping.idle = idle
        try:
            await quiet
        finally:
            self._jumping.idle = self._ring

    def time(self) -> float:
        """The loop's own clock."""
        return self._jumping.jumped

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        """A thread takes the time that it takes."""
        future = super().run_in_executor(executor, func, *args)
        self._takes_time(future)
        return future

    def create_task(self, coro: Any, **more: Any) -> Any:
        """And so does a batch at Spark, whose threads are its own: no limit may be over before it has had its time."""
        task = super().create_task(coro, **more)
        if task.get_name().startswith(AT_SPARK):
            self._takes_time(task)
            self.at_spark += 1
            task.add_done_callback(self._back_from_spark)
        return task

    def _back_from_spark(self, _: Any) -> None:
        self.at_spark -= 1

    def _takes_time(self, future: asyncio.Future[Any]) -> None:
        self._jumping.outside += 1

        def came(_: Any) -> None:
            self._jumping.outside -= 1

        future.add_done_callback(came)
