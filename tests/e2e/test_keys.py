"""Keys as users have them, on the real broker: as the command line takes and shows them, and as Java's clients place them.

Steps by keys of every type are told on the test driver (`tests/agents/operators/plain/test_keys.py`).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from uuid import UUID

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from click.testing import CliRunner

import headgate as hg
from headgate.agents.cli.data.tables import tables

from .. import forked

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


ID = UUID("12345678-1234-5678-1234-567812345678")
KEYS = ["1", 1, True, b"1", ID, ("DE", 1), (("DE", True), b"1")]
"""Python finds 1 and True equal; they are two keys."""
SHOWN = ["1", 1, True, "0x31", str(ID), ["DE", 1], [["DE", True], "0x31"]]
TYPED = ["1", "1", "true", "0x31", str(ID), '["DE", 1]', '[["DE", true], "0x31"]']
"""What people type for each key; `1` means the text and the number."""
LONG = hg.custom(
    lambda data: int.from_bytes(data, "big", signed=True), lambda n: n.to_bytes(8, "big", signed=True), name="java-long"
)
"""The keys of Java's LongSerializer."""


async def put(job, topic, rows):
    """Written by another client, which places keys as Java's clients do."""
    producer = AIOKafkaProducer(bootstrap_servers=job.bootstrap)
    await producer.start()
    try:
        for key, value in rows.items():
            await producer.send(topic, orjson.dumps(value), key=key)
    finally:
        await producer.stop()


async def headgate(job, *words):
    """A command, and what it prints."""
    surroundings = {**os.environ, "HEADGATE_BOOTSTRAP": job.bootstrap}
    return await asyncio.to_thread(forked.run, words, env=surroundings)


async def rows_of(job, table, *words):
    """The rows of a table, as `headgate tables` shows them."""
    command = ["-b", job.bootstrap, "-o", "json", job.name, table, *words]
    done = await asyncio.to_thread(
        CliRunner().invoke, tables, command
    )  # a process of its own would take a second for each
    assert done.exit_code == 0, done.stderr
    return [(row["key"], row["value"]) for row in json.loads(done.stdout)["rows"]]


def in_order(rows):
    """1 and True are equal to Python, and not as JSON."""
    return sorted(map(json.dumps, rows))


async def counted(job, app, out, count=1):
    """The last update of each key, when the bounded job has ended."""
    worker = await job.start(app)
    assert await worker.ended() == 0
    return {record.key: orjson.loads(record.value) for record in await job.records(out, count, more_s=0)}


async def test_every_type_of_key_is_counted_shown_and_restored(job, topic):
    """Over three partitions, two of them in the same task; read from the worker, from the log, and after a restart without a disk."""
    inp, out = topic("in", 3), topic("out")

    def declared():
        app = hg.App(job.name)
        app.input(inp).repartition(lambda value: KEYS[value["n"]], name="by-key").agg(n=hg.count(), name="counts").to(
            out, key_serde=hg.key()
        )
        return app

    async def written(times):
        for partition in range(3):
            await job.write(inp, [{"n": n} for n in range(len(KEYS))] * times, partition=partition)

    async def until(count):
        while True:  # updates come at commits: some are of a part of the records
            found = await job.records(out, len(KEYS), more_s=0)
            last = {record.key: orjson.loads(record.value)["n"] for record in found}
            if last == {hg.key().dumps(key): count for key in KEYS}:
                return

    worker = await job.start(declared())
    await written(1)
    await asyncio.wait_for(until(3), 240)
    every = in_order((key, {"n": 3}) for key in SHOWN)
    assert in_order(await rows_of(job, "counts")) == every
    for shown, typed in zip(SHOWN, TYPED, strict=True):
        meant = ["1", 1] if typed == "1" else [shown]
        assert in_order(await rows_of(job, "counts", typed)) == in_order((key, {"n": 3}) for key in meant)
    assert (await headgate(job, "tables", job.name, "counts", str(ID))).stdout == "{'n': 3}\n"
    await worker.stop()
    assert in_order(await rows_of(job, "counts", "--from-log")) == every
    shutil.rmtree(job.directory / "state")
    await job.start(declared())
    await written(1)
    await asyncio.wait_for(until(6), 240)


async def test_a_topic_that_java_has_keyed_meets_a_shuffle_with_its_serde(job, topic):
    """Eight bytes on both topics; user code, the table and its readers see whole numbers."""
    rates, inp, out = topic("rates", 4), topic("in", 4), topic("out")
    numbers = range(-20, 20)
    await put(job, rates, {n.to_bytes(8, "big", signed=True): {"rate": n} for n in numbers})
    await job.write(inp, [{"k": n} for n in numbers])
    app = hg.App(job.name)
    table = app.input(rates, key_serde=LONG, until="newest").table("rates")
    app.input(inp, until="newest").repartition("k", partitions=4, key_serde=LONG).join(
        table, into=lambda value, rate: {**value, **rate}
    ).to(out)
    found = await counted(job, app, out, len(numbers))
    assert found == {str(n).encode(): {"k": n, "rate": n} for n in numbers}
    assert in_order(await rows_of(job, "rates", "--", "-7")) == in_order([(-7, {"rate": -7})])
