"""Bounded runs and drains on the real broker: control frames travel through a shuffle with the data, also over a kill -9."""

from __future__ import annotations

import asyncio

import pytest

import headgate as hg

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


def counted(job, inp, out, **options):
    """Sums per key behind a shuffle."""
    app = hg.App(job.name)
    app.input(inp, **options).repartition("k").agg(n=hg.count(), total=hg.sum("v")).to(out)
    return app


def rows(count, keys=10, first=0):
    return [{"k": f"k{n % keys}", "v": n} for n in range(first, first + count)]


def expected(values):
    found = {}
    for one in values:
        n, total = found.get(one["k"], (0, 0))
        found[one["k"]] = (n + 1, total + one["v"])
    return found


async def last(job, out, least, **more):
    """The last update of each key."""
    found = {}
    for record in await job.records(out, least, **more):
        import orjson

        value = orjson.loads(record.value)
        found[record.key.decode()] = (value["n"], value["total"])
    return found


async def test_a_bounded_input_ends_the_job_through_a_repartition(job, topic):
    """until="newest": what is there when the run begins is read, counted and written; then the worker exits 0."""
    inp, out = topic("in", 2), topic("out", 2)
    values = rows(500)
    await job.write(inp, values)
    worker = await job.start(counted(job, inp, out, until="newest"))
    assert await worker.ended() == 0
    assert worker.worker.coordination.member.job.run.state == "ended"
    assert await last(job, out, 10) == expected(values)


async def test_a_bounded_input_that_is_empty_ends_at_once(job, topic):
    """Nothing to read is an end, too."""
    inp, out = topic("in", 2), topic("out", 2)
    worker = await job.start(counted(job, inp, out, until="newest"))
    assert await worker.ended() == 0


async def test_drain_finishes_what_was_read_and_the_next_run_goes_on_there(job, topic):
    """Drain closes the run; a new run of the same job reads on at the positions of the drain: nothing lost, nothing twice."""
    inp, out = topic("in", 2), topic("out", 2)
    values = rows(300)
    app = counted(job, inp, out)
    worker = await job.start(app)
    await job.write(inp, values)
    await worker.until_running(2)
    await last(job, out, 10)
    answer = await job.ask("drain")
    assert (answer.state, answer.run_state) == ("done", "drained")
    assert await worker.ended() == 0
    assert await last(job, out, 10) == expected(values)
    more = rows(200, first=300)
    await job.write(inp, more)
    again = await job.start(counted(job, inp, out), run_id="second")
    await again.until_running(2)
    await asyncio.wait_for(_becomes(job, out, expected([*values, *more])), 20)
    answer = await job.ask("drain")
    assert (answer.state, answer.run_state) == ("done", "drained")
    assert await again.ended() == 0


async def _becomes(job, out, wanted):
    while (found := await last(job, out, 10)) != wanted:
        assert all(found[k][0] <= wanted[k][0] for k in found), "counted twice"


async def test_drain_after_a_kill_in_the_middle(job, topic):
    """The worker dies without a word while it drains; its successor drains at once and reads no new input."""
    inp, out = topic("in", 2), topic("out", 2)
    app = counted(job, inp, out)
    values = rows(4000)
    await job.write(inp, values)
    worker = await job.start(app)
    await worker.until_running(2)
    await job.ask("drain", wait=False)
    await worker.crash()
    late = rows(100, first=10_000)
    await job.write(inp, late)
    successor = await job.start(counted(job, inp, out))
    assert await successor.ended() == 0
    assert successor.worker.coordination.member.job.run.state == "drained"
    third = await job.start(counted(job, inp, out), run_id="third")
    await third.until_running(2)
    await asyncio.wait_for(_becomes(job, out, expected([*values, *late])), 20)
    await third.stop()


async def test_an_end_after_a_kill_in_the_middle(job, topic):
    """The bound of a run outlives the process; so does every count."""
    inp, out = topic("in", 2), topic("out", 2)
    values = rows(6000)
    await job.write(inp, values)
    worker = await job.start(counted(job, inp, out, until="newest"))
    await worker.until(lambda: worker.worker.committing and worker.worker.committing.commits > 1, "a commit")
    await worker.crash()
    await job.write(inp, rows(100, first=10_000))
    successor = await job.start(counted(job, inp, out, until="newest"))
    assert await successor.ended() == 0
    assert await last(job, out, 10) == expected(values)
