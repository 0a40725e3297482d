"""The consumer over Kafka: after an error, records of its topic wait until new metadata has told which topic they are of."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.agents.kafka.consumer import KafkaConsumer
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.records.kafka.fetched import FetchAnswer, OutOfRange, Taken
from headgate.core.names import StreamPartition

IN, OTHER = StreamPartition("in", 0), StreamPartition("other", 0)


class Below:
    """A client whose metadata comes when the test says so."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[bool]] = []
        self.cluster = SimpleNamespace(headgate_ids={"in": "one"}, topics=lambda: {"in"})
        self.paused: set[Any] = set()

    def force_metadata_update(self) -> asyncio.Future[bool]:
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]

    def consumer(self) -> Any:
        """The consumer above it."""
        return SimpleNamespace(
            _client=self, pause=self.paused.add, resume=self.paused.discard, seek=lambda at, offset: None
        )

    async def tell(self, came: bool = True) -> None:
        self.asked.pop().set_result(came)
        for _ in range(3):
            await asyncio.sleep(0)


@pytest.mark.asyncio
async def test_what_is_fetched_behind_an_error_waits_for_metadata_that_was_asked_for_after_it() -> None:
    """One request may be under way when the error comes, so it takes two. Other topics, and errors, do not wait."""
    told: list[str] = []
    consumer: Any = KafkaConsumer(
        ClientSettings("nowhere:1"),
        lambda at, answer: told.append(answer.error),
        name="test",
        fetch_bytes=1,
        max_wait_ms=1,
        raw=True,
    )
    below, fetched = Below(), list[Taken]()
    consumer.consumer = below.consumer()

    async def take() -> list[Taken]:
        found = fetched.copy()
        fetched.clear()
        return found

    consumer._take = take
    first, second, other, lost = Taken(IN, 5), Taken(IN, 6), Taken(OTHER, 0), Taken(IN, -1, error=OutOfRange("gone"))
    fetched.append(first)
    assert await consumer.take() == [first]
    consumer._heard(IN, FetchAnswer(1.0, "UnknownTopicOrPartitionError", -1, -1, -1))
    assert told == ["UnknownTopicOrPartitionError"]
    fetched += [first, other, lost]
    assert await consumer.take() == [other, lost]
    await below.tell(came=False)
    assert below.asked == []
    fetched.append(second)
    assert await consumer.take() == []
    await below.tell()
    assert await consumer.take() == []
    below.cluster.headgate_ids = {"in": "two"}
    await below.tell()
    assert await consumer.take() == [first, second]
    assert consumer.topic_id("in") == "two"
    assert below.asked == []
    # behind a gap no error has told of a topic that was made again
    consumer._heard(IN, FetchAnswer(2.0, "", 7, 7, 0))
    assert below.asked == []
    consumer._heard(IN, FetchAnswer(9.0, "", 9, 9, 0))
    fetched.append(first)
    assert await consumer.take() == []
    await below.tell()
    await below.tell()
    consumer._heard(IN, FetchAnswer(19.0, "", 9, 9, 0))  # each answer is late: what was clear is not doubted again
    fetched.append(second)
    assert await consumer.take() == [first]
    await below.tell()
    await below.tell()
    assert await consumer.take() == [second]
    consumer._heard(IN, FetchAnswer(19.5, "", 9, 9, 0))
    assert below.asked == []


@pytest.mark.asyncio
async def test_a_doubt_that_is_cleared_while_the_client_is_asked_gives_each_record_once() -> None:
    consumer: Any = KafkaConsumer(
        ClientSettings("nowhere:1"), lambda at, answer: None, name="test", fetch_bytes=1, max_wait_ms=1, raw=True
    )
    below, first, second = Below(), Taken(IN, 5), Taken(IN, 6)
    consumer.consumer = below.consumer()

    async def take() -> list[Taken]:
        return [first]

    async def take_while_it_is_cleared() -> list[Taken]:
        await below.tell()
        await below.tell()
        return [second]

    consumer._take = take
    consumer._heard(IN, FetchAnswer(1.0, "UnknownTopicOrPartitionError", -1, -1, -1))
    assert await consumer.take() == []
    consumer._take = take_while_it_is_cleared
    assert await consumer.take() == [first, second]


def fetching(below: Below, fetched: list[Taken]) -> Any:
    """A consumer whose client has fetched this; what is added to it comes at the next `take`."""
    consumer: Any = KafkaConsumer(
        ClientSettings("nowhere:1"), lambda at, answer: None, name="test", fetch_bytes=1, max_wait_ms=1, raw=True
    )
    consumer.consumer = below.consumer()

    async def take() -> list[Taken]:
        found = fetched.copy()
        fetched.clear()
        return found

    consumer._take = take
    return consumer


@pytest.mark.asyncio
async def test_a_partition_of_which_something_is_withheld_is_not_fetched_meanwhile() -> None:
    """Otherwise a broker would answer fetch after fetch until the doubt is cleared, whatever the reader has room for."""
    below, fetched = Below(), [Taken(IN, 5), Taken(OTHER, 0)]
    consumer = fetching(below, fetched)
    consumer._heard(IN, FetchAnswer(1.0, "UnknownTopicOrPartitionError", -1, -1, -1))
    await consumer.take()
    assert below.paused == {IN}
    consumer.resume(IN)
    assert below.paused == {IN}
    await below.tell()
    await below.tell()
    assert below.paused == set()
    # what the reader has paused meanwhile stays so
    fetched.append(Taken(IN, 6))
    consumer._heard(IN, FetchAnswer(2.0, "UnknownTopicOrPartitionError", -1, -1, -1))
    await consumer.take()
    consumer.pause(IN)
    await below.tell()
    await below.tell()
    assert below.paused == {IN}
    consumer.resume(IN)
    assert below.paused == set()


@pytest.mark.asyncio
@pytest.mark.parametrize("cleared", [False, True])
async def test_what_is_withheld_does_not_outlive_a_seek(cleared: bool) -> None:
    """Where the seek goes to the offset at which it begins, nothing else would tell that it is of the topic before."""
    below, fetched = Below(), [Taken(IN, 0), Taken(OTHER, 0)]
    consumer = fetching(below, fetched)
    consumer._heard(IN, FetchAnswer(1.0, "UnknownTopicOrPartitionError", -1, -1, -1))
    consumer._heard(OTHER, FetchAnswer(1.0, "UnknownTopicOrPartitionError", -1, -1, -1))
    assert await consumer.take() == []
    await below.tell()
    if cleared:
        await below.tell()
    consumer.seek(IN, 0)
    assert IN not in below.paused
    if not cleared:
        await below.tell()
    assert await consumer.take() == [Taken(OTHER, 0)]
    assert below.paused == set()
