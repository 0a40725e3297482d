"""What a task says of its letters to owners at other locations: when it begins, what it says, when it stops."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog

from headgate.agents.kafka.port import WallClock
from headgate.agents.runtime.task.solitude import Solitude
from headgate.agents.runtime.task.suspicion import ENOUGH, Suspicion
from headgate.agents.runtime.task.turns import BetweenRows
from headgate.agents.state.marks import NoMarks, fields_of
from headgate.core.names import StreamPartition
from headgate.core.orders import RunView, Start
from headgate.core.task.suspects import Mark

pytestmark = pytest.mark.asyncio
LEFT, NEXT = Mark(StreamPartition("in", 0), 5, 9), Mark(StreamPartition("in", 0), 9, 12)


class Said:
    """The job, which keeps what is said, or fails."""

    def __init__(self) -> None:
        self.said: list[list[Any]] = []
        self.failing = False

    def letters_left(self, task: str, grant: int) -> list[Any]:
        return [fields_of(LEFT)]

    async def say_letters(self, task: str, grant: int, marks: list[Any]) -> None:
        if self.failing:
            raise ConnectionError("no broker")
        self.said.append(marks)


class Life:
    """The process, as far as it runs what is said."""

    def crash(self, error: BaseException) -> None:
        raise error

    def spawn(self, work: Any, name: str) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work())

    async def serve(self, name: str, work: Any) -> Any: ...
    def mailbox(self, *_: Any) -> Any: ...


def suspicion(*, complete: bool) -> tuple[Suspicion, Said]:
    """After the death of the owner before, whose marks are here or not."""
    job = Said()
    clock, start = WallClock(), Start("t", 4, RunView("r1", "u1"), 0, after_death=True)
    made = Suspicion(start, Solitude(clock), job, Life(), clock, structlog.get_logger(), BetweenRows(None))
    marks = NoMarks()
    marks.complete = complete
    made.remember(marks)
    return made, job


def nothing() -> None:
    """No letter is called off."""


async def test_marks_on_this_disk_are_enough() -> None:
    """Nothing is written, and no letter waits."""
    one, job = suspicion(complete=True)
    assert one.suspects.marks == []
    await one.begins(NEXT, nothing)
    one.committed({}, {})
    one.close(survived=True)
    await asyncio.sleep(0)
    assert (one.announced.active, job.said) == (False, [])


async def test_letters_are_said_until_enough_is_durable_and_nothing_is_suspected() -> None:
    """Then it is withdrawn. Commits without letters of this task do not count."""
    one, job = suspicion(complete=False)
    assert one.suspects.marks == [LEFT]
    one.committed({}, {})
    for _ in range(ENOUGH):
        assert one.announced.active
        await one.begins(NEXT, nothing)
        one.committed({}, {})
    assert one.announced.active
    assert job.said == [[fields_of(NEXT), fields_of(LEFT)]] * ENOUGH
    await one.begins(NEXT, nothing)
    one.committed({LEFT.at: 12} if LEFT.at else {}, {})
    await asyncio.sleep(0)
    assert not one.announced.active
    assert job.said[-1] == []


async def test_a_broker_that_is_away_holds_no_letter_up() -> None:
    one, job = suspicion(complete=False)
    job.failing = True
    await one.begins(NEXT, nothing)
    assert job.said == []
