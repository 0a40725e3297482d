"""A chunk is all or nothing, whatever user code gives back: what cannot be written is refused with its record, before anything joins
the transaction; and if completing fails all the same, that transaction never commits."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

import headgate as hg
from headgate.agents.operators.base.stateless import FilterOp

from .scenes import life, why

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

WRONG = {
    "header": {"headers": [("trace", "abc")]},
    "float": {"timestamp": 1700000000000.5},
    "wide": {"timestamp": 2**70},
    "key": {"key": object()},
}
FAULTS = [*WRONG, "partition", "serde", "merge", "cancelled", "exit"]
"""Each is what one record does."""


async def cancelled():
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


def spoilt(record):
    fault = record.value["fault"]
    return replace(record, **WRONG[fault]) if fault in WRONG else record


async def awaits(value):
    if value["fault"] == "cancelled":
        await cancelled()
    if value["fault"] == "exit":
        raise SystemExit(1)
    return value


def text(value):
    return "text" if value["fault"] == "serde" else b"%d" % value["n"]


def add(state, value):
    return [*state, value["fault"]]


def merge(a, b):
    if "merge" in b:
        raise ValueError("it does not merge")
    return a + b


async def test_what_cannot_be_written_costs_its_record_and_nothing_else(job, topic):
    """Nine kinds of nonsense in one chunk: each is a dead letter with its offset, and every other record stands once in each output."""
    inp, out, own, totals = topic("in", 1), topic("out", 2), topic("own", 1), topic("totals", 1)
    app = hg.App(job.name, on_error="dead_letter")
    stream = app.input(inp).map_async(awaits).map(spoilt, with_record=True)
    stream.to(out, partition=lambda r: 9 if r.value["fault"] == "partition" else 0)
    stream.to(own, serde=hg.custom(bytes, text, name="own"))
    stream.repartition("k").agg(faults=hg.aggregate(list, add, merge), n=hg.count()).to(totals)
    # a chunk a record, and one commit for many: so partial states are merged
    one = await job.start(app, settings={"chunk.max-records": 1, "commit.interval": "2s"})
    await one.until_running(1)
    before = life(one)
    sent = [{"k": "k", "n": n, "fault": fault} for n, fault in enumerate(["", *FAULTS, "", ""])]
    await job.write(inp, sent, partition=0)
    letters = await job.records(job.topics.dead_letters, len(FAULTS))
    assert sorted(int(dict(one.headers)["hg-offset"]) for one in letters) == [
        n for n, s in enumerate(sent) if s["fault"]
    ]
    good = [one["n"] for one in sent if not one["fault"]]
    assert [one["n"] for one in await job.values(out, len(good))] == good
    assert [int(one.value) for one in await job.records(own, len(good))] == good
    async with asyncio.timeout(240):
        while (last := (await job.values(totals, 1))[-1])["n"] < 3:
            pass  # what was passed on last is counted behind the commit after the next
    assert (last["n"], last["faults"]) == (3, ["", "", ""])
    assert (life(one), why(one)) == (before, "")


async def test_a_chunk_that_is_completed_by_half_is_never_committed(job, topic, monkeypatch):
    """A fault of headgate's own: the outputs come once, behind a new incarnation, the neighbour's, too; and it is said what happened."""
    inp, out = topic("in", 2), topic("out", 1)
    app = hg.App(job.name)
    table = app.table("seen")

    def count(value):
        table["n"] = table.get("n", 0) + 1
        return {**value, "seen": table["n"]}

    app.input(inp).map(count).filter(lambda value: True).to(out)
    one = await job.start(app)
    await one.until_running(2)
    before, complete, failed = life(one), FilterOp.complete, []

    def fails(self):
        if not failed and self.env.task == "Partition 0":
            failed.append(self.env.buffer.complete())  # half of it has joined the transaction
            raise RuntimeError("a fault of headgate's")
        complete(self)

    monkeypatch.setattr(FilterOp, "complete", fails)
    await job.write(inp, [{"n": 1}, {"n": 2}], partition=0)
    await job.write(inp, [{"n": 3}], partition=1)
    await job.values(out, 3)
    assert failed
    await job.write(inp, [{"n": 4}], partition=0)
    values = await job.values(out, 4)
    assert sorted((one["n"], one["seen"]) for one in values) == [(1, 1), (2, 2), (3, 1), (4, 3)]
    assert life(one) == before + 1
