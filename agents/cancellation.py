"""Awaiting code that is not headgate's: user functions and client libraries.

`CancelledError` is not an `Exception`. Where headgate awaits, it means that headgate itself called `task.cancel()`. If anything else raises
it (an RPC client that cancelled a future, a connection that was torn down), it would end a coroutine silently. So:

    a cancellation that headgate did not request is an error of the code that raised it
    whatever a user function raises is a failure of that function, including KeyboardInterrupt, SystemExit and groups of them

A real Ctrl-C is a signal. A worker handles it in its event loop, never in the middle of a user function.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from ..core.errors import HeadgateError


class Unasked(HeadgateError):
    """Something was cancelled, but not by headgate; `__cause__` is the cancellation."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} was cancelled, but not by headgate", remedy="the traceback of its cause shows where")


class CalledOff(HeadgateError):
    """The work was abandoned: no one waits for its result any more. This is not a failure."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} was cancelled")


def asked_for() -> bool:
    """Whether `cancel()` was called on the running task."""
    task = _task_now()
    return task is not None and task.cancelling() > 0


def _task_now() -> asyncio.Task[object] | None:
    return asyncio.current_task() if _in_loop() else None


def _in_loop() -> bool:
    return asyncio._get_running_loop() is not None  # the public function raises if no loop is running


def passes(error: BaseException) -> bool:
    """Whether the caller must re-raise this error unchanged, because this task was cancelled or this coroutine was closed on request.

    A coroutine is closed when no task runs it any more. A `GeneratorExit` in a running task was raised by the user function, like any
    other error.

    >>> passes(asyncio.CancelledError()), passes(SystemExit(1)), passes(GeneratorExit())
    (False, False, True)
    """
    if isinstance(error, GeneratorExit):
        return _task_now() is None
    return isinstance(error, asyncio.CancelledError) and asked_for()


def said(error: BaseException) -> str:
    """The type and message of an error, even if its text cannot be produced.

    >>> said(ValueError("no such field"))
    'ValueError: no such field'
    """
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the `__str__` of a user's exception is user code, too
        text = "(its text cannot be produced)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextlib.contextmanager
def answered(what: str) -> Iterator[None]:
    """Code in this block ends with a result, an error, or a requested cancellation; any other cancellation becomes `Unasked`.

    with answered("closing the consumer"):
        await consumer.stop()
    """
    try:
        yield
    except asyncio.CancelledError as error:
        if asked_for():
            raise
        raise Unasked(what) from error
