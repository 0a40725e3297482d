"""What the partitions of a worker hold together: a bound for all of them, and a turn for each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from headgate.agents.records.kafka.fetched import Taken
from headgate.agents.records.values.serdes import Serde, json
from headgate.agents.runtime.reading import intake as intake_module
from headgate.agents.runtime.reading.intake import Intake, PartitionSource
from headgate.agents.runtime.reading.read_ahead import SHARED, TURN_S, ReadAhead
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

    def __init__(self, tasks: int, each: int = 1, framed: Serde[Any] | None = None) -> None:
        """`each`: how many partitions a task has. `framed`: those of the last task hold frames."""
        self.logs = logs = Logs({"in": tasks * each})
        self.clock = VirtualClock(0)
        self.ahead = ReadAhead(self.clock)
        self.places = [StreamPartition("in", n) for n in range(tasks * each)]
        for at in self.places:
            for _ in range(100):
                logs.write(at, None, [bytes(VALUE)], [0], None)
        port = MemoryPort(logs, self.clock)
        self.intakes: dict[StreamPartition, Intake] = {}
        for first in range(0, tasks * each, each):
            own = self.places[first : first + each]
            last = first + each == tasks * each
            sources = [PartitionSource(at, 0, framed=framed if last else None) for at in own]
            made = Intake(port, sources, name=str(first), buffer_bytes=EACH, fetch_bytes=FETCH, ahead=self.ahead)
            self.intakes |= dict.fromkeys(own, made)

    async def start(self) -> None:
        for intake in dict.fromkeys(self.intakes.values()):
            await intake.start()

    async def fill(self, turns: int = 20) -> None:
        """Each intake is filled as far as it wants."""
        for _ in range(turns):
            for intake in dict.fromkeys(self.intakes.values()):
                intake._answered.set()
                await asyncio.sleep(0)
                filling = asyncio.get_running_loop().create_task(intake.fill(1.0))
                for _ in range(3):
                    await asyncio.sleep(0)
                filling.cancel()

    def held(self) -> dict[StreamPartition, int]:
        return {at: intake.head(at).size for at, intake in self.intakes.items()}

    def work_off(self, at: StreamPartition) -> int:
        """How many records were taken: all that it holds."""
        read = 0
        while (chunk := self.intakes[at].take(at, 1000)) is not None:
            read += len(chunk)
        self.intakes[at].let_go()
        return read

    async def stop(self) -> None:
        for intake in dict.fromkeys(self.intakes.values()):
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
    some = [size for size in held.values() if size]
    assert SHARED * EACH - FETCH < sum(some) <= SHARED * EACH + len(some) * (ANSWER - FETCH)
    assert len(some) < TASKS
    assert many.ahead.held == sum(some)


async def test_each_has_its_turn(many: Rig) -> None:
    """Whoever is worked off waits behind those that wait already. So all are read to their ends, as far as each other."""
    await many.fill()
    read = dict.fromkeys(many.places, 0)
    for _ in range(60):
        for at, size in many.held().items():
            if size:
                read[at] += many.work_off(at)
                await many.fill(1)
                assert many.ahead.held <= SHARED * EACH + TASKS * (ANSWER - FETCH)
                assert max(read.values()) - min(read.values()) <= 60
    assert set(read.values()) == {100}


async def test_a_chunk_that_was_taken_counts_until_it_is_let_go(many: Rig) -> None:
    """Its records are in memory: a task whose letter waits for its turn does not fetch the next ones."""
    await many.fill()
    before = many.ahead.held
    some = [at for at, size in many.held().items() if size][:12]  # an answer is larger than what was asked for
    for at in some:
        while many.intakes[at].take(at, 1000) is not None:
            pass
    await many.fill(3)
    assert many.ahead.held == before
    assert not any(many.held()[at] for at in some)
    waiting = [at for at, size in many.held().items() if not size and at not in some]
    for at in some:
        many.intakes[at].let_go()
    await many.fill(3)
    now = [at for at, size in many.held().items() if size]
    assert set(now) & set(waiting)
    assert not set(now) & set(some)
    assert many.ahead.held <= before


async def test_an_answer_that_was_under_way_when_a_partition_began_to_wait_is_counted_once(many: Rig) -> None:
    """It holds something, and has its turn at the moment in which that is let go."""
    await many.fill()
    at = next(at for at in many.places if many.intakes[at]._parts[at] is next(iter(many.ahead._queue)))
    pieces, following = many.logs.log(at).read(0, FETCH)
    many.intakes[at]._consumer.seek(at, following)
    await many.intakes[at]._absorb([Taken(at, 0, [one.batch() for one in pieces], following)])
    many.ahead.change(SHARED * EACH)
    for other in many.places:
        if other != at:
            await many.intakes[other].stop()
    rest = SHARED * EACH - FETCH + 1 - many.held()[at]  # its own bytes are those for which there is no room
    many.ahead.change(rest + many.held()[at] - many.ahead.held)
    assert many.work_off(at)
    await many.fill(1)
    await many.intakes[at].stop()
    assert many.ahead.held == rest


async def test_a_few_partitions_are_read_ahead_in_full() -> None:
    """As if each were alone."""
    rig = Rig(SHARED - 1)
    await rig.start()
    await rig.fill()
    assert all(size >= EACH - 2 * FETCH for size in rig.held().values())
    await rig.stop()
    assert rig.ahead.held == 0


async def test_those_that_stand_still_leave_a_turn_for_each_other_one(many: Rig) -> None:
    """All that hold something keep it for ever. The others go on, one each `TURN_S`, and those that were worked off again."""
    await many.fill()
    waiting = [at for at, size in many.held().items() if not size]
    read = dict.fromkeys(waiting, 0)
    for turn in range(1, 30 * len(waiting)):
        while not many.clock.move(turn * TURN_S):
            while many.clock.ring():
                pass
        await many.fill(1)
        for at in waiting:
            read[at] += many.work_off(at)
        assert sum(read.values()) <= turn * 6
        if set(read.values()) == {100}:
            return
    pytest.fail(f"read: {read}")


async def test_without_room_a_fetch_asks_for_less(many: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where letters take long, one of each partition comes to be in memory. With room again, they ask for as much as before."""
    monkeypatch.setattr(intake_module, "WITHOUT_ROOM", 1000)
    await many.fill()
    waiting = [at for at, size in many.held().items() if not size]
    for turn in range(1, len(waiting) + 2):
        while not many.clock.move(turn * TURN_S):
            while many.clock.ring():
                pass
        await many.fill(1)
    held = many.held()
    assert all(0 < held[at] <= 2000 for at in waiting)
    for at in many.places:
        many.work_off(at)
        if at not in waiting:
            await many.intakes[at].stop()
    await many.fill()
    sizes = [size for size in many.held().values() if size]
    assert len(sizes) > 10
    assert min(sizes) > 2000


async def test_a_partition_of_a_task_that_holds_something_of_others_does_not_wait() -> None:
    """The task may need it to go on: a join reads the one behind the other."""
    rig = Rig(TASKS, each=2)
    await rig.start()
    await rig.fill()
    held = rig.held()
    tasks = [[held[rig.places[n]], held[rig.places[n + 1]]] for n in range(0, 2 * TASKS, 2)]
    assert [0, 0] in tasks
    assert all(all(both) for both in tasks if any(both))
    await rig.stop()


async def test_what_jobs_have_written_does_not_wait() -> None:
    """A shuffle must not stand still because inputs are read ahead: to work it off makes room."""
    rig = Rig(TASKS, framed=json())
    await rig.start()
    await rig.fill()
    *inputs, shuffle = rig.held().values()
    assert 0 in inputs
    assert shuffle > 0
    await rig.stop()


async def test_a_task_that_is_gone_leaves_its_share_and_its_turn_to_the_others(many: Rig) -> None:
    await many.fill()
    last = many.places[-1]
    assert many.held()[last] == 0
    for at in many.places[:-1]:
        await many.intakes[at].stop()
    assert many.ahead.held <= FETCH
    await many.fill()
    assert many.held()[last] > EACH // 2
    await many.intakes[last].stop()
    assert many.ahead.held == 0
    assert many.ahead._timer is None


async def test_what_lies_behind_a_bound_takes_nothing_from_the_others(many: Rig) -> None:
    """A partition that has reached its bound is never read again, though its last fetch brought more."""
    *bounded, last = many.places
    for at in bounded:
        many.intakes[at].bound(at, 1)
    for turn in range(1, TASKS + 1):
        await many.fill(1)
        for at in bounded:
            many.work_off(at)
        while not many.clock.move(turn * TURN_S):
            while many.clock.ring():
                pass
    assert all(many.intakes[at].head(at).end_reached for at in bounded)
    await many.fill()
    assert many.held()[last] > EACH // 2
    assert many.ahead.held < EACH + ANSWER
    many.intakes[bounded[0]].bound(bounded[0], None)
    await many.fill(3)
    chunk = many.intakes[bounded[0]].take(bounded[0], 1)
    assert chunk is not None
    assert chunk.offsets == [1]


async def test_a_partition_that_begins_at_its_bound_takes_nothing_from_the_others() -> None:
    rig = Rig(1)
    (at,) = rig.places
    rig.intakes[at].bound(at, 0)
    await rig.start()
    await rig.fill(3)
    assert rig.ahead.held == 0
    await rig.stop()
