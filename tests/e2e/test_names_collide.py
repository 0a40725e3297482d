"""Two jobs whose topics would be the same: the second one is told, and touches nothing."""

from __future__ import annotations

import pytest

import headgate as hg
from headgate.agents.process.reading import OtherJob, following
from headgate.core.errors import DeclarationError
from headgate.core.names import JobName, Topics

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


def copies(name, inp, out, id="1"):
    app = hg.App(name, id=id)
    app.input(inp).to(out)
    return app


async def test_a_name_that_differs_by_an_underscore_joins_no_one_elses_run(job, topic):
    """Both names make the same topics: the second job ran as a worker of the first, and `headgate reset` of one deleted the other."""
    inp, out = topic("in"), topic("out")
    other = job.name.replace("-", "_")
    one = await job.start(copies(job.name, inp, out))
    await one.until_running(1)
    two = await job.start(copies(other, inp, out), "w2")
    assert await two.ended() == 1
    assert two.worker.participant.exit_why == f"the topics of the job '{other}/1' are those of the job '{job.name}/1'"
    with pytest.raises(OtherJob, match=f"there is no job '{other}': its topics are those of the job '{job.name}/1'"):
        async with following(job.client, Topics(JobName(other))):
            pass
    await job.write(inp, [{"n": 1}])
    assert await job.values(out, 1) == [{"n": 1}]
    assert one.state("Partition 0") == "running"


async def test_a_name_and_id_that_make_another_jobs_topic_are_refused_before_anything_is_made(job, topic):
    """`a` with id `1-b` and `a-1` with id `b` share dead letters, intermediate streams, group and directory, though not the coordinator
    stream."""
    inp, out = topic("in"), topic("out")
    one = await job.start(copies(job.name, inp, out, id="1-b"))
    await one.until_running(1)
    with pytest.raises(DeclarationError, match=f"'{job.name}-1/b' would share the topic '{job.name}-1-b-dead-letters'"):
        await (await job.start(copies(f"{job.name}-1", inp, out, id="b"), "w2")).ended()
