"""A small batch that would be huge: on a real broker, the task goes on, and the batch's own input decides about it."""

from __future__ import annotations

from typing import TypedDict

import pytest
from aiokafka import AIOKafkaProducer

import headgate as hg

from .scenes import why

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


class Text(TypedDict):
    v: str


SETTINGS = {"fetch.max-batch-bytes": "256KiB"}


async def send(job, topic, codec, size):
    producer = AIOKafkaProducer(**job.client.producer(compression_type=codec, max_request_size=64 << 20))
    await producer.start()
    try:
        await producer.send_and_wait(topic, b'{"v":"' + b"x" * size + b'"}', partition=0)
    finally:
        await producer.stop()


@pytest.mark.parametrize(("codec", "columns"), [("gzip", False), ("snappy", True), ("lz4", False), ("zstd", True)])
async def test_it_becomes_a_dead_letter_and_what_follows_is_processed(job, topic, codec, columns):
    """4 MiB of zeros in a few kB: the worker held whatever the sender wished."""
    inp, out = topic("in"), topic("out")
    app = hg.App(job.name, settings=SETTINGS, on_bad_data="dead_letter")
    source = app.input(inp, serde=hg.json(Text), start="oldest", until="newest")
    (source.columns() if columns else source).to(out)
    await job.write(inp, [{"v": "a"}])
    await send(job, inp, codec, 4 << 20)
    await job.write(inp, [{"v": "b"}])
    worker = await job.start(app)
    assert await worker.ended() == 0
    assert await job.values(out, 2) == [{"v": "a"}, {"v": "b"}]
    [letter] = await job.records(job.topics.dead_letters, 1)
    told = dict(letter.headers)
    assert (told["hg-topic"], told["hg-offset"], told["hg-offset-last"]) == (inp.encode(), b"1", b"1")
    assert b"offsets 1 to 1 are one batch of " in told["hg-exception"]
    assert b"more than 262144 (fetch.max-batch-bytes)" in told["hg-exception"]


async def test_by_default_the_task_fails_by_name(job, topic):
    inp = topic("in")
    app = hg.App(job.name, settings={**SETTINGS, "error.retries": 0})
    app.input(inp, start="oldest").to(topic("out"))
    worker = await job.start(app)
    await worker.until_running(1)
    await send(job, inp, "zstd", 4 << 20)
    await worker.until(lambda: why(worker), "the task has failed")
    assert f"the records at {inp}[0] offsets 0 to 0 are one batch of" in why(worker)
    await worker.stop()
