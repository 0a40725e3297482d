"""Which partitions make a task is a setting: one task may own everything, or each partition of each stream its own."""

from __future__ import annotations

import pytest

import headgate as hg
from headgate.core.errors import DeclarationError

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


async def test_the_grouper_of_the_settings_makes_the_tasks(job, topic):
    """Two partitions: with `all` one task counts everything; every record comes through once."""
    inp, out = topic("in", 2), topic("out", 2)
    app = hg.App(job.name, settings={"grouper": "all"})
    app.input(inp).map(lambda row: {"n": row["n"] + 1}).to(out)
    await job.write(inp, [{"n": n} for n in range(20)])
    worker = await job.start(app)
    await worker.until_running(1)
    assert list(worker.states()) == ["All"]
    assert sorted(row["n"] for row in await job.values(out, 20)) == list(range(1, 21))


def broken(partitions, broadcast):
    """A bug, and one that would end the process."""
    raise SystemExit("a bug")


async def test_a_grouper_that_raises_refuses_the_start_by_its_name(job, topic):
    """No run begins whose tasks could never be made."""
    app = hg.App(job.name, settings={"grouper": f"{__name__}:broken"})
    app.input(topic("in", 2)).to(topic("out"))
    worker = await job.start(app)
    with pytest.raises(DeclarationError, match=f"the grouper '{__name__}:broken' raised SystemExit: a bug"):
        await worker.ended()


def uneasy(tasks, task_locality, processor_locality, previous):
    """Places nothing while there are two workers."""
    return {next(iter(processor_locality)): list(tasks)} if len(processor_locality) == 1 else {"p": [float("nan")]}


async def test_a_placement_that_answers_nonsense_keeps_what_runs(job, topic):
    """The second worker comes, the placement breaks: the leader and the first worker's tasks go on."""
    inp, out = topic("in", 2), topic("out")
    app = hg.App(job.name, settings={"placement": f"{__name__}:uneasy"})
    app.input(inp).to(out)
    one = await job.start(app)
    await one.until_running(2)
    two = await job.start(app, "w2")
    said = one.worker.coordination.leader.memory.said
    nonsense = f"the placement '{__name__}:uneasy' gives 'p' nan, which is not a task"
    await one.until(lambda: any(nonsense in text for text in said), "the leader has said it")
    await job.write(inp, [{"n": n} for n in range(10)])
    assert len(await job.values(out, 10)) == 10
    assert (len(one.worker.actors), len(two.worker.actors)) == (2, 0)
