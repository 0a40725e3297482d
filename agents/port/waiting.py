"""Waits by the port's clock: for a duration, for an event, for an answer, for a consumer's records.

All of them use `Within`, which creates no task: like `asyncio.timeout`, it cancels the waiting task when the time is over. Only waits for
user code go by the event loop's time, because user code sleeps by that clock, and a test driver's clock stands still meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from ..records.kafka.fetched import Taken

if TYPE_CHECKING:
    from .port import Clock, Consumer, Port, Timer

R = TypeVar("R")


class Within:
    """`async with Within(clock, seconds):` cancels what the body awaits after this time and raises `TimeoutError`. None: no limit."""

    __slots__ = ("_cancelling", "_clock", "_expired", "_most_s", "_task", "_timer")

    def __init__(self, clock: Clock, most_s: float | None) -> None:
        self._clock = clock
        self._most_s = most_s
        self._timer: Timer | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._expired = False

    async def __aenter__(self) -> None:
        if self._most_s is not None:
            task = self._task = asyncio.current_task()
            assert task is not None, "only a task can be cancelled"
            self._cancelling = task.cancelling()
            self._timer = self._clock.call_later(self._most_s, self._over, task)

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._expired = True
        task.cancel()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._timer is None or self._task is None:
            return
        self._timer.cancel()
        if (
            self._expired
            and self._task.uncancel() <= self._cancelling
            and kind is not None
            and issubclass(kind, asyncio.CancelledError)
        ):
            raise TimeoutError(f"no answer for {self._most_s:g} s") from error


async def wait(clock: Clock, event: asyncio.Event, most_s: float | None) -> bool:
    """Wait for the event, at most `most_s`. Returns whether it is set."""
    if most_s is None or event.is_set():
        return await event.wait()
    try:
        async with Within(clock, most_s):
            return await event.wait()
    except TimeoutError:
        return event.is_set()


async def pause(clock: Clock, seconds: float) -> None:
    """Wait for this time."""
    await wait(clock, asyncio.Event(), seconds)


async def in_time(clock: Clock, most_s: float, work: Awaitable[R]) -> R:
    """Await `work`. After `most_s` it is cancelled, and `TimeoutError` is raised; it may have taken effect all the same."""
    async with Within(clock, most_s):
        return await work


def at_once(work: Coroutine[Any, Any, R]) -> tuple[R] | None:
    """For work that rarely has to wait: its result in a tuple, or None if it has to wait. Then it is closed, and must have had no effect.

    This saves a task, a timer and a turn of the event loop for each call.
    """
    try:
        work.send(None)
    except StopIteration as done:
        return (done.value,)
    work.close()
    return None


async def fetched(port: Port, consumer: Consumer, answered: asyncio.Event, most_s: float) -> list[Taken]:
    """What the consumer has fetched, or else what its next answer brings. Each answer for this consumer must set `answered`.

    The result is empty if the answer brings nothing or none comes within `most_s`. If the port is never silent, the wait has no limit.
    """
    answered.clear()
    found = await consumer.take()
    if not found and await wait(port.clock, answered, most_s if port.silent else None):
        found = await consumer.take()  # an answer reaches the fetcher's buffer in the step in which it comes
    return found
