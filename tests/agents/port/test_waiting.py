"""Waiting by a clock that is not the loop's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.agents.port.waiting import Within, at_once, in_time, pause, wait
from headgate.agents.testing.clock import VirtualClock

pytestmark = pytest.mark.asyncio


def later(clock: VirtualClock, seconds: float) -> None:
    """Let the clock move as soon as everybody waits."""

    def move() -> None:
        clock.move(clock.now().mono + seconds)
        while clock.ring():
            pass

    asyncio.get_running_loop().call_later(0.01, move)


async def test_the_clock_ends_a_wait_and_nothing_else_is_cancelled() -> None:
    clock, never = VirtualClock(0), asyncio.Event()
    later(clock, 5.0)
    assert not await wait(clock, never, 5.0)
    later(clock, 5.0)
    with pytest.raises(TimeoutError, match="no answer for 3 s"):
        await in_time(clock, 3.0, never.wait())
    later(clock, 1.0)
    await pause(clock, 1.0)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert clock.due_s() is None


async def test_an_event_that_comes_in_time_leaves_no_timer() -> None:
    clock, came = VirtualClock(0), asyncio.Event()
    asyncio.get_running_loop().call_soon(came.set)
    assert await wait(clock, came, 5.0)
    assert await wait(clock, came, 0.0)
    assert clock.due_s() is None


async def test_whoever_is_cancelled_while_the_time_ends_stays_cancelled() -> None:
    """The cancellation was somebody's, and must not become a timeout."""
    clock, told = VirtualClock(0), list[str]()

    async def work() -> None:
        try:
            async with Within(clock, 1.0):
                await asyncio.Event().wait()
        except TimeoutError:
            told.append("timeout")

    task = asyncio.get_running_loop().create_task(work())
    await asyncio.sleep(0)
    clock.move(1.0)
    clock.ring()
    task.cancel()
    await asyncio.wait([task])
    assert (task.cancelled(), told) == (True, [])


async def test_what_must_wait_is_called_off_at_once() -> None:
    ended: list[str] = []

    async def works(gate: asyncio.Event) -> Any:
        try:
            await gate.wait()
        finally:
            ended.append("ended")
        return "done"

    gate = asyncio.Event()
    assert (at_once(works(gate)), ended) == (None, ["ended"])
    gate.set()
    assert at_once(works(gate)) == ("done",)
