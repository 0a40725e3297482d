"""What only a broker shows of operators: commits beside what awaits, and agents as Faust runs them.

What operators compute is told on the test driver (`tests/agents/operators`, `tests/agents/job`).
"""

from __future__ import annotations

import asyncio

import orjson
import pytest

import headgate as hg

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


async def test_what_awaits_holds_up_no_commit_of_other_tasks(job, topic):
    """One task hangs in a call; its neighbour's results are committed all the same."""
    inp, out = topic("in", 2), topic("out", 2)
    go = asyncio.Event()

    async def call(value):
        if value["n"] == 0:
            await go.wait()
        return value

    app = hg.App(job.name)
    app.input(inp).map_async(call).to(out)
    worker = await job.start(app)
    await worker.until_running(2)
    await job.write(inp, [{"n": 0}], partition=0)
    await job.write(inp, [{"n": 1}, {"n": 2}], partition=1)
    assert [v["n"] for v in await job.values(out, 2)] == [1, 2]
    go.set()
    assert sorted(v["n"] for v in await job.values(out, 3)) == [0, 1, 2]


async def test_an_agent_yields_records_and_uses_tables(job, topic):
    """Each task has an agent of its own, with its own part of the table; what it yields is committed with the chunk."""
    inp, out = topic("in", 2), topic("out", 2)
    app = hg.App(job.name, key_serde=hg.text())
    counts = app.table("counts", value=hg.json())

    @app.agent(app.input(inp), sink=out)
    async def count(batches: hg.Batches):
        async for batch in batches:
            counts["n"] = counts.get("n", 0) + len(batch)
            yield [hg.Record(batches.task, {"n": counts["n"]})]

    await job.write(inp, [{"n": n} for n in range(30)])
    worker = await job.start(app)
    await worker.until_running(2)
    async with asyncio.timeout(240):
        last = {}
        while last != {"Partition 0": 15, "Partition 1": 15}:
            last = {r.key.decode(): orjson.loads(r.value)["n"] for r in await job.records(out, 2)}
