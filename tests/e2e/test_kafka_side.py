"""What other Kafka tools see of a job: keys, times and headers of its records, trimmed streams."""

from __future__ import annotations

import time

import pytest

import headgate as hg

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


async def test_keys_times_and_headers_pass_from_input_to_output(job, topic):
    """A record without a key stays without one; headers and times go on; a returned Record sets them."""
    inp, out, other = topic("in", 1), topic("out", 1), topic("other", 1)
    app = hg.App(job.name)
    stream = app.input(inp)
    stream.map(lambda v: v).to(out)
    stream.map(lambda r: hg.Record("new", r.value, r.timestamp + 1, (*r.headers, ("mine", b"1"))), with_record=True).to(
        other
    )
    await job.start(app)
    an_hour_ago = int(time.time() * 1000) - 3_600_000  # older than a topic keeps, a broker deletes it at any moment
    await job.write(inp, [{"n": 1}], key=b"k", timestamp_ms=an_hour_ago, headers=[("from", b"there")])
    [one] = await job.records(out, 1)
    assert (one.key, one.timestamp, one.headers) == (b"k", an_hour_ago, (("from", b"there"),))
    [two] = await job.records(other, 1)
    assert (two.key, two.timestamp) == (b"new", an_hour_ago + 1)
    assert two.headers == (("from", b"there"), ("mine", b"1"))


async def test_records_between_two_stages_are_deleted_when_they_are_done_with(job, topic, monkeypatch):
    """What the reading task has committed is cut off; what is not read stays; the setting turns it off."""
    monkeypatch.setattr("headgate.agents.worker.housekeeping.TRIM_AFTER", 1)
    inp, out = topic("in", 2), topic("out", 2)
    app = hg.App(job.name)
    app.input(inp).repartition("k").agg(n=hg.count()).to(out)
    one = await job.start(app)
    await job.write(inp, [{"k": f"k{n % 3}"} for n in range(60)])
    await job.records(out, 3)
    between = next(iter(one.worker.declared.graph.intermediates))

    await one.until(lambda: one.worker.upkeep._cut, "a partition was cut")
    cut = dict(one.worker.upkeep._cut)
    starts = {at: await one.worker.offsets.start_of(at) for at in cut}
    assert {at.stream for at in cut} == {between}
    assert all(starts[at] >= cut[at] > 0 for at in cut)
    await job.write(inp, [{"k": f"k{n % 3}"} for n in range(60)])  # and the job goes on
    assert len(await job.records(out, 6)) >= 6
