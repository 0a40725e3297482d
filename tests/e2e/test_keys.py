"""Keys as users have them, on the real broker: whole numbers, bytes, booleans, UUIDs and tuples, without a word."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from uuid import UUID

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from click.testing import CliRunner

import headgate as hg
from headgate.agents.cli.data.tables import tables

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


ID = UUID("12345678-1234-5678-1234-567812345678")
KEYS = ["1", 1, True, b"1", ID, ("DE", 1), (("DE", True), b"1")]
"""Python finds 1 and True equal; they are two keys."""
SHOWN = ["1", 1, True, "0x31", str(ID), ["DE", 1], [["DE", True], "0x31"]]
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
    command = [sys.executable, "-m", "headgate.agents.cli", *words]
    surroundings = {**os.environ, "HEADGATE_BOOTSTRAP": job.bootstrap}
    return await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=90, env=surroundings
    )


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
    await asyncio.wait_for(until(3), 60)
    every = in_order((key, {"n": 3}) for key in SHOWN)
    assert in_order(await rows_of(job, "counts")) == every
    assert in_order(await rows_of(job, "counts", '["DE", 1]')) == in_order([(["DE", 1], {"n": 3})])
    assert in_order(await rows_of(job, "counts", "1")) == in_order([("1", {"n": 3}), (1, {"n": 3})])
    assert (await headgate(job, "tables", job.name, "counts", str(ID))).stdout == "{'n': 3}\n"
    await worker.stop()
    assert in_order(await rows_of(job, "counts", "--from-log")) == every
    shutil.rmtree(job.directory / "state")
    await job.start(declared())
    await written(1)
    await asyncio.wait_for(until(6), 60)


TYPED = ["1", "1", "true", "0x31", str(ID), '["DE", 1]', '[["DE", true], "0x31"]']
"""What people type for each key; `1` means the text and the number."""


async def test_every_type_of_key_through_every_step_that_works_by_key(job, topic):
    """A table behind a shuffle, one behind a broadcast, one of user code, a merge and both joins: over three tasks, and a restart without a
    disk. Each table is read by each key, as people type it."""
    left, right, rates, out = topic("left", 3), topic("right", 3), topic("rates", 3), topic("out")

    def key_of(value):
        return KEYS[value["n"]]

    def joined(value, row):
        return {**value, "sum": value.get("sum", 0) + row["r"]}

    def declared():
        app = hg.App(job.name)
        app.table("touched", value=hg.json())

        def touch(record):
            seen = app.tables["touched"]
            seen[record.key] = seen.get(record.key, 0) + 1
            return record.value

        own = app.input(rates).repartition(key_of, name="rates-by-key")
        parts = own.table("parts")
        copies = own.broadcast("everywhere").table("copies", broadcast=True)
        merged = (
            app.input(left)
            .repartition(key_of, name="left-by-key")
            .merge(app.input(right).repartition(key_of, name="right-by-key"))
        )
        seen = merged.map(touch, with_record=True)
        seen.agg(n=hg.count(), name="counts")
        seen.join(parts, into=joined).join(copies, on=key_of, into=joined).to(out, key_serde=hg.key())
        return app

    async def until_rows(worker, **rows):
        """The tables of all tasks together hold so many rows."""

        def held():
            tables = [actor.state.tables for actor in worker.worker.actors.values()]
            return {name: sum(len(list(one.table(name))) for one in tables) for name in rows}

        await worker.until_running(3)
        await worker.until(lambda: held() == rows, f"{rows}")

    async def sums(count):
        """By key, the sum of each joined record."""
        found = await job.records(out, count)
        return in_order((record.key.hex(), orjson.loads(record.value)["sum"]) for record in found)

    def twice(times):
        return in_order((hg.key().dumps(key).hex(), 2 * n) for n, key in enumerate(KEYS) for _ in range(times))

    worker = await job.start(declared())
    await worker.until_running(3)
    await job.write(rates, [{"n": n, "r": n} for n in range(len(KEYS))])
    await until_rows(worker, parts=len(KEYS), copies=3 * len(KEYS))
    for inp in (left, right):
        await job.write(inp, [{"n": n} for n in range(len(KEYS))])
    assert await sums(14) == twice(2)
    every = in_order(zip(SHOWN, [{"n": 2}] * len(KEYS), strict=True))
    assert in_order(await rows_of(job, "counts")) == every
    assert in_order(await rows_of(job, "touched")) == in_order((key, 2) for key in SHOWN)
    for table, n in (("parts", 1), ("copies", 3)):
        values = [(key, {"n": number, "r": number}) for number, key in enumerate(SHOWN)] * n
        assert in_order(await rows_of(job, table)) == in_order(values)
    places = ["touched", "parts", "copies", "touched", "parts", "copies", "counts"]
    for number, (table, typed) in enumerate(zip(places, TYPED, strict=True)):
        shown = {repr(key) for key, _ in await rows_of(job, table, typed)}
        assert repr(SHOWN[number]) in shown
        assert len(shown) == (2 if typed == "1" else 1)
    await worker.stop()
    shutil.rmtree(job.directory / "state")
    again = await job.start(declared())
    await until_rows(again, parts=len(KEYS), copies=3 * len(KEYS), counts=len(KEYS), touched=len(KEYS))
    await job.write(left, [{"n": n} for n in range(len(KEYS))])
    assert await sums(21) == twice(3)
    await again.stop()
    assert in_order(await rows_of(job, "touched", "--from-log")) == in_order((key, 3) for key in SHOWN)


async def test_an_input_with_text_keys_and_a_shuffle_by_text_meet(job, topic):
    """The rates were written by another client, with the key that the orders have in a field."""
    rates, inp, out = topic("rates", 4), topic("in", 4), topic("out")
    names = [f"k{n}" for n in range(40)]
    await put(job, rates, {name.encode(): {"rate": n} for n, name in enumerate(names)})
    await job.write(inp, [{"k": name} for name in names])
    app = hg.App(job.name)
    table = app.input(rates, until="newest").table("rates")
    app.input(inp, until="newest").repartition("k", partitions=4).join(
        table, into=lambda value, rate: {**value, **rate}
    ).to(out)
    found = await counted(job, app, out, len(names))
    assert found == {name.encode(): {"k": name, "rate": n} for n, name in enumerate(names)}


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


async def test_what_is_no_key_is_a_dead_letter_that_says_so(job, topic):
    """By the policy of its step; the key of a letter is shown as any other."""
    inp, out = topic("in"), topic("out")
    await put(job, inp, {hg.key().dumps((n, "DE")): {"k": key} for n, key in enumerate([1, 1.5, None, 2])})
    app = hg.App(job.name)
    app.input(inp, until="newest").repartition("k", on_error="dead_letter").agg(n=hg.count()).to(out)
    assert await counted(job, app, out, 2) == {b"1": {"n": 1}, b"2": {"n": 1}}
    done = await headgate(job, "dead-letters", "list", job.name, "-o", "json")
    letters = json.loads(done.stdout)["letters"]
    assert ["the key is float" in letters[0]["exception"], "the key is None" in letters[1]["exception"]] == [True, True]
    done = await headgate(job, "dead-letters", "show", job.name, str(letters[0]["offset"]))
    assert '[1, "DE"]' in done.stdout
