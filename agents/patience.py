"""How long user code of one task may be awaited: `await.timeout`, and in a drain also `drain.callback-timeout`.

Promises:

- The limit of a drain also applies to functions that are awaited when the drain begins: they have this long from then on. A changed setting
  applies at once, too.
- A function that exceeds a limit is cancelled, and its letter fails with the name of the function. If the limit was that of a drain, the
  letter is not retried, and no error policy is asked: the task fails, and the drain gets its answer.
- A function that ignores its cancellation in a drain is abandoned, and its task fails all the same.

Code that blocks the event loop cannot be interrupted; `stall.timeout` limits it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..core.errors import causes

T = TypeVar("T")

AWAIT, DRAIN = "await.timeout", "drain.callback-timeout"
HUNG_S = 1.0
"""A function that has not ended this long after it was cancelled ignores its cancellation."""


class DrainTimeout(TimeoutError):
    """A user function exceeded `drain.callback-timeout`."""

    final = True


def timed_out_in_drain(error: BaseException) -> bool:
    """Whether a function that exceeded the limit of a drain has caused this error."""
    return any(isinstance(one, DrainTimeout) for one in causes(error))


class _Awaited:
    """A function that is awaited now."""

    __slots__ = ("began_s", "hung", "limit", "setting", "step", "what")

    def __init__(self, what: str, began_s: float, step: str) -> None:
        self.what = what
        self.step = step
        """The step that calls it; empty for a policy."""
        self.began_s = began_s
        self.limit = asyncio.timeout(None)
        self.setting = AWAIT
        """The setting that limits it."""
        self.hung: asyncio.TimerHandle | None = None


class Patience:
    """The limits of one task, and the functions that it awaits.

    `seconds` returns the current value of a setting; `hung` is called with the reason if a function ignores its cancellation in a drain.
    """

    def __init__(
        self, seconds: Callable[[str], float] = lambda _: 0.0, hung: Callable[[str], object] = lambda _: None
    ) -> None:
        self._seconds = seconds
        self._hung = hung
        self._draining_since_s: float | None = None
        self._awaited: set[_Awaited] = set()
        self._limits: dict[str, float] = {}
        self.look()

    def look(self) -> None:
        """Apply the current settings."""
        names = (AWAIT,) if self._draining_since_s is None else (AWAIT, DRAIN)
        self._limits = {name: limit_s for name in names if (limit_s := self._seconds(name))}
        for one in self._awaited:
            self._bound(one)

    def drains(self) -> None:
        """The task drains from now on."""
        if self._draining_since_s is None:
            self._draining_since_s = asyncio.get_running_loop().time()
            self.look()

    def longest(self) -> str:
        """The function that has been awaited for longest, and its step; empty if none is. Any thread may call this."""
        one = min(list(self._awaited), key=lambda one: one.began_s, default=None)
        return "" if one is None else f"{one.what} in {one.step}" if one.step else one.what

    async def within(self, what: str, answer: Awaitable[T], step: str = "") -> T:
        """Await the result of the user function `what`. Raises `TimeoutError` if it takes too long; `DrainTimeout` in a drain."""
        one = _Awaited(what, asyncio.get_running_loop().time(), step)
        try:
            async with one.limit:
                self._awaited.add(one)
                if self._limits:
                    self._bound(one)
                return await answer
        except TimeoutError as error:
            if not one.limit.expired():
                raise
            if one.setting == DRAIN:
                raise DrainTimeout(self._text(one)) from error
            raise TimeoutError(self._text(one)) from error
        finally:
            self._awaited.discard(one)
            if one.hung is not None:
                one.hung.cancel()

    def _bound(self, one: _Awaited) -> None:
        if one.limit.expired():
            return
        ends: dict[str, float] = {}
        for name, limit_s in self._limits.items():
            begins_s = max(one.began_s, self._draining_since_s or 0.0) if name == DRAIN else one.began_s
            ends[name] = begins_s + limit_s
        one.setting = min(ends, key=ends.__getitem__, default=AWAIT)
        one.limit.reschedule(ends.get(one.setting))
        if one.hung is not None:
            one.hung.cancel()
            one.hung = None
        if one.setting == DRAIN:
            one.hung = asyncio.get_running_loop().call_at(ends[DRAIN] + HUNG_S, self._give_up, one)

    def _give_up(self, one: _Awaited) -> None:
        if one in self._awaited:
            self._hung(f"{self._text(one)}, and ignores its cancellation")

    def _text(self, one: _Awaited) -> str:
        return f"{one.what} did not finish within {self._limits.get(one.setting, 0.0):g} s (the setting {one.setting})"
