"""One record that its topic does not take: the task that wrote it says which and why; everybody else goes on, in the same incarnation."""

from __future__ import annotations

import asyncio
import time

import orjson
import pytest
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from structlog.testing import capture_logs

import headgate as hg
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.kafka.topics import TopicsAdmin

from .conftest import WAIT_S
from .scenes import life, why
from .test_tables_clear import rows as rows_of

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
HOUR_MS = 3_600_000


async def altered(job, topic, **config):
    """What the topic takes changes under a running job, once the broker goes by it."""
    async with job.admin() as admin, asyncio.timeout(WAIT_S):
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, config)])
        shown = {}
        while not config.items() <= shown.items():
            (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            shown = {entry[0]: entry[1] for entry in answer.resources[0][4]}
        await asyncio.sleep(0.3)  # it tells itself what it tells others a moment later


def copying(job, inp, out):
    """All tasks write to the same partition, in the same batches."""
    app = hg.App(job.name)
    app.input(inp, timestamp="ts").to(out)
    return app


async def going_on(job, one, inp, out, n, *, partitions=(1, 2, 3)):
    """Records of the other tasks come out."""
    before = len(await job.records(out, 0))
    for partition in partitions:
        await job.write(inp, [{"n": n, "ts": int(time.time() * 1000)}], partition=partition)
    await job.records(out, before + len(partitions), more_s=0)


async def test_what_a_topic_does_not_take_is_found_before_it_is_sent(job, topic):
    """A record without a key for a compacted topic fails its own task, with the record's origin, and no producer is lost. It was 32
    incarnations of the whole worker in 45 s, and nobody was blamed. One that is too new gets another timestamp, and no task fails."""
    inp, out, compacted = topic("in", 4), topic("out"), topic("compacted", config={"cleanup.policy": "compact"})
    app = hg.App(job.name)
    records = app.input(inp, timestamp="ts")
    records.filter(lambda v: "key" in v).to(compacted, key="key")
    records.filter(lambda v: v.get("bare")).to(compacted)
    records.to(out)
    one = await job.start(app)
    await one.until_running(4)
    before, now = life(one), int(time.time() * 1000)
    await job.write(inp, [{"n": 0, "ts": now, "key": "a"}, {"n": 1, "ts": now + 2 * HOUR_MS}], partition=0)
    await job.write(inp, [{"n": 0, "ts": now}, {"n": 1, "ts": now, "bare": True}], partition=1)
    await one.until(lambda: why(one, "Partition 1"), "it says why")
    assert f"{inp}[1] offset 1" in why(one, "Partition 1")
    assert f"a record for {compacted} has no key" in why(one, "Partition 1")
    await going_on(job, one, inp, out, 7, partitions=(2, 3))
    assert life(one) == before


async def test_what_a_broker_refuses_all_the_same_costs_one_incarnation(job, topic):
    """The topic's settings change under the job, so nothing can be known before sending: one incarnation ends, once. At the next try the
    limits are known, and the record has the nearest timestamp that they accept."""
    inp, out = topic("in", 4), topic("out", config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    one = await job.start(copying(job, inp, out))
    await one.until_running(4)
    await going_on(job, one, inp, out, 0, partitions=(0, 1, 2, 3))  # everybody has written there
    before, now = life(one), int(time.time() * 1000)
    late = now + HOUR_MS // 2
    await altered(job, out, **{"message.timestamp.after.max.ms": str(HOUR_MS // 4)})
    await job.write(inp, [{"n": 1, "ts": now}, {"n": 2, "ts": late}], partition=0)
    found = await job.records(out, 6)
    await going_on(job, one, inp, out, 3)
    (moved,) = [record for record in found if record.headers]
    assert moved.headers == (("hg-time", b"%d" % late),)
    assert abs(moved.timestamp - now - HOUR_MS // 4) < HOUR_MS // 8
    words = b"the broker refused it with error 32"  # they stood there until the next try, which may have been soon
    said = [one.value for one in await job.records(job.topics.coordinator, 1) if words in (one.value or b"")]
    assert f"timestamp {late}".encode() in said[0]
    assert [why(one, f"Partition {n}") for n in range(4)] == [""] * 4
    assert life(one) == before + 1


async def test_a_window_of_a_day_is_drained_and_its_result_keeps_its_event_time(job, topic):
    """Its result lies more than an hour ahead, and its topic accepts an hour: the drain failed, or lost all results under skip."""
    inp, out = topic("in"), topic("out")
    app = hg.App(job.name)
    app.input(inp, timestamp="ts").repartition("k").window(hg.tumbling("7d")).agg(n=hg.count()).to(out)
    now = int(time.time() * 1000)
    week = 7 * 24 * HOUR_MS
    ts = now - now % week + HOUR_MS // 60
    one = await job.start(app)
    await one.until_running(1)
    await job.write(inp, [{"k": "a", "ts": ts}, {"k": "b", "ts": ts}])
    await job.ask("drain")
    found = await job.records(out, 2)
    ends = ts - ts % week + week - 1
    assert [record.headers for record in found] == [(("hg-time", b"%d" % ends),)] * 2
    assert all(record.timestamp <= now + 2 * HOUR_MS for record in found)


async def test_a_bounded_run_under_skip_has_the_results_of_windows_that_end_far_ahead(job, topic):
    """The run ended with 0, and all results were skipped: none was written, and the table behind them was empty."""
    inp, out = topic("in"), topic("out")
    app = hg.App(job.name, on_error="skip")
    rows = app.input(inp, timestamp="ts", max_future="30d", until="newest").repartition("k")
    counts = rows.window(hg.tumbling("1d"), at_end="close").agg(n=hg.count())
    counts.to(out)
    counts.table("days")
    now, day = int(time.time() * 1000), 24 * HOUR_MS
    ahead = (now // day + 8) * day
    await job.write(inp, [{"k": k, "ts": ts} for k in "ab" for ts in (now - 9 * day, ahead, ahead + 1)])
    one = await job.start(app, bounded=True)
    assert await one.ended() == 0
    found = await job.records(out, 0)
    value = {(one.key.decode(), orjson.loads(one.value)["window_start"]): orjson.loads(one.value)["n"] for one in found}
    assert value == {(k, start): n for k in "ab" for start, n in (((now - 9 * day) // day * day, 1), (ahead, 2))}
    assert {one.headers for one in found} == {(), (("hg-time", b"%d" % (ahead + day - 1)),)}
    stored = await rows_of(job, "days")
    assert {key: (row["window_start"], row["n"]) for key, row in stored.items()} == dict.fromkeys("ab", (ahead, 2))


async def test_an_output_that_would_not_keep_its_results_is_named_before_there_is_one(job, topic):
    """Kafka deletes results of three hours ago at once where a topic keeps one hour. The log said so at the first one."""
    inp, out, kept = topic("in"), topic("out", config={"retention.ms": str(HOUR_MS)}), topic("kept")
    app = hg.App(job.name)
    rows = app.input(inp)
    counts = rows.repartition("k").window(hg.tumbling("10s")).agg(n=hg.count())
    counts.to(out)
    counts.to(kept)
    now = int(time.time() * 1000)
    await job.write(inp, [{"k": "a"}, {"k": "b"}], timestamp_ms=now - 3 * HOUR_MS)
    with capture_logs() as said:
        one = await job.start(app)
        await one.until(lambda: any("retention_ms" in line for line in said), "it is named")
    (line,) = [line for line in said if "retention_ms" in line]
    assert {name: line[name] for name in ("topic", "retention_ms", "partition")} == {
        "topic": out,
        "retention_ms": HOUR_MS,
        "partition": f"{inp}:0",
    }
    # Whichever is known first names it: the broker's answer of how many there are, or the first chunk.
    by_the_broker = line.get("offset") == 0 and line.get("old_records") == 2
    assert by_the_broker or line.get("event_time_ms") == now - 3 * HOUR_MS
    assert f"raise retention.ms of {out}" in line["remedy"]
    assert await job.records(out, 0) == []  # no window has closed


async def test_an_error_that_no_one_knows_has_a_culprit_and_ends_a_bounded_number_of_lives(job, topic, monkeypatch):
    """A broker that refuses a record for reasons that no setting tells: the one who wrote it is tried a few times, with growing pauses, and
    then given up. A seek behind it goes on without a restart."""
    monkeypatch.setattr("headgate.agents.records.kafka.target_rules.Rules.refuse", lambda *_: None)
    monkeypatch.setattr("headgate.core.coordination.member.targets.TRIES", 2)
    inp, out = topic("in", 4), topic("out", config={"cleanup.policy": "compact"})
    app = hg.App(job.name)
    records = app.input(inp)
    records.filter(lambda v: v["key"]).to(out, key="key")
    records.filter(lambda v: not v["key"]).to(out)
    one = await job.start(app)
    await one.until_running(4)
    before = life(one)
    for partition in range(4):
        await job.write(inp, [{"key": f"k{partition}"}], partition=partition)
    await job.records(out, 4)
    await job.write(inp, [{"key": ""}], partition=0)
    await one.until(lambda: "given up after 3 attempts" in why(one), "it is given up", within_s=240)
    assert f"{out}:0 cannot be written: the broker refused it with error 87" in why(one)
    assert "without key" in why(one)
    assert life(one) == before + 3
    for partition in (1, 2, 3):
        await job.write(inp, [{"key": "more"}], partition=partition)
    await job.records(out, 7)
    await job.ask("seek", stream=inp, partition=0, to=2, wait=False)
    await job.write(inp, [{"key": "behind"}], partition=0)
    assert [r.key for r in await job.records(out, 8)].count(b"behind") == 1
    assert life(one) == before + 3


async def test_own_topics_take_every_time(job, topic):
    """Event times of a hundred years ahead pass through an intermediate stream, and a topic that was made otherwise refuses the start."""
    inp = topic("in", 2)
    app = hg.App(job.name)
    app.input(inp, timestamp="ts", max_future=None).repartition("k", name="by-k").map(
        lambda v: v["n"], with_record=False
    ).sink(lambda batch: seen.extend(batch.values))
    seen: list[int] = []
    one = await job.start(app)
    await one.until_running(2)
    before = life(one)
    later = int(time.time() * 1000) + 100 * 365 * 24 * HOUR_MS
    await job.write(inp, [{"k": f"{n}", "n": n, "ts": later if n % 2 else 0} for n in range(20)])
    await one.until(lambda: len(seen) >= 20, "all have come through")
    assert sorted(seen) == list(range(20))
    assert life(one) == before
    await one.stop()
    middle = next(iter(one.worker.declared.graph.writer))
    await altered(job, middle, **{"message.timestamp.after.max.ms": str(HOUR_MS), "retention.ms": "-1"})
    topics = TopicsAdmin(ClientSettings(job.bootstrap))
    await topics.start()
    specs = [spec for spec in one.worker.topics.all_specs({inp: 2}, {middle: 2}, 2)[0] if spec.name == middle]
    with pytest.raises(
        hg.HeadgateError, match=r"message.timestamp.after.max.ms is 3600000, but 9223372036854775807 is needed"
    ):
        await topics.ensure(specs)
    await topics.stop()
