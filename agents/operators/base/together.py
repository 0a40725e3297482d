"""Several calls of user code at once, but no more than so many. What awaits an answer for each row is run by this.

Promises: items begin in their order. When this returns, nothing of it runs any more. A requested cancellation ends all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ...measured import Meter

T = TypeVar("T")


async def together(items: Sequence[T], most: int, work: Callable[[T], Awaitable[bool]], meter: Meter) -> None:
    """Await `work` for each item, at most `most` at a time. It must not raise: before Python 3.13 a TaskGroup that sees an error would call
    `cancel()` on the parent task and never `uncancel()`, so that from then on every cancellation would seem to be requested.

    `work` returns whether to go on; if not, what still runs is cancelled, and nothing more begins.
    """
    waiting = iter(items)
    workers: list[asyncio.Task[None]] = []

    async def runs() -> None:
        for item in waiting:
            if not await work(item):
                for other in workers:
                    if other is not asyncio.current_task():
                        other.cancel()
                return

    async with asyncio.TaskGroup() as group:
        workers += [group.create_task(meter.measured(runs)) for _ in range(min(most, len(items)))]
