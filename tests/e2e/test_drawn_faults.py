"""Faults at every edge of a worker on a real broker: every record counts once, and what stands still says why.

`make faults FAULTS=0:200` draws more of them.
"""

from __future__ import annotations

import os

import pytest

import headgate as hg

from .drawn_faults import run
from .edges import Edges, Fault, drawn

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio, pytest.mark.timeout(900)]
SEEDS = range(*map(int, os.environ.get("HEADGATE_FAULTS", "0:4").split(":")))
"""Which are drawn: from and below."""


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_record_counts_once_whatever_an_edge_does(job, topic, seed):
    """Three faults at clients, wire, store or user code: none costs a record, doubles one, or leaves a task without a word."""
    outcome = await run(job, topic, drawn(seed))
    assert outcome.wrong == [], f"{drawn(seed)}\nstruck: {outcome.struck}\nlives: {outcome.lives}"


async def test_a_disk_that_is_full_for_a_second_costs_no_life(job, topic):
    """The task begins again by itself when the disk has room. It stood still for good, and held up the stop of its worker."""
    plan = [Fault("store.write", 5, "full")]
    outcome = await run(job, topic, plan)
    assert (outcome.struck, outcome.wrong) == (plan, [])
    assert len(outcome.lives) == 1, outcome.lives


@pytest.mark.parametrize(
    "plan",
    [
        [
            Fault("AIOKafkaConsumer.end_offsets", 2, "cancelled"),
            Fault("KafkaConsumer.take", 6, "odd"),
            Fault("wire.fetch", 20, "odd"),
            Fault("wire.metadata", 3, "timed out"),
        ],
        [
            Fault("KafkaConsumer.take", 12, "os", behind=True),
            Fault("wire.fetch", 12, "cancelled", behind=True),
            Fault("KafkaConsumer.take", 30, "cancelled"),
        ],
        [Fault("AIOKafkaProducer.commit_transaction", 4, "cancelled", behind=True)],
        [
            Fault("AIOKafkaProducer.send_batch", 2, "odd", behind=True),
            Fault("AIOKafkaProducer.begin_transaction", 6, "odd"),
        ],
        [Fault("AIOKafkaProducer.send_batch", 9, "cancelled"), Fault("wire.produce", 12, "odd")],
    ],
    ids=lambda plan: " ".join(fault.edge for fault in plan),
)
async def test_errors_of_a_client_cost_no_worker(job, topic, plan):
    """A client that is wrong now and then, or cancels what no one asked it to: it is replaced, and nothing waits for it for ever."""
    outcome = await run(job, topic, plan)
    assert (sorted(map(str, outcome.struck)), outcome.wrong) == (sorted(map(str, plan)), [])
    assert len(outcome.lives) == 1, outcome.lives


async def test_a_store_that_cannot_be_read_costs_no_record_whatever_the_policy_says(job, topic):
    """The policy is for records and functions. A disk that failed for a moment had the records skipped that were just being counted."""
    inp, out = topic("in"), topic("out")

    def counting():
        app = hg.App(job.name, on_error="skip")
        app.input(inp).repartition("k").agg(n=hg.count()).to(out)
        return app

    rows = [{"k": f"k{n}"} for n in range(5)]
    await job.write(inp, rows)
    first = await job.start(counting())
    await job.values(out, 5)
    await first.stop()
    await job.write(inp, rows)
    plan = [Fault("store.get", 2, "refused")]  # the first tells where the store stands
    with Edges(plan) as edges:
        await job.start(counting(), "w2")
        found = await job.values(out, 10)
    assert edges.struck == plan
    assert [value["n"] for value in found] == [1] * 5 + [2] * 5
