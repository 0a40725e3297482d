"""What every port promises (`agents.port.port`), on all three: Kafka's, the test driver's and the simulator's.

The runtime is proven on the simulator and on the driver, and runs on Kafka. So a promise that one of them does not keep is a hole in the
proof of the others. A story is written once; it waits for what it has caused, whoever answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from headgate.agents.kafka.offsets import KafkaOffsets
from headgate.agents.kafka.port import KafkaPort
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.port.errors import Fenced, OutboxError, ProducerBroken
from headgate.agents.port.port import BatchInWork, Consumer, Offsets, Port, Producer
from headgate.agents.records.kafka.columns import Columns
from headgate.agents.records.kafka.fetched import FetchAnswer, OutOfRange, Taken
from headgate.agents.testing.clock import VirtualClock
from headgate.agents.testing.logs import Logs
from headgate.agents.testing.port import MemoryPort
from headgate.core.names import StreamPartition

from ...sim.port import SimPort
from ...sim.process import Process, Slot
from ...sim.world import World

DEADLINE_S = 60.0
START_MS = 1_700_000_000_000
Read = list[tuple[int, bytes | None]]


class Place:
    """One port, and what a story does with it."""

    def __init__(
        self, port: Port, offsets: Offsets, topic: Callable[[], str], turn: Callable[[], Awaitable[None]]
    ) -> None:
        self.port = port
        self.offsets = offsets
        self.turn = turn
        """Let others do something: a broker, the network, timers."""
        self._topic = topic
        self._numbers = itertools.count()
        self._made: list[Producer | Consumer] = []

    def partition(self) -> StreamPartition:
        """A new topic of one partition."""
        return StreamPartition(self._topic(), 0)

    def id(self) -> str:
        """A new transactional id."""
        return f"{uuid.uuid4().hex[:8]}-{next(self._numbers)}"

    async def producer(self, transactional_id: str | None = None) -> Producer:
        """A producer that has started."""
        made = self.port.producer(
            transactional_id,
            name="contract",
            compression=None,
            batch_bytes=1 << 20,
            request_timeout_ms=30_000,
            transaction_timeout_ms=60_000,
        )
        self._made.append(made)
        await made.start(deadline_s=DEADLINE_S)
        return made

    async def reader(self, *places: StreamPartition, at: int = 0) -> Reader:
        """A consumer that has started, at this offset."""
        made = Reader(self)
        made.consumer = self.port.consumer(
            made.answered, name="contract", fetch_bytes=1 << 20, max_wait_ms=200, raw=False
        )
        self._made.append(made.consumer)
        await made.consumer.start(lambda: dict.fromkeys(places, at), deadline_s=DEADLINE_S)
        return made

    async def until(self, true: Callable[[], Any]) -> None:
        """Wait until this is true."""
        give_up = time.monotonic() + DEADLINE_S
        while not true():
            assert time.monotonic() < give_up
            await self.turn()

    async def close(self) -> None:
        """Close all that the story has opened."""
        for one in self._made:
            await (one.stop() if hasattr(one, "stop") else one.discard())


class Reader:
    """What a consumer has brought, by partition."""

    consumer: Consumer

    def __init__(self, place: Place) -> None:
        self._place = place
        self.answers: dict[StreamPartition, FetchAnswer] = {}
        self.read: dict[StreamPartition, Read] = {}
        self.following: dict[StreamPartition, int] = {}
        self.errors: list[Any] = []
        self.taken: list[Taken] = []
        self.columns: list[Columns] = []
        """All batches, decoded: that can be done once."""

    def answered(self, at: StreamPartition, answer: FetchAnswer) -> None:
        self.answers[at] = answer

    async def take(self) -> list[Taken]:
        """Take once."""
        taken = await self.consumer.take()
        for one in taken:
            assert one.at in self.answers, "the answer is told before its records are there"
            self.taken.append(one)
            if one.error is not None:
                self.errors.append(one.error)
                continue
            self.following[one.at] = one.next_position
            for batch in one.batches:
                columns = batch.columns()
                self.columns.append(columns)
                self.read.setdefault(one.at, []).extend(
                    (columns.offset(index), value)
                    for index, value in enumerate(columns.values)
                    if columns.offset(index) >= one.start
                )
        return taken

    async def until(self, true: Callable[[], Any]) -> None:
        """Take until this is true."""
        give_up = time.monotonic() + DEADLINE_S
        while not true():
            assert time.monotonic() < give_up, (self.read, self.answers)
            await self.take()
            await self._place.turn()

    async def values(self, at: StreamPartition, count: int) -> list[bytes | None]:
        """The first records of a partition."""
        await self.until(lambda: len(self.read.get(at, ())) >= count)
        return [value for _, value in self.read[at]]

    async def sees(self, at: StreamPartition, *, end: int, stable: int) -> None:
        """Wait until an answer shows this end of the log, and up to where it may be read."""
        await self.until(lambda: at in self.answers and _ends(self.answers[at]) == (end, stable))


def _ends(answer: FetchAnswer) -> tuple[int, int]:
    return answer.high_watermark, answer.stable


def batch_of(producer: Producer, *values: bytes | None, stamp: int = START_MS) -> BatchInWork:
    batch = producer.batch(1 << 20)
    assert batch.add(None, values, stamp, None, 0) == len(values)
    batch.written_by("Partition 0")
    return batch


async def write(producer: Producer, at: StreamPartition, *values: bytes | None, stamp: int = START_MS) -> int:
    """Write one batch, and wait for its offset."""
    return await (await producer.send(at, batch_of(producer, *values, stamp=stamp)))


async def under_way(place: Place, value: bytes) -> tuple[StreamPartition, str, Producer]:
    """A partition, and a producer of this id that has written to it in a transaction which is open."""
    at, one = place.partition(), place.id()
    producer = await place.producer(one)
    await producer.begin()
    await write(producer, at, value)
    return at, one, producer


Story = Callable[[Place], Awaitable[None]]


async def _told(place: Place, story: Story) -> None:
    try:
        await story(place)
    finally:
        await place.close()


@pytest.fixture(params=["driver", "simulator", pytest.param("kafka", marks=pytest.mark.kafka)])
def tell(request: pytest.FixtureRequest) -> Callable[[Story], None]:
    """Runs a story on one of the ports."""
    names = itertools.count()

    def on_the_driver(story: Story) -> None:
        clock = VirtualClock(START_MS)
        port = MemoryPort(Logs({}), clock)

        async def turn() -> None:
            clock.move(clock.now().mono + 0.05)
            clock.ring()
            await asyncio.sleep(0)

        asyncio.run(_told(Place(port, port, lambda: f"t{next(names)}", turn), story))

    def on_the_simulator(story: Story) -> None:
        world = World(7, faulty=False)
        process = Process(world, Slot(world.jobs[0], "p", "host0"))
        port = SimPort(process)

        def topic() -> str:
            world.kafka.create(name := f"t{next(names)}", 1)
            return name

        place = Place(port, port, topic, lambda: asyncio.sleep(0.05))
        running = process.loop.create_task(_told(place, story))
        while not running.done():
            assert world.schedule.step(), "the story waits for what nobody has been asked for"
        running.result()

    def on_kafka(story: Story) -> None:
        client = ClientSettings(request.getfixturevalue("kafka").bootstrap)
        topic = request.getfixturevalue("topic")

        async def live() -> None:
            async with offsets_of(client) as offsets:
                place = Place(KafkaPort(client), offsets, lambda: topic("contract"), lambda: asyncio.sleep(0.01))
                await _told(place, story)

        asyncio.run(live())

    return {"driver": on_the_driver, "simulator": on_the_simulator, "kafka": on_kafka}[request.param]


@contextlib.asynccontextmanager
async def offsets_of(client: ClientSettings) -> AsyncIterator[Offsets]:
    made = KafkaOffsets(client)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


# ---------------------------------------------------------------------------------------------------------------- writing


def test_what_is_committed_is_read_in_order_and_the_position_passes_the_marker(tell: Any) -> None:
    async def story(place: Place) -> None:
        at = place.partition()
        producer = await place.producer(place.id())
        reader = await place.reader(at)
        for values in ((b"1", b"2"), (b"3",)):
            await producer.begin()
            await write(producer, at, *values)
            await producer.commit()
        assert await reader.values(at, 3) == [b"1", b"2", b"3"]
        await reader.until(lambda: reader.following[at] == 5)
        assert [offset for offset, _ in reader.read[at]] == [0, 1, 3]
        assert await place.offsets.end_of(at, committed=True) == 5

    tell(story)


def test_an_open_transaction_holds_back_what_stands_behind_it(tell: Any) -> None:
    async def story(place: Place) -> None:
        at = place.partition()
        slow, other = await place.producer(place.id()), await place.producer()
        reader = await place.reader(at)
        await slow.begin()
        await write(slow, at, b"slow")
        await write(other, at, b"plain")
        await reader.sees(at, end=2, stable=0)
        assert reader.read == {}
        assert await place.offsets.end_of(at, committed=True) == 0
        assert await place.offsets.end_of(at, committed=False) == 2
        await slow.commit()
        assert await reader.values(at, 2) == [b"slow", b"plain"]

    tell(story)


def test_an_aborted_transaction_is_never_read(tell: Any) -> None:
    async def story(place: Place) -> None:
        at = place.partition()
        producer = await place.producer(place.id())
        reader = await place.reader(at)
        await producer.begin()
        await write(producer, at, b"gone")
        await producer.abort()
        await producer.begin()
        await write(producer, at, b"here")
        await producer.commit()
        assert await reader.values(at, 1) == [b"here"]
        await reader.until(lambda: reader.following[at] == 4)
        assert reader.read[at] == [(2, b"here")]

    tell(story)


def test_a_start_with_an_id_aborts_what_its_predecessor_has_open(tell: Any) -> None:
    async def story(place: Place) -> None:
        at, one, _ = await under_way(place, b"of a zombie")
        reader = await place.reader(at)
        second = await place.producer(one)
        await reader.sees(at, end=2, stable=2)
        await second.begin()
        await write(second, at, b"of its successor")
        await second.commit()
        assert await reader.values(at, 1) == [b"of its successor"]

    tell(story)


def test_a_fenced_producer_commits_nothing_and_says_so(tell: Any) -> None:
    async def story(place: Place) -> None:
        at, one, first = await under_way(place, b"before")
        await place.producer(one)
        with pytest.raises(OutboxError) as raised:
            await first.commit()
        assert isinstance(raised.value, Fenced)
        assert await place.offsets.end_of(at, committed=True) == 2
        await write(await place.producer(), at, b"behind it")
        reader = await place.reader(at)
        assert await reader.values(at, 1) == [b"behind it"]

    tell(story)


def test_what_a_fenced_producer_sends_is_explained_as_fenced(tell: Any) -> None:
    async def story(place: Place) -> None:
        at, one, first = await under_way(place, b"before")
        await place.producer(one)
        try:
            await write(first, at, b"after")
        except Exception as error:  # noqa: BLE001 - only `explain` can interpret it
            cause = first.explain(error, at)
            assert cause.fenced or isinstance(cause.error, Fenced), cause
        else:
            pytest.fail("a fenced producer has written")

    tell(story)


def test_batches_of_a_partition_stand_in_the_order_in_which_they_were_handed_over(tell: Any) -> None:
    async def story(place: Place) -> None:
        at = place.partition()
        producer = await place.producer(place.id())
        reader = await place.reader(at)
        await producer.begin()
        answers = [await producer.send(at, batch_of(producer, b"%d" % n, b"%d'" % n)) for n in range(5)]
        assert [await answer for answer in answers] == [0, 2, 4, 6, 8]
        await producer.commit()
        assert await reader.values(at, 10) == [b"%d%s" % (n, tick) for n in range(5) for tick in (b"", b"'")]

    tell(story)


def test_without_an_id_a_batch_is_there_at_once(tell: Any) -> None:
    async def story(place: Place) -> None:
        at = place.partition()
        producer = await place.producer()
        assert await write(producer, at, b"1") == 0
        assert await write(producer, at, b"2", None) == 1
        reader = await place.reader(at)
        assert await reader.values(at, 3) == [b"1", b"2", None]

    tell(story)


def test_a_discarded_producer_leaves_nothing_open_and_sends_nothing_more(tell: Any) -> None:
    async def story(place: Place) -> None:
        at, one, producer = await under_way(place, b"never committed")
        await producer.discard()
        await producer.discard()
        with pytest.raises(ProducerBroken):
            await producer.begin()
        with pytest.raises(ProducerBroken):
            await producer.send(at, batch_of(producer, b"more"))
        with pytest.raises(OutboxError):
            await producer.commit()
        await place.producer(one)
        await write(await place.producer(), at, b"behind it")
        reader = await place.reader(at)
        assert await reader.values(at, 1) == [b"behind it"]

    tell(story)


def test_a_batch_takes_what_fits_and_says_what_does_not(tell: Any) -> None:
    async def story(place: Place) -> None:
        producer = await place.producer()
        batch = producer.batch(300)
        assert (batch.count, batch.parts) == (0, [])
        values = [bytes(100)] * 8
        fits = batch.add(None, values, START_MS, None, 0)
        assert fits > 0
        batch.written_by("a")
        assert batch.count == fits
        assert batch.parts == [(fits, "a")]
        assert batch.size > 0
        if fits == len(values):  # a batch in memory takes all of one call, and then nothing more
            assert batch.add(None, values, START_MS, None, 0) == 0
        else:
            assert batch.add(None, values, START_MS, None, fits) == fits
        assert batch.count == fits

    tell(story)


def test_keys_and_times_arrive_as_they_were_written(tell: Any) -> None:
    async def story(place: Place) -> None:
        at = place.partition()
        producer = await place.producer()
        batch = producer.batch(1 << 20)
        assert batch.add([b"k", None, b""], [b"1", b"", None], [START_MS, START_MS - 5, START_MS + 5], None, 0) == 3
        assert await (await producer.send(at, batch)) == 0
        reader = await place.reader(at)
        await reader.values(at, 3)
        assert [key for one in reader.columns for key in one.keys or ()] == [b"k", None, b""]
        assert [value for one in reader.columns for value in one.values] == [b"1", b"", None]
        assert [ms for one in reader.columns for ms in one.timestamps] == [START_MS, START_MS - 5, START_MS + 5]

    tell(story)


# ---------------------------------------------------------------------------------------------------------------- reading


def test_a_reader_starts_where_it_is_told(tell: Any) -> None:
    async def story(place: Place) -> None:
        at = place.partition()
        producer = await place.producer()
        for value in (b"0", b"1", b"2"):
            await write(producer, at, value)
        reader = await place.reader(at, at=1)
        assert await reader.values(at, 2) == [b"1", b"2"]
        assert reader.taken[0].start == 1

    tell(story)


def test_the_records_of_a_batch_before_the_position_can_be_told_apart(tell: Any) -> None:
    async def story(place: Place) -> None:
        at = place.partition()
        producer = await place.producer()
        await write(producer, at, b"0", b"1", b"2")
        reader = await place.reader(at, at=2)
        assert await reader.values(at, 1) == [b"2"]

    tell(story)


def test_behind_a_seek_the_first_that_continues_there_begins_there(tell: Any) -> None:
    async def story(place: Place) -> None:
        at = place.partition()
        producer = await place.producer()
        for value in (b"0", b"1", b"2"):
            await write(producer, at, value)
        reader = await place.reader(at)
        assert await reader.values(at, 3) == [b"0", b"1", b"2"]
        reader.read.clear()
        reader.taken.clear()
        reader.consumer.seek(at, 1)
        await reader.until(lambda: any(one.start == 1 for one in reader.taken))
        assert (await reader.values(at, 2))[-2:] == [b"1", b"2"]

    tell(story)


def test_a_paused_partition_brings_nothing_and_holds_no_other_back(tell: Any) -> None:
    async def story(place: Place) -> None:
        at, other = place.partition(), place.partition()
        reader = await place.reader(at, other)
        reader.consumer.pause(at)
        producer = await place.producer()
        await write(producer, at, b"paused")
        await write(producer, other, b"read")
        assert await reader.values(other, 1) == [b"read"]
        await write(producer, other, b"and more")
        assert await reader.values(other, 2) == [b"read", b"and more"]
        assert at not in reader.read
        reader.consumer.resume(at)
        assert await reader.values(at, 1) == [b"paused"]

    tell(story)


def test_a_position_behind_the_end_is_an_error_and_no_other_position(tell: Any) -> None:
    async def story(place: Place) -> None:
        at, other = place.partition(), place.partition()
        producer = await place.producer()
        await write(producer, at, b"0")
        for _ in range(6):
            await write(producer, other, b"1")
        reader = await place.reader(at, other, at=5)
        await reader.until(lambda: reader.errors)
        assert isinstance(reader.errors[0], OutOfRange)
        assert at not in reader.read
        assert await reader.values(other, 1) == [b"1"]
        reader.consumer.seek(at, 0)
        assert await reader.values(at, 1) == [b"0"]

    tell(story)


def test_an_answer_tells_where_the_log_ends_whether_it_brings_records_or_not(tell: Any) -> None:
    async def story(place: Place) -> None:
        at = place.partition()
        reader = await place.reader(at)
        await reader.sees(at, end=0, stable=0)
        assert reader.answers[at].error == ""
        producer = await place.producer()
        await write(producer, at, b"0", b"1")
        await reader.sees(at, end=2, stable=2)
        assert await reader.consumer.bounds(at, within_s=DEADLINE_S) == (0, 2)

    tell(story)


def test_two_readers_know_nothing_of_each_other(tell: Any) -> None:
    async def story(place: Place) -> None:
        at = place.partition()
        one, two = await place.reader(at), await place.reader(at)
        one.consumer.pause(at)
        producer = await place.producer()
        await write(producer, at, b"0")
        assert await two.values(at, 1) == [b"0"]
        await two.consumer.stop()
        one.consumer.resume(at)
        assert await one.values(at, 1) == [b"0"]
        assert not one.consumer.dead

    tell(story)


def test_a_reader_that_is_stopped_twice_raises_nothing(tell: Any) -> None:
    async def story(place: Place) -> None:
        reader = await place.reader(place.partition())
        await reader.consumer.stop()
        await reader.consumer.stop()

    tell(story)


# ---------------------------------------------------------------------------------------------------------------- offsets


def test_offsets_are_found_by_time(tell: Any) -> None:
    async def story(place: Place) -> None:
        at = place.partition()
        producer = await place.producer()
        for late_ms in (0, 10, 20):
            await write(producer, at, b"1", stamp=START_MS + late_ms)
        asked = (START_MS - 1, START_MS, START_MS + 1, START_MS + 20, START_MS + 21)
        assert [await place.offsets.of_time(at, ms) for ms in asked] == [0, 0, 1, 2, None]
        assert await place.offsets.start_of(at) == 0

    tell(story)


def test_a_reader_and_whoever_looks_up_offsets_say_the_same_of_a_topic(tell: Any) -> None:
    async def story(place: Place) -> None:
        at = place.partition()
        await write(await place.producer(), at, b"0")
        reader = await place.reader(at)
        await reader.values(at, 1)
        found = await place.offsets.topic_id(at.stream)
        assert reader.consumer.topic_id(at.stream) == found
        assert await reader.consumer.topic_id_now(at.stream, within_s=DEADLINE_S) == found
        assert reader.consumer.knows(at.stream)

    tell(story)


# ------------------------------------------------------------------------------------------------------------- surroundings


def test_a_timer_rings_once_and_not_before_it_was_set_nor_after_it_was_cancelled(tell: Any) -> None:
    async def story(place: Place) -> None:
        rung: list[str] = []
        clock = place.port.clock
        clock.call_later(0.0, rung.append, "at once")
        clock.call_later(0.02, rung.append, "later")
        clock.call_later(0.01, rung.append, "never").cancel()
        assert rung == []
        before = clock.now()
        await place.until(lambda: "later" in rung)
        assert rung == ["at once", "later"]
        assert clock.now().mono >= before.mono + 0.02 - 1e-3

    tell(story)


def test_what_runs_beside_returns_or_raises_to_whoever_has_asked(tell: Any) -> None:
    async def story(place: Place) -> None:
        assert await place.port.in_thread(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            await place.port.in_thread(lambda: 1 // 0)

    tell(story)


def test_what_runs_apart_tells_this_loop_and_has_ended_when_it_is_stopped(tell: Any) -> None:
    async def story(place: Place) -> None:
        told: list[Any] = []
        here = asyncio.get_running_loop()

        async def work(say: Any) -> None:
            try:
                say(lambda: told.append(asyncio.get_running_loop() is here))
                await asyncio.Event().wait()
            finally:
                told.append("ended")

        apart = place.port.apart("apart", work)
        await place.until(lambda: told)
        await apart.stop()
        assert told == [True, "ended"]

    tell(story)


def test_a_partition_that_can_be_written_has_no_reason_why_not(tell: Any) -> None:
    async def story(place: Place) -> None:
        at = place.partition()
        assert await place.port.probe(place.id(), at, narrower=False) == ""
        reader = await place.reader(at)
        await write(await place.producer(), at, b"0")
        assert await reader.values(at, 1) == [b"0"], "the test leaves nothing that can be read"

    tell(story)
