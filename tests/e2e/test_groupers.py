"""Which partitions make a task is a setting: one task may own everything, or each partition of each stream its own."""

from __future__ import annotations

import pytest

import headgate as hg

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


@pytest.mark.parametrize(("grouper", "tasks"), [("all", ["All"]), ("partition", ["Partition 0", "Partition 1"])])
async def test_the_grouper_of_the_settings_makes_the_tasks(job, topic, grouper, tasks):
    """Two partitions: with `all` one task counts everything, with `partition` two do; every record comes through once."""
    inp, out = topic("in", 2), topic("out", 2)
    app = hg.App(job.name, settings={"grouper": grouper})
    app.input(inp).map(lambda row: {"n": row["n"] + 1}).to(out)
    await job.write(inp, [{"n": n} for n in range(20)])
    worker = await job.start(app)
    await worker.until_running(len(tasks))
    assert sorted(worker.states()) == tasks
    assert sorted(row["n"] for row in await job.values(out, 20)) == list(range(1, 21))
