"""Who is there, as it is seen from outside: by heartbeats, and by what stands in the stream."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headgate.agents.process import reading
from headgate.agents.process.reading import Follower, Hearing, HeartbeatPace, LastHeartbeat, pace_of
from headgate.core.coordination.events import Heartbeat
from headgate.core.coordination.messages import Entry, ProcessorState, RunState, SetProcessor, SetRun, key_of
from headgate.core.coordination.state import JobState
from headgate.core.errors import EnvironmentFault
from headgate.core.names import StreamPartition

FIRST, SECOND = "000001-aa", "000002-bb"


def life(incarnation: str, process: str, state: str = ProcessorState.JOINED) -> SetProcessor:
    return SetProcessor("w1", incarnation, location="here", process=process, state=state)


@pytest.mark.parametrize(
    ("lives", "age_s", "present"),
    [
        ([], 1.0, ["w1"]),  # so new that the stream does not know it
        ([life(FIRST, "a")], 1.0, ["w1"]),
        ([life(FIRST, "a")], HeartbeatPace().silent_s + 1, []),
        ([life(FIRST, "a", ProcessorState.LEFT)], 1.0, []),
        ([life(SECOND, "b")], 1.0, []),  # what was known of the first is deleted
        ([life(SECOND, "a")], 1.0, ["w1"]),  # the same process, after it has lost its producer
    ],
)
def test_a_beat_outlives_its_process(lives: list[SetProcessor], age_s: float, present: list[str]) -> None:
    """A job that was stopped, started and stopped again could not be reset for six seconds: its first worker was said to live."""
    state = JobState().fold(Entry(n, key_of(one), one) for n, one in enumerate(lives))
    beat = Heartbeat("w1", "a", FIRST, 0.0)
    assert [one.processor for one in Hearing({"a": LastHeartbeat(beat, age_s)}).present(state)] == present


def test_who_has_no_incarnation_yet_lives() -> None:
    """Its first beat may come before it has begun a life."""
    state = JobState().fold([Entry(0, key_of(life(SECOND, "b")), life(SECOND, "b"))])
    assert Hearing({"a": LastHeartbeat(Heartbeat("w1", "a", "", 0.0), 1.0)}).present(state) != []


@pytest.mark.parametrize(("state", "lives"), [(ProcessorState.LEFT, False), (ProcessorState.JOINED, True)])
def test_a_worker_that_came_and_went_between_two_beats_has_left(state: str, lives: bool) -> None:
    """The last beat of a short batch knew of no incarnation yet, and `tables clear` was refused behind it for six seconds."""
    own = life(FIRST, "a", state)
    folded = JobState().fold([Entry(0, key_of(own), own)])
    assert bool(Hearing({"a": LastHeartbeat(Heartbeat("w1", "a", "", 0.0), 1.0)}).present(folded)) == lives


def test_a_worker_that_was_brief_and_has_a_successor_has_left() -> None:
    """What it recorded is deleted by then, and its one beat knew of no incarnation."""
    state = JobState().fold(
        [Entry(0, key_of(life(SECOND, "b", ProcessorState.LEFT)), life(SECOND, "b", ProcessorState.LEFT))]
    )
    assert Hearing({"a": LastHeartbeat(Heartbeat("w1", "a", "", 0.0), 4.9)}).present(state) == []


def test_a_beat_with_a_name_that_is_no_incarnation_counts_as_living() -> None:
    """Nobody knows what it is; so nothing is done that could harm it."""
    assert Hearing({"a": LastHeartbeat(Heartbeat("w1", "a", "nonsense", 0.0), 1.0)}).present(JobState()) != []


def test_who_speaks_seldom_lives() -> None:
    """`heartbeat.interval = 10s`, `session.timeout = 60s`: `reset` took such workers for gone six seconds after their last beat."""
    run = SetRun("r", "d", RunState.RUNNING, "uuid", settings={"heartbeat.interval": "10s", "session.timeout": "60s"})
    state = JobState().fold([Entry(0, key_of(run), run)])
    assert pace_of(state) == HeartbeatPace(speaks_s=25.0, silent_s=60.0)
    beat = Heartbeat("w1", "a", FIRST, 0.0)
    assert Hearing({"a": LastHeartbeat(beat, 59.0, pace_of(state))}).present(state) == [beat]
    assert Hearing({"a": LastHeartbeat(beat, 61.0, pace_of(state))}).present(state) == []


@pytest.mark.asyncio
async def test_a_stream_that_nobody_answers_for_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        at, position = StreamPartition("stream", 0), 3

        async def end(self) -> int:
            return 5

        async def read(self) -> None:
            now[0] += 0.5

    now, silent = [0.0], Silent()
    monkeypatch.setattr(reading, "time", SimpleNamespace(monotonic=lambda: now[0]))
    reader: Any = silent
    with pytest.raises(
        EnvironmentFault, match="no broker has answered for 20 s about stream, which is read up to 3 of 5"
    ):
        await Follower(reader).to_end()
    silent.position = 5
    assert await Follower(reader).to_end() == JobState()
