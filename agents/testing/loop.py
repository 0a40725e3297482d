"""The event loop of a test driver. It never sleeps: when there is nothing to do but wait, its clock jumps.

It really waits only for what happens outside: threads and sockets. There are two times: the loop's own, by which user code sleeps and which
jumps, and that of the job (`clock`), which moves when the test says so.

A thread can run one loop. Where the caller's thread runs one already (a cell of a notebook, an async test), the driver's loop runs in a
thread of its own, and the caller waits for it (`in_thread`).
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Protocol

AT_SPARK = "spark "
"""The prefix in the names of asyncio tasks that wait for Spark."""


def running() -> asyncio.AbstractEventLoop | None:
    """The event loop that this thread runs."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def in_thread(work: Callable[[], None]) -> None:
    """Do work that runs an event loop, also where this thread runs one: then in another thread, with the caller's context variables."""
    if running() is None:
        work()
        return
    done = Future[None]()
    context = contextvars.copy_context()

    def there() -> None:
        try:
            context.run(work)
        except BaseException as error:  # noqa: BLE001  # it is raised in the thread of the caller
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=there, name="headgate test driver", daemon=True).start()
    done.result()


class Activity(Protocol):
    """Knows whether something is in progress."""

    @property
    def busy(self) -> bool: ...


class _Jumping(selectors.DefaultSelector):
    """Reports at once that nothing happened, and adds up how long it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.jumped = 0.0
        self.outside = 0
        self.idle: Callable[[], bool] = lambda: False
        """Called when nothing is ready; returns whether it has made something ready."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0 and not self.outside and len(self.get_map()) == 1:
            return []  # only the loop's own pipe is open: a write into it makes a callback ready, too
        found = super().select(0)
        if found or timeout == 0 or self.idle():
            return found
        if timeout is None or self.outside or len(self.get_map()) > 1:
            found = super().select(timeout)
            if timeout is not None and not found:
                self.jumped += timeout  # this was a real wait
            return found
        self.jumped += timeout
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on which `asyncio.sleep(3600)` takes no time. `ring` makes one call that is due now by the job's clock."""

    def __init__(self, ring: Callable[[], bool]) -> None:
        self._jumping = _Jumping()
        self.at_spark = 0
        """The number of batches at Spark."""
        super().__init__(self._jumping)
        self._ring = ring
        self._jumping.idle = ring

    def until_quiet(self, activity: Activity, work: Coroutine[Any, Any, None] | None) -> None:
        """Do this, and run until nothing is under way and no one waits for the time that is."""
        if work is not None:
            self.run_until_complete(work)

        def idle() -> bool:
            if self._ring():
                return True
            if activity.busy:
                return False
            self.stop()
            return True

        self._jumping.idle = idle
        try:
            self.run_forever()
        finally:
            self._jumping.idle = self._ring

    def time(self) -> float:
        """The loop's own clock."""
        return self._jumping.jumped

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        """Run in a thread, which takes real time."""
        future = super().run_in_executor(executor, func, *args)
        self._takes_time(future)
        return future

    def create_task(self, coro: Any, **more: Any) -> Any:
        """Create a task. A batch at Spark takes real time, too, because Spark has threads of its own: no timeout may expire before that."""
        task = super().create_task(coro, **more)
        if task.get_name().startswith(AT_SPARK):
            self._takes_time(task)
            self.at_spark += 1
            task.add_done_callback(self._back_from_spark)
        return task

    def _back_from_spark(self, _: Any) -> None:
        self.at_spark -= 1

    def _takes_time(self, future: asyncio.Future[Any]) -> None:
        self._jumping.outside += 1

        def came(_: Any) -> None:
            self._jumping.outside -= 1

        future.add_done_callback(came)
