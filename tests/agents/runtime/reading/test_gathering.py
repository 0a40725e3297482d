"""Gathered fetches: when they are sent, what is never held back, and what ends the holding."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from headgate.agents.records.kafka.fetched import FetchAnswer
from headgate.agents.runtime.reading.gathering import LONGEST_S, SHORTEST_S, Gathering
from headgate.agents.runtime.reading.intake import BEHIND_S, GATHER_BYTES, Intake, PartitionSource
from headgate.agents.testing.clock import VirtualClock
from headgate.agents.testing.logs import Logs
from headgate.agents.testing.port import MemoryPort
from headgate.core.names import StreamPartition

pytestmark = pytest.mark.asyncio

IN, OTHER = StreamPartition("in", 0), StreamPartition("other", 0)


class Rig:
    """An intake of two partitions over logs in memory. `IN` gathers until the time `until`."""

    def __init__(self, *, both: bool = False) -> None:
        self.logs = Logs({})
        self.clock = VirtualClock(0)
        self.until: float | None = 0.1
        self.behind = False
        sources = [PartitionSource(IN, 0, gathers=True), PartitionSource(OTHER, 0, gathers=both)]
        port = MemoryPort(self.logs, self.clock)
        self.intake = Intake(
            port,
            sources,
            name="test",
            fetch_bytes=3000,
            gather_until=lambda: self.until,
            seldom_until=lambda now_s: now_s + BEHIND_S if self.behind else None,
        )

    def writes(self, at: StreamPartition, *values: bytes) -> None:
        self.logs.write(at, None, list(values), [0] * len(values), None)

    async def reads(self, at: StreamPartition = IN) -> list[bytes | None]:
        """What comes now."""
        found: list[bytes | None] = []
        for _ in range(5):
            await asyncio.sleep(0)
            self.intake._answered.set()
            filling = asyncio.get_running_loop().create_task(self.intake.fill(1.0))
            for _ in range(5):
                await asyncio.sleep(0)
            filling.cancel()
            while (chunk := self.intake.take(at, 1000)) is not None:
                found += chunk.values
        return found

    def passes(self, seconds: float) -> None:
        until = self.clock.now().mono + seconds
        while not self.clock.move(until):
            self.clock.ring()
        self.clock.ring()


@pytest_asyncio.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig()
    await made.intake.start()
    made.passes(1.0)
    made.until = made.clock.now().mono + 0.1
    yield made
    await made.intake.stop()


async def test_after_records_the_next_fetch_is_held_back_and_brings_all_at_once(rig: Rig) -> None:
    rig.writes(IN, b"1")
    assert await rig.reads() == [b"1"], "the first record waits for nothing"
    rig.writes(IN, b"2")
    rig.writes(IN, b"3")
    assert await rig.reads() == []
    rig.passes(0.09)
    assert await rig.reads() == []
    assert not rig.intake.arriving
    rig.passes(0.02)
    assert rig.intake.arriving
    assert await rig.reads() == [b"2", b"3"]
    assert rig.intake.arrived() == pytest.approx(0.01)
    assert not rig.intake.arriving


async def test_all_partitions_are_held_back_to_the_same_moment() -> None:
    """A source and a stream between two stages: one fetch brings the records of both, and there is none before it."""
    rig = Rig(both=True)
    await rig.intake.start()
    rig.passes(1.0)
    rig.until = rig.clock.now().mono + 0.1
    rig.writes(IN, b"1")
    assert await rig.reads(IN) == [b"1"]
    rig.passes(0.05)
    rig.writes(OTHER, b"2")
    assert await rig.reads(OTHER) == [b"2"]
    parts = [rig.intake._parts[at] for at in (IN, OTHER)]
    answers = [part.answers for part in parts]
    rig.writes(IN, b"3")
    rig.writes(OTHER, b"4")
    rig.passes(0.04)
    assert (await rig.reads(IN), await rig.reads(OTHER)) == ([], [])
    assert [part.answers for part in parts] == answers
    rig.passes(0.02)
    assert (await rig.reads(IN), await rig.reads(OTHER)) == ([b"3"], [b"4"])
    await rig.intake.stop()


async def test_other_partitions_are_read_meanwhile(rig: Rig) -> None:
    """Those of bootstrap inputs."""
    rig.writes(IN, b"1")
    assert await rig.reads() == [b"1"]
    rig.writes(OTHER, b"2")
    assert await rig.reads(OTHER) == [b"2"]
    rig.writes(OTHER, b"3")
    assert await rig.reads(OTHER) == [b"3"]


async def test_nothing_is_held_back_while_there_is_a_backlog(rig: Rig) -> None:
    rig.writes(IN, b"1")
    part = rig.intake._parts[IN]
    part.answer = SimpleNamespace(error="", high_watermark=9, stable=9)  # type: ignore[assignment]
    rig.intake._gather(part, 1.0)
    assert not part.gathering
    part.answer = SimpleNamespace(error="", high_watermark=9, stable=0)  # type: ignore[assignment]
    rig.passes(0.05)
    rig.intake._gather(part, 1.0)
    assert part.gathering, "what an open transaction holds is no backlog"


async def test_many_bytes_are_fetched_earlier(rig: Rig) -> None:
    """At a high rate a chunk as large as one interval would be processed too late."""
    rig.writes(IN, b"1")
    assert await rig.reads() == [b"1"]
    rig.until = None
    rig.passes(0.2)
    part = rig.intake._parts[IN]
    rig.until = rig.clock.now().mono + 0.4
    rig.passes(0.01)
    part.answer = SimpleNamespace(error="", high_watermark=1, stable=1)  # type: ignore[assignment]
    rig.intake._gather(part, 0.1 / GATHER_BYTES)
    assert part.gathering
    assert rig.intake._until == pytest.approx(rig.clock.now().mono + 0.1)
    rig.passes(0.11)
    assert not part.gathering


async def test_of_a_task_with_a_backlog_empty_partitions_are_fetched_seldom(rig: Rig) -> None:
    """64 tasks asked five hundred times a second for what came later; each fetch cost as much as a hundred rows."""
    rig.until, rig.behind = None, True
    part = rig.intake._parts[IN]
    filling = asyncio.get_running_loop().create_task(rig.intake.fill(1.0))
    await asyncio.sleep(0)
    rig.intake._on_answer(IN, FetchAnswer(rig.clock.now().mono, "", 0, 0, 0))
    await asyncio.wait_for(filling, 10)
    assert part.gathering
    assert rig.intake._until == pytest.approx(rig.clock.now().mono + BEHIND_S)
    assert not rig.intake._parts[OTHER].gathering, "it never gathers"
    rig.writes(IN, b"1")
    rig.passes(BEHIND_S - 0.1)
    assert await rig.reads() == []
    rig.intake.go_on()
    assert await rig.reads() == [b"1"], "the backlog is done"


@pytest.mark.parametrize("what", ["seek", "bound", "resume", "go on"])
async def test_what_the_machine_orders_ends_the_holding(rig: Rig, what: str) -> None:
    rig.writes(IN, b"1")
    assert await rig.reads() == [b"1"]
    rig.writes(IN, b"2")
    assert await rig.reads() == []
    if what == "seek":
        rig.intake.seek(IN, 1)
    elif what == "bound":
        rig.intake.bound(IN, 7)
    elif what == "go on":
        rig.intake.go_on()
    else:
        rig.intake.pause(IN)
        rig.intake.resume(IN)
    assert await rig.reads() == [b"2"]


async def test_a_paused_partition_stays_paused_when_the_time_comes(rig: Rig) -> None:
    rig.writes(IN, b"1")
    assert await rig.reads() == [b"1"]
    rig.intake.pause(IN)
    rig.writes(IN, b"2")
    rig.passes(0.2)
    assert await rig.reads() == []


async def test_without_an_answer_nobody_waits_for_a_long_time(rig: Rig) -> None:
    rig.writes(IN, b"1")
    assert await rig.reads() == [b"1"]
    assert await rig.reads() == []
    rig.passes(0.2)
    assert rig.intake.arriving
    assert rig.intake.arrived() is None, "the fetch is not answered yet"
    assert await rig.reads() == []
    assert rig.intake.arrived() is not None, "answered, and there was nothing"


async def test_no_one_waits_for_the_fetch_of_a_partition_that_has_reached_its_bound(rig: Rig) -> None:
    """It is called off, so it may never be answered."""
    rig.intake.bound(IN, 2)
    rig.writes(IN, b"1", b"2", b"3")
    assert await rig.reads(OTHER) == []
    rig.passes(0.2)
    assert rig.intake.arriving
    chunk = rig.intake.take(IN, 10)
    assert chunk is not None
    assert chunk.values == [b"1", b"2"]
    assert await rig.reads() == []
    rig.intake._answered.clear()
    assert rig.intake.arrived() is not None


async def test_fetches_go_on_shortly_before_the_commit() -> None:
    gathering = Gathering()
    lead = gathering.lead_s
    assert gathering.until(10.0, 10.2, 0.2) == pytest.approx(10.2 - lead)
    assert gathering.until(10.0, 3.0, 0.2) == pytest.approx(10.2 - lead), "the commit is overdue: this record begins it"
    assert gathering.until(10.0, 10.0 + lead, 0.2) == pytest.approx(10.2), "that commit is too near: for the next one"
    assert gathering.until(10.0, 20.0, 10.0) == pytest.approx(10.0 + LONGEST_S)
    assert gathering.until(10.0, 10.0 + lead + SHORTEST_S / 2, SHORTEST_S) is None


async def test_work_that_takes_long_gathers_nothing_until_it_is_quicker() -> None:
    """Awaited user code that takes most of the interval would miss the commit that it was gathered for."""
    gathering = Gathering()
    for _ in range(50):
        gathering.arrived(0.15)
    assert gathering.until(10.0, 10.2, 0.2) is None
    tries: list[Any] = [gathering.until(10.0, 10.2, 0.2) for _ in range(500)]
    assert tries[-1] is not None
