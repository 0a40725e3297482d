"""Awaiting what is not ours: functions of the user's, and client libraries.

`CancelledError` is no `Exception`. Where headgate awaits, it means that somebody here called `task.cancel()`; raised by anything else (a
future that an RPC client cancelled, a connection that was torn down) it would end a coroutine without a word. So:

    a cancellation that nobody here asked for is an error of whoever raised it
    what user code raises is that function's failure, whatever it is: KeyboardInterrupt, SystemExit and groups of them, too

A real Ctrl-C is a signal, and a worker hears it in its loop, never in the middle of a user's function.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterator
from typing import TypeVar

from ..core.errors import HeadgateError

T = TypeVar("T")


class Unasked(HeadgateError):
    """Something was cancelled that nobody here had cancelled; `__cause__` is the cancellation."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} was cancelled, but not by headgate", remedy="the traceback of its cause shows where")


class CalledOff(HeadgateError):
    """Nobody waits any more for what was under way, and nothing is to come of it; no failure of anybody."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} was cancelled")


def asked_for() -> bool:
    """Whether somebody has called `cancel()` on the task that runs now."""
    task = _task_now()
    return task is not None and task.cancelling() > 0


def _task_now() -> asyncio.Task[object] | None:
    return asyncio.current_task() if _in_loop() else None


def _in_loop() -> bool:
    return asyncio._get_running_loop() is not None  # the public name raises where there is none


def passes(error: BaseException) -> bool:
    """Whether this must be raised on as it is: an ending that was asked for, of this task or of this coroutine.

    A coroutine is closed where its task runs no more. A `GeneratorExit` out of a task that runs is a function's own, like any other error.

    >>> passes(asyncio.CancelledError()), passes(SystemExit(1)), passes(GeneratorExit())
    (False, False, True)
    """
    if isinstance(error, GeneratorExit):
        return _task_now() is None
    return isinstance(error, asyncio.CancelledError) and asked_for()


def said(error: BaseException) -> str:
    """Kind and message of an error; also of one that cannot be printed.

    >>> said(ValueError("no such field"))
    'ValueError: no such field'
    """
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - user code's exceptions are user code, too
        text = "(its text cannot be produced)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


async def within(patience_s: float, answer: Awaitable[T]) -> T:
    """What user code is awaited for; after so many seconds, if that is not 0, it is cancelled, and has failed."""
    if not patience_s:
        return await answer
    limit = asyncio.timeout(patience_s)
    try:
        async with limit:
            return await answer
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TimeoutError(f"it did not finish within {patience_s:g} s (the setting await.timeout)") from error


@contextlib.contextmanager
def answered(what: str) -> Iterator[None]:
    """Whatever is awaited in here ends with a result, an error, or a cancellation that was asked for.

    with answered("closing the consumer"):
        await consumer.stop()
    """
    try:
        yield
    except asyncio.CancelledError as error:
        if asked_for():
            raise
        raise Unasked(what) from error
