"""An intake that asks how far logs are readable, and fetches nothing of them; other partitions are fetched as ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import pytest_asyncio

from headgate.agents.records.frames.range_buffer import UnreadRecords
from headgate.agents.runtime.reading.intake import Intake, PartitionSource
from headgate.agents.runtime.reading.read_ahead import ReadAhead
from headgate.agents.testing.clock import VirtualClock
from headgate.agents.testing.logs import Logs
from headgate.agents.testing.port import MemoryPort
from headgate.core.errors import EnvironmentFault
from headgate.core.names import StreamPartition

pytestmark = pytest.mark.asyncio

ASKED, FETCHED = StreamPartition("in", 0), StreamPartition("rates", 0)


class Ends:
    """What a broker says of one log."""

    def __init__(self) -> None:
        self.start, self.stable, self.high = 0, 0, 0
        self.error: Exception | None = None
        self.topic = "one"
        self.asked = asyncio.Event()

    async def start_of(self, at: StreamPartition) -> int:
        assert at == ASKED
        if self.error is not None:
            raise self.error
        return self.start

    async def end_of(self, at: StreamPartition, *, committed: bool) -> int:
        self.asked.set()
        return self.stable if committed else self.high

    async def topic_id(self, topic: str) -> str:
        return self.topic

    async def of_time(self, at: StreamPartition, ms: int) -> int | None:
        raise AssertionError("nobody asks for times here")


class Rig:
    def __init__(self, position: int = 0, *, held: int = 0) -> None:
        """`held`: what the worker holds of other tasks."""
        self.logs, self.clock, self.ends = Logs({}), VirtualClock(0), Ends()
        sources = [PartitionSource(ASKED, position, unread=1000, bulk=True), PartitionSource(FETCHED, 0)]
        port = MemoryPort(self.logs, self.clock)
        ahead = ReadAhead(self.clock)
        ahead.change(held)
        self.intake = Intake(port, sources, name="test", offsets=self.ends, ahead=ahead)

    async def until(self, true: Callable[[], bool]) -> None:
        """Let the intake look until this is so."""
        async with asyncio.timeout(10):
            while not true():
                self.intake._answered.set()
                filling = asyncio.get_running_loop().create_task(self.intake.fill(1.0))
                for _ in range(9):
                    await asyncio.sleep(0)
                self.passes(0.5)
                for _ in range(9):
                    await asyncio.sleep(0)
                filling.cancel()
                await asyncio.wait([filling])

    def passes(self, seconds: float) -> None:
        until = self.clock.now().mono + seconds
        while not self.clock.move(until):
            self.clock.ring()
        self.clock.ring()

    async def says(self, start: int, stable: int, high: int) -> None:
        self.ends.start, self.ends.stable, self.ends.high = start, stable, high
        before = self.intake.head(ASKED).answers
        await self.until(lambda: self.intake.head(ASKED).answers > before + 1)

    def take(self, most: int) -> tuple[int, int] | None:
        chunk = self.intake.take(ASKED, most)
        if chunk is None:
            return None
        assert isinstance(chunk.columns, UnreadRecords)
        return chunk.columns.base, chunk.next_position


@pytest_asyncio.fixture
async def rig() -> Rig:
    one = Rig()
    await one.intake.start()
    return one


async def test_chunks_reach_up_to_the_last_stable_offset(rig: Rig) -> None:
    await rig.says(0, 40, 50)
    head = rig.intake.head(ASKED)
    assert (head.count, head.at_end, head.blocked, head.lag, head.timestamp is not None) == (40, False, False, 50, True)
    assert rig.take(30) == (0, 30)
    assert rig.take(30) == (30, 40)
    assert rig.take(30) is None
    head = rig.intake.head(ASKED)
    assert (head.position, head.at_end, head.blocked) == (40, False, True)  # a transaction is open
    await rig.says(0, 50, 50)
    assert rig.take(30) == (40, 50)
    assert rig.intake.head(ASKED).at_end
    await rig.intake.stop()


async def test_others_are_fetched(rig: Rig) -> None:
    rig.logs.write(FETCHED, None, [b"a"], [0], None)
    await rig.until(lambda: rig.intake.head(FETCHED).count == 1)
    chunk = rig.intake.take(FETCHED, 9)
    assert chunk is not None
    assert chunk.values == [b"a"]
    await rig.intake.stop()


async def test_a_seek_and_a_drain(rig: Rig) -> None:
    await rig.says(0, 40, 40)
    rig.take(10)
    assert rig.intake.drains_to(ASKED) == 10
    rig.intake.seek(ASKED, 35)
    await rig.until(lambda: rig.intake.head(ASKED).count == 5)
    assert rig.take(30) == (35, 40)
    rig.intake.pause(ASKED)
    assert rig.intake.head(ASKED).paused
    rig.intake.resume(ASKED)
    await rig.says(0, 45, 45)
    assert rig.take(30) == (40, 45)
    await rig.intake.stop()


async def test_a_position_outside_of_the_log_is_lost(rig: Rig) -> None:
    rig.ends.start = 7
    await rig.until(lambda: rig.intake.head(ASKED).lost is not None)
    lost = rig.intake.head(ASKED).lost
    assert lost is not None
    assert (lost.position, lost.start) == (0, 7)
    rig.intake.seek(ASKED, 7)
    await rig.says(7, 9, 9)
    assert rig.take(9) == (7, 9)
    await rig.intake.stop()


async def test_a_position_outside_of_the_log_of_another_topic_is_that_topics(rig: Rig) -> None:
    """Of a log without anything new the id is seldom asked for; a refused position asks for it."""
    await rig.says(0, 9, 9)
    assert rig.take(30) == (0, 9)
    rig.ends.topic = "two"
    rig.ends.stable = rig.ends.high = 0
    await rig.until(lambda: rig.intake.head(ASKED).lost is not None)
    lost = rig.intake.head(ASKED).lost
    assert lost is not None
    assert (lost.topic, lost.position, lost.end) == ("two", 9, 0)
    await rig.intake.stop()


async def test_a_log_that_does_not_answer_is_in_trouble_until_it_does(rig: Rig) -> None:
    rig.ends.error = EnvironmentFault("no leader")
    await rig.until(lambda: rig.intake.head(ASKED).degraded is not None)
    assert "no leader" in (rig.intake.head(ASKED).degraded or "")
    rig.ends.error = None
    await rig.says(0, 3, 3)
    assert rig.intake.head(ASKED).degraded is None
    await rig.intake.stop()


async def test_it_does_not_wait_for_room() -> None:
    """Nothing of it is read ahead here, so it is asked about while the worker may hold no more of others."""
    rig = Rig(held=64 << 20)
    await rig.intake.start()
    for _ in range(20):
        await asyncio.sleep(0)
    assert rig.ends.asked.is_set()
    await rig.intake.stop()
