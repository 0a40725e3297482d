"""Positions that change otherwise than by reading, on the real broker: records that were deleted before they were read, and seeks."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiokafka.admin import RecordsToDelete
from aiokafka.structs import TopicPartition

import headgate as hg
from headgate.agents.process.requests import AnsweredFailed, Refused

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


def copying(job, inp, out, **options):
    """Every record goes on as it is."""
    app = hg.App(job.name)
    app.input(inp, **options).to(out)
    return app


def rows(first, behind):
    return [{"n": n} for n in range(first, behind)]


async def deleted_before(job, topic, offset, partition=0):
    """As an operator or a retention does it."""
    async with job.admin() as admin:
        await admin.delete_records({TopicPartition(topic, partition): RecordsToDelete(before_offset=offset)})


async def numbers(job, out, count, **more):
    return [value["n"] for value in await job.values(out, count, **more)]


async def read_ten_and_lose_five(job, inp, out, on_lost):
    """Ten are read; twenty are there; the first fifteen are deleted while nobody runs."""
    await job.write(inp, rows(0, 10))
    first = await job.start(copying(job, inp, out, on_lost=on_lost))
    assert await numbers(job, out, 10) == list(range(10))
    await first.stop()
    await job.write(inp, rows(10, 20))
    await deleted_before(job, inp, 15)
    return await job.start(copying(job, inp, out, on_lost=on_lost))


async def test_lost_records_fail_the_task_with_their_number_and_a_seek_goes_on(job, topic):
    """The default: nothing is skipped in silence. The task says how many are gone and what to type; typing it makes it go on."""
    inp, out = topic("in", 1), topic("out", 1)
    worker = await read_ten_and_lose_five(job, inp, out, "fail")
    await worker.until(lambda: failed_because(worker), "the job's stream says failed")
    why = failed_because(worker)
    assert f"5 records of {inp}:0 are lost: the position was 10, the log begins at 15" in why
    assert f"headgate seek JOB {inp}" in why
    assert await numbers(job, out, 10) == list(range(10))
    await job.ask("seek", stream=inp, partition=0, to="oldest")
    assert await numbers(job, out, 15) == [*range(10), *range(15, 20)]


async def test_a_seek_behind_the_record_that_a_task_failed_at_makes_it_go_on(job, topic):
    """Nothing may be skipped by itself; an operator may skip it."""
    inp, out = topic("in", 1), topic("out", 1)
    app = hg.App(job.name)
    app.input(inp).map(lambda v: {"n": 100 // v["n"]}).to(out)
    worker = await job.start(app, settings={"error.retries": 0})
    await worker.until_running(1)
    await job.write(inp, [{"n": 1}])
    assert await numbers(job, out, 1) == [100]
    await job.write(inp, [{"n": 0}, {"n": 2}])
    await worker.until(lambda: failed_because(worker), "the job's stream says failed")
    assert f"record at {inp}[0] offset 1" in failed_because(worker)
    assert (await job.ask("seek", stream=inp, partition=0, to=2)).state == "done"
    assert await numbers(job, out, 2) == [100, 50]
    await worker.until_running(1)


@pytest.mark.parametrize("on_lost", ["oldest", "newest"])
async def test_lost_records_are_stepped_over_where_the_input_says_so_and_counted(job, topic, on_lost):
    """`oldest` goes on with the first that is left, `newest` behind the last; both say how many are gone."""
    inp, out = topic("in", 1), topic("out", 1)
    worker = await read_ten_and_lose_five(job, inp, out, on_lost)
    await worker.until(lambda: "lost" in notes(worker), "the loss is said")
    assert f"5 records of {inp}:0 are lost: the position was 10, the log begins at 15" in notes(worker)["lost"]
    assert f"continuing at the {on_lost}" in notes(worker)["lost"]
    assert worker.worker.counters["Partition 0"]["note_lost"] == 1
    await worker.until(
        lambda: worker.worker.actors["Partition 0"].contribution.durable == {(inp, 0): 20}, "it stands at the end"
    )
    await job.write(inp, rows(20, 22))
    left = list(range(15, 20)) if on_lost == "oldest" else []
    assert await numbers(job, out, 12 + len(left)) == [*range(10), *left, 20, 21]


def failed_because(worker):
    """Why the job's stream says that the task has failed."""
    if not hasattr(worker.worker.coordination, "member"):
        return ""
    states = worker.worker.coordination.member.job.task_states("Partition 0")
    return next((said.why for said in states.values() if said.state == "failed"), "")


def notes(worker):
    actor = worker.worker.actors.get("Partition 0")
    return {what: note.detail for what, note in actor.site.notes.said.items()} if actor is not None else {}


async def test_seeks_go_to_the_oldest_an_offset_a_time_and_the_newest(job, topic):
    """Each is done when the checkpoint with it is durable; what was read stays counted, what is skipped is not read."""
    inp, out = topic("in", 1), topic("out", 1)
    now = int(time.time() * 1000) - 60_000
    for n in range(5):
        await job.write(inp, [{"n": n}], timestamp_ms=now + n)
    worker = await job.start(copying(job, inp, out))
    seen = list(range(5))
    assert await numbers(job, out, 5) == seen
    for to, again in (("oldest", [0, 1, 2, 3, 4]), (3, [3, 4]), (["time", now + 2], [2, 3, 4])):
        answer = await job.ask("seek", stream=inp, to=to)
        assert answer.state == "done"
        seen += again
        assert await numbers(job, out, len(seen)) == seen
    await job.ask("pause")
    await worker.until(lambda: worker.state("Partition 0") == "paused", "paused")
    await job.write(inp, rows(5, 8))
    assert (await job.ask("seek", stream=inp, partition=0, to="newest")).state == "done"
    await job.ask("resume")
    await job.write(inp, rows(8, 9))
    assert await numbers(job, out, len(seen) + 1) == [*seen, 8]
    with pytest.raises(Refused, match="there is no partition 7"):
        await job.ask("seek", stream=inp, partition=7, to="oldest")
    with pytest.raises(Refused, match="is not an input of the job"):
        await job.ask("seek", stream=out, to="oldest")


async def test_a_seek_is_applied_once_also_over_a_kill(job, topic):
    """The worker dies right after the request was taken up: whoever comes next applies it, or has it in the checkpoint, never both."""
    inp, out = topic("in", 2), topic("out", 2)
    await job.write(inp, rows(0, 20))
    first = await job.start(copying(job, inp, out))
    assert sorted(await numbers(job, out, 20)) == list(range(20))
    await job.ask("seek", wait=False, stream=inp, to="oldest")
    await first.crash()
    second = await job.start(copying(job, inp, out))
    assert sorted(await numbers(job, out, 40)) == sorted([*range(20), *range(20)])
    await second.until(lambda: not second.worker.coordination.member.job.run.seeks, "the request is gone from the run")
    await second.crash()
    third = await job.start(copying(job, inp, out))
    await third.until_running(2)
    await job.write(inp, rows(20, 22))
    found = await numbers(job, out, 42)
    assert sorted(found) == sorted([*range(20), *range(20), 20, 21])


async def test_a_seek_of_a_stream_between_two_stages_is_refused(job, topic):
    """Its control messages are counted: it cannot be read twice."""
    inp, out = topic("in", 1), topic("out", 1)
    app = hg.App(job.name)
    app.input(inp).repartition("k").agg(n=hg.count()).to(out)
    worker = await job.start(app)
    await worker.until_running(1)
    between = next(iter(worker.worker.declared.graph.intermediates))
    with pytest.raises((Refused, AnsweredFailed), match=between):
        await asyncio.wait_for(job.ask("seek", stream=between, to="oldest"), 240)
