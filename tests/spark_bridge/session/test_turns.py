"""Who runs beside whom: all do, but one that is suspected of killing sessions."""

from __future__ import annotations

import asyncio

import pytest

from headgate.spark_bridge.session.turns import Turns

pytestmark = pytest.mark.asyncio


async def test_one_alone_waits_for_the_others_and_later_ones_wait_for_it() -> None:
    """So that it is known who kills the session."""
    turns, story, gate = Turns(), list[str](), asyncio.Event()

    async def run(name: str, *, alone: bool = False) -> None:
        async with turns.alone() if alone else turns.with_others():
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


async def test_those_that_were_lost_with_a_suspect_run_again_before_it() -> None:
    """They are not to blame, and need not wait until it has been found out. Once it is alone, they wait, too."""
    turns, story = Turns(), list[str]()
    died, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def innocent(name: str) -> None:
        async with turns.with_others():
            await died.wait()
        async with turns.with_others(again=True):
            story.append(f"{name} runs again")
            await go_on.wait()

    async def suspect() -> None:
        async with turns.with_others():
            await died.wait()
        async with turns.alone():
            story.append("the suspect is alone")
            await ended.wait()

    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(one) for one in (innocent("a"), suspect(), innocent("b"))]
    await _turns_of_the_loop()
    died.set()
    await _turns_of_the_loop()
    assert story == ["a runs again", "b runs again"]
    go_on.set()
    await _turns_of_the_loop()
    tasks.append(loop.create_task(innocent("late")))
    await _turns_of_the_loop()
    assert story[2:] == ["the suspect is alone"]
    ended.set()
    await asyncio.gather(*tasks)
    assert story[3:] == ["late runs again"]


async def _turns_of_the_loop() -> None:
    for _ in range(9):
        await asyncio.sleep(0)


async def test_one_that_is_cancelled_while_it_waits_holds_no_one_up() -> None:
    """A task that is released takes its batch with it."""
    turns = Turns()
    loop = asyncio.get_running_loop()
    async with turns.with_others():
        waits = loop.create_task(_alone(turns))
        await asyncio.sleep(0)
        waits.cancel()
        await asyncio.wait([waits])
        async with turns.with_others():
            pass
    await _alone(turns)


async def _alone(turns: Turns) -> None:
    async with turns.alone():
        pass
