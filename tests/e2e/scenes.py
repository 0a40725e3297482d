"""What several scenes begin with or ask: a job that counts, a target that is away, topics on a broker of their own, why a task failed, a
worker held up at its restore."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import struct
import uuid
from pathlib import Path

import orjson
from aiokafka import AIOKafkaProducer

import headgate as hg
from headgate.agents.broker.wire import exchange
from headgate.agents.kafka.port import KafkaPort
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.kafka.topics import TopicsAdmin, TopicSpec
from headgate.agents.port.errors import OutboxError
from headgate.agents.runtime.reading.intake import Intake
from headgate.agents.runtime.writing.outbox import Outbox
from headgate.core.names import incarnation_order
from headgate.core.task.stored.checkpoint import CHECKPOINT_KEY, decode_checkpoint

COUNTS = """
import headgate as hg

app = hg.App("JOB")
app.input("IN", key="k").agg(n=hg.count(), name="counts").to("OUT")
"""


def counting(job, inp, out):
    """A count for each user, without a shuffle: a table in every task."""
    app = hg.App(job.name)
    app.input(inp, key="user").agg(n=hg.count(), name="counts").to(out)
    return app


async def counted(job, out, each, users=40):
    """Wait until every user has been seen this often; never more."""
    async with asyncio.timeout(240):
        while True:
            last = {r.key.decode(): orjson.loads(r.value)["n"] for r in await job.records(out, 1)}
            assert max(last.values()) <= each
            if len(last) == users and set(last.values()) == {each}:
                return


def client_of(broker, user="app"):
    """A user of a secure broker, as from the command line: -b and -X."""
    given = broker.client_settings(user)
    return ClientSettings.parse(
        given["bootstrap.servers"], [f"{k}={v}" for k, v in given.items() if k != "bootstrap.servers"]
    )


async def made(client, *specs):
    """Topics of these names and widths, on a broker that no other test uses."""
    topics = TopicsAdmin(client)
    await topics.start()
    await topics.ensure([TopicSpec(name, partitions) for name, partitions in specs])
    await topics.stop()


async def known_everywhere(cluster, *topics):
    """Wait until each node knows these topics: a worker may ask any of them, and they hear of it one after the other."""
    async with asyncio.timeout(240):
        for address in cluster.bootstrap.split(","):
            while not await asyncio.to_thread(_knows, address, topics):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)


def _knows(address, topics):
    host, port = address.rsplit(":", 1)
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        reader = exchange(connection, 3, 2, struct.pack(">i", len(topics)) + names)  # Metadata, version 2
    for _ in range(reader.take(">i")):
        reader.take(">i"), reader.text(), reader.take(">i"), reader.text()
    reader.text(), reader.take(">i")
    leaders = []
    for _ in range(reader.take(">i")):
        reader.take(">h"), reader.text(), reader.take(">b")
        for _ in range(reader.take(">i")):
            reader.take(">h"), reader.take(">i")
            leaders.append(reader.take(">i"))
            for _ in range(2):
                [reader.take(">i") for _ in range(reader.take(">i"))]
    return len(leaders) >= len(topics) and min(leaders) > 0


@contextlib.asynccontextmanager
async def outbox_on(kafka, name, *topics, partitions=1, **options):
    """An outbox with its owner running, on a broker or with the settings of a client; how its owner ends is not this helper's business."""
    client = kafka if isinstance(kafka, ClientSettings) else ClientSettings(kafka.bootstrap)
    outbox = Outbox(KafkaPort(client), name, **options)
    for topic in topics:
        outbox.know(topic, partitions)
    await outbox.start(deadline_s=240)

    async def owner():
        with contextlib.suppress(OutboxError):
            await outbox.run()

    async with asyncio.TaskGroup() as group:
        group.create_task(owner())
        try:
            yield outbox
        finally:
            await outbox.stop()


@contextlib.asynccontextmanager
async def intake_on(kafka, *sources, **options):
    """A started intake."""
    intake = Intake(KafkaPort(ClientSettings(kafka.bootstrap)), sources, name="test", **{"max_wait_ms": 50, **options})
    await intake.start(deadline_s=240)
    try:
        yield intake
    finally:
        await intake.stop()


def asked(one):
    """Has every question to a target counted from now on."""
    count = itertools.count(1)
    said = {"questions": 0}
    before = one.worker.coordination.member_edge.probe

    async def probe(target):
        answer = await before(target)
        said["questions"] = next(count)
        return answer

    one.worker.coordination.member_edge.probe = probe
    return said


@contextlib.asynccontextmanager
async def steadily(job, inp, partition, **more):
    """Records for a neighbour, as long as the block lasts; how many there were is in the list."""
    written = []

    async def feed():
        for n in itertools.count():
            await job.write(inp, [{"n": n, **more}], partition=partition)
            written.append(n)
            await asyncio.sleep(0.05)

    task = asyncio.get_running_loop().create_task(feed())
    try:
        yield written
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def split(job, inp, bad, good):
    """Each record says where it goes, so that each task writes to one of the outputs only."""
    app = hg.App(job.name)
    records = app.input(inp)
    records.filter(lambda v: v["to"] == "bad").to(bad)
    records.filter(lambda v: v["to"] == "good").to(good)
    return app


async def asked_in_vain(job, one, said, written, good, guilty):
    """The target is asked three times; all the while the neighbour's records come out, undisturbed."""
    neighbour, now = one.worker.actors["Partition 3"], life(one)
    for questions in (1, 2, 3):
        await one.until(lambda n=questions: said["questions"] >= n, "the target is asked", within_s=240)
        await job.values(good, len(written), more_s=0)
        assert all(why(one, task) for task in guilty)
        assert one.worker.actors["Partition 3"] is neighbour
        assert life(one) == now
    return neighbour


def named(*fronts):
    return [f"{front}-{uuid.uuid4().hex[:8]}" for front in fronts]


def why(one, task="Partition 0"):
    """Why the job's stream says that a task has failed."""
    said = one.worker.coordination.member.job.task_states(task)
    last = said[max(said)] if said else None
    return last.why if last is not None and last.state == "failed" else ""


def files_below(directory):
    """All files there, while others create and delete directories: `Path.rglob` fails at one that has gone meanwhile."""
    return [Path(where, name) for where, _, names in os.walk(directory) for name in names]


async def checkpointed(job):
    """The positions of the last checkpoint of each task."""
    positions = {}
    for record in await job.records(job.topics.log, 1):
        if record.key == CHECKPOINT_KEY:
            positions.update(decode_checkpoint(record.value).positions)
    return positions


def life(one):
    """Which incarnation of the worker this is."""
    return incarnation_order(one.worker.incarnation)[0]


@contextlib.asynccontextmanager
async def held_open(job, topic):
    """Somebody's open transaction stands in every partition of this stream: until the block ends nobody reads what comes from here on."""
    blocker = AIOKafkaProducer(
        bootstrap_servers=job.bootstrap, transactional_id=f"{job.name}-held", transaction_timeout_ms=600_000
    )
    await blocker.start()
    try:
        await blocker.begin_transaction()
        for partition in sorted(await blocker.partitions_for(topic)):
            await blocker.send_and_wait(topic, b"never", partition=partition)
        yield
        await blocker.abort_transaction()
    finally:
        await blocker.stop()


@contextlib.asynccontextmanager
async def restore_held_up(job, topic):
    """A worker that starts after a kill -9 of its forerunner, while somebody's open transaction stands at the task log's end.

    It is through once the block ends.
    """
    inp, out = topic("in"), topic("out")
    source = COUNTS.replace("IN", inp).replace("OUT", out)
    await job.write(inp, [{"k": f"k{n}"} for n in range(50)])
    first = await job.process(source)
    await job.records(out, 50)
    first.kill()
    await first.ended()
    blocker = AIOKafkaProducer(
        bootstrap_servers=job.bootstrap, transactional_id=f"{job.name}-blocker", transaction_timeout_ms=600_000
    )
    await blocker.start()
    try:
        await blocker.begin_transaction()
        await blocker.send_and_wait(job.topics.log, b"never", key=b"never", partition=0)
        yield await job.process(source)
        await blocker.abort_transaction()
    finally:
        await blocker.stop()


KILLED_AT = """
import os, signal

def at(step):
    if os.environ.get("AT") == step:
        os.kill(os.getpid(), signal.SIGKILL)

def around(owner, name, before, after):
    real = getattr(owner, name)
    def call(self, *arguments):
        at(before(*arguments))
        result = real(self, *arguments)
        at(after(*arguments))
        return result
    setattr(owner, name, call)

never = lambda *_: ""
"""
"""For the code of a worker: it dies at the step that `AT` names, before or after a call of a method (`around`)."""
