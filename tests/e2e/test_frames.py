"""Frames on the real broker: written by a job and by others, seen by a plain consumer, read in any mix, shown for people."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys

import orjson
import pyarrow as pa
import pytest

import headgate as hg
from headgate.core.progress.frames import TYPE_NAMES, BatchFrame, UserFrame, encode

from .conftest import WAIT_S
from .schemas import schema, wrong
from .test_keys import headgate

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


UNTRIMMED = {"intermediate.trim": False}
"""A job deletes the frames that it has read, every ten seconds; here they are looked at."""


def passing(job, inp, out, **options):
    """A shuffle, and nothing else."""
    app = hg.App(job.name, **{"settings": UNTRIMMED, **options})
    app.input(inp).repartition("k", name="between").to(out)
    return app


def columns(first, rows, **options):
    """A frame of columns, as another program writes it."""
    numbers = range(first, first + rows)
    headers = pa.array(
        [[("n", b"%d" % n)] for n in numbers], pa.list_(pa.struct({"name": pa.utf8(), "value": pa.binary()}))
    )
    table = pa.table(
        {
            "__key": pa.array([b"c"] * rows, pa.binary()),
            "__timestamp": pa.array(numbers, pa.int64()),
            "__headers": headers,
            "v": pa.array(numbers, pa.int32()),
        }
    )
    sink = pa.BufferOutputStream()
    described = table.schema.with_metadata({"hg.v": "1", "hg.kind": "0"})
    with pa.ipc.new_stream(sink, described, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return b"\x05" + sink.getvalue().to_pybytes()


async def test_headers_travel_through_a_shuffle_and_a_plain_consumer_sees_the_types(job, topic):
    """The header `hg-type` says what each Kafka record of the stream between two stages is; behind the stream it is gone."""
    inp, out = topic("in", 2), topic("out")
    worker = await job.start(passing(job, inp, out))
    await worker.until_running(2)
    await job.write(inp, [{"k": "a"}], headers=[("trace", b"1"), ("none", None)])
    await job.write(inp, [{"k": "a"}, {"k": "b"}])
    found = await job.records(out, 3)
    assert sorted(record.headers for record in found) == [(), (), (("trace", b"1"), ("none", None))]
    kinds: set[str] = set()
    async with asyncio.timeout(WAIT_S):
        while not {"watermark", "batch"} <= kinds:  # a mark may come behind the rows
            between = await job.records(job.topics.intermediate("between"), 2)
            kinds = {dict(one.headers)["hg-type"].decode() for one in between}
    assert all(dict(one.headers)["hg-type"] == TYPE_NAMES[one.value[0]].encode() for one in between)
    batches = [dict(one.headers) for one in between if TYPE_NAMES[one.value[0]] == "batch"]
    made_of = [one.get("hg-from", b"").decode() for one in batches]
    assert made_of
    assert all(one.startswith(f"{inp}[") for one in made_of)


async def test_frames_of_all_types_in_one_partition(job, topic):
    """Others write records, batches and columns between the job's own frames and marks. Each row comes out once, also over a restart; a
    frame of more rows than a chunk may have is taken whole; one that is wrong costs itself, and says why."""
    inp, out = topic("in"), topic("out")
    between = job.topics.intermediate("between")
    settings = {**UNTRIMMED, "chunk.max-records": 50}
    lenient = {"on_bad_data": "dead_letter", "settings": settings}
    worker = await job.start(passing(job, inp, out, **lenient))
    await worker.until_running(1)

    def frames(first):
        rows = BatchFrame(
            [b"b"] * 3, [1, 2, 3], [b'{"v":%d}' % n for n in range(first + 1, first + 4)], [[("x", None)], [], []]
        )
        return [
            encode(UserFrame(b'{"v":%d}' % first)),
            encode(rows),
            columns(first + 4, 300),
            columns(first, 3, compression="zstd"),
            columns(first + 304, 2),
            encode(UserFrame(b'{"v":%d}' % (first + 306))),
        ]

    await job.write(between, frames(0), headers=[("hg-type", b"any"), ("own", b"1")])
    await job.write(inp, [{"k": "job", "v": 307}])
    found = await job.records(out, 308)
    assert sorted(orjson.loads(one.value)["v"] for one in found) == list(range(308))
    by_number = {orjson.loads(one.value)["v"]: one for one in found}
    assert [by_number[n].headers for n in (0, 1, 2, 4)] == [(("own", b"1"),), (("x", None),), (), (("n", b"4"),)]
    assert [by_number[n].key for n in (1, 4, 305)] == [b"b", b"c", b"c"]
    [letter] = await job.records(job.topics.dead_letters, 1)
    assert letter.value == columns(0, 3, compression="zstd")
    assert b"Arrow stream is compressed" in dict(letter.headers)["hg-exception"]
    [bad] = [one for one in await job.records(between, 6) if one.value == letter.value]
    assert dict(letter.headers)["hg-offset"] == b"%d" % bad.offset
    await worker.stop()

    again = await job.start(passing(job, inp, out, **lenient))
    await again.until_running(1)
    await job.write(between, frames(1000))
    found = await job.records(out, 308 + 307)
    assert sorted(orjson.loads(one.value)["v"] for one in found) == [*range(308), *range(1000, 1307)]
    await again.stop()


async def test_frames_are_followed_and_filtered_for_people(job, topic):
    """One document a line, as they come, and only of the types that were asked for."""
    name = topic("frames")
    environment = {**os.environ, "HEADGATE_BOOTSTRAP": job.bootstrap}
    words = ["frames", "cat", name, "-f", "--type", "batch", "--type", "arrow", "--type", "bad", "-o", "json"]
    cat = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headgate.agents.cli", *words, env=environment, stdout=asyncio.subprocess.PIPE
    )

    async def shown():
        document = json.loads(await asyncio.wait_for(cat.stdout.readline(), 240))
        assert wrong(document, schema("frames-cat")) == []
        return document["frames"][0]

    try:
        states = BatchFrame([b"k"], [1_700_000_000_000], [b"\x91\x05"], None, 7)
        await job.write(name, [encode(UserFrame(b"{}")), encode(states)])
        one = await shown()
        assert (one["offset"], one["kind"], one["plan"]) == (1, "partial states", 7)
        assert one["rows"] == [{"key": "k", "timestamp": "2023-11-14T22:13:20.000Z", "value": [5], "headers": []}]
        await job.write(name, [columns(5, 1), b"rubbish"])
        one = await shown()
        assert (one["type"], one["kind"], one["records"]) == ("arrow", "rows", 1)
        assert one["rows"][0]["value"] == {"v": 5}
        assert one["rows"][0]["headers"] == [["n", 5]]
        assert (await shown())["problem"] == "unknown type 114"
    finally:
        cat.send_signal(signal.SIGKILL)
        await cat.wait()


async def cat(job, *words):
    """`headgate frames cat`: its exit code, its output and what it says beside."""
    done = await headgate(job, "frames", "cat", *words)
    return done.returncode, done.stdout, done.stderr


async def test_what_cannot_be_shown_is_said(job, topic):
    """A topic that does not exist, one that is empty, one without frames, types that do not occur: said on standard error."""
    empty, plain, mixed = topic("empty"), topic("plain"), topic("mixed")
    await job.write(plain, [b"{}"])
    await job.write(mixed, [encode(UserFrame(b"{}")), b"\x09poison", encode(UserFrame(b'{"n":1}'))])
    tried = {
        "missing": ([f"{mixed}-x"], 4, 0, f"there is no topic '{mixed}-x'"),
        "partition": ([mixed, "-p", "3"], 4, 0, "has no partition 3"),
        "empty": ([empty], 0, 0, f"'{empty}' has no record there"),
        "behind": ([mixed, "--first", "9"], 0, 0, f"'{mixed}' has no record there"),
        "plain": ([plain], 0, 1, f"no record of '{plain}' is a frame"),
        "types": ([mixed, "--type", "arrow"], 0, 0, "there are 3 records, but none of these types"),
        "poison": ([mixed, "--type", "bad"], 0, 1, ""),
        "mixed": ([mixed], 0, 5, ""),
        "unknown": ([mixed, "--type", "data"], 2, 0, "is not one of 'user', 'watermark'"),
    }
    done = await asyncio.gather(*(cat(job, *words) for words, *_ in tried.values()))
    for name, (code, out, said) in zip(tried, done, strict=True):
        _, exits, lines, says = tried[name]
        assert (name, code, len(out.splitlines()), says in said) == (name, exits, lines, True), (out, said)
        assert says or not said
