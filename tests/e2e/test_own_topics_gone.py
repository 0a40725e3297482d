"""A topic of the job's own that somebody deletes under it: the tasks that need it say which one it is and what to do. Nothing hangs."""

from __future__ import annotations

import pytest
from aiokafka.admin import NewPartitions, NewTopic

import headgate as hg
from headgate.core.errors import DeclarationError

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


def trouble(one, task="Partition 0"):
    """What the job's stream and the task itself say of its trouble."""
    said = one.worker.coordination.member.job.task_states(task)
    last = said[max(said)] if said else None
    actor = one.worker.actors.get(task)
    notes = " ".join(note.detail for note in actor.site.notes.said.values()) if actor is not None else ""
    return f"{last.why if last is not None else ''} {notes}"


@pytest.mark.parametrize("which", ["between", "log"])
async def test_a_deleted_topic_of_the_jobs_own_is_said(job, topic, monkeypatch, which):
    """The stream between two stages, and the task log."""
    monkeypatch.setattr("headgate.agents.runtime.writing.outbox.GONE_AFTER_S", 1.0)
    inp, out = topic("in", 1), topic("out", 1)
    app = hg.App(job.name, settings={"fetch.watchdog": "2s"})
    app.input(inp).repartition("k").agg(n=hg.count()).to(out)
    one = await job.start(app)
    await one.until_running(1)
    await job.write(inp, [{"k": "a"}])
    await job.records(out, 1)
    gone = next(iter(one.worker.declared.graph.intermediates)) if which == "between" else job.topics.log
    async with job.admin() as admin:
        await admin.delete_topics([gone])
    await job.write(inp, [{"k": "a"}])
    told = ("create the topic", gone)
    await one.until(
        lambda: all(word in trouble(one) for word in told), f"the task says that {gone} is gone", within_s=240
    )


async def test_a_stream_between_stages_that_someone_widened_is_said(job, topic):
    """A worker that came later spread its keys over four partitions, the others over two: half of what it counted was read by nobody."""
    inp, out = topic("in", 1), topic("out", 1)
    app = hg.App(job.name)
    app.input(inp).repartition("k", partitions=2).agg(n=hg.count()).to(out)
    one = await job.start(app)
    await one.until_running(2)
    await job.write(inp, [{"k": "a"}])
    await job.records(out, 1)
    await one.stop()
    between = next(iter(one.worker.declared.graph.intermediates))
    async with job.admin() as admin:
        await admin.create_partitions({between: NewPartitions(4)})
    two = await job.start(app)
    told = (between, "has 4 partitions", "the job's model says 2", "headgate reset")
    await two.until(
        lambda: two.worker.actors and all(word in trouble(two) for word in told), "the task says so", within_s=240
    )


async def test_a_task_log_with_other_settings_ends_the_worker_with_what_helps(job, topic):
    """Its leader led, could not begin, resigned and led again, 74 times in 90 seconds, and never ended."""
    inp = topic("in", 1)
    async with job.admin() as admin:
        log = NewTopic(job.topics.log, 1, 1, topic_configs={"cleanup.policy": "delete"})
        await admin.create_topics([log])
    app = hg.App(job.name)
    app.input(inp).agg(n=hg.count()).to(topic("out", 1))
    one = await job.start(app)
    with pytest.raises(DeclarationError) as raised:
        await one.ended()
    said = str(raised.value)
    assert all(word in said for word in (job.topics.log, "cleanup.policy", "kafka-configs")), said
