"""The background work of a task: restore, broker requests, filling the intake. Results come back to the machine as events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ...cancellation import CalledOff, passes
from ...port.port import Background, Process
from .site import Site


class BackgroundWork:
    """The background coroutines of one task. If one raises, its exception goes to `failed`: the task fails, and the worker goes on."""

    def __init__(self, site: Site, process: Process, failed: Callable[[BaseException], None]) -> None:
        self._site = site
        self._process = process
        self._failed = failed
        self._running: set[asyncio.Task[None]] = set()

    def run(self, work: Background, name: str) -> None:
        """Run a coroutine that ends by itself."""
        task = self._process.spawn(partial(self._guard, work), f"{self._site.name}: {name}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def serve(self, work: Background, name: str) -> None:
        """Run a coroutine for as long as the task lives."""
        self.run(partial(self._serve, work, name), name)

    async def _serve(self, work: Background, name: str) -> None:
        await self._process.serve(f"{name} {self._site.name}", partial(self._guard, work))

    async def _guard(self, work: Background) -> None:
        try:
            await work()
        except CalledOff:
            pass  # the task has been shut down, and its store closed
        except BaseException as error:
            if passes(error):
                raise
            self._site.log.exception("task failed")
            self._failed(error)

    def cancel(self) -> None:
        """Cancel all but the caller."""
        for task in list(self._running):
            if task is not asyncio.current_task():
                task.cancel()
