"""Ending what may not want to end: step by step, each with a deadline, and what holds on is named instead of waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import structlog

log = structlog.get_logger("headgate.worker")

STEP_S = 15.0
"""How long one part of a worker may take to end."""


class Ending:
    """The steps of one worker's end."""

    def __init__(self) -> None:
        self.held: list[str] = []
        """What did not end. The process must then be ended without waiting for it."""

    async def step(self, what: str, work: Awaitable[Any], seconds: float = STEP_S) -> None:
        """One step. What it raises is said and keeps no other step from being done."""
        task = asyncio.ensure_future(work)  # noqa: TID251 - waited for on the next line; one that hangs is left, and named
        await asyncio.wait([task], timeout=seconds)
        if not task.done():
            self.held.append(what)
            log.error("a part of the worker does not end", part=what, after_s=seconds)
            task.cancel()
        elif not task.cancelled() and (error := task.exception()) is not None:
            log.error("a part of the worker did not end cleanly", part=what, error=repr(error))
