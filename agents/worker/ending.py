"""Ends the parts of a worker step by step, within one deadline. A part that does not end in time is named and left behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping
from typing import Any

from ..logger import Logger

log = Logger("headgate.worker")

STEP_S = 15.0
"""How long one part of a worker may take to end."""
LAST_S = 0.2
"""What a part gets when no time is left; most parts need no more."""
LEFT_S = 2.0
"""How long user code that was left behind, and everything else in the loop, may react to its cancellation."""
LEAVING = 0.8
"""The share of the deadline in which tasks may commit and be released. The rest is for closing clients."""


class Ending:
    """The steps in which one worker ends."""

    def __init__(self) -> None:
        self.held: list[str] = []
        """The parts that did not end. The process must then exit without waiting for them."""
        self._until_s: float | None = None

    def begin(self, before_s: float, seconds: float) -> float:
        """Start the deadline, with a time before it in which the worker works on; only the first call counts. Returns after how long
        leaving must be over.
        """
        if self._until_s is None:
            self._until_s = time.monotonic() + before_s + seconds
        return before_s + seconds * LEAVING

    def hurry(self) -> None:
        """End the deadline now: steps that have not begun get only a moment."""
        self._until_s = time.monotonic()

    async def step(self, what: str, work: Awaitable[Any], seconds: float = STEP_S) -> None:
        """Run one step. An exception of it is logged and does not prevent the other steps."""
        if self._until_s is not None:
            seconds = min(seconds, max(LAST_S, self._until_s - time.monotonic()))
        task = asyncio.ensure_future(work)  # noqa: TID251 - awaited on the next line; one that hangs is left behind and named
        await asyncio.wait([task], timeout=seconds)
        if not task.done():
            self.held.append(what)
            log.error("part of the worker does not stop", part=what, after_s=round(seconds, 1))
            task.cancel()
        elif not task.cancelled() and (error := task.exception()) is not None:
            log.error("part of the worker did not stop cleanly", part=what, error=repr(error))

    async def steps(self, parts: Mapping[str, Awaitable[Any]], seconds: float = STEP_S) -> None:
        """Run independent steps side by side."""
        await asyncio.gather(*(self.step(what, work, seconds) for what, work in parts.items()))

    async def rest(self) -> None:
        """Run the last step: cancel everything that still runs in this loop. A task that swallows the cancellation is named in `held`;
        otherwise the loop's own shutdown would wait for it without limit.
        """
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        if rest:
            _, stubborn = await asyncio.wait(rest, timeout=LEFT_S)
            self.held += sorted(getattr(task.get_coro(), "__qualname__", task.get_name()) for task in stubborn)
