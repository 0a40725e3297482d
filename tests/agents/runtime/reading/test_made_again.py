"""A position outside of the log: whose log it is decides what it is called, before the client's own metadata tells."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.agents.runtime.reading.intake import Intake, PartitionSource
from headgate.agents.testing.clock import VirtualClock
from headgate.agents.testing.logs import Logs
from headgate.agents.testing.port import MemoryConsumer, MemoryPort
from headgate.core.names import StreamPartition

pytestmark = pytest.mark.asyncio
AT = StreamPartition("in", 0)


class Behind(MemoryConsumer):
    """Its metadata is of before; the broker refuses its positions already."""

    known = "in.0"

    def topic_id(self, topic: str) -> str:
        return self.known


class Port(MemoryPort):
    def consumer(self, answered: Any, *, fetch_bytes: int, **_: Any) -> Behind:
        return Behind(self, answered, fetch_bytes=fetch_bytes)


async def read(logs: Logs, position: int, topic: str) -> Intake:
    """An intake with this position, of the topic with this id, after it has looked."""
    intake = Intake(Port(logs, VirtualClock(0)), [PartitionSource(AT, position, topic=topic)], name="test")
    await intake.start()
    intake._answered.set()
    await intake.fill(1.0)
    await asyncio.sleep(0)
    return intake


async def test_a_topic_that_was_made_again_is_named_by_the_error_of_a_fetch() -> None:
    """The fetch is refused before the metadata has changed: it was called truncated, and `on_lost` told the operator of another cause."""
    logs = Logs({"in": 1})
    logs.remake("in")
    lost = (await read(logs, 10, "in.0")).head(AT).lost
    assert lost is not None
    assert (lost.topic, lost.position, lost.end) == ("in.1", 10, 0)
    assert "deleted and re-created" in lost.what


async def test_a_new_topic_that_has_grown_past_the_position_meanwhile_is_not_taken_for_the_old_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Refused at 10, then asked for its bounds: the new topic has 20 records by then. It looked like a fetch from before a seek."""
    logs = Logs({"in": 1})
    logs.remake("in")

    async def grown(self: Behind, at: StreamPartition, *, within_s: float) -> tuple[int, int]:
        return 0, 20

    monkeypatch.setattr(Behind, "bounds", grown)
    lost = (await read(logs, 10, "in.0")).head(AT).lost
    assert lost is not None
    assert lost.topic == "in.1"


@pytest.mark.parametrize("topic", ["in.0", ""])
async def test_a_log_that_was_cut_is_the_same_topic(topic: str) -> None:
    """Of an unknown id nothing is said."""
    lost = (await read(Logs({"in": 1}), 10, topic)).head(AT).lost
    assert lost is not None
    assert (lost.topic, lost.end) == ("", 0)
    assert "re-created or truncated" in lost.what
