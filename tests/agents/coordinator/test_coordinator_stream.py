"""The reader of the coordinator stream: it leaves nothing out, and says until when it knows all that was written."""

from __future__ import annotations

from types import SimpleNamespace as Bag
from typing import Any

import pytest

from headgate.agents.coordinator.coordinator_stream import CoordinatorReader
from headgate.agents.records.kafka.fetched import FetchAnswer, RecordBatch, Taken
from headgate.agents.testing.clock import VirtualClock
from headgate.core.coordination import messages as c
from headgate.core.coordination import wire
from headgate.core.machine import Now


class Silent:
    """A consumer whose answers bring nothing."""

    dead = False

    async def take(self) -> list[Any]:
        return []


@pytest.mark.asyncio
async def test_an_answer_says_nothing_of_the_time_since_it_was_asked_for() -> None:
    """A process that was stopped for half a minute finds in its socket what the broker had answered before."""
    clock: Any = VirtualClock(0)
    wall = [0]
    clock = Bag(now=lambda: Now(wall[0] / 1000, wall[0]))
    port: Any = Bag(clock=clock, silent=False)
    reader = CoordinatorReader(port, Bag(), "stream")  # type: ignore[arg-type]
    reader._consumer = Silent()  # type: ignore[assignment]

    async def answered(at_ms: int, error: str = "") -> int:
        wall[0] = at_ms
        reader._on_answer(reader.at, FetchAnswer(0.0, error, 0, 0, 0))
        answer = reader._answered
        answer.clear = lambda: None  # type: ignore[method-assign]
        assert await reader.read() is None
        return reader.known_ms

    assert await answered(1_000) == 0
    assert await answered(1_500) == 1_000
    assert await answered(30_000) == 1_500
    assert await answered(30_020) == 30_000
    assert await answered(30_500, "NOT_LEADER") == 30_000
    assert await answered(31_000) == 30_000
    assert await answered(31_500) == 31_000


class Fetched:
    """A consumer that brings what the test has put into it."""

    dead = False

    def __init__(self) -> None:
        self.pieces: list[Taken] = []
        self.sought: list[int] = []

    async def take(self) -> list[Taken]:
        found, self.pieces = self.pieces, []
        return found

    def seek(self, at: Any, position: int) -> None:
        self.sought.append(position)


def piece(reader: CoordinatorReader, start: int, upto: int) -> Taken:
    stamp = c.Stamp("here", "someone", "worker w1")
    records = []
    for offset in range(start, upto):
        key, value = wire.encode(c.SetConfig("commit.interval", f"{offset}ms", ()), stamp)
        records.append(Bag(offset=offset, timestamp=0, key=key, value=value, headers=()))
    return Taken(reader.at, start, [RecordBatch.of(records)], upto)


@pytest.mark.asyncio
async def test_what_comes_in_pieces_is_read_whole_and_what_leaves_a_gap_is_fetched_again() -> None:
    """A client that has withheld records of a doubtful topic gives them out together with what came later."""
    clock: Any = Bag(now=lambda: Now(0.0, 0))
    port: Any = Bag(clock=clock, silent=False, broker=Bag(saw=lambda *_: None))
    reader = CoordinatorReader(port, Bag(), "stream")  # type: ignore[arg-type]
    consumer = Fetched()
    reader._consumer = consumer  # type: ignore[assignment]

    async def read(*pieces: tuple[int, int]) -> tuple[list[int], int]:
        consumer.pieces = [piece(reader, *one) for one in pieces]
        reader._answered.clear = lambda: None  # type: ignore[method-assign]
        reader._answered.set()
        found = await reader.read()
        return ([], reader.position) if found is None else ([one.offset for one in found.entries], found.position)

    assert await read((0, 2), (2, 3), (3, 6)) == ([0, 1, 2, 3, 4, 5], 6)
    assert await read((6, 7), (9, 11)) == ([6], 7)
    assert consumer.sought == [7]
    assert await read((11, 12)) == ([], 7)
    assert consumer.sought == [7, 7]
    assert await read((7, 12)) == ([7, 8, 9, 10, 11], 12)
