"""The lag of a worker's tasks: from the ends of the logs now, known for failed tasks, and unknown where nobody measures."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace as Bag
from typing import Any

import pytest

from headgate.agents.worker.load.lags import FRESH_S, KNOWN_S, Lags, look_up, owned_by, total
from headgate.core.coordination import messages as c
from headgate.core.coordination.state import JobState
from headgate.core.graph.model import JobModel
from headgate.core.names import StreamPartition
from headgate.core.orders import TaskState

AT, OTHER = StreamPartition("in", 0), StreamPartition("in", 1)


def actor(position: int | None, end: int | None = None, age_s: float = 0.0) -> Any:
    """A task that has processed up to `position`; its last fetch answer said `end`."""
    ends = {} if end is None else {AT: (end, age_s)}
    return Bag(
        machine=Bag(view=Bag(positions={} if position is None else {AT: position})),
        reading=Bag(intake=Bag(intake=Bag(ends=lambda: ends))),
    )


def test_what_is_not_complete_counts_whatever_was_taken_out_of_the_buffer() -> None:
    """A letter of 1,000 records that never ends showed a lag of 0, or that of the last finished letter."""
    assert Lags().look({}, {"t": actor(5, 1005)}, 10.0) == {"t": {AT: 1000}}


def test_an_end_that_no_fetch_tells_is_looked_up_and_is_unknown_without_an_answer() -> None:
    """A full buffer is not fetched, and a stopped broker answers nothing: then the lag is unknown, not zero."""
    lags, owned = Lags(), {"t": (AT,)}
    assert lags.look(owned, {"t": actor(5, 10)}, 100.0) == {"t": {AT: 5}}
    assert lags.due(100.0 + FRESH_S) == []
    assert lags.look(owned, {"t": actor(5, 10, 9.0)}, 109.0) == {"t": {AT: 5}}
    assert lags.due(109.0) == [AT]
    lags.found(AT, 500, 109.0)
    assert lags.look(owned, {"t": actor(7, 10, 10.0)}, 110.0) == {"t": {AT: 493}}
    assert lags.look(owned, {"t": actor(7)}, 110.0 + KNOWN_S) == {"t": {AT: None}}


def test_a_failed_task_keeps_its_lag() -> None:
    """Its metric vanished, and alerts with it. It has no actor any more, but a position."""
    lags, owned = Lags(), {"t": (AT,)}
    lags.look(owned, {"t": actor(5, 10)}, 100.0)
    lags.found(AT, 700, 120.0)
    assert lags.look(owned, {}, 121.0) == {"t": {AT: 695}}
    assert lags.due(130.0) == [AT]
    assert lags.look({}, {}, 122.0) == {}
    assert lags.look(owned, {}, 123.0) == {"t": {AT: None}}


def test_a_task_whose_position_is_not_known_has_an_unknown_lag() -> None:
    """It restores, or has failed before it knew where to read on."""
    assert Lags().look({"t": (AT, OTHER)}, {"t": actor(None)}, 1.0) == {"t": {AT: None, OTHER: None}}
    assert total([3, None]) is None


def test_only_the_tasks_that_are_granted_here_count() -> None:
    """As the coordinator stream has them: also while no incarnation of this worker lives."""
    state = JobState()
    assert owned_by(state, "p1") == {}
    model = JobModel(1, 1, "r1", "d1", {"a": (AT,), "b": (OTHER,), "c": ()}, {"a": "p1", "b": "p2"})
    said = [
        c.SetRun("r1", "d1", c.RunState.RUNNING, "u"),
        c.SetJobModel(model),
        c.SetGrant("a", 1, "p1", "000001-x"),
        c.SetGrant("b", 1, "p2", "000001-y"),
        c.SetGrant("c", 1, "p1", "000001-x"),
        c.SetTaskState("c", 1, TaskState.RELEASED),
    ]
    for offset, message in enumerate(said):
        state.apply(c.Entry(offset, c.key_of(message), message))
    assert owned_by(state, "p1") == {"a": (AT,)}


class Offsets:
    """A broker that does not answer about one topic, and refuses another."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.again = asyncio.Event()

    async def end_of(self, at: StreamPartition, *, committed: bool) -> int:
        if at.stream == "gone":
            raise OSError("no such topic")
        if self.asked.is_set():
            self.again.set()
        self.asked.set()
        return 42


class Clock:
    """Virtual time: every wait is over at once."""

    def __init__(self) -> None:
        self.mono = 100.0

    def now(self) -> Any:
        return Bag(mono=self.mono)

    def call_later(self, seconds: float, call: Any, *args: Any) -> Any:
        self.mono += seconds
        return asyncio.get_running_loop().call_soon(call, *args)


@pytest.mark.asyncio
async def test_a_topic_that_cannot_be_asked_does_not_hold_up_the_others() -> None:
    """Nothing depends on a lag: its errors end nothing."""
    gone = StreamPartition("gone", 0)
    lags = Lags()
    clock: Any = Clock()
    offsets: Any = Offsets()
    failed = Bag(machine=Bag(view=Bag(positions={gone: 1, AT: 2})), reading=Bag(intake=None))
    asking = asyncio.get_running_loop().create_task(
        look_up(lags, lambda: lags.look({}, {"t": failed}, clock.mono), offsets, clock)
    )
    async with asyncio.timeout(30):
        await offsets.again.wait()
    asking.cancel()
    assert lags.look({}, {"t": failed}, clock.mono) == {"t": {gone: None, AT: 40}}
