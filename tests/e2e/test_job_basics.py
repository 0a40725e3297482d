"""Stateless and keyed jobs on the real broker, through the public API."""

from __future__ import annotations

import pytest

import headgate as hg

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


async def test_every_record_is_filtered_mapped_and_written_once(job, topic):
    """The simplest job: two partitions in, filter, map, out."""
    orders, out = topic("orders", 2), topic("out", 2)
    app = hg.App(job.name)
    app.input(orders).filter(lambda o: o["n"] % 2 == 0).map(lambda o: {**o, "seen": True}).to(out)
    await job.start(app)
    await job.write(orders, [{"n": n} for n in range(100)])
    found = await job.values(out, 50)
    assert sorted(o["n"] for o in found) == list(range(0, 100, 2))
    assert all(o["seen"] for o in found)
