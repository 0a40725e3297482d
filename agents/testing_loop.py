"""The event loop on which a test driver runs user code: it never sleeps. When nothing is left to do but wait, its clock jumps.

Only what really happens outside (a thread, a socket) is really waited for.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

AT_SPARK = "spark "
"""How the names of tasks begin that wait for Spark."""


class _Jumping(selectors.DefaultSelector):
    """Answers "nothing happened" at once, and says how long it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.jumped = 0.0
        self.outside = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found or timeout == 0:
            return found
        if timeout is None or self.outside or len(self.get_map()) > 1:
            found = super().select(timeout)
            if timeout is not None and not found:
                self.jumped += timeout  # it was really waited for
            return found
        self.jumped += timeout
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """`asyncio.sleep(3600)` takes no time on it."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        """The loop's own clock; a driver's clocks are others."""
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
        return task

    def _takes_time(self, future: asyncio.Future[Any]) -> None:
        self._jumping.outside += 1

        def came(_: Any) -> None:
            self._jumping.outside -= 1

        future.add_done_callback(came)
