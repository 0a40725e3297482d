"""`guarantee = at_least_once` as a job: outputs are there before the commit, and a crash loses none of them."""

from __future__ import annotations

from typing import TypedDict

import pytest

import headgate as hg

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


class Order(TypedDict):
    """What is written."""

    n: int


def by_rows(app, orders):
    """Functions of dicts."""
    return app.input(orders).map(lambda o: {"n": o["n"] + 1})


def by_columns(app, orders):
    """Expressions, whose outputs lie in buffers."""
    return app.input(orders, serde=hg.json(Order)).columns().with_columns(n=hg.col("n") + 1)


@pytest.mark.parametrize("made", [by_rows, by_columns])
async def test_an_output_does_not_wait_for_the_commit(job, topic, made):
    """With an interval far beyond the test's patience, what is written comes out all the same, and no fetch is held back for a commit."""
    orders, out = topic("orders", 2), topic("out", 2)
    app = hg.App(job.name)
    made(app, orders).to(out)
    settings = {"guarantee": "at_least_once", "commit.interval": "300ms"}
    running = await job.start(app, settings=settings)
    await running.until_running(2)
    await job.write(orders, [{"n": 0}])
    await job.values(out, 1)  # its checkpoint has begun the interval
    running.worker.committing.pace(10_000.0)
    await job.write(orders, [{"n": n} for n in range(1, 200)])
    found = await job.values(out, 200)
    assert sorted(o["n"] for o in found) == list(range(1, 201))
    assert all(actor.reading.intake.intake._gathered is None for actor in running.worker.actors.values())
    assert await running.stop() == 0  # a worker that leaves commits what it has


async def test_a_crash_repeats_and_loses_nothing(job, topic):
    """The first worker dies with outputs written and positions not; its successor writes them again, and what follows."""
    orders, out = topic("orders", 2), topic("out", 2)
    app = hg.App(job.name)
    app.input(orders).map(lambda o: {"n": o["n"]}).to(out)
    settings = {"guarantee": "at_least_once"}
    first = await job.start(app, settings=settings)
    await first.until_running(2)
    await job.write(orders, [{"n": n} for n in range(100)])
    await job.values(out, 100)
    first.worker.committing.pace(10_000.0)
    await job.write(orders, [{"n": n} for n in range(100, 200)])
    await job.values(out, 200)
    await first.crash()
    again = await job.start(app, settings=settings)
    await job.write(orders, [{"n": n} for n in range(200, 300)])
    await again.until(lambda: _reaches(again, 300), "everything is committed", within_s=240)
    found = [o["n"] for o in await job.values(out, 300)]
    assert set(found) == set(range(300))
    assert len(found) >= 300


def _reaches(running, total):
    """Whether the positions that are durable stand behind all that was written."""
    actors = running.worker.actors.values()
    return sum(position for actor in actors for position in actor.contribution.durable.values()) >= total
