"""A suspected letter runs alone, so that no other one can be to blame if the process dies."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headgate.agents.kafka.port import KafkaPort
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.runtime.task import solitude as module
from headgate.agents.runtime.task.solitude import Alone, Solitude

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(60)]
CLOCK = KafkaPort(ClientSettings("nowhere:1")).clock


async def test_it_waits_for_the_others_and_they_wait_for_it() -> None:
    """Two suspects run one after the other, too."""
    solitude, said = Solitude(CLOCK), list[str]()
    running, done = asyncio.Event(), asyncio.Event()

    async def other(name: str) -> None:
        await solitude.enter()
        said.append(f"{name} begins")
        running.set()
        await done.wait()
        said.append(f"{name} ends")
        solitude.leave()

    async def suspect(name: str) -> None:
        await solitude.enter()
        async with solitude.alone() as alone:
            said.append(f"{name} begins, alone: {alone.holds}")
            await asyncio.sleep(0)
            said.append(f"{name} ends")
        solitude.leave()

    async with asyncio.TaskGroup() as group:
        group.create_task(other("a"))
        await running.wait()
        group.create_task(suspect("b"))
        group.create_task(suspect("c"))
        await asyncio.sleep(0)
        group.create_task(other("d"))
        await asyncio.sleep(0)
        done.set()
    assert said[:2] == ["a begins", "a ends"]
    assert (
        said[2:6] == ["b begins, alone: True", "b ends", "c begins, alone: True", "c ends"] or "d begins" in said[2:6]
    )
    assert "b begins, alone: True" in said
    assert "c begins, alone: True" in said


async def test_a_letter_that_waits_for_ever_does_not_hold_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it runs, but a death is not counted against it."""
    monkeypatch.setattr(module, "PATIENCE_S", 0.01)
    solitude = Solitude(CLOCK)
    await solitude.enter()
    await solitude.enter()
    async with solitude.alone() as alone:
        assert not alone.holds


class Noted:
    """The marks of one suspected letter: `marked` on this machine, `said` elsewhere."""

    def __init__(self) -> None:
        self.marked: list[bool] = []
        self.said: list[bool] = []

    async def say(self, holds: bool) -> None:
        await asyncio.sleep(0)
        self.said.append(holds)

    async def row(self, alone: Alone) -> None:
        await alone.begins(self.marked.append, self.say)


async def test_a_suspect_that_waits_for_ever_does_not_hold_the_others_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """They go on when its mark says, everywhere, that it is not alone. When they have ended, it is alone again, and to blame if the process
    dies: one that waited for longer than the others went on for ever, from worker to worker."""
    monkeypatch.setattr(module, "SHARED_AFTER_S", 0.01)
    solitude, noted = Solitude(CLOCK), Noted()
    await solitude.enter()
    async with solitude.alone() as alone:
        await noted.row(alone)
        await asyncio.gather(solitude.enter(), solitude.enter())
        assert (noted.marked, noted.said) == ([True, False], [True, False])
        await noted.row(alone)
        assert (noted.marked[2:], noted.said[2:]) == ([False], [False])
        solitude.leave()
        assert noted.marked[3:] == []
        solitude.leave()
        assert noted.marked[3:] == [True]
        await noted.row(alone)  # others may begin at any time, and are not waited for
        assert (noted.marked[4:], noted.said[3:]) == ([True], [False])
        await solitude.enter()
        assert noted.marked[5:] == [False]
        solitude.leave()
    solitude.leave()
    await solitude.enter()
    async with solitude.alone() as alone:
        assert alone.holds


async def test_two_suspects_beside_each_other_are_not_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until one of them has ended."""
    monkeypatch.setattr(module, "SHARED_AFTER_S", 0.01)
    monkeypatch.setattr(module, "PATIENCE_S", 0.01)
    solitude, first, second = Solitude(CLOCK), Noted(), Noted()
    await solitude.enter()
    async with solitude.alone() as one:
        await first.row(one)
        await solitude.enter()
        async with solitude.alone() as two:
            await second.row(two)
            assert (first.marked[-1], second.marked) == (False, [False])
        solitude.leave()
        assert (first.marked[-1], first.said) == (True, [True, False])


async def test_a_suspect_that_blocks_the_loop_is_to_blame_whoever_waits_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A letter beside it that awaits for ever kept it from being alone, so it blocked worker after worker, for ever."""
    monkeypatch.setattr(module, "PATIENCE_S", 0.01)
    solitude, noted = Solitude(CLOCK), Noted()
    await solitude.enter()
    await solitude.enter()

    def block() -> None:
        """The running code blocks the loop, and the thread that watches it notices."""
        watching = threading.Thread(target=solitude.blocked)
        watching.start()
        watching.join()

    async def another() -> None:
        block()

    async with solitude.alone() as alone:
        await noted.row(alone)
        async with asyncio.TaskGroup() as group:
            group.create_task(another())
        assert (noted.marked, noted.said) == ([False], [False])
        block()
        assert noted.marked == [False, True]
        await asyncio.sleep(0)  # it turns again
        assert noted.marked == [False, True, False]
    block()
    assert noted.marked == [False, True, False]
