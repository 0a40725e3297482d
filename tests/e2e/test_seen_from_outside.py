"""What others see of a job: codecs in the broker's own files, lag in its group, memory in RocksDB's own log, lines in its log."""

from __future__ import annotations

import asyncio
import json
import random
import re
import struct

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import GroupCoordinatorNotAvailableError

import headgate as hg

from .scenes import restore_held_up

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def codecs(kafka, topic):
    """The codecs of all larger data batches of a topic, read from the segments of the broker."""
    found = set()
    for segment in sorted(kafka.data.glob(f"node-*/data/{topic}-*/*.log")):
        data, at = segment.read_bytes(), 0
        while at + 61 <= len(data):
            length, attributes = struct.unpack_from(">i", data, at + 8)[0], struct.unpack_from(">h", data, at + 21)[0]
            if length <= 0:
                break
            if not attributes & 0x20 and length > 2000:  # no control batch; tiny ones may be left as they are
                found.add(attributes & 7)
            at += 12 + length
    return found


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
async def test_outputs_intermediate_streams_and_the_task_log_are_written_with_the_codec(job, topic, kafka, codec):
    """One setting for all three; the broker keeps the batches as they came."""
    inp, out = topic("in"), topic("out")
    app = hg.App(job.name, settings={"compression": codec, "intermediate.trim": False})
    app.input(inp, until="newest").repartition("k").agg(n=hg.count(), pad=hg.last("pad"), name="kept").to(out)
    await job.write(inp, [{"k": f"k{n}", "pad": random.Random(n).randbytes(200).hex()} for n in range(300)])
    worker = await job.start(app)
    between = next(iter(worker.worker.declared.graph.intermediates))
    assert await worker.ended() == 0
    assert len(await job.records(out, 300)) == 300
    written = {name: codecs(kafka, name) for name in (out, between, job.topics.log)}
    assert set(map(frozenset, written.values())) == {frozenset({CODECS[codec]})}, written


async def lags(job, topic, partitions):
    """As `kafka-consumer-groups --describe --group JOB` computes them: ends less what the group has committed."""
    ends = AIOKafkaConsumer(**job.client.consumer(isolation_level="read_uncommitted", enable_auto_commit=False))
    await ends.start()
    at = [TopicPartition(topic, n) for n in range(partitions)]
    end = await ends.end_offsets(at)
    await ends.stop()
    try:
        async with job.admin() as admin:
            done = await admin.list_consumer_group_offsets(f"{job.name}-1")
    except GroupCoordinatorNotAvailableError:  # the first commit of a broker's life makes the topic of positions
        return {}
    return {tp.partition: end[tp] - done[tp].offset for tp in at if tp in done}


async def test_a_paused_job_shows_what_waits_for_it_and_a_running_one_shows_none(job, topic):
    """Any lag tool sees the positions: none, seven and three, none."""
    inp, out = topic("in", 2), topic("out", 2)
    app = hg.App(job.name)
    app.input(inp).to(out)
    worker = await job.start(app)
    await job.write(inp, [{"n": n} for n in range(10)])
    await job.records(out, 10)

    async def become(wanted):
        async with asyncio.timeout(240):
            while await lags(job, inp, 2) != wanted:  # noqa: ASYNC110 - another process has to know it
                await asyncio.sleep(0.05)

    await become({0: 0, 1: 0})
    await job.ask("pause")
    await worker.until(lambda: set(worker.states().values()) == {"paused"}, "paused")
    await job.write(inp, [{"n": n} for n in range(7)], partition=0)
    await job.write(inp, [{"n": n} for n in range(3)], partition=1)
    assert await lags(job, inp, 2) == {0: 7, 1: 3}
    await job.ask("resume")
    await job.records(out, 20)
    await become({0: 0, 1: 0})


async def test_one_setting_bounds_the_memory_of_all_stores_of_a_worker(job, topic):
    """RocksDB's own log says the capacity, and that two stores share one cache; more state than that is kept and read all the same."""
    inp, out = topic("in", 2), topic("out", 2)
    app = hg.App(job.name, settings={"state.memory": "4MiB"})
    app.input(inp, key="k").agg(n=hg.count(), pad=hg.last("pad"), name="kept").to(out)
    await job.write(inp, [{"k": f"k{n}", "pad": f"{n:06}" * 150} for n in range(10_000)])
    worker = await job.start(app)
    await worker.until(lambda: sum(worker.worker.sensor.records.values()) == 10_000, "all is counted", within_s=240)
    await job.ask("pause")
    logs = [path.read_text() for path in (job.directory / "state").glob("*/tasks/Partition-*/db/LOG")]
    assert len(logs) == 2
    shared = [set(re.findall(r"block_cache: (0x[0-9a-f]+)", text)) for text in logs]
    assert shared[0] == shared[1]
    assert len(shared[0]) == 1
    assert {n for text in logs for n in re.findall(r"capacity : (\d+)", text)} == {
        str(3 << 20)
    }  # the rest is for decoded rows
    assert all(int(n) <= 4 << 20 for text in logs for n in re.findall(r"Options.write_buffer_size: (\d+)", text))
    tables = [actor.state.tables.table("kept") for actor in worker.worker.actors.values()]
    await worker.until(
        lambda: sum(1 for table in tables for _ in table.range()) == 10_000, "all is committed", within_s=240
    )
    await job.ask("resume")
    await job.write(inp, [{"k": f"k{n}", "pad": ""} for n in range(2)])  # RocksDB looks at its next write
    await worker.until(lambda: worker.worker.runtime.memory.used() <= 6 << 20, "what was full is written out")


async def test_a_task_reads_ahead_as_far_as_its_setting_says(job, topic):
    """`buffer.bytes` was read by nobody: a small worker held megabytes of each partition, whatever its settings said."""
    inp, out = topic("in", 2), topic("out", 2)
    app = hg.App(job.name, settings={"buffer.bytes": "64KiB"})
    app.input(inp).map(lambda v: {"n": v["n"]}).to(out)
    worker = await job.start(app)
    await worker.until_running(2)
    await job.ask("pause")
    await job.write(inp, [{"n": n, "pad": "x" * 1000} for n in range(2000)])

    def sizes():
        return [h.size for actor in worker.worker.actors.values() for h in actor.reading.intake.intake.heads().values()]

    await worker.until(lambda: min(sizes()) >= 64 << 10, "both buffers are full")
    assert max(sizes()) <= 3 * (64 << 10)
    await job.ask("resume")
    assert sorted(v["n"] for v in await job.values(out, 2000)) == list(range(2000))


async def test_a_long_restore_says_how_far_it_is_and_every_line_says_who_speaks(job, topic):
    """Somebody's open transaction holds the restore up: a line every few seconds says so, in fields that a machine can read."""
    async with restore_held_up(job, topic) as second:

        async def told(text):
            async with asyncio.timeout(240):
                while re.search(text, second.text()) is None:
                    assert second.process.returncode is None, second.text()[-3000:]
                    await asyncio.sleep(0.05)

        await told(r"restoring Partition 0: \d+ %, [\d,]+ of [\d,]+ records")
    await told('"state": "running"')
    lines = [json.loads(line) for line in second.text().rpartition("\n")[0].splitlines() if line.startswith("{")]
    assert all({"job", "worker", "event", "level", "timestamp"} <= set(line) for line in lines), lines
    assert {(line["job"], line["worker"]) for line in lines} == {(f"{job.name}/1", "w1")}
    of_task = [line for line in lines if line["event"] == "task state"]
    assert all(line["task"] == "Partition 0" and line["incarnation"] and line["run"] for line in of_task), of_task
