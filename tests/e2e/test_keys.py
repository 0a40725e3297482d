"""Keys as users have them, on the real broker: whole numbers, bytes, booleans, UUIDs and tuples, without a word."""

from __future__ import annotations

import orjson
import pytest

import headgate as hg

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


async def counted(job, app, out, count=1):
    """The last update of each key, when the bounded job has ended."""
    worker = await job.start(app)
    assert await worker.ended() == 0
    return {record.key: orjson.loads(record.value) for record in await job.records(out, count, more_s=0)}


async def test_whole_numbers_are_keys_without_a_word(job, topic):
    """Of records in several partitions, counted by a field that is a whole number; the output has it as text."""
    inp, out = topic("in", 3), topic("out")
    app = hg.App(job.name)
    app.input(inp, until="newest").repartition("id").agg(n=hg.count(), total=hg.sum("amount")).to(out)
    for partition in range(3):
        rows = [{"id": number, "amount": partition} for number in (1, 2, 70_000, -5)]
        await job.write(inp, rows, partition=partition)
    found = await counted(job, app, out, 4)
    assert found == {key: {"n": 3, "total": 3} for key in (b"1", b"2", b"70000", b"-5")}
