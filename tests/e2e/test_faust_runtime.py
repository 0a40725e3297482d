"""Faust is the runtime: its agents are the tasks, they come and go while the app runs, and its own API is obeyed."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

import headgate as hg
from headgate.agents.port.port import MailboxClosed
from headgate.agents.worker.faust_app import new_app
from headgate.agents.worker.mailbox import AgentMailbox

pytestmark = [pytest.mark.asyncio]


async def turned(true):
    """Let the loop turn until this holds; the timeout of the test bounds it."""
    while not true():  # noqa: ASYNC110 - what is waited for is a list that plain user code fills
        await asyncio.sleep(0)


@pytest.fixture
def running_app():
    """A Faust app for mailboxes, without Kafka."""
    return new_app("mailboxes")


async def test_agents_come_and_go_without_leaking_and_without_touching_the_others(running_app):
    """Two hundred actors are made, used and stopped beside one that lives on; what they leave behind does not grow."""
    await running_app.start()
    heard = []

    async def take(letter):
        heard.append(letter)

    def gone(why):
        heard.append(why)

    resident = AgentMailbox(running_app, "resident", take, gone)
    await resident.start()

    async def live(number):
        mailbox = AgentMailbox(running_app, f"passing {number}", take, gone)
        await mailbox.start()
        await mailbox.put(number)
        await turned(lambda: number in heard)
        await mailbox.stop()

    for number in range(20):
        await live(number)
    grown, lived = [], 20
    while len(grown) < 3 and min(grown, default=2_000) >= 2_000:  # something else may come to life beside them
        gc.collect()
        before = len(gc.get_objects())
        for number in range(lived, lived + 200):
            await live(number)
        gc.collect()
        grown.append(len(gc.get_objects()) - before)
        lived += 200
    assert min(grown) < 2_000, grown  # ten for each cycle would be a leak in a month
    assert set(running_app.agents) == {"resident"}
    await resident.put("still here")
    await turned(lambda: "still here" in heard)
    await resident.stop()
    await running_app.stop()


async def test_a_full_mailbox_holds_up_whoever_puts(running_app):
    """No more letters than its size wait in a mailbox."""
    await running_app.start()
    go, heard = asyncio.Event(), []

    async def take(letter):
        await go.wait()
        heard.append(letter)

    mailbox = AgentMailbox(running_app, "slow", take, lambda why: None, size=2)
    await mailbox.start()
    putting = asyncio.get_running_loop().create_task(_put_all(mailbox, 10))
    for _ in range(200):
        await asyncio.sleep(0)
    assert not putting.done()
    assert mailbox.channel.queue.qsize() <= 2
    go.set()
    await asyncio.wait_for(putting, 240)
    await turned(lambda: len(heard) == 10)
    assert heard == list(range(10))
    await mailbox.stop()
    await running_app.stop()


async def test_a_letter_is_gone_when_it_has_ended_and_not_when_the_next_one_comes(running_app):
    """Its records keep what was fetched with them in memory, and a task without work may wait for hours."""
    await running_app.start()

    class Letter:
        """What can be watched."""

    ended = asyncio.Event()

    async def take(letter):
        ended.set()

    mailbox = AgentMailbox(running_app, "idle", take, lambda why: None)
    await mailbox.start()
    letter = Letter()
    watched = weakref.ref(letter)
    await mailbox.put(letter)
    del letter
    await asyncio.wait_for(ended.wait(), 240)
    await turned(lambda: watched() is None)
    await mailbox.stop()
    await running_app.stop()


async def _put_all(mailbox, count):
    for number in range(count):
        await mailbox.put(number)


async def test_an_exception_ends_this_actor_and_no_other(running_app):
    """The failure is told once, putting is refused from then on, and the neighbour goes on."""
    await running_app.start()
    told, heard = [], []

    async def fail(letter):
        raise ValueError(letter)

    async def take(letter):
        heard.append(letter)

    bad = AgentMailbox(running_app, "bad", fail, told.append)
    good = AgentMailbox(running_app, "good", take, told.append)
    await bad.start()
    await good.start()
    await bad.put("boom")
    await turned(lambda: told)
    assert [str(one) for one in told] == ["boom"]
    with pytest.raises(MailboxClosed):
        await bad.put("more")
    await good.put("fine")
    await turned(lambda: heard)
    await bad.stop()
    await good.stop()
    await running_app.stop()


@pytest.mark.kafka
async def test_stopping_a_tasks_agent_stops_the_task_and_starting_it_starts_the_task(job, topic):
    """Through Faust's own API: the task of a stopped agent has failed and says why, its neighbour goes on; started again, it
    goes on where it stood: nothing lost, nothing twice."""
    inp, out = topic("in", 2), topic("out", 2)
    app = hg.App(job.name)
    app.input(inp).map(lambda v: v).to(out)
    one = await job.start(app)
    await one.until_running(2)
    await job.write(inp, [{"n": n} for n in range(20)])
    await job.records(out, 20)
    agent = one.worker.app.agents["task.Partition 0"]
    await agent.stop()
    await one.until(lambda: one.state("Partition 0") == "failed", "the task has failed")
    assert "stopped" in one.worker.actors["Partition 0"].machine.why
    await job.write(inp, [{"n": n} for n in range(20, 40)])
    await job.records(out, 30)
    assert one.state("Partition 1") == "running"
    states = one.worker.coordination.member.job
    await one.until(lambda: states.says("Partition 0") == "failed", "the stream says failed")
    await agent.restart()
    await one.until(lambda: one.state("Partition 0") == "running", "the task runs again")
    found = await job.values(out, 40)
    assert sorted(v["n"] for v in found) == list(range(40))
    await one.until(lambda: states.says("Partition 0") == "running", "the stream says running")
    assert (
        one.worker.app.agents["task.Partition 0"] is not agent
    )  # the task has a new one, and the old one does not live beside it
    assert agent.should_stop
    assert not agent._actors


@pytest.mark.kafka
async def test_faust_counts_what_tasks_do(job, topic):
    """A sensor of the app hears of every letter."""
    inp, out = topic("in", 1), topic("out", 1)
    app = hg.App(job.name)
    app.input(inp).map(lambda v: v).to(out)
    one = await job.start(app)
    await one.until_running(1)
    await job.write(inp, [{"n": n} for n in range(10)])
    await job.records(out, 10)
    await one.until(lambda: one.worker.sensor.records[inp] == 10, "ten records are counted")
    assert one.worker.sensor.letters >= 1


@pytest.mark.kafka
async def test_what_lives_beside_the_actors_is_a_service_of_the_app(job, topic):
    """Intake, outbox and steering stand in Faust's tree while they live, and not afterwards."""
    inp, out = topic("in", 1), topic("out", 1)
    app = hg.App(job.name)
    app.input(inp).to(out)
    one = await job.start(app)
    await one.until_running(1)
    faust = one.worker.app

    def names():
        return {service.label for service in faust._children if type(service).__name__ == "CoroutineService"}

    six = {"steering", "upkeep", "leftovers", "lags", "intake Partition 0", f"outbox {one.worker.incarnation}"}
    await one.until(lambda: names() == six, "six services")  # one that looks up offsets may be there for a moment
    await one.stop()
    assert names() == set()


@pytest.mark.kafka
async def test_a_worker_that_is_cancelled_while_it_ends_still_stops_its_agents(job, topic):
    """Something fails, and a moment later somebody loses patience: the end becomes short, and no agent outlives its worker (one that did
    swallowed the cancellation of the loop's own end, which then waited for it for ever)."""
    inp, out = topic("inp"), topic("out")
    app = hg.App(job.name)
    app.input(inp).to(out)
    before = asyncio.all_tasks()
    for cancelled_after in (1, 3, 10):
        running = await job.start(app)
        await job.write(inp, [{"n": cancelled_after}])
        await running.until_running(1)
        agents = list(running.worker.app.agents.values())
        assert len(agents) == 2
        running.worker.crash(RuntimeError("something that must not happen"))
        for _ in range(cancelled_after):
            await asyncio.sleep(0)
        running.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running.task
        assert all(agent.should_stop and not agent._actors for agent in agents)
    started = {task.get_name() for task in asyncio.all_tasks() - before}
    assert not started & {
        "Partition 0",
        "upkeep",
        "steering",
        "partition counts",
        "the worker stops",
        "age of the main loop",
    }
