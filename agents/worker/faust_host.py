"""Runs the coroutines and actors of a worker process with Faust. See `RuntimeHost`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ..cancellation import answered
from ..port.port import Background
from ..runtime.copies.copy import CopyDisk
from ..state.store import Disk
from .ending import Ending
from .faust_app import ActorApp
from .mailbox import AgentMailbox
from .services import CoroutineService, run_service


class FaustHost:
    """The agents and services of one Faust app, and its background tasks. Their exceptions go to `crash`."""

    def __init__(
        self,
        app: ActorApp,
        *,
        crash: Callable[[BaseException], None],
        disk: Callable[[str], Disk],
        copy_disk: Callable[[str], CopyDisk],
    ) -> None:
        self.app = app
        self.spawned: set[asyncio.Task[None]] = set()
        self._crash = crash
        self._disk = disk
        self._copy_disk = copy_disk

    def crash(self, error: BaseException) -> None:
        """See `RuntimeHost`."""
        self._crash(error)

    def disk(self, task: str) -> Disk:
        """See `RuntimeHost`."""
        return self._disk(task)

    def copy_disk(self, table: str) -> CopyDisk:
        """See `RuntimeHost`."""
        return self._copy_disk(table)

    def spawn(self, work: Background, name: str) -> asyncio.Task[None]:
        """See `RuntimeHost`."""

        async def guarded() -> None:
            with answered(name):
                await work()

        task = asyncio.get_running_loop().create_task(guarded(), name=name)
        self.spawned.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self.spawned.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.crash(error)

    async def serve(self, name: str, work: Background) -> CoroutineService:
        """See `RuntimeHost`."""
        return await run_service(self.app, name, work, self.crash)

    def mailbox(
        self,
        name: str,
        on_letter: Callable[[Any], Awaitable[None]],
        on_gone: Callable[[BaseException | None], None],
        on_again: Callable[[], None],
    ) -> AgentMailbox:
        """See `RuntimeHost`. The actor is a Faust agent."""
        return AgentMailbox(self.app, name, on_letter, on_gone, on_again=on_again)

    async def end(self, ending: Ending) -> None:
        """End what still runs. The owners of actors stop those; the app stops last."""
        for task in list(self.spawned):
            task.cancel()
        await ending.steps({task.get_name(): asyncio.wait([task]) for task in list(self.spawned)})
        services = [one for one in self.app._children if isinstance(one, CoroutineService)]
        await ending.steps({str(service.name): service.stop() for service in services})
