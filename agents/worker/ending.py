"""Ending what may not want to end: step by step, all of it within one deadline, and what holds on is named instead of waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping
from typing import Any

import structlog

log = structlog.get_logger("headgate.worker")

STEP_S = 15.0
"""How long one part of a worker may take to end."""
LAST_S = 0.2
"""What a part gets when no time is left: most need no more."""
LEFT_S = 2.0
"""What user code that was left behind, and whatever else still runs in the loop, gets to hear that the process ends."""
LEAVING = 0.8
"""The share of the whole in which tasks may commit and be released; the rest is for closing what is open."""


class Ending:
    """The steps of one worker's end."""

    def __init__(self) -> None:
        self.held: list[str] = []
        """What did not end. The process must then be ended without waiting for it."""
        self._until_s: float | None = None

    def begin(self, seconds: float) -> float:
        """The end has begun, and may take so long; the first call counts. How much of it is there for leaving."""
        if self._until_s is None:
            self._until_s = time.monotonic() + seconds
        return seconds * LEAVING

    def hurry(self) -> None:
        """Whoever waits for the end has lost patience: what has not begun gets no more than a moment."""
        self._until_s = time.monotonic()

    async def step(self, what: str, work: Awaitable[Any], seconds: float = STEP_S) -> None:
        """One step. What it raises is said and keeps no other step from being done."""
        if self._until_s is not None:
            seconds = min(seconds, max(LAST_S, self._until_s - time.monotonic()))
        task = asyncio.ensure_future(work)  # noqa: TID251 - waited for on the next line; one that hangs is left, and named
        await asyncio.wait([task], timeout=seconds)
        if not task.done():
            self.held.append(what)
            log.error("a part of the worker does not stop", part=what, after_s=round(seconds, 1))
            task.cancel()
        elif not task.cancelled() and (error := task.exception()) is not None:
            log.error("a part of the worker did not stop cleanly", part=what, error=repr(error))

    async def steps(self, parts: Mapping[str, Awaitable[Any]], seconds: float = STEP_S) -> None:
        """Steps that wait for nothing of each other, side by side."""
        await asyncio.gather(*(self.step(what, work, seconds) for what, work in parts.items()))

    async def rest(self) -> None:
        """The last step: cancel all that still runs in this loop. What swallows even that is named; the loop's own end would wait for it
        without a limit."""
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        if rest:
            _, stubborn = await asyncio.wait(rest, timeout=LEFT_S)
            self.held += sorted(getattr(task.get_coro(), "__qualname__", task.get_name()) for task in stubborn)
