"""What must be known before leaning on Kafka through aiokafka: each rule and gap, met by our edges, on a real broker."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from headgate.agents.coordinator.coordinator_stream import CoordinatorReader
from headgate.agents.kafka import private as rawkafka
from headgate.agents.kafka.offsets import KafkaOffsets
from headgate.agents.kafka.port import KafkaPort
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.kafka.topic_ids import IdentifyingRequest
from headgate.agents.port.bounds import log_ends, offset_of
from headgate.agents.port.errors import Fenced, OutboxError, OutcomeUnknown, ProducerBroken, TargetFailed
from headgate.agents.records.kafka.target_rules import TooLarge
from headgate.agents.runtime.reading.intake import Intake, LostPosition, PartitionSource
from headgate.agents.runtime.writing.buffer import LogWrite
from headgate.agents.runtime.writing.outbox import Outbox
from headgate.agents.worker.positions import PositionPublisher
from headgate.core.errors import EnvironmentFault
from headgate.core.names import StreamPartition

from ..conftest import READY_S
from .commits import committed
from .scenes import intake_on, outbox_on

pytestmark = pytest.mark.kafka

RULES = {
    "every future succeeds before the commit": "test_a_batch_that_fails_fails_the_commit_and_names_who_wrote_it",
    "after a failed send the producer is thrown away": "test_after_any_failure_the_outbox_takes_nothing_more",
    "a commit without an answer is an unknown outcome": "test_a_commit_without_an_answer_is_an_unknown_outcome",
    "sequence numbers wrap to zero": "test_sequence_numbers_wrap_as_the_broker_expects",
    "send_batch never crosses a commit": "test_no_batch_crosses_a_commit",
    "too large is refused before it is sent": "test_too_large_is_refused_before_anything_is_sent",
    "nothing makes a broker create a topic": "test_nothing_makes_a_broker_create_a_topic",
    "start waits for a broker that is down, up to a deadline": "test_start_waits_for_a_broker_that_is_down",
    "CONCURRENT_TRANSACTIONS does not wait for ever": "test_an_id_that_cannot_be_initialised_has_a_deadline",
    "fenced is a typed error, also where aiokafka asserts": "test_fenced_is_a_typed_error",
    "at the end only by an answered fetch": "test_at_the_end_only_by_an_answered_fetch",
    "an open transaction blocks, and is named": "test_an_open_transaction_blocks_and_is_named",
    "a deleted topic is noticed": "test_a_deleted_topic_is_noticed_by_reader_and_writer",
    "a missing leader does not spin": "test_a_missing_broker_does_not_make_a_client_spin",
    "positions step over aborted and control batches": "test_positions_step_over_aborted_and_control_batches",
    "ends are asked of the broker, read uncommitted": "test_ends_are_asked_of_the_broker",
    "a lost position is said, and never reset": "test_a_lost_position_is_said_and_never_reset",
    "positions are published to the group": "test_positions_are_published_to_the_group",
}


def test_every_rule_has_its_test():
    """The table above names tests that exist."""
    assert [name for name in RULES.values() if name not in globals()] == []


async def read_all(kafka, topic, *, seconds=60.0, raw=True):
    """Everything that a read-committed reader sees, with the position that it reaches."""
    at = StreamPartition(topic, 0)
    values = []
    async with intake_on(kafka, PartitionSource(at, 0), raw=raw) as intake:
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up:
            await intake.fill(0.2)
            while (chunk := intake.take(at, 1000)) is not None:
                values += chunk.values
            if intake.head(at).at_end:  # a commit is answered a moment before its marker is in the log
                return values, intake.positions()[at]
        raise AssertionError(f"no end: {intake.head(at)}")


async def until(condition, seconds=60.0, step=None):
    """Turn the loop until something holds."""
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "it did not come to hold"
        await (step() if step is not None else asyncio.sleep(0.02))


async def until_written(kafka, topic, *, behind=False):
    """Records of an open transaction stand in the log (`behind`: behind what is committed), where nobody may read them yet."""
    at = StreamPartition(topic, 0)
    reader = KafkaOffsets(ClientSettings(kafka.bootstrap))
    await reader.start()
    give_up = time.monotonic() + 240
    while await reader.end_of(at, committed=False) <= (await reader.end_of(at, committed=True) if behind else 0):
        assert time.monotonic() < give_up, "nothing was sent"
    await reader.stop()


def emit(outbox, topic, values, task="t"):
    buffer = outbox.buffer(task)
    buffer.emit(topic, 0, None, values, 1)
    buffer.complete()


@pytest.mark.asyncio
async def test_a_batch_that_fails_fails_the_commit_and_names_who_wrote_it(kafka, topic):
    """aiokafka commits although a batch was refused, if nobody looks at its future: a record of 5 kB and a good one would be lost."""
    good, small = topic("good"), topic("small", config={"max.message.bytes": "1000"})
    async with outbox_on(kafka, good + "-tx", good, small) as outbox:  # told a limit that is not the topic's
        emit(outbox, good, [b"a"], task="innocent")
        emit(outbox, small, [b"x" * 5000], task="guilty")
        with pytest.raises(TargetFailed) as failed:
            await committed(outbox)
        assert failed.value.target == StreamPartition(small, 0)
        assert failed.value.tasks == {"guilty"}
        assert failed.value.code == MessageSizeTooLargeError.errno
        assert failed.value.committed is False
    assert await read_all(kafka, good) == ([], 2)  # the record and the abort's marker


@pytest.mark.asyncio
async def test_after_any_failure_the_outbox_takes_nothing_more(kafka, topic):
    """After a failed send every later one to that partition would be out of order: the incarnation is over, a fresh one works."""
    small = topic("small", config={"max.message.bytes": "1000"})
    async with outbox_on(kafka, small + "-tx", small) as outbox:
        emit(outbox, small, [b"x" * 5000])
        with pytest.raises(TargetFailed):
            await committed(outbox)
        with pytest.raises(TargetFailed):
            await committed(outbox)
        with pytest.raises(TargetFailed):
            await outbox.room()
    async with outbox_on(kafka, small + "-tx", small) as outbox:
        emit(outbox, small, [b"fits"])
        await committed(outbox)
    assert (await read_all(kafka, small))[0] == [b"fits"]


@pytest.mark.asyncio
async def test_a_commit_without_an_answer_is_an_unknown_outcome(kafka, topic, monkeypatch):
    """The deadline passes while the broker is silent: nobody knows, and the error says that."""
    name = topic()
    async with outbox_on(kafka, name + "-tx", name, commit_deadline_s=0.2) as outbox:
        emit(outbox, name, [b"a"])

        async def silent(*_):
            await asyncio.Event().wait()

        monkeypatch.setattr(outbox._producer.producer, "commit_transaction", silent)
        with pytest.raises(OutcomeUnknown) as unknown:
            await committed(outbox)
        assert unknown.value.committed is None


@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.asyncio
async def test_sequence_numbers_wrap_as_the_broker_expects(kafka, topic, corrected):
    """150 records before 2**31: aiokafka's own counter turns negative and is refused for ever; Java's, and ours, goes on at zero."""
    name = topic()
    at = TopicPartition(name, 0)
    if not corrected:
        producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=name, request_timeout_ms=4000)
        await producer.start()
        producer._txn_manager._sequence_numbers[at] = 2**31 - 150

        async def cross():
            for _ in range(5):
                await producer.begin_transaction()
                await asyncio.gather(*[await producer.send(name, b"x", partition=0) for _ in range(40)])
                await producer.commit_transaction()

        with pytest.raises((KafkaError, TimeoutError)):
            await asyncio.wait_for(cross(), 8)
        await rawkafka.discard(producer)
        return
    async with outbox_on(kafka, name, name) as outbox:
        manager = outbox._producer.producer._txn_manager
        manager._sequence_numbers[at] = 2**31 - 150
        for n in range(10):
            emit(outbox, name, [b"%d" % (40 * n + i) for i in range(40)])
            await committed(outbox)
        assert manager.sequence_number(at) == 400 - 150
    values, _ = await read_all(kafka, name)
    assert values == [b"%d" % i for i in range(400)]


@pytest.mark.asyncio
async def test_no_batch_crosses_a_commit(kafka, topic):
    """Chunks complete while commits are under way: each belongs to exactly one, with the checkpoint that covers it, or to none."""
    name, log = topic(), topic("log")
    done = [0]
    async with outbox_on(kafka, name, name, log, batch_bytes=4096, max_pending_bytes=1 << 18) as outbox:

        async def commit():
            for _ in range(5):
                await committed(outbox, [LogWrite("t", StreamPartition(log, 0), [b"cp"], [b"%d" % done[0]], 1)])

        async with asyncio.timeout(240), asyncio.TaskGroup() as group:
            commits, n = group.create_task(commit()), 0
            while not commits.done():
                emit(outbox, name, [b"%d" % n, b"x" * 500])
                done[0] += 2
                n += 1
                await asyncio.sleep(0)
                await outbox.room()
        emit(outbox, name, [b"never committed"] * 2000)
        await until_written(kafka, name, behind=True)
    values, _ = await read_all(kafka, name)
    checkpoints, _ = await read_all(kafka, log)
    assert len(values) == int(checkpoints[-1])
    assert [int(v) for v in values if len(v) < 100] == list(range(len(values) // 2))
    assert len(checkpoints) == 5


@pytest.mark.asyncio
async def test_too_large_is_refused_before_anything_is_sent(kafka, topic):
    """aiokafka's send_batch checks no size. Which record it was is said, the chunk is dropped, and the producer lives."""
    name = topic(config={"max.message.bytes": "2000"})
    async with outbox_on(kafka, name, name) as outbox:
        outbox.know(name, 1, 2000)
        buffer = outbox.buffer("t")
        with pytest.raises(TooLarge) as large:
            buffer.emit(name, 0, None, [b"a", b"x" * 2000], 1)
        assert (large.value.index, large.value.limit) == (1, 2000)
        buffer.drop()
        emit(outbox, name, [b"y" * 1800, b"z" * 1800, b"s"])  # together above the limit: two batches
        await committed(outbox)
    assert [len(v) for v in (await read_all(kafka, name))[0]] == [1800, 1800, 1]


@pytest.mark.asyncio
async def test_nothing_makes_a_broker_create_a_topic(kafka, topic, monkeypatch):
    """Any metadata request for a topic makes a broker create it, unless the request says no: all of ours do."""
    asked = []
    build = IdentifyingRequest.build

    def noted(self, struct):
        asked.append((self._topics, self._allow_auto_topic_creation))
        return build(self, struct)

    monkeypatch.setattr(IdentifyingRequest, "build", noted)
    at = StreamPartition("nobody-made-this", 0)
    async with (
        intake_on(kafka, PartitionSource(at, 0)) as intake,
        outbox_on(kafka, "quiet-tx", request_timeout_ms=1000) as outbox,
    ):
        outbox.know(at.stream, 1)
        emit(outbox, at.stream, [b"a"])
        await intake.fill(0.3)
        with pytest.raises(OutboxError):
            await committed(outbox)
    named = [allow for topics, allow in asked if topics and at.stream in topics]
    assert named
    assert set(named) == {False}


@pytest.mark.asyncio
async def test_start_waits_for_a_broker_that_is_down(kafka, private_kafka):
    """aiokafka raises at once. Ours tries until the deadline, says what to check, and starts when the broker comes back."""
    client = ClientSettings("127.0.0.1:9")
    with pytest.raises(EnvironmentFault, match="no broker"):
        await Outbox(KafkaPort(client), "x").start(deadline_s=1.0)
    with pytest.raises(EnvironmentFault, match="no broker"):
        await Intake(KafkaPort(client), [], name="x").start(deadline_s=1.0)
    private_kafka.stop()
    outbox, intake = (
        Outbox(KafkaPort(ClientSettings(private_kafka.bootstrap)), "x"),
        Intake(KafkaPort(ClientSettings(private_kafka.bootstrap)), [], name="x"),
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(outbox.start(deadline_s=READY_S))
        group.create_task(intake.start(deadline_s=READY_S))
        group.create_task(asyncio.to_thread(private_kafka.restart, timeout_s=READY_S))
    await outbox.stop()
    await intake.stop()


@pytest.mark.asyncio
async def test_an_id_that_cannot_be_initialised_has_a_deadline(kafka, monkeypatch):
    """aiokafka waits without end while a transaction of the id is being completed."""

    async def never(self, _):
        await asyncio.sleep(0.01)
        return False

    monkeypatch.setattr("aiokafka.producer.sender.Sender._do_init_pid", never)
    with pytest.raises(ProducerBroken, match="could not be initialised"):
        await asyncio.wait_for(Outbox(KafkaPort(ClientSettings(kafka.bootstrap)), "stuck").start(deadline_s=5.0), 240)


@pytest.mark.asyncio
async def test_fenced_is_a_typed_error(kafka, topic):
    """A successor initialises the id: the zombie's commit is refused, and where aiokafka answers with AssertionError later, too."""
    name = topic()
    async with outbox_on(kafka, name, name) as zombie:
        emit(zombie, name, [b"first"])
        await committed(zombie)
        async with outbox_on(kafka, name, name) as successor:
            emit(zombie, name, [b"zombie"])
            with pytest.raises((Fenced, OutcomeUnknown)) as over:
                await committed(zombie)
            assert over.value.committed is not True
            with pytest.raises(OutboxError):
                await committed(zombie)
            emit(successor, name, [b"second"])
            await committed(successor)
    assert (await read_all(kafka, name))[0] == [b"first", b"second"]


@pytest.mark.asyncio
async def test_at_the_end_only_by_an_answered_fetch(private_kafka):
    """The broker stands still: what it said last is not what is, and after a while nothing is at its end."""
    admin = AIOKafkaAdminClient(bootstrap_servers=private_kafka.bootstrap)
    await admin.start()
    from aiokafka.admin import NewTopic

    await admin.create_topics([NewTopic("still", 1, 1)])
    await admin.close()
    at = StreamPartition("still", 0)
    async with intake_on(private_kafka, PartitionSource(at, 0), fresh_s=0.3, watchdog_s=0.8) as intake:
        assert not intake.head(at).at_end
        await until(lambda: intake.head(at).at_end, step=lambda: intake.fill(0.1))
        private_kafka.pause()
        try:
            await until(lambda: not intake.head(at).at_end, step=lambda: intake.fill(0.1))
            await until(lambda: intake.head(at).degraded is not None, step=lambda: intake.fill(0.1))
            assert "no answer" in intake.head(at).degraded
        finally:
            private_kafka.resume()
        await until(lambda: intake.head(at).at_end and intake.head(at).degraded is None, step=lambda: intake.fill(0.1))


@pytest.mark.asyncio
async def test_an_open_transaction_blocks_and_is_named(kafka, topic):
    """Position equals the last stable offset below the high watermark: not the end, but somebody's open transaction."""
    name = topic()
    at = StreamPartition(name, 0)
    async with outbox_on(kafka, name + "-a", name) as done, outbox_on(kafka, name + "-b", name) as open_:
        emit(done, name, [b"1"])
        await committed(done)
        emit(open_, name, [b"2"])
        await open_._send(open_._open, everything=True)
        await open_._confirm(open_._open)
        emit(done, name, [b"3"])
        await committed(done)
        async with intake_on(kafka, PartitionSource(at, 0)) as intake:
            await until(lambda: intake.head(at).count == 1, step=lambda: intake.fill(0.1))
            assert intake.take(at, 10).values == [b"1"]
            await until(lambda: intake.head(at).blocked, step=lambda: intake.fill(0.1))
            assert not intake.head(at).at_end
            await committed(open_)
            await until(lambda: intake.head(at).count == 2, step=lambda: intake.fill(0.1))
            assert intake.take(at, 10).values == [b"2", b"3"]
            await until(lambda: intake.head(at).at_end, step=lambda: intake.fill(0.1))


@pytest.mark.asyncio
async def test_a_deleted_topic_is_noticed_by_reader_and_writer(kafka, topic, monkeypatch):
    """aiokafka logs it and looks idle (reader), or tries for ever (writer)."""
    monkeypatch.setattr("headgate.agents.runtime.writing.outbox.GONE_AFTER_S", 1.0)
    name, other = topic(), topic("other")
    at = StreamPartition(name, 0)
    async with (
        outbox_on(kafka, name, name, other) as outbox,
        intake_on(kafka, PartitionSource(at, 0), watchdog_s=1.0) as intake,
    ):
        emit(outbox, name, [b"a"])
        await committed(outbox)
        await until(lambda: intake.head(at).count == 1, step=lambda: intake.fill(0.1))
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
        await admin.start()
        await admin.delete_topics([name])
        await admin.close()
        gone = "no longer exists"
        await until(lambda: gone in (intake.head(at).degraded or ""), step=lambda: intake.fill(0.1))
        emit(outbox, other, [b"a"], task="innocent")
        emit(outbox, name, [b"a"], task="guilty")
        with pytest.raises(TargetFailed) as failed:
            await asyncio.wait_for(committed(outbox), 240)
        assert (failed.value.target.stream, failed.value.tasks) == (name, {"guilty", "t"})  # t wrote to it before


@pytest.mark.asyncio
async def test_a_missing_broker_does_not_make_a_client_spin(private_kafka):
    """After a graceful stop of the only broker a plain aiokafka producer takes a whole core until it is back."""
    admin = AIOKafkaAdminClient(bootstrap_servers=private_kafka.bootstrap)
    await admin.start()
    from aiokafka.admin import NewTopic

    await admin.create_topics([NewTopic("spin", 1, 1)])
    await admin.close()
    at = StreamPartition("spin", 0)
    async with (
        outbox_on(private_kafka, None, "spin") as outbox,
        intake_on(private_kafka, PartitionSource(at, 0)) as intake,
    ):
        emit(outbox, "spin", [b"a"])
        await committed(outbox)
        private_kafka.stop()
        emit(outbox, "spin", [b"b"])
        used: list[float] = []
        while len(used) < 4 and min(used, default=1.5) >= 1.5:  # other threads of this process work, too
            cpu, wall = time.process_time(), time.monotonic()
            while time.monotonic() - wall < 4:
                await intake.fill(0.2)
            used.append(time.process_time() - cpu)
        assert min(used) < 1.5, used
        await asyncio.to_thread(private_kafka.restart, timeout_s=READY_S)
        await asyncio.wait_for(committed(outbox), 240)


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.asyncio
async def test_positions_step_over_aborted_and_control_batches(kafka, topic, raw):
    """Three transactions, the middle one aborted: its records are not seen, and the position reaches the end all the same."""
    name = topic()
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=name)
    await producer.start()
    for n, end in enumerate((producer.commit_transaction, producer.abort_transaction, producer.commit_transaction)):
        await producer.begin_transaction()
        await producer.send_and_wait(name, b"%d" % n, partition=0)
        await end()
    await producer.begin_transaction()
    await producer.send_and_wait(name, b"3", partition=0)
    await producer.abort_transaction()
    await producer.stop()
    assert await read_all(kafka, name, raw=raw) == ([b"0", b"2"], 8)


@pytest.mark.asyncio
async def test_ends_are_asked_of_the_broker(kafka, topic):
    """With an open transaction the end that is written and the end that can be read differ."""
    name = topic()
    at = StreamPartition(name, 0)
    reader = KafkaOffsets(ClientSettings(kafka.bootstrap))
    await reader.start()
    async with outbox_on(kafka, name, name) as outbox:
        emit(outbox, name, [b"1", b"2"])
        await committed(outbox)
        emit(outbox, name, [b"3"])
        await outbox._send(outbox._open, everything=True)
        await outbox._confirm(outbox._open)
        assert (await log_ends(reader, at))[:2] == (0, 4)
        assert await offset_of(reader, at, "newest") == 3
        assert await offset_of(reader, at, "oldest") == 0
        assert await offset_of(reader, at, ("time", 0)) == 0
        assert await offset_of(reader, at, ("time", 5_000_000_000_000)) == 3
    await reader.stop()


@pytest.mark.asyncio
async def test_a_lost_position_is_said_and_never_reset(kafka, topic):
    """Records were deleted under the reader: it says how many are gone, reads nothing, and goes on only after a seek."""
    from headgate.agents.kafka.topics import TopicsAdmin

    name = topic()
    at, missing = StreamPartition(name, 0), StreamPartition(name, 7)
    async with outbox_on(kafka, name, name) as outbox:
        emit(outbox, name, [b"%d" % i for i in range(10)])
        await committed(outbox)
    topics = TopicsAdmin(ClientSettings(kafka.bootstrap))
    await topics.start()
    trimmed = await topics.trim({at: 4, missing: 1})
    await topics.stop()
    assert trimmed[at] == 4
    assert isinstance(trimmed[missing], EnvironmentFault)
    async with intake_on(kafka, PartitionSource(at, 1)) as intake:
        await until(lambda: intake.head(at).lost is not None, step=lambda: intake.fill(0.1))
        lost = intake.head(at).lost
        assert isinstance(lost, LostPosition)
        assert (lost.position, lost.start) == (1, 4)
        assert "3 records are gone" in str(lost)
        assert intake.take(at, 10) is None
        intake.seek(at, lost.start)
        await until(lambda: intake.head(at).count > 0, step=lambda: intake.fill(0.1))
        assert intake.take(at, 1).values == [b"4"]


@pytest.mark.asyncio
async def test_positions_are_published_to_the_group(kafka, topic):
    """So that every lag tool works; a client that only commits, and reads nothing."""
    name = topic(partitions=2)
    publisher = PositionPublisher(ClientSettings(kafka.bootstrap), name + "-group")
    await publisher.publish({StreamPartition(name, 0): 5})
    await publisher.publish({StreamPartition(name, 0): 7, StreamPartition(name, 1): 3})
    await publisher.stop()
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap, group_id=name + "-group", enable_auto_commit=False)
    await consumer.start()
    consumer.assign([TopicPartition(name, 0), TopicPartition(name, 1)])
    assert [await consumer.committed(TopicPartition(name, n)) for n in (0, 1)] == [7, 3]
    await consumer.stop()


@pytest.mark.asyncio
async def test_the_end_of_the_coordinator_stream_is_not_asked_behind_a_long_poll(job, topic, monkeypatch):
    """Half a second of each start of a worker, and of each command, was spent behind one's own question for more records."""
    monkeypatch.setattr("headgate.agents.coordinator.coordinator_stream.POLL_MS", 30_000)
    stream = topic("steering", 1)
    await job.write(stream, [1])
    client = ClientSettings(job.bootstrap)
    offsets = KafkaOffsets(client)
    await offsets.start()
    reader = CoordinatorReader(KafkaPort(client), offsets, stream)
    await reader.start()
    try:
        assert await reader.read() is not None
        polls = asyncio.get_running_loop().create_task(reader.read())
        await asyncio.wait([polls], timeout=1.0)  # the broker has the question, and nothing to say
        assert await asyncio.wait_for(reader.end(), 15.0) == 1
        assert not polls.done()
        polls.cancel()
        await asyncio.wait([polls])
    finally:
        await reader.stop()
        await offsets.stop()
