"""Threads for calls to Spark: a limited number, and none of them can prevent the process from ending.

A call may never return: a user's function that hangs cannot be ended from outside. The caller gives it up after a time, and another thread
takes its place. Should the call return after all, its thread ends.

No call to Spark may run on the thread of an event loop, because it would stop every actor of the worker for as long as it takes.
`off_the_loop` is called before each, and raises.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

Call = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]


def off_the_loop() -> None:
    """Raise if this thread runs an event loop."""
    if asyncio._get_running_loop() is not None:
        raise AssertionError(
            "a call to Spark on the thread of an event loop: use a thread of spark_bridge.base.threads"
        )


class Threads:
    """Runs at most so many calls at a time; the others wait."""

    def __init__(self, most: int, name: str = "spark") -> None:
        self._most = most
        self._name = name
        self._started = 0
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._left: set[asyncio.Future[Any]] = set()
        """Calls that were given up, and have not returned."""

    def call(self, fn: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Run a call in a thread. Returns a future with its result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._calls.put((loop, future, fn, arguments))
        if self._started < self._most:
            self._started += 1
            threading.Thread(target=self._work, name=f"{self._name}_{self._started}", daemon=True).start()
        return future

    def give_up(self, future: asyncio.Future[Any]) -> None:
        """Give up a call that does not return: its thread does not count any more."""
        self._left.add(future)
        self._most += 1

    def close(self) -> None:
        """Accept no more calls. A thread ends after its current call."""
        for _ in range(self._started):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            loop, future, fn, arguments = call
            if future.cancelled():
                continue
            try:
                result, error = fn(*arguments), None
            except BaseException as raised:  # noqa: BLE001 - the caller gets it
                result, error = None, raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: no one waits any more
                loop.call_soon_threadsafe(_settle, future, result, error)
            if future in self._left:
                self._left.discard(future)
                return  # another thread has taken its place
            del call, future, fn, arguments, result, error


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error if isinstance(error, Exception) else RuntimeError(f"it raised {error!r}"))
