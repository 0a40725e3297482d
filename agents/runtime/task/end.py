"""Shuts a task down: its actor, its intake, the user's hooks, its store, in this order.

Promises: each step runs, even if the step before it failed. A step that does not end within the limit is logged and abandoned, because a
release, a drain or the task's next owner must not wait for user code. An exception is logged and does not stop the other steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from ...cancellation import said

EndStep = tuple[str, Callable[[], Awaitable[None] | None]]
"""The step's name for the log, and the step itself."""


class TaskEnd:
    """The shutdown of one task; it happens once, however often it is requested."""

    def __init__(self, log: Any, limit_s: Callable[[], float]) -> None:
        self._log = log
        self._limit_s = limit_s
        self._down: asyncio.Task[None] | None = None

    async def shut_down(self, *steps: EndStep, last: EndStep) -> None:
        """Run these steps in turn, once; a second caller waits for the first run. Cancelling a caller does not interrupt the steps.

        `last` has no limit: the next owner cannot open a store that is still being closed.
        """
        if self._down is None:
            self._down = asyncio.get_running_loop().create_task(self._all(steps, last), name="task is shutting down")
        await asyncio.shield(self._down)

    async def _all(self, steps: Iterable[EndStep], last: EndStep) -> None:
        for what, step in steps:
            await self.step(what, step)
        await self.step(*last, bounded=False)

    async def step(self, what: str, step: Callable[[], Awaitable[None] | None], *, bounded: bool = True) -> None:
        """Run one step; log what it raises."""
        try:
            ending = step()
        except Exception as error:  # noqa: BLE001 - the task ends anyway
            self._log.error("the task did not shut down cleanly", part=what, error=said(error), exc_info=error)
            return
        if ending is None:
            return
        task = asyncio.ensure_future(ending)  # noqa: TID251 - awaited below; one that hangs is logged and abandoned
        limit_s = self._limit_s() if bounded else None
        await asyncio.wait([task], timeout=limit_s)
        if not task.done():
            self._log.error("a part of the task does not stop and is abandoned", part=what, after_s=limit_s)
            task.cancel()
            task.add_done_callback(_seen)
        elif task.cancelled():
            self._log.error("a part of the task was cancelled at shutdown", part=what)
        elif (error := task.exception()) is not None:
            self._log.error("the task did not shut down cleanly", part=what, error=said(error), exc_info=error)


def _seen(task: asyncio.Future[None]) -> None:
    """An abandoned step has ended after all. Retrieve its exception: its hang is already logged."""
    if not task.cancelled():
        task.exception()
