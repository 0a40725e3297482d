"""Windows in bounded jobs, on the real broker: through two shuffles, with a move or a crash in the middle, over two runs.

What an end does to time is told on the test driver: `tests/agents/testing/test_bounded_time.py`.
"""

from __future__ import annotations

import asyncio

import orjson
import pytest

import headgate as hg

from .test_bounded import ended, passed

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

BASE = 1_700_000_000_000
ROWS = [{"k": f"k{n % 7}", "ts": BASE + n * 30, "v": n} for n in range(3000)]


def app_of(job, inp, tens, halves, at_end, hold=passed):
    """Ten seconds of each key and, behind another shuffle, half minutes of all of them."""
    app = hg.App(job.name, settings={"chunk.max-records": 50})
    rows = app.input(inp, until="newest", timestamp="ts").map_async(hold).repartition("k", partitions=2)
    counts = rows.window(hg.tumbling("10s"), name="tens", at_end=at_end).agg(n=hg.count(), total=hg.sum("v"))
    counts.to(tens)
    again = counts.repartition(lambda value: "all", name="all", partitions=3)
    again.window(hg.tumbling("30s"), name="halves", at_end=at_end).agg(n=hg.sum("n"), total=hg.sum("total")).to(halves)
    return app


def recount(rows, size, key):
    found = {}
    for row in rows:
        found.setdefault((key(row), row["ts"] // size * size), []).append(row["v"])
    return {at: (len(values), sum(values)) for at, values in found.items()}


async def results(job, topic, count):
    """By key and start: number and sum; a window that came twice would be found out."""
    records = await job.records(topic, count)
    values = [(one.key.decode(), orjson.loads(one.value)) for one in records]
    found = {(key, value["window_start"]): (value["n"], value["total"]) for key, value in values}
    assert len(found) == len(records)
    return found


async def test_windows_of_bounded_runs_are_complete_and_come_once(job, topic):
    """The first run keeps its open windows. The second one goes on with them, loses a worker and gives a task away while rows are under
    way, and closes what is left at its end. One partition of the input is empty."""
    inp, tens, halves = topic("in", 3), topic("tens", 2), topic("halves")
    first, second = ROWS[:1250], ROWS[1250:]
    for partition in (0, 1):
        await job.write(inp, first[partition::2], partition=partition)
    await ended(await job.start(app_of(job, inp, tens, halves, "keep")))
    expected, of_all = recount(ROWS, 10_000, lambda row: row["k"]), recount(ROWS, 30_000, lambda row: "all")
    assert (await results(job, tens, 0)).items() <= expected.items()  # nothing is given before it is complete

    for partition in (0, 1):
        await job.write(inp, second[partition::2], partition=partition)
    go, reached = asyncio.Event(), asyncio.Event()

    async def hold(value):
        if value["v"] == 2500:
            reached.set()
            await go.wait()
        return value

    def app():
        return app_of(job, inp, tens, halves, "close", hold)

    one = await job.start(app(), "w1", bounded=True)
    await asyncio.wait_for(reached.wait(), 240)
    await job.write(inp, [{"k": "later", "ts": BASE, "v": 0}])
    await one.crash()
    one = await job.start(app(), "w1", bounded=True)
    two = await job.start(app(), "w2", bounded=True)
    await two.until(lambda: "running" in two.states().values(), "a task runs where it was moved")
    task = next(iter(one.states()))
    await job.ask("move", task=task, to="w2")
    await two.until(lambda: two.state(task) == "running", "the task runs where it was moved")
    go.set()
    await ended(one, two)
    assert await results(job, tens, len(expected)) == expected
    assert await results(job, halves, len(of_all)) == of_all
    by = {orjson.loads(one.value)["closed_by"] for one in await job.records(tens, len(expected))}
    assert "end" in by
    assert by <= {"watermark", "end"}  # how many of them time closes before the end comes is not determined
