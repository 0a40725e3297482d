"""Several workers of one job on the real broker: moved tasks, one worker stopped for a while or for good. Every record counts once."""

from __future__ import annotations

import pytest

from headgate.agents.kafka import consumer as consumers
from headgate.agents.process.requests import Refused

from .scenes import counted, counting

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
PATIENT = {"placement.rejoin-grace": "120s", "stop.prepare": "0s"}
"""Tasks with state wait for a worker that went, far longer than any of these tests, and others do not prepare them first."""


def users(count=40):
    return [{"user": f"u{n}"} for n in range(count)]


def grants(worker):
    """By which grant each task is held, as this worker knows."""
    return {one.task: (one.grant, one.processor) for one in worker.worker.coordination.member.job.grants()}


def owners(*workers):
    return [sorted(one.states()) for one in workers]


async def two_workers(job, inp, out, **settings):
    """Two workers with two tasks each."""
    one = await job.start(counting(job, inp, out), "w1", settings=settings)
    await one.until_running(4)
    two = await job.start(counting(job, inp, out), "w2", settings=settings)
    await two.until_running(2)
    await one.until_running(2)
    return one, two


async def test_a_task_is_moved_with_its_state_and_stays_where_it_was_moved(job, topic):
    """`headgate move`: its new worker has its counts and gives one task back, for balance; nobody moves it back."""
    inp, out = topic("in", 4), topic("out", 4)
    one, two = await two_workers(job, inp, out)
    await job.write(inp, users())
    await counted(job, out, 1)
    task, stays = sorted(one.states())
    resident = one.worker.actors[stays]
    assert (await job.ask("move", task=task, to="w2")).state == "done"
    await two.until(lambda: two.state(task) == "running", "it runs where it was moved")
    await one.until_running(2)
    await two.until_running(2)
    assert one.worker.actors[stays] is resident  # what did not move did not pause
    owned = owners(one, two)
    await job.write(inp, users())
    await counted(job, out, 2)
    assert owners(one, two) == owned
    with pytest.raises(Refused, match="there is no worker 'w9'"):
        await job.ask("move", task=task, to="w9")
    with pytest.raises(Refused, match="Partition 77"):
        await job.ask("move", task="Partition 77", to="w1")


async def test_tasks_wait_for_a_worker_that_is_stopped_but_not_for_one_that_has_gone_for_good(job, topic):
    """`stop --worker`: it commits, leaves with 0, its tasks wait for it, and replay nothing when it is back. With `--for-good` the others
    have them at once, far below the grace, and the run goes on."""
    inp, out = topic("in", 4), topic("out", 4)
    one, two = await two_workers(job, inp, out, **PATIENT)
    await job.write(inp, users())
    await counted(job, out, 1)
    mine, before = sorted(two.states()), grants(one)
    assert (await job.ask("stop", worker="w2")).state == "done"
    assert await two.ended() == 0
    await job.write(inp, users())
    back = await job.start(counting(job, inp, out), "w2", settings=PATIENT)
    await back.until_running(2)
    assert sorted(back.states()) == mine
    # no one else has had them meanwhile
    assert grants(back) == {task: (grant + (by == "w2"), by) for task, (grant, by) in before.items()}
    assert [actor.state.replayed for actor in back.worker.actors.values()] == [0, 0]
    await counted(job, out, 2)
    assert len(one.states()) == 2

    assert (await job.ask("stop", worker="w2", for_good=True)).state == "done"
    assert await back.ended() == 0
    await one.until_running(4)
    await job.write(inp, users())
    await counted(job, out, 3)
    assert one.worker.coordination.member.job.run.state == "running"
    with pytest.raises(Refused, match="w9"):
        await job.ask("stop", worker="w9")


async def test_nothing_of_the_stream_is_left_out_where_each_answer_comes_late(job, topic, monkeypatch):
    """Behind a late answer records wait for metadata, and then come in pieces. Requests, answers, grants and states are all read."""
    monkeypatch.setattr(consumers, "GAP_S", 0.0)
    inp, out = topic("in", 4), topic("out", 4)
    one, two = await two_workers(job, inp, out)
    for moves in (1, 2):
        task = sorted(one.states())[0]
        assert (await job.ask("move", task=task, to="w2")).state == "done"
        assert (await job.ask("pause", stream=inp)).state == "done"
        assert (await job.ask("resume", stream=inp)).state == "done"
        await two.until(lambda task=task: two.state(task) == "running", "it runs where it was moved")
        await job.write(inp, users())
        await counted(job, out, moves)
        assert (await job.ask("move", task=task, to="w1")).state == "done"
        await one.until(lambda task=task: one.state(task) == "running", "it is back")
