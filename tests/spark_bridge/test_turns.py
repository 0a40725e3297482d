"""Who runs beside whom: all do, but one that is suspected of killing sessions."""

from __future__ import annotations

import asyncio

import pytest

from headgate.spark_bridge.turns import Turns

pytestmark = pytest.mark.asyncio


async def test_one_alone_waits_for_the_others_and_later_ones_wait_for_it() -> None:
    """So that it is known who kills the session."""
    turns, story, gate = Turns(), list[str](), asyncio.Event()

    async def run(name: str, *, alone: bool = False) -> None:
        async with turns.alone() if alone else turns.beside():
            story.append(f"{name} begins")
            if name != "late":
                await gate.wait()
            story.append(f"{name} ends")

    loop = asyncio.get_running_loop()
    first = [loop.create_task(run(name)) for name in ("a", "b")]
    await asyncio.sleep(0)
    suspect = loop.create_task(run("suspect", alone=True))
    await asyncio.sleep(0)
    late = loop.create_task(run("late"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert story == ["a begins", "b begins"]
    gate.set()
    await asyncio.gather(*first, suspect, late)
    assert story[2:] == ["a ends", "b ends", "suspect begins", "suspect ends", "late begins", "late ends"]


async def test_one_that_is_cancelled_while_it_waits_holds_nobody_up() -> None:
    """A task that is released takes its batch with it."""
    turns = Turns()
    loop = asyncio.get_running_loop()
    async with turns.beside():
        waits = loop.create_task(_alone(turns))
        await asyncio.sleep(0)
        waits.cancel()
        await asyncio.wait([waits])
        async with turns.beside():
            pass
    await _alone(turns)


async def _alone(turns: Turns) -> None:
    async with turns.alone():
        pass
