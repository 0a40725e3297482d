"""Runs background work as services of the Faust app: they are part of its tree, start and stop with it, and are visible there.

    await run_service(app, "outbox 000001-3f2a", outbox.run, crash)

Decides nothing. Promises: an exception of the work goes to `crash`, not only into a log. A service that has ended is removed from the app,
so that services can come and go for weeks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import mode

from ..cancellation import passes
from ..port.port import Background


class CoroutineService(mode.Service):
    """One coroutine as a service."""

    def __init__(self, app: Any, name: str, work: Background, crash: Callable[[BaseException], None]) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self.app = app
        self.name = name
        self._work = work
        self._on_crash = crash
        self.running: asyncio.Task[None] | None = None
        self.ended = asyncio.Event()

    @property
    def label(self) -> str:
        """The name in Faust's tree."""
        return self.name

    @property
    def shortlabel(self) -> str:
        """The name in Faust's logs."""
        return self.name

    async def on_start(self) -> None:
        """Start the coroutine."""
        self.running = asyncio.get_running_loop().create_task(self._run(), name=self.name)

    async def _run(self) -> None:
        try:
            await self._work()
        except BaseException as error:  # reported to the owner
            if passes(error):
                raise
            self._on_crash(error)
        finally:
            self.ended.set()
            self._leave()

    def _leave(self) -> None:
        if self in self.app._children:
            self.app._children.remove(self)
        node = self.app.beacon
        node.children[:] = [child for child in node.children if getattr(child, "data", child) is not self]

    async def on_stop(self) -> None:
        """Cancel the coroutine, wherever it is."""
        if self.running is not None and self.running is not asyncio.current_task():
            self.running.cancel()
            await asyncio.wait([self.running], timeout=10.0)


async def run_service(
    app: Any, name: str, work: Background, crash: Callable[[BaseException], None]
) -> CoroutineService:
    """Start a coroutine as a service of the app."""
    service = CoroutineService(app, name, work, crash)
    await app.add_runtime_dependency(service)
    return service
