"""When an input counts as degraded: the broker has had the time to answer, and not only the clock has gone on."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from headgate.agents.runtime.reading.intake import Intake, PartitionSource
from headgate.agents.testing.clock import VirtualClock
from headgate.agents.testing.logs import Logs
from headgate.agents.testing.port import MemoryPort
from headgate.core.names import StreamPartition

pytestmark = pytest.mark.asyncio
AT = StreamPartition("in", 0)
WATCHDOG_S = 30.0


class Silent:
    """An intake whose broker answers only when the test says so."""

    def __init__(self) -> None:
        self.clock = VirtualClock(0)
        self.port = MemoryPort(Logs({"in": 1}), self.clock)
        self.intake = Intake(self.port, [PartitionSource(AT, 0)], name="test", watchdog_s=WATCHDOG_S)

    async def looks(self) -> str | None:
        """It looks once. The trouble that it sees."""
        filling = asyncio.get_running_loop().create_task(self.intake.fill(1.0))
        await asyncio.sleep(0)
        self.intake._answered.set()  # as after `LOOK_S` without an answer
        await filling
        [(_, why)] = self.intake.troubles()
        return why

    async def passes(self, seconds: float) -> str | None:
        """Time in which it looks once a second."""
        until_s = self.clock.now().mono + seconds
        why = None
        while self.clock.now().mono < until_s:
            self.clock.move(self.clock.now().mono + 1.0)
            why = await self.looks()
        return why

    def jumps(self, seconds: float) -> None:
        """Time in which nobody looks."""
        self.clock.move(self.clock.now().mono + seconds)

    def answers(self) -> None:
        """The broker answers."""
        for consumer in self.port.consumers:
            consumer.answer_all()


@pytest_asyncio.fixture
async def silent() -> Silent:
    one = Silent()
    await one.intake.start()
    one.answers()
    return one


async def test_a_broker_that_does_not_answer_is_in_trouble_until_it_does(silent: Silent) -> None:
    assert await silent.passes(WATCHDOG_S - 1) is None
    why = f"no answer from the broker for more than {WATCHDOG_S:g} s"
    assert await silent.passes(3.0) == why
    assert silent.intake.head(AT).degraded == why
    silent.answers()
    assert await silent.looks() is None


async def test_a_clock_that_jumps_between_two_looks_blames_no_broker(silent: Silent) -> None:
    """User code held the loop for two minutes, or the process was suspended: no answer could be taken, and the input was degraded."""
    assert await silent.passes(5.0) is None
    silent.jumps(4 * WATCHDOG_S)
    assert await silent.looks() is None
    assert await silent.passes(WATCHDOG_S / 2) is None
    silent.answers()
    silent.jumps(4 * WATCHDOG_S)
    assert await silent.looks() is None
    assert await silent.passes(WATCHDOG_S + 2) is not None


async def test_a_resumed_input_and_a_seek_get_the_whole_time(silent: Silent) -> None:
    """While it was paused nothing was asked, so nothing was owed."""
    silent.intake.pause(AT)
    assert await silent.passes(4 * WATCHDOG_S) is None
    silent.intake.resume(AT)
    assert await silent.passes(WATCHDOG_S - 1) is None
    silent.intake.seek(AT, 0)
    assert await silent.passes(WATCHDOG_S - 1) is None
    assert await silent.passes(3.0) is not None
