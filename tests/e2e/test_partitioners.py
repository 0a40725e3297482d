"""Topics that other clients wrote: a join of what is spread differently fails before its first record, and a wrong `key=` is said."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from zlib import crc32

import orjson
import pytest
from structlog.testing import capture_logs

import headgate as hg
from headgate.agents.cli.see.status import read
from headgate.agents.records.kafka.partitioner import partition_of

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
KEYS = [f"user-{n}".encode() for n in range(400)]


def librdkafka(key, width):
    return crc32(key) % width


async def write(job, topic, width, spread, values):
    """Records of these keys, placed as that client would."""
    for partition in range(width):
        for key, value in values:
            if spread(key, width) == partition:
                await job.write(topic, [value], partition=partition, key=key)


async def keys_said(job):
    """What a status says of the keys of each input."""
    return (await read(SimpleNamespace(client=job.client, topics=job.topics, job=job.topics.job)))["keys"]


def joining(name, users, orders, out, **said):
    app = hg.App(name, settings={"error.retries": 5})
    table = app.input(users, **said).table("users")
    app.input(orders, **said).join(table, into=lambda order, user: {**order, **user}).to(out)
    return app


async def test_a_join_of_topics_of_java_and_librdkafka_fails_before_its_first_record(job, topic):
    """More than half of the keys found no partner, and nobody was told. Said to be alike, it runs as it is told."""
    users, orders, out = topic("users", 4), topic("orders", 4), topic("out")
    await write(job, users, 4, librdkafka, [(key, {"u": 1}) for key in KEYS])
    await write(job, orders, 4, partition_of, [(key, {"o": 1}) for key in KEYS])
    one = await job.start(joining(job.name, users, orders, out))
    await one.until(lambda: set(one.states().values()) == {"failed"}, "all tasks have failed")
    why = one.worker.actors["Partition 0"].machine.why
    assert f"'{orders}' by murmur2 and '{users}' by crc32" in why
    assert f"put .repartition(…) after app.input('{users}')" in why
    assert one.worker.counters["Partition 0"]["join_misses"] == 0
    assert one.worker.counters["Partition 0"]["keys_tested"] >= 100
    async with asyncio.timeout(240):  # the next heartbeat of a worker whose four tasks have looked
        while await keys_said(job) != {users: {"crc32": 4}, orders: {"murmur2": 4}}:
            pass
    assert await job.records(out, 0) == []


async def test_small_topics_join_and_a_field_that_the_topic_is_not_keyed_by_is_said(job, topic):
    """Few keys are no reason to refuse. But of a topic that is spread by `session`, `key="user"` counts each user in each task."""
    users, orders, clicks = topic("users", 4), topic("orders", 4), topic("clicks", 4)
    out, counts = topic("out"), topic("counts")
    await write(job, users, 4, partition_of, [(key, {"u": 1}) for key in KEYS[:10]])
    await write(job, orders, 4, partition_of, [(key, {"o": 1}) for key in KEYS[:10]])
    rows = [{"session": f"s{n}", "user": f"u{n % 300}"} for n in range(600)]
    for n in range(4):
        mine = [row for row in rows if partition_of(row["session"].encode(), 4) == n]
        await job.write(clicks, mine, partition=n)
    app = joining(job.name, users, orders, out)
    app.input(clicks, key="user").agg(n=hg.count()).to(counts)
    with capture_logs() as logs:
        one = await job.start(app)
        assert len(await job.values(out, 10)) == 10
        assert sum(orjson.loads(r.value)["n"] > 0 for r in await job.records(counts, 300)) >= 300

        def warned():
            return {line["task"] for line in logs if "is not partitioned by 'user'" in line["event"]}

        await one.until(lambda: warned() == {f"Partition {n}" for n in range(4)}, "each task says it")
    assert set(one.states().values()) == {"running"}
    assert one.worker.counters["Partition 0"]["keys_elsewhere"] > 20
    await one.until(lambda: one.worker.participant.load().get(f"keys.other.{clicks}") == 4.0, "the heartbeat says it")
    assert one.worker.participant.load()[f"keys.unknown.{orders}"] == 4.0
