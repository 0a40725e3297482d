"""Measures for how long awaited code holds the main loop: the time of its steps, without that between them; and how long it is kept waiting
for a processor."""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

try:
    import resource
except ImportError:  # not on every system
    resource = None

R = TypeVar("R")
T = TypeVar("T")


def _nothing() -> None:
    pass


class Clocks(NamedTuple):
    """The clocks of the thread of the main loop."""

    wall_ns: Callable[[], int]
    cpu_ns: Callable[[], int]
    """The time that the thread has had a processor."""
    waits: Callable[[], int]
    """How often the thread has given its processor away by itself, to wait for something. Where no one knows, another number each time."""


class Meter:
    """For how long the running letter of a task has held the loop. Without clocks it measures nothing.

    A step that waits for something, for example in `time.sleep`, holds the loop for as long as that takes. One that another process has
    taken the processor from does not: shorter letters would not help. So for a letter that never waited by itself, only its time on the
    processor counts.
    """

    __slots__ = ("_clocks", "_cpu_ns", "_waits", "_wall_ns", "within")

    def __init__(self, clocks: Clocks | None = None) -> None:
        self._clocks = clocks
        self.within: Callable[[Awaitable[Any]], Awaitable[Any]] | None = None
        """Makes what runs beside the letter part of the step that starts it."""
        self.begin()

    def begin(self) -> None:
        """A letter begins."""
        self._wall_ns = self._cpu_ns = 0
        self._waits = 0 if self._clocks is None else self._clocks.waits()

    @property
    def ns(self) -> int:
        """For how long the letter has held the loop so far."""
        if self._clocks is None:
            return 0
        return self._cpu_ns if self._clocks.waits() == self._waits else self._wall_ns

    def measured(self, work: Callable[[], Coroutine[Any, Any, R]]) -> Coroutine[Any, Any, R]:
        """This work, measured: for what runs beside the letter, in an asyncio task of its own."""
        if self._clocks is None:
            return work()
        return self._measured(work() if self.within is None else self.within(work()))

    async def _measured(self, work: Awaitable[R]) -> R:
        return await self.of(work)

    def of(self, work: Awaitable[R], waits: Callable[[], None] = _nothing) -> Awaitable[R]:
        """This work, measured. Calls `waits` once, when it first waits, or has ended."""
        return work if self._clocks is None else _Measured(self, work, waits)

    def steps(self, work: Awaitable[R], waits: Callable[[], None]) -> Generator[Any, Any, R]:
        """The steps of this work, as `yield from work.__await__()` runs them."""
        assert self._clocks is not None
        wall_ns, cpu_ns, _ = self._clocks
        said = False

        def add(began: tuple[int, int]) -> None:
            nonlocal said
            self._wall_ns += wall_ns() - began[0]
            self._cpu_ns += cpu_ns() - began[1]
            if not said:
                said = True
                waits()

        return around_steps(work, lambda: (wall_ns(), cpu_ns()), add)


def around_steps(work: Awaitable[R], begins: Callable[[], T], ends: Callable[[T], object]) -> Generator[Any, Any, R]:
    """The steps of this work, as `yield from work.__await__()` runs them. `begins` is called before each, and `ends` behind it with what
    that gave, however the step ends."""
    inner = work.__await__()
    error: BaseException | None = None
    while True:
        began = begins()
        try:
            asked = inner.send(None) if error is None else inner.throw(error)
        except StopIteration as end:
            return end.value
        finally:
            ends(began)
        error = None
        try:
            yield asked
        except GeneratorExit:
            inner.close()
            raise
        except BaseException as thrown:  # noqa: BLE001 - it belongs to what is awaited
            error = thrown


class _Measured(Awaitable[R]):
    def __init__(self, meter: Meter, work: Awaitable[R], waits: Callable[[], None]) -> None:
        self._meter = meter
        self._work = work
        self._waits = waits

    def __await__(self) -> Generator[Any, Any, R]:
        return self._meter.steps(self._work, self._waits)


def starved_s(said: Path = Path("/proc/thread-self/schedstat")) -> float | None:
    """For how long this thread has waited for a processor that others had, or that a limit of its container kept from it, since it began.
    None where the system does not say: only Linux does."""
    try:
        numbers = said.read_bytes().split()
    except OSError:
        return None
    return int(numbers[1]) / 1e9 if len(numbers) > 1 else None


def clocks_of_thread() -> Clocks:
    """The clocks of the thread that calls them."""
    who, used = getattr(resource, "RUSAGE_THREAD", None), getattr(resource, "getrusage", None)
    if who is None or used is None:
        return Clocks(time.perf_counter_ns, time.thread_time_ns, itertools.count().__next__)
    return Clocks(time.perf_counter_ns, time.thread_time_ns, lambda: used(who).ru_nvcsw)
