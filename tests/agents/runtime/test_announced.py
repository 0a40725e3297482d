"""What a task says of its letters to owners at other locations: when it begins, what it says, when it stops."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from headgate.agents.kafka.port import WallClock
from headgate.agents.runtime.announced import ENOUGH, Announced
from headgate.agents.state.marks import fields_of
from headgate.core.names import StreamPartition
from headgate.core.task.suspects import Mark, Suspects

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


def announced(*, complete: bool) -> tuple[Announced, Said, Any]:
    job = Said()
    life = SimpleNamespace(spawn=lambda work, name: asyncio.get_running_loop().create_task(work()))
    runtime = SimpleNamespace(job=job, life=life, port=SimpleNamespace(clock=WallClock()))
    site: Any = SimpleNamespace(
        name="t", grant=4, runtime=runtime, marks=SimpleNamespace(complete=complete), suspects=Suspects()
    )
    site.log = structlog.get_logger()
    return Announced(site), job, site


async def test_marks_on_this_disk_are_enough() -> None:
    """Nothing is written, and no letter waits."""
    one, job, _ = announced(complete=True)
    assert one.begin() == []
    await one.letter(NEXT)
    one.committed()
    one.changed()
    await asyncio.sleep(0)
    assert (one.active, job.said) == (False, [])


async def test_letters_are_said_until_enough_is_durable_and_nothing_is_suspected() -> None:
    """Then it is withdrawn. Commits without letters of this task do not count."""
    one, job, site = announced(complete=False)
    site.suspects = Suspects(one.begin())
    assert site.suspects.marks == [LEFT]
    one.committed()
    for _ in range(ENOUGH):
        assert one.active
        await one.letter(NEXT)
        one.committed()
    assert one.active
    assert job.said == [[fields_of(NEXT), fields_of(LEFT)]] * ENOUGH
    await one.letter(NEXT)
    site.suspects.passed({LEFT.at: 12})
    one.committed()
    await asyncio.sleep(0)
    assert not one.active
    assert job.said[-1] == []


async def test_a_broker_that_is_away_holds_no_letter_up() -> None:
    one, job, _ = announced(complete=False)
    one.begin()
    job.failing = True
    await one.letter(NEXT)
    assert job.said == []
