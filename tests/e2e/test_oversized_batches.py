"""A small batch that would be huge: on a real broker, the task goes on, and the batch's own input decides about it."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import struct
from pathlib import Path
from typing import TypedDict

import cramjam
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.util import calc_crc32c

import headgate as hg
from headgate.agents.kafka.record_batch import CODECS

from .scenes import why
from .test_first_hour import typed

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


class Text(TypedDict):
    v: str


SETTINGS = {"fetch.max-batch-bytes": "256KiB"}


async def send(job, topic, codec, size):
    producer = AIOKafkaProducer(**job.client.producer(compression_type=codec, max_request_size=1 << 30))
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


# ----------------------------------------------------------------------------------------- a process that is to end meanwhile

GIB = 1 << 30
READS = """
from typing import TypedDict

import headgate as hg


class Text(TypedDict):
    v: str


app = hg.App("JOB", on_bad_data="dead_letter")
app.input("IN", serde=hg.json(Text), start="oldest")COLUMNS.to("OUT")
"""


async def test_commands_that_show_records_leave_it_out_and_say_so(job, topic):
    """`headgate tail` ended with an error there, and never showed what stands behind it."""
    name = topic("in", 2)
    for partition in (0, 1):
        await job.write(name, [{"v": "a"}], partition=partition)
    await send(job, name, "zstd", 65 << 20)
    for partition in (0, 1):
        await job.write(name, [{"v": "b"}], partition=partition)
    for words in (["--all"], ["-n", "2"]):
        out, err, code = await typed(job, "tail", name, *words)
        shown = sorted((one["partition"], one["value"]["v"]) for one in map(json.loads, out.splitlines()))
        assert (code, shown) == (0, [(0, "a"), (0, "b"), (1, "a"), (1, "b")]), err
        assert err.count(f"the records at {name}:0 offsets 1 to 1 are one batch of ") == 1


def varint(value):
    """As in Kafka's records."""
    value, made = value << 1, bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def bomb():
    """A batch of one record of 1 GiB, in 33 kB. It is never whole in this process either."""
    head = b"\0\0\0\x01" + varint(GIB)  # attributes, distances of time and offset, no key
    zipped, piece = cramjam.zstd.Compressor(), bytes(1 << 20)
    zipped.compress(varint(len(head) + GIB + 1) + head)
    for _ in range(GIB // len(piece)):
        zipped.compress(piece)
    zipped.compress(b"\0")  # no headers
    packed = bytes(zipped.finish())
    rest = struct.pack(">hiqqqhii", CODECS["zstd"], 0, 1, 1, -1, -1, -1, 1) + packed
    crc = calc_crc32c(rest)
    return struct.pack(">qiibI", 0, 9 + len(rest), -1, 2, crc) + rest


class Made(BatchBuilder):
    """A batch that is built already."""

    def __init__(self, raw):
        super().__init__(1 << 20, 0, is_transactional=0)
        self.raw = raw

    def _build(self):
        return self.raw

    def record_count(self):
        return 1

    def size(self):
        return len(self.raw)


def most_memory(pid):
    """The most that the process has had in memory, in bytes; None if it is gone."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return None
    return None if found is None else int(found[1]) << 10


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
async def test_a_worker_ends_in_order_while_batches_of_a_gigabyte_come_in(job, topic, columns):
    """33 kB of zstd were a gigabyte: 3.7 GiB were resident, the loop stood still, and SIGTERM was not obeyed, also after a restart. Bombs
    come for as long as the worker lives, so it is told to end while it reads them. None of them is ever whole in memory."""
    inp, out = topic("in"), topic("out")
    source = READS.replace("IN", inp).replace("OUT", out).replace("COLUMNS", ".columns()" if columns else "")
    raw = bomb()
    assert len(raw) < 110_000
    producer = AIOKafkaProducer(**job.client.producer())
    await producer.start()

    async def sending():
        while True:
            await (await producer.send_batch(Made(raw), inp, partition=0))

    try:
        sent = asyncio.get_running_loop().create_task(sending())
        buried = 0
        for _ in range(2):
            one = await job.process(source)
            await job.records(job.topics.dead_letters, buried + 2, more_s=0)
            held = most_memory(one.process.pid)
            one.process.send_signal(signal.SIGTERM)
            while (now := most_memory(one.process.pid)) is not None and one.process.returncode is None:
                held = max(held, now)
                await asyncio.sleep(0.05)
            assert await one.ended() == 0, one.text()[-4000:]
            assert held < GIB // 2, f"{held >> 20} MiB were resident"
            buried = len(await job.records(job.topics.dead_letters, buried + 2))
        assert not sent.done(), "bombs came until the end"
        sent.cancel()
        await asyncio.gather(sent, return_exceptions=True)
    finally:
        await producer.stop()
    letters = await job.records(job.topics.dead_letters, buried)
    assert [dict(one.headers)["hg-offset"] for one in letters] == [b"%d" % n for n in range(len(letters))], "each once"


# ------------------------------------------------------------------------------------------------------- a record that is large

LARGE = 9 << 20


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
async def test_a_bad_record_that_no_dead_letter_can_hold_is_cut_and_the_job_goes_on(job, topic, columns):
    """Above 8 MiB, the limit of the dead-letter topic, the letter could not be written, and the task failed for good. It has as much of the
    value as fits, its size, and where the whole record lies."""
    wide = {"max.message.bytes": str(16 << 20)}
    inp, out = topic("in", config=wide), topic("out")
    app = hg.App(job.name, on_bad_data="dead_letter", settings={"error.retries": 0})
    source = app.input(inp, serde=hg.json(Text), start="oldest", until="newest")
    (source.columns() if columns else source).to(out)
    bad = b'{"v":' + b"x" * LARGE
    producer = AIOKafkaProducer(**job.client.producer(max_request_size=64 << 20))
    await producer.start()
    try:
        for value in (b'{"v":"a"}', bad, b'{"v":"b"}'):
            await producer.send_and_wait(inp, value, key=b"k", partition=0)
    finally:
        await producer.stop()
    worker = await job.start(app)
    assert await worker.ended() == 0
    assert await job.values(out, 2) == [{"v": "a"}, {"v": "b"}]
    [letter] = await job.records(job.topics.dead_letters, 1)
    told = dict(letter.headers)
    assert (told["hg-topic"], told["hg-partition"], told["hg-offset"]) == (inp.encode(), b"0", b"1")
    assert (told["hg-cut"], told["hg-size"]) == (b"value", b"%d" % len(bad))
    assert letter.key == b"k"
    assert (8 << 20) - 65_536 < len(letter.value) < len(bad)
    assert bad.startswith(letter.value)
