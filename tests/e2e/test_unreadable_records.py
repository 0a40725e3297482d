"""Records in the job's own topics that nobody understands: a newer version's, somebody's by hand, rubbish. Every reader goes on."""

from __future__ import annotations

import msgpack
import pytest
from aiokafka import AIOKafkaProducer

import headgate as hg
from headgate.agents.cli.data.dead_letters import dead_letter_document
from headgate.agents.kafka.scan import scan_topic
from headgate.agents.process.reading import following, heard
from headgate.agents.status.documents import status
from headgate.agents.status.metrics import render
from headgate.core.coordination import messages as c
from headgate.core.coordination.events import Heartbeat
from headgate.core.coordination.liveness import encode_beat
from headgate.core.coordination.wire import encode, encode_key

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


async def scatter(job):
    """What a careless hand and a newer version leave in every topic of a job."""
    newer = msgpack.packb({**msgpack.unpackb(encode_beat(Heartbeat("w9", "p9", "", 1.0))), "v": 2})
    producer = AIOKafkaProducer(**job.client.producer())
    await producer.start()
    for topic, key, value, headers in (
        (job.topics.heartbeat, None, newer, []),
        (job.topics.heartbeat, None, b"\xc1", []),
        (job.topics.heartbeat, b"by hand", None, []),
        (job.topics.coordinator, b"by hand", b"{}", []),
        (job.topics.coordinator, msgpack.packb([2, "set-config", "chunk.max-records"]), b"\x80", []),
        (job.topics.log, b"by hand", b"x", []),
        (job.topics.log, b"\x07new kind", b"x", []),
        (job.topics.dead_letters, b"k", b"v", [("hg-partition", b"one"), ("hg-offset", None)]),
    ):
        await producer.send_and_wait(topic, value, key=key, headers=headers, partition=0)
    await producer.stop()


async def test_whatever_stands_in_an_own_topic_is_passed_counted_and_shown(job, topic):
    """One heartbeat that could not be read made every worker deaf for ever: nobody was seen to die any more, and in a rolling upgrade the
    newer version's heartbeats did that. A record by hand in the task log failed the task at each start."""
    inp, out = topic("in"), topic("out")

    def declared():
        app = hg.App(job.name)
        app.input(inp, key="k", on_bad_data="dead_letter").agg(n=hg.count(), name="counts").to(out)
        return app

    await job.write(inp, [{"k": "a"}, b"no json", {"k": "a"}])
    first = await job.start(declared())
    beats: list[str] = []
    first.worker.coordination.beat = lambda event, told=first.worker.coordination.beat: (
        beats.append(event.heartbeat.process),
        told(event),
    )
    await job.records(out, 1)
    await scatter(job)
    passed = first.worker.runtime.unreadable.topics

    def all_passed():
        return {name: one.count for name, one in passed.items()} == {job.topics.heartbeat: 3, job.topics.coordinator: 2}

    await first.until(all_passed, "all are passed")
    so_far = len(beats)
    await first.until(lambda: len(beats) > so_far + 3, "the next heartbeats are heard")
    async with following(job.client, job.topics) as follower:
        assert follower.job.problem_count == 2
    hearing = await heard(
        job.client, job.topics.heartbeat, follower.job, seconds=600.0
    )  # however long ago they were scattered
    assert hearing.unreadable == 3
    assert first.worker.options.process in hearing.beats
    assert all_passed()
    letters = [dead_letter_document(one) async for one in scan_topic(job.client, job.topics.dead_letters)]
    assert [one["topic"] for one in letters] == [inp, ""]
    assert "hg-partition" in letters[1]["exception"]
    assert await first.stop() == 0

    second = await job.start(declared(), "w2", state_dir=job.directory / "elsewhere")
    await second.until_running(1)
    await job.write(inp, [{"k": "a"}])
    assert (await job.values(out, 2))[-1]["n"] == 3
    shown = status(second.worker)["worker"]["unreadable"]
    assert shown[job.topics.log]["records"] == 2
    assert shown[job.topics.coordinator]["records"] == 2
    assert "unknown to format version" in shown[job.topics.log]["why"]
    text = render(second.worker).decode()
    assert f'headgate_unreadable_records_total{{job="{job.name}/1",topic="{job.topics.log}",worker="w2"}} 2.0' in text


KINDS = sorted(kind for kind, _ in c.KEYS.values())
SELDOM = ("set-fence", "set-letters")
"""A job may have none of them."""


async def test_a_key_that_is_deleted_by_hand_stops_nothing_and_is_named(job, topic):
    """A null value written by hand for any key of the coordinator stream took the override, the fence or the request away, and nobody said
    a word. Here somebody deletes every key of a live job, one type after the other."""
    inp, out = topic("in"), topic("out")
    app = hg.App(job.name)
    app.input(inp, key="k").agg(n=hg.count(), name="counts").to(out)
    await job.write(inp, [{"k": "a"}])
    gone = await job.start(app)
    await job.records(out, 1)
    assert await gone.stop() == 0  # its record, and the release of its task, are fenced or superseded
    first = await job.start(app, "w2")
    await first.until_running(1)
    producer = AIOKafkaProducer(**job.client.producer())
    await producer.start()
    run = first.worker.coordination.member.job.run

    async def answered(request):
        await producer.send_and_wait(job.topics.coordinator, key=encode(request)[0], value=encode(request)[1])
        await first.until(lambda: first.worker.coordination.member.job.answer(request.uuid) is not None, "an answer")

    request = c.SetRequest("by-hand-1", "set-config", arguments={"setting": "chunk.max-records", "value": 10})
    await answered(request)
    deleted = sent = 0
    for kind in KINDS:
        member = first.worker.coordination.member
        if kind in SELDOM and not member.job.messages[kind]:
            continue
        keys = [(kind, key) for key in member.job.messages[kind]]
        if kind == "set-request":  # it has its answer, and the leader has deleted it
            keys = [(kind, ("by-hand-1",))]
        assert keys, kind
        before = dict(member.job.messages[kind])
        for key in keys:
            await producer.send_and_wait(job.topics.coordinator, key=encode_key(key), value=None)
        deleted += len(keys)
        passed = first.worker.runtime.unreadable.topics
        await first.until(lambda told=passed: job.topics.coordinator in told, "it is counted")
        await first.until(lambda n=deleted, told=passed: told[job.topics.coordinator].count == n, f"{kind} is counted")
        assert f"'{kind}" in passed[job.topics.coordinator].why
        await first.until(lambda m=member: not m.job.damaged, f"{kind} is written again")
        assert dict(member.job.messages[kind]) == before
        await job.write(inp, [{"k": "a"}])
        sent += 1
        assert (await job.values(out, 1 + sent))[-1]["n"] == 1 + sent
    await producer.stop()
    shown = status(first.worker)["worker"]["unreadable"][job.topics.coordinator]
    assert shown["records"] == deleted >= len(KINDS) - len(SELDOM)
    async with following(job.client, job.topics) as follower:
        assert follower.job.damaged == {}
        assert follower.job.run == run
        assert follower.job.configs["chunk.max-records"].value == 10
    assert await first.stop() == 0
