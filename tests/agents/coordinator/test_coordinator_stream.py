"""Until when the reader of the coordinator stream knows all that was written."""

from __future__ import annotations

from types import SimpleNamespace as Bag
from typing import Any

import pytest

from headgate.agents.coordinator.coordinator_stream import CoordinatorReader
from headgate.agents.records.kafka.fetched import FetchAnswer
from headgate.agents.testing.clock import VirtualClock
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
