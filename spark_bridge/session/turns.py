"""Which batches run alongside each other. All do, until two sessions in a row have died under one: then it runs alone.

So a batch that kills its session, for example because it needs more memory than there is, is found out, and the others that ran alongside
it are not blamed. They do not wait for it either: those that were lost with it run again first.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Turns:
    """Many at a time, or one alone. Whoever wants to be alone waits for those that run, and those that come later wait for him; those that
    run again do not."""

    def __init__(self) -> None:
        self._running = 0
        self._alone = asyncio.Lock()
        """Of the one that is alone, or waits for it."""
        self._is_alone = False
        self._none = asyncio.Event()
        self._none.set()

    @contextlib.asynccontextmanager
    async def with_others(self, *, again: bool = False) -> AsyncIterator[None]:
        """Run alongside others. `again`: it has run before."""
        if again and not self._is_alone:
            self._begin()
        else:
            async with self._alone:
                self._begin()
        try:
            yield
        finally:
            self._end()

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Run when no one else does."""
        async with self._alone:
            while self._running:
                await self._none.wait()
            self._is_alone = True
            self._begin()
            try:
                yield
            finally:
                self._is_alone = False
                self._end()

    def _begin(self) -> None:
        self._running += 1
        self._none.clear()

    def _end(self) -> None:
        self._running -= 1
        if not self._running:
            self._none.set()
