"""Inputs that are deleted, made anew, or forbidden while a job reads them: it says so with a remedy, and goes on when it can."""

from __future__ import annotations

import asyncio
import json
import uuid

import pytest

import headgate as hg
from headgate.agents.broker.acls import Acl
from headgate.agents.kafka import consumer as consumers

from . import scenes
from .scenes import client_of

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


def rows(first, behind):
    return [{"n": n} for n in range(first, behind)]


async def made(job, name):
    """A topic that the broker knows, and not only its controller."""
    await scenes.made(job.client, (name, 1))


async def gone(job, name):
    """Deleted, and the broker takes nothing for it any more."""
    async with job.admin() as admin:
        await admin.delete_topics([name])
        while not (await admin.describe_topics([name]))[0]["error_code"]:
            pass


def degraded(worker):
    """What the task says of its inputs."""
    return " ".join(degraded_notes(worker).values())


def failed_because(worker):
    states = worker.worker.coordination.member.job.task_states("Partition 0")
    return next((said.why for said in states.values() if said.state == "failed"), "")


@pytest.mark.parametrize(("on_lost", "new"), [("fail", 20), ("newest", 3)])
async def test_an_input_that_was_made_anew_is_noticed_and_treated_as_lost_records(job, topic, on_lost, new):
    """Whether the position lies behind the end of the new topic or within it: none of its records is taken for the next one."""
    inp, out = f"in-{uuid.uuid4().hex[:8]}", topic("out")
    await made(job, inp)

    def declared():
        app = hg.App(job.name)
        app.input(inp, on_lost=on_lost).to(out)
        return app

    first = await job.start(declared())
    await job.write(inp, rows(0, 10))
    await job.records(out, 10)
    await first.stop()
    await gone(job, inp)
    await made(job, inp)
    await job.write(inp, rows(100, 100 + new))
    worker = await job.start(declared())
    if on_lost == "fail":
        await worker.until(lambda: hasattr(worker.worker.coordination, "member") and failed_because(worker), "failed")
        why = failed_because(worker)
        assert f"{inp}:0" in why
        assert f"{inp} was deleted and re-created: the position 10 of {inp}:0 belongs to the topic of id " in why
        assert f"headgate seek JOB {inp}" in why
        await job.ask("seek", stream=inp, to="oldest")
    if on_lost == "newest":
        await worker.until(lambda: "lost" in degraded_notes(worker), "the loss is said")
        await worker.until(
            lambda: worker.worker.actors["Partition 0"].contribution.durable == {(inp, 0): new}, "it stands at the end"
        )
    await job.write(inp, rows(100 + new, 101 + new))
    left = [100 + new] if on_lost == "newest" else [*range(100, 101 + new)]
    found = [v["n"] for v in await job.values(out, 10 + len(left))]
    assert found == [*range(10), *left]


def degraded_notes(worker):
    actor = worker.worker.actors.get("Partition 0")
    return {what: note.detail for what, note in actor.site.notes.said.items()} if actor is not None else {}


async def test_an_input_that_is_made_anew_while_it_is_read_gives_nothing_of_the_new_topic(job, topic):
    """The reader is there all the time, and the new topic has records at its position when it sees it first."""
    inp, out = f"in-{uuid.uuid4().hex[:8]}", topic("out")
    await made(job, inp)
    app = hg.App(job.name)
    app.input(inp).to(out)
    worker = await job.start(app)
    await job.write(inp, rows(0, 10))
    await job.records(out, 10)
    await gone(job, inp)
    await made(job, inp)
    await job.write(inp, rows(100, 120))
    await worker.until(lambda: failed_because(worker), "it is noticed")
    assert f"{inp} was deleted and re-created" in failed_because(worker)
    assert [v["n"] for v in await job.values(out, 10)] == list(range(10))
    await job.ask("seek", stream=inp, to="here")  # somebody says that it is the same one
    assert [v["n"] for v in await job.values(out, 20)] == [*range(10), *range(110, 120)]


async def test_an_input_that_is_made_anew_while_its_buffer_is_full_gives_nothing_of_the_new_topic(
    job, topic, monkeypatch
):
    """Nothing is fetched meanwhile, so no broker has said that it is gone, and the new topic is as long as the position."""
    inp, out = f"in-{uuid.uuid4().hex[:8]}", topic("out")
    await made(job, inp)
    app = hg.App(job.name)
    app.input(inp).to(out)
    worker = await job.start(app, settings={"buffer.bytes": "64KiB"})
    await worker.until_running(1)
    await job.ask("pause")
    await job.write(inp, [{"n": n, "filled": "x" * 1000} for n in range(600)])
    (part,) = worker.worker.actors["Partition 0"].reading.intake.intake._parts.values()
    await worker.until(lambda: part.full, "the buffer is full")
    await gone(job, inp)
    await made(job, inp)
    await job.write(inp, [{"n": n, "filled": "y" * 1000} for n in range(1000, 2000)])
    monkeypatch.setattr(consumers, "GAP_S", 0.05)
    await job.ask("resume")
    await worker.until(lambda: failed_because(worker), "it is noticed")
    assert f"{inp} was deleted and re-created" in failed_because(worker)
    found = [v["n"] for v in await job.values(out, 0)]
    assert found == list(range(len(found)))


async def test_an_input_that_is_made_anew_and_is_shorter_is_named_so(job, topic):
    """The broker refuses the position. It was told as a truncated topic when that came before the reader's metadata."""
    inp, out = f"in-{uuid.uuid4().hex[:8]}", topic("out")
    await made(job, inp)
    app = hg.App(job.name)
    app.input(inp, on_lost="oldest").to(out)
    worker = await job.start(app)
    await job.write(inp, rows(0, 10))
    await job.records(out, 10)
    await gone(job, inp)
    await made(job, inp)
    await job.write(inp, rows(100, 105))
    assert [v["n"] for v in await job.values(out, 15)] == [*range(10), *range(100, 105)]
    assert f"{inp} was deleted and re-created" in degraded_notes(worker)["lost"]


async def test_a_bounded_run_over_an_input_that_is_made_anew_and_shorter_ends(job, topic):
    """Its end was fixed when the run began, and the new topic has no such offset: the run waited for it for ever."""
    inp, out = f"in-{uuid.uuid4().hex[:8]}", topic("out")
    await made(job, inp)
    await job.write(inp, rows(0, 10))

    async def slow(value):
        if 2 <= value["n"] < 100:
            await asyncio.Event().wait()
        return value

    app = hg.App(job.name, settings={"chunk.max-records": 1})
    app.input(inp, until="newest", on_lost="oldest").map_async(slow).to(out)
    worker = await job.start(app)
    await job.records(out, 2)
    await worker.crash()
    await gone(job, inp)
    await made(job, inp)
    await job.write(inp, rows(100, 103))
    again = await job.start(app)
    assert await again.ended() == 0
    assert [v["n"] for v in await job.values(out, 5)] == [0, 1, 100, 101, 102]


async def test_an_input_that_is_deleted_while_it_is_read_is_said(job, topic):
    """The status names the topic; the worker and its other inputs go on."""
    inp, other, out = f"in-{uuid.uuid4().hex[:8]}", topic("other"), topic("out")
    await made(job, inp)
    app = hg.App(job.name, settings={"fetch.watchdog": "2s"})
    app.input(inp).merge(app.input(other)).to(out)
    worker = await job.start(app)
    await job.write(inp, rows(0, 3))
    await job.records(out, 3)
    await gone(job, inp)
    heads = worker.worker.actors["Partition 0"].reading.intake.intake.heads

    def said():
        return [head.degraded for head in heads().values() if head.degraded]

    await worker.until(lambda: any("no longer exists" in one for one in said()), "the topic is missed")
    await worker.until(lambda: inp in degraded_notes(worker).get("degraded", ""), "the task says so")
    await job.write(other, rows(3, 5))
    assert len(await job.records(out, 5)) == 5
    assert not worker.task.done()


SOURCE = """
import headgate as hg

app = hg.App("JOB")
app.input("IN").map(lambda v: v).to("OUT")
"""


@pytest.mark.slow
async def test_reading_that_is_forbidden_is_said_and_goes_on_when_it_is_allowed(job_on, secure_kafka):
    """READ on the input is revoked from a running job: the task names topic and permission; given back, every record comes once."""
    client = client_of(secure_kafka)
    async with job_on(secure_kafka, client) as job:
        inp, out = (f"{front}-{uuid.uuid4().hex[:8]}" for front in ("in", "out"))
        await made(job, inp)
        await made(job, out)
        app = hg.App(job.name)
        app.input(inp).to(out)
        worker = await job.start(app)
        await job.write(inp, rows(0, 3))
        await job.records(out, 3)
        deny = Acl("app", "topic", inp, "read", allow=False)
        await asyncio.to_thread(secure_kafka.allow, deny)
        try:
            await job.write(inp, rows(3, 6))
            heads = worker.worker.actors["Partition 0"].reading.intake.intake.heads
            await worker.until(
                lambda: (
                    any(f"grant READ on the topic {inp}" in (head.degraded or "") for head in heads().values())
                    or any("grant READ on the topic" in (head.degraded or "") for head in heads().values())
                ),
                "the permission is named",
            )
        finally:
            await asyncio.to_thread(secure_kafka.disallow, deny)
        assert [v["n"] for v in await job.values(out, 6)] == list(range(6))


@pytest.mark.slow
async def test_a_worker_of_the_command_line_runs_by_tls_and_password_and_tells_it_no_one(job_on, secure_kafka):
    """`headgate run -X …` with what `kafka up --secure` printed; the password is in no line and no topic of the job."""
    client = client_of(secure_kafka)
    given = {k: v for k, v in secure_kafka.client_settings("app").items() if k != "bootstrap.servers"}
    secrets = json.loads((secure_kafka.secrets / "users.json").read_text())
    async with job_on(secure_kafka, client) as job:
        inp, out = (f"{front}-{uuid.uuid4().hex[:8]}" for front in ("in", "out"))
        await made(job, inp)
        await made(job, out)
        words = [word for name, value in given.items() for word in ("-X", f"{name}={value}")]
        one = await job.process(SOURCE.replace("IN", inp).replace("OUT", out), "w1", *words)
        await job.write(inp, rows(0, 20))
        assert [v["n"] for v in await job.values(out, 20)] == list(range(20))
        await job.ask("drain")
        assert await one.ended() == 0
        assert secrets["app"] not in one.text()
        for topic in job.topics.fixed:
            held = b"".join(path.read_bytes() for path in secure_kafka.data.glob(f"node-*/data/{topic}-*/*.log"))
            assert held or topic == job.topics.dead_letters
            assert secrets["app"].encode() not in held
