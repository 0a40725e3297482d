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
from collections.abc import Iterator

from ..core.errors import HeadgateError


class Unasked(HeadgateError):
    """Something was cancelled that nobody here had cancelled; `__cause__` is the cancellation."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} was cancelled, and not by headgate", remedy="see where: the traceback of its cause")


def asked_for() -> bool:
    """Whether somebody has called `cancel()` on the task that runs now."""
    task = asyncio.current_task() if _in_loop() else None
    return task is not None and task.cancelling() > 0


def _in_loop() -> bool:
    return asyncio._get_running_loop() is not None  # the public name raises where there is none


def passes(error: BaseException) -> bool:
    """Whether this must be raised on as it is: an ending that was asked for, of this task or of this coroutine.

    >>> passes(asyncio.CancelledError()), passes(SystemExit(1)), passes(GeneratorExit())
    (False, False, True)
    """
    return isinstance(error, GeneratorExit) or (isinstance(error, asyncio.CancelledError) and asked_for())


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
