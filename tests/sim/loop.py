"""The event loop of one process: without a selector, threads or a clock of its own; the seed determines the order of its work.

asyncio calls plain callbacks in the order in which they were scheduled, and so does this loop. asyncio promises nothing about the order of
tasks that are ready at the same time, so this order is random. Ready callbacks run in turns of random length; between two turns, a process
can be killed or frozen, and others continue.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .schedule import Host

SLICE_S = 0.0002
"""How long a turn takes if something is left for the next one."""
TURN = (16, 400)
"""The range of the number of callbacks in one turn."""
_BUILTIN = type(len)


class Handle:
    """A scheduled callback."""

    __slots__ = ("args", "callback", "context", "when_s")

    def __init__(
        self, callback: Callable[..., Any] | None, args: tuple[Any, ...], context: Context | None, when_s: float
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.when_s = when_s

    def cancel(self) -> None:
        """Do not call it."""
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.callback is None

    def when(self) -> float:
        """When it is due."""
        return self.when_s


class Loop(asyncio.AbstractEventLoop):
    """See above. `host` is the process: if it is killed, its callbacks are dropped; if it is frozen, they are late."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._schedule = host.schedule
        self._random = host.schedule.rng.random
        self._plain: deque[Handle] = deque()
        self._steps: list[Handle] = []
        self._posted = False
        self._tasks: list[asyncio.Task[Any]] = []
        self._looked = 64

    # ------------------------------------------------------------------------------------------------- asyncio's interface

    def time(self) -> float:
        """The monotonic clock of the process."""
        return self._schedule.moment + self.host.mono_origin

    def get_debug(self) -> bool:
        """Never."""
        return False

    def is_running(self) -> bool:
        """Whether this loop runs at the moment."""
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        """Whether its process is gone."""
        return not self.host.alive

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        """A task of this loop."""
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name or "unnamed", context=context)
        if not self.host.alive:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._tasks.append(task)
        if len(self._tasks) > self._looked:
            self._tasks = [one for one in self._tasks if not one.done()]
            self._looked = 2 * len(self._tasks) + 64
        return task

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
        """Call it in the next turn."""
        handle = Handle(callback, args, context, 0.0)
        if not self.host.alive:
            return handle
        kind = type(callback)
        if (kind is _BUILTIN and type(callback.__self__) is asyncio.Task) or kind.__name__ == "TaskStepMethWrapper":  # type: ignore[attr-defined]
            self._steps.append(handle)
        else:
            self._plain.append(handle)
        if not self._posted:
            self._posted = True
            self._schedule.post(self.host, 0.0, self._turn)
        return handle

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
        """Call it after this delay."""
        handle = Handle(callback, args, context, self.time() + delay)
        self._schedule.post(self.host, max(0.0, delay), self._ring, handle)
        return handle

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
        """Call it at this time."""
        return self.call_later(when - self.time(), callback, *args, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore the error of a future that nobody has awaited. asyncio only logs it, whenever the future is collected."""

    # ----------------------------------------------------------------------------------------------------------- its turns

    def _ring(self, handle: Handle) -> None:
        if handle.callback is not None:
            self._plain.append(handle)
            if not self._posted:
                self._turn()

    def _turn(self) -> None:
        """Run ready callbacks for a while."""
        self._posted = False
        plain, steps, draw = self._plain, self._steps, self._random
        left = TURN[0] + int(draw() * (TURN[1] - TURN[0]))
        events._set_running_loop(self)
        try:
            while left and self.host.alive:
                left -= 1
                if steps and (not plain or draw() < 0.5):
                    at = int(draw() * len(steps))
                    handle = steps[at]
                    steps[at] = steps[-1]
                    steps.pop()
                elif plain:
                    handle = plain.popleft()
                else:
                    return
                callback = handle.callback
                if callback is None:
                    continue
                if handle.context is None:
                    callback(*handle.args)
                else:
                    handle.context.run(callback, *handle.args)
        finally:
            events._set_running_loop(None)
        if (plain or steps) and not self._posted and self.host.alive:
            self._posted = True
            self._schedule.post(self.host, SLICE_S, self._turn)

    # ------------------------------------------------------------------------------------------------------------- its end

    def end(self) -> None:
        """End with the process: nothing runs any more. The coroutines are closed in order, and their effects reach nobody."""
        self._plain.clear()
        self._steps.clear()
        for _ in range(8):  # closing one may start another
            left, self._tasks = [one for one in self._tasks if not one.done()], []
            for task in left:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _close(task.get_coro())
            if not left:
                return


def _close(coro: Any) -> None:
    """Close a coroutine, even if it awaits in a `finally`."""
    for _ in range(16):
        try:
            coro.close()
            return
        except (RuntimeError, ValueError):  # it awaits in a `finally`, or it is running now
            continue
        except BaseException:  # noqa: BLE001 - its errors do not matter any more
            return
