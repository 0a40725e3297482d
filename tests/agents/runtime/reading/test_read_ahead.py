"""What the partitions of a worker hold together: a bound for all of them, and always something for each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from headgate.agents.runtime.reading.intake import Intake, PartitionSource
from headgate.agents.runtime.reading.read_ahead import FEW, SHARED, SMALLER, ReadAhead
from headgate.agents.testing.clock import VirtualClock
from headgate.agents.testing.logs import Logs
from headgate.agents.testing.port import MemoryPort
from headgate.core.names import StreamPartition

pytestmark = pytest.mark.asyncio
EACH, FETCH, VALUE, ANSWER = 40_000, 4_000, 900, 5_000
"""What a partition may hold, what a fetch asks for, the bytes of a record, and what one answer brings: its last record is whole."""
TASKS = 64


class Rig:
    """The intakes of tasks with a backlog each, which no task works off by itself."""

    def __init__(self, tasks: int) -> None:
        logs = Logs({"in": tasks})
        self.ahead = ReadAhead()
        self.places = [StreamPartition("in", n) for n in range(tasks)]
        for at in self.places:
            for _ in range(100):
                logs.write(at, None, [bytes(VALUE)], [0], None)
        port = MemoryPort(logs, VirtualClock(0))
        self.intakes = {
            at: Intake(
                port, [PartitionSource(at, 0)], name=str(at), buffer_bytes=EACH, fetch_bytes=FETCH, ahead=self.ahead
            )
            for at in self.places
        }

    async def start(self) -> None:
        for intake in self.intakes.values():
            await intake.start()

    async def fill(self, turns: int = 20) -> None:
        """Each intake is filled as far as it wants."""
        for _ in range(turns):
            for intake in self.intakes.values():
                intake._answered.set()
                await asyncio.sleep(0)
                filling = asyncio.get_running_loop().create_task(intake.fill(1.0))
                for _ in range(3):
                    await asyncio.sleep(0)
                filling.cancel()

    def held(self) -> dict[StreamPartition, int]:
        return {at: intake.head(at).size for at, intake in self.intakes.items()}

    async def stop(self) -> None:
        for intake in self.intakes.values():
            await intake.stop()


@pytest_asyncio.fixture
async def many() -> AsyncIterator[Rig]:
    rig = Rig(TASKS)
    await rig.start()
    yield rig
    await rig.stop()


async def test_many_partitions_hold_together_what_a_few_may_hold(many: Rig) -> None:
    """However long they are filled, and nothing is worked off: not 64 times `buffer.bytes`."""
    await many.fill()
    held = many.held()
    assert sum(held.values()) <= TASKS * ANSWER < TASKS * EACH // 4
    assert all(held.values())
    assert many.ahead.held == sum(held.values())


async def test_a_chunk_that_was_taken_counts_until_it_is_let_go(many: Rig) -> None:
    """Its records are in memory: a task whose letter waits for its turn does not fetch the next ones."""
    await many.fill()
    at, before = many.places[5], many.ahead.held
    intake = many.intakes[at]
    while intake.take(at, 1000) is not None:
        pass
    await many.fill(3)
    assert many.ahead.held == before
    assert many.held()[at] == 0
    intake.let_go()
    await many.fill(3)
    assert many.held()[at] > 0
    assert many.ahead.held <= before


async def test_a_few_partitions_are_read_ahead_in_full() -> None:
    """As if each were alone."""
    rig = Rig(SHARED - 1)
    await rig.start()
    await rig.fill()
    assert all(size >= EACH - 2 * FETCH for size in rig.held().values())
    await rig.stop()
    assert rig.ahead.held == 0


async def test_those_that_stand_still_leave_something_for_each_other_one(many: Rig) -> None:
    """All but one hold what they have for ever. The one reads all that there is."""
    await many.fill()
    at, read = many.places[0], 0
    for _ in range(200):
        while (chunk := many.intakes[at].take(at, 1000)) is not None:
            read += len(chunk)
        many.intakes[at].let_go()
        many.intakes[at]._answered.set()
        await many.fill(1)
        if read >= 100:
            break
    assert read == 100


async def test_a_task_that_is_gone_leaves_its_share_to_the_others(many: Rig) -> None:
    await many.fill()
    for at in many.places[1:]:
        await many.intakes[at].stop()
    assert many.ahead.held == many.held()[many.places[0]]


async def test_tasks_of_many_partitions_have_smaller_fetches() -> None:
    """One fetch of each partition may be in memory, whatever all hold together."""
    ahead = ReadAhead()
    ahead.partitions = FEW
    assert ahead.fetch_bytes(1 << 20) == 1 << 20
    ahead.partitions = FEW + 1
    assert ahead.fetch_bytes(1 << 20) == SMALLER
    assert ahead.fetch_bytes(1000) == 1000
