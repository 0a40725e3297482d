"""Runs a suspected letter alone: while it runs, no other letter of the worker does.

If the process dies meanwhile, no other letter can be to blame. Both sides wait for a bounded time, so that a letter that awaits for ever
holds up nothing: a suspected letter runs all the same when the others have not ended within `PATIENCE_S`, and the others go on when a
suspected letter, or one row of it, has taken longer than `SHARED_AFTER_S`. Then it is not alone, and a death is not counted against it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from ..port.port import Clock
from ..port.waiting import wait

PATIENCE_S = 10.0
SHARED_AFTER_S = 30.0


class Alone:
    """One suspected letter that runs. `holds`: no other letter runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s = clock.now().mono
        self._mark: Callable[[bool], None] | None = None
        self.holds = True

    def begins(self, mark: Callable[[bool], None]) -> None:
        """The letter, or the next row of it, begins. `mark` is called with `holds` now, and again if the letter does not stay alone."""
        self._began_s, self._mark = self._clock.now().mono, mark
        mark(self.holds)

    def left_s(self) -> float:
        """For how long the others still leave it alone."""
        return self._began_s + SHARED_AFTER_S - self._clock.now().mono

    def share(self) -> None:
        """Other letters run, too."""
        self.holds = False
        if self._mark is not None:
            self._mark(False)


class Solitude:
    """The letters of one process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running = 0
        """Letters that run, without the one that is alone."""
        self._alone: Alone | None = None
        self._changed = asyncio.Event()

    async def enter(self) -> None:
        """A letter begins, once no other one runs alone."""
        if self._alone is not None:
            await self._free()
        self._running += 1

    def leave(self) -> None:
        """A letter has ended."""
        self._running -= 1
        self._changed.set()

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[Alone]:
        """The running letter goes on alone in this block, as far as the others allow it."""
        self.leave()
        try:
            await self._free()
        except BaseException:
            self._running += 1
            raise
        one = self._alone = Alone(self._clock)
        try:
            give_up_s = self._clock.now().mono + PATIENCE_S
            while self._running and (left_s := give_up_s - self._clock.now().mono) > 0:
                await self._change(left_s)
            if self._running:
                self._share(one)
            yield one
        finally:
            if self._alone is one:
                self._go_on()

    async def _free(self) -> None:
        """Wait until no letter runs alone."""
        while (one := self._alone) is not None:
            if (left_s := one.left_s()) > 0:
                await self._change(left_s)
            else:
                self._share(one)

    def _share(self, one: Alone) -> None:
        if self._alone is one:
            self._go_on()
            one.share()

    def _go_on(self) -> None:
        """The letter that was alone runs or ends as any other one."""
        self._alone = None
        self._running += 1
        self._changed.set()

    async def _change(self, most_s: float) -> None:
        self._changed.clear()
        await wait(self._clock, self._changed, most_s)
