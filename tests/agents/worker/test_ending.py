"""A worker ends, whatever holds on to it."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from headgate.agents.worker.ending import Ending


@pytest.mark.asyncio
async def test_a_step_that_does_not_end_is_named_and_left_behind() -> None:
    """User code swallows its cancellation; the steps behind it are done all the same."""
    ending, done = Ending(), asyncio.Event()

    async def stubborn() -> None:
        while not done.is_set():
            try:
                await done.wait()
            except asyncio.CancelledError:
                continue

    await ending.step("Partition 0", stubborn(), 0.01)
    await ending.step("topics", asyncio.sleep(0), 5.0)
    assert ending.held == ["Partition 0"]
    done.set()


@pytest.mark.asyncio
async def test_a_step_that_raises_keeps_no_other_from_being_done() -> None:
    """It is said, and that is all."""
    ending = Ending()

    async def broken() -> None:
        raise OSError("no route")

    await ending.step("producer", broken(), 5.0)
    assert ending.held == []


@pytest.mark.asyncio
async def test_all_steps_share_one_deadline() -> None:
    """However many parts hold on, and whatever each may take by itself: the whole is bounded, and those that hold on are named."""
    ending, never = Ending(), asyncio.Event()
    assert ending.begin(0, 1.0) < 1.0
    ending.begin(0, 1000.0)  # the first call counts
    began = time.monotonic()
    await ending.steps({f"Partition {n}": never.wait() for n in range(100)}, 30.0)
    await ending.step("topics", never.wait(), 30.0)
    assert time.monotonic() - began < 25.0
    assert len(ending.held) == 101


@pytest.mark.asyncio
async def test_what_swallows_its_cancellation_at_the_very_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook of the user's that was left behind long ago: the run was drained, and its process stayed for ever."""
    monkeypatch.setattr("headgate.agents.worker.ending.LEFT_S", 0.01)
    ending, let_go, ended = Ending(), asyncio.Event(), []

    async def stubborn() -> None:
        while not let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await let_go.wait()

    async def ends() -> None:
        try:
            await let_go.wait()
        finally:
            ended.append("ends")

    tasks = [asyncio.get_running_loop().create_task(one()) for one in (stubborn, ends)]
    await asyncio.sleep(0)
    await ending.rest()
    assert [name.rpartition(".")[2] for name in ending.held] == ["stubborn"]
    assert ended == ["ends"]
    let_go.set()
    await asyncio.wait(tasks)
