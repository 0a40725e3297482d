"""The states of all jobs through one client: read to the ends, and nothing is left out silently."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headgate.agents.coordinator.job_states import states_of
from headgate.agents.port.port import Timer
from headgate.agents.records.kafka.fetched import FetchAnswer, OutOfRange, Taken
from headgate.agents.testing.clock import VirtualClock
from headgate.agents.testing.logs import Logs
from headgate.agents.testing.port import MemoryConsumer, MemoryPort
from headgate.core.coordination import messages as c
from headgate.core.coordination.wire import encode
from headgate.core.errors import EnvironmentFault, HeadgateError
from headgate.core.names import StreamPartition

TOPICS = [f"jobs-{number:03}" for number in range(300)]


class HastyClock(VirtualClock):
    """Nobody has to wait: the time of a call comes with the next turn of the loop."""

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> Timer:
        timer = super().call_later(delay_s, callback, *args)
        asyncio.get_running_loop().call_soon(self._pass, self.now().mono + delay_s)
        return timer

    def _pass(self, until_s: float) -> None:
        while not self.move(until_s):
            self.ring()
        self.ring()


class Broker(MemoryPort):
    """A broker with faults."""

    silent = True

    def __init__(self) -> None:
        super().__init__(Logs({}), HastyClock(0))
        self.mute: set[str] = set()
        """About these topics it says nothing."""
        self.errors: dict[str, EnvironmentFault] = {}
        self.starts: dict[str, int] = {}
        self.made: list[Faulty] = []

    def consumer(
        self, answered: Callable[[StreamPartition, FetchAnswer], None], *, fetch_bytes: int, **_: Any
    ) -> Faulty:
        self.made.append(Faulty(self, answered, fetch_bytes=fetch_bytes))
        return self.made[-1]

    def write(self, topic: str, *runs: str) -> None:
        for run in runs:
            key, value = encode(c.SetRun(run, "d", c.RunState.RUNNING, "uuid"))
            self.logs.write(StreamPartition(topic, 0), [key], [value], [0], None)


class Faulty(MemoryConsumer):
    _port: Broker
    stopped = False

    def answer(self, at: StreamPartition) -> None:
        if at.stream not in self._port.mute:
            super().answer(at)

    async def take(self) -> list[Taken]:
        found: list[Taken] = []
        for one in await super().take():
            start = self._port.starts.get(one.at.stream, 0)
            if one.at.stream in self._port.mute:
                self._positions[one.at] = one.start
            elif one.at.stream in self._port.errors:
                found.append(Taken(one.at, -1, error=self._port.errors[one.at.stream]))
            elif one.start < start:
                found.append(Taken(one.at, -1, error=OutOfRange(f"{one.start} is below the start of {one.at}")))
            else:
                found.append(one)
        return found

    async def bounds(self, at: StreamPartition, *, within_s: float) -> tuple[int, int] | None:
        return self._port.starts[at.stream], self._port.logs.log(at).stable

    async def stop(self) -> None:
        await super().stop()
        self.stopped = True


def runs(broker: Broker, topics: list[str], existing: list[str] | None = None) -> dict[str, str]:
    """By topic, the run in the state that was read; empty if there is none."""

    async def names() -> list[str]:
        return topics if existing is None else existing

    async def read() -> dict[str, str]:
        async with asyncio.timeout(20):
            found = await states_of(broker, topics, existing=names, within_s=10.0)
        return {topic: "" if state.run is None else state.run.run_id for topic, state in found.items()}

    try:
        return asyncio.run(read())
    finally:
        assert [one.stopped for one in broker.made] == [True] * len(broker.made)


def test_hundreds_of_jobs_are_read_with_one_client() -> None:
    """A client for each would take minutes on a secure cluster, and brokers limit how many connections are made."""
    broker = Broker()
    for number, topic in enumerate(TOPICS):
        broker.write(topic, *(f"r{n}" for n in range(number % 4)))
    assert runs(broker, TOPICS) == {topic: f"r{n % 4 - 1}" if n % 4 else "" for n, topic in enumerate(TOPICS)}
    assert len(broker.made) == 1


def test_what_was_committed_before_the_call_is_read_and_an_open_transaction_is_not_waited_for() -> None:
    """A leader that died inside of a transaction does not keep others from draining."""
    broker, dead = Broker(), object()
    broker.write("a", "r1", "r2")
    key, value = encode(c.SetRun("r3", "d", c.RunState.RUNNING, "uuid"))
    broker.logs.write(StreamPartition("a", 0), [key], [value], [0], None, dead)
    broker.write("a", "r4")
    assert runs(broker, ["a"]) == {"a": "r2"}


def test_no_job_at_all() -> None:
    assert runs(Broker(), []) == {}


def test_a_stream_whose_first_records_were_deleted_is_read_from_its_start() -> None:
    broker = Broker()
    broker.write("a", "r1", "r2", "r3")
    broker.starts["a"] = 2
    assert runs(broker, ["a"]) == {"a": "r3"}


def test_a_job_that_was_deleted_meanwhile_is_left_out() -> None:
    """Its topic stood in the list, and no broker answers about it any more."""
    broker = Broker()
    for topic in "abc":
        broker.write(topic, "r1")
    broker.mute = {"b"}
    assert runs(broker, ["a", "b", "c"], existing=["a", "c"]) == {"a": "r1", "c": "r1"}


def test_a_stream_about_which_no_broker_answers_is_named() -> None:
    """It might be that of a job that follows, so it is not left out."""
    broker = Broker()
    for topic in TOPICS:
        broker.write(topic, "r1")
    broker.mute = set(TOPICS[7:17])
    with pytest.raises(HeadgateError, match=f"for 10 s about {', '.join(TOPICS[7:12])} and 5 more. Remedy: check that"):
        runs(broker, TOPICS)


def test_a_stream_that_may_not_be_read_is_named() -> None:
    broker = Broker()
    for topic in "ab":
        broker.write(topic, "r1")
    broker.errors["b"] = EnvironmentFault("no permission", remedy="grant READ")
    with pytest.raises(EnvironmentFault, match=r"b cannot be read: no permission\. Remedy: grant READ"):
        runs(broker, ["a", "b"])
