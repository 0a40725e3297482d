"""Joins of two streams on the real broker, through the public API: each pair and each record without a partner once, over kill -9."""

from __future__ import annotations

import asyncio
import time

import orjson
import pytest

from headgate.agents.cli.options import Target
from headgate.agents.cli.see.status import read as read_status
from headgate.agents.process.configuration import CommandLine, configure
from headgate.core.names import JobName

from .schemas import schema, wrong
from .test_keys import headgate

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

SOURCE = """
import headgate as hg

app = hg.App("JOB", settings={"watermark.idle-timeout": "1h"})
orders = app.input("ORDERS", timestamp="ts", max_out_of_order="3s").repartition("k", name="orders")
payments = app.input("PAYMENTS", timestamp="ts", max_out_of_order="3s").repartition("k", name="payments")

def both(left, right):
    return [left and left["x"], right and right["x"]]

orders.join(payments, within=("1s", "4s"), how="outer", into=both, late="LATE").to("PAIRS")
"""
BASE = 1_700_000_000_000


def rows(side, turn):
    """A third of the keys is on one side only; the times of the sides are apart by up to two seconds."""
    found = []
    for n in range(turn * 200, turn * 200 + 200):
        if n % 3 != side:
            found.append({"k": f"k{n % 30}", "ts": BASE + n * 100 + (n * 7919) % 2000 * side, "x": n})
    return found


def joined(lefts, rights):
    """Every pair, and every row without a partner."""
    pairs = [(a, b) for a in lefts for b in rights if a["k"] == b["k"] and -1000 <= b["ts"] - a["ts"] <= 4000]
    left, right = {a["x"] for a, _ in pairs}, {b["x"] for _, b in pairs}
    found = [(a["k"], a["x"], b["x"], max(a["ts"], b["ts"])) for a, b in pairs]
    found += [(a["k"], a["x"], None, a["ts"]) for a in lefts if a["x"] not in left]
    return found + [(b["k"], None, b["x"], b["ts"]) for b in rights if b["x"] not in right]


def found_in(records):
    return sorted(((r.key.decode(), *orjson.loads(r.value), r.timestamp) for r in records), key=str)


async def paired(job, topic, count):
    """Wait until there are so many pairs, among records without a partner."""
    missing = count
    found = []
    while missing > 0:
        found = await job.records(topic, len(found) + missing, more_s=0)
        missing = count - sum(None not in orjson.loads(one.value) for one in found)


async def waiting(job):
    """What `headgate status` says of the join once all sides have said it, and what `headgate tables` shows of one key."""
    to = Target(JobName(job.name), job.topics, configure(CommandLine(job.bootstrap)))
    give_up = time.monotonic() + 240
    found = await read_status(to)
    while not any(one["rows"] for one in found["joins"]):
        assert time.monotonic() < give_up, found
        await asyncio.sleep(0.1)
        found = await read_status(to)
    assert wrong(found, schema("status")) == []
    shown = await headgate(job, "tables", job.name, "join-1s-4s", "k2", "-o", "json")
    return found["joins"], orjson.loads(shown.stdout)["rows"]


async def test_every_pair_and_every_row_alone_comes_once_over_kill_9_and_a_drain(job, topic):
    """A process dies twice in the middle, with rows of both sides, and which of them have partners, in the task log."""
    orders, payments, pairs, late = topic("orders", 2), topic("payments", 2), topic("pairs", 2), topic("late")
    source = (
        SOURCE.replace("ORDERS", orders).replace("PAYMENTS", payments).replace("PAIRS", pairs).replace("LATE", late)
    )
    lefts, rights = [], []
    for turn in range(3):
        one = await job.process(source)
        lefts += (left := rows(0, turn))
        rights += (right := rows(1, turn))
        await job.write(orders, left)
        await job.write(payments, right)
        sure = [one for one in joined(lefts, rights) if None not in one]
        await paired(job, pairs, len(sure))
        if turn == 1:
            joins, kept = await waiting(job)
            assert [(one["step"], one["side"]) for one in joins] == [("join-1s-4s", "left"), ("join-1s-4s", "right")]
            assert {one["late_rows"] for one in joins} == {0}
            assert {row["key"] for row in kept} == {"k2"}
            assert {row["value"]["side"] for row in kept} == {"left", "right"}
        if turn < 2:
            one.kill()
            await one.ended()
    await job.ask("drain")
    assert await one.ended() == 0
    expected = joined(lefts, rights)
    assert {one[1:3].count(None) for one in expected} == {0, 1}
    assert found_in(await job.records(pairs, len(expected))) == sorted(expected, key=str)
    assert await job.values(late, 0) == []
