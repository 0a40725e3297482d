"""Runs a suspected letter alone: while it runs, no other letter of the worker does.

If the process dies meanwhile, no other letter can be to blame. Both sides wait for a bounded time, so that a letter that awaits for ever
holds up nothing: a suspected letter runs all the same when the others have not ended within `PATIENCE_S`, and the others go on when a
suspected letter, or one row of it, has taken longer than `SHARED_AFTER_S`. While others run, too, it is not alone, and a death is not
counted against it. When the last of them has ended, it is alone again: a letter that waits for long before it ends its process is to blame
all the same. So is one whose own code blocks the main loop, whatever others wait for meanwhile.

Promises: before another letter begins beside it, its mark says that it is not alone, wherever the mark is known.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from ...port.port import Clock
from ...port.waiting import wait

PATIENCE_S = 10.0
SHARED_AFTER_S = 30.0


class Alone:
    """One suspected letter that runs. `holds`: no other letter runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s = clock.now().mono
        self._mark: Callable[[bool], None] | None = None
        self._say: Callable[[bool], Awaitable[None]] | None = None
        self._task: asyncio.Task[object] | None = None
        """In which it runs."""
        self.holds = True
        self.gives_way = False
        """It has run for so long that the others go on as soon as its marks say so."""

    async def begins(self, mark: Callable[[bool], None], say: Callable[[bool], Awaitable[None]]) -> None:
        """The letter, or the next row of it, begins. `mark` notes whether it is alone on this machine: now, and whenever that changes.
        `say` tells other locations; there it counts as alone only if it has been from its beginning.
        """
        self._began_s, self._mark, self._say = self._clock.now().mono, None, say
        self._task = asyncio.current_task()
        holds = self.holds and not self.gives_way
        await say(holds)
        if holds and not self.holds:
            await say(False)
        self._began_s, self._mark = self._clock.now().mono, mark
        mark(self.holds)

    def left_s(self) -> float:
        """For how long the others still leave it alone."""
        return self._began_s + SHARED_AFTER_S - self._clock.now().mono

    def stays(self, holds: bool) -> None:
        """Whether no other letter runs has changed, or not."""
        if self.holds != holds:
            self.holds = holds
            if self._mark is not None:
                self._mark(holds)

    def blocks(self) -> asyncio.AbstractEventLoop | None:
        """The event loop, if its code runs there at this moment. Any thread may ask."""
        loop = None if self._task is None else self._task.get_loop()
        return loop if loop is not None and asyncio.current_task(loop) is self._task else None

    async def shares(self) -> None:
        """Other letters will run, too. Returns when that is known."""
        self.gives_way = True
        self.stays(False)
        if self._say is not None:
            await self._say(False)


class Solitude:
    """The letters of one process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running = 0
        """Letters that run, without the one that is alone."""
        self._alone: Alone | None = None
        self._shared: list[Alone] = []
        """Suspected letters beside which others may run."""
        self._changed = asyncio.Event()

    async def enter(self) -> None:
        """A letter begins, once no other one runs alone."""
        if self._alone is not None:
            await self._free()
        self._count(1)

    def leave(self) -> None:
        """A letter has ended."""
        self._count(-1)

    def blocked(self) -> None:
        """The main loop does not turn, says the thread that watches it. If the code of a suspected letter runs there, it is the only one to
        blame until the loop turns again: the others only wait.
        """
        for one in tuple(self._shared):
            if (loop := one.blocks()) is not None:
                one.stays(True)
                loop.call_soon_threadsafe(self._count, 0)

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[Alone]:
        """The running letter goes on alone in this block, as far as the others allow it."""
        self.leave()
        try:
            await self._free()
        except BaseException:
            self._count(1)
            raise
        one = self._alone = Alone(self._clock)
        try:
            give_up_s = self._clock.now().mono + PATIENCE_S
            while self._running and (left_s := give_up_s - self._clock.now().mono) > 0:
                await self._change(left_s)
            if self._running:
                await self._share(one)
            yield one
        finally:
            if self._alone is one:
                self._go_on()
            elif one in self._shared:
                self._shared.remove(one)

    async def _free(self) -> None:
        """Wait until no letter runs alone."""
        while (one := self._alone) is not None:
            if one.gives_way:
                await self._change(PATIENCE_S)
            elif (left_s := one.left_s()) > 0:
                await self._change(left_s)
            else:
                await self._share(one)

    async def _share(self, one: Alone) -> None:
        try:
            await one.shares()
        finally:
            if self._alone is one:
                self._go_on()
                self._shared.append(one)

    def _go_on(self) -> None:
        """The letter that was alone runs or ends as any other one."""
        self._alone = None
        self._count(1)

    def _count(self, more: int) -> None:
        """A letter has begun or ended."""
        self._running += more
        for one in self._shared:
            one.stays(self._running == 1)
        self._changed.set()

    async def _change(self, most_s: float) -> None:
        self._changed.clear()
        await wait(self._clock, self._changed, most_s)
