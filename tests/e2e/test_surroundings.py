"""Brokers, permissions, topics and disks that go away while a job runs: it goes on, or says why not and what to do. It never just hangs."""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import uuid

import aiohttp
import orjson
import pytest

import headgate as hg
from headgate.agents.broker.acls import Acl
from headgate.agents.kafka.settings import ClientSettings

from ..conftest import READY_S
from .scenes import made, named, why

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


@pytest.mark.slow
async def test_a_broker_that_restarts_holds_a_job_up_and_breaks_nothing(job_on, private_kafka):
    """Killed and back after half a minute: the job goes on by itself, every record counts once. Chaos has those that are away for less."""
    async with job_on(private_kafka) as job:
        inp, out = named("in", "out")
        await made(job.client, (inp, 2), (out, 2))
        app = hg.App(job.name)
        app.input(inp).repartition("k").agg(n=hg.count()).to(out)
        one = await job.start(app)
        await one.until_running(2)
        await job.write(inp, [{"k": f"k{n % 10}"} for n in range(200)])
        await job.records(out, 10)
        await asyncio.to_thread(private_kafka.kill)
        await asyncio.sleep(30)
        await asyncio.to_thread(private_kafka.restart, timeout_s=READY_S)
        await one.until_running(2, within_s=240)
        await job.write(inp, [{"k": f"k{n % 10}"} for n in range(200)])
        async with asyncio.timeout(240):
            while True:
                last = {r.key: orjson.loads(r.value)["n"] for r in await job.records(out, 10)}
                if set(last.values()) == {40} and len(last) == 10:
                    break
                assert max(last.values()) <= 40


async def test_a_deleted_output_topic_fails_those_who_write_to_it_and_comes_back(job, topic, monkeypatch):
    """The tasks that wrote to it say so, with the remedy; when the topic is there again they go on, and nothing is lost."""
    monkeypatch.setattr("headgate.agents.runtime.writing.outbox.GONE_AFTER_S", 1.0)
    inp = topic("in", 1)
    out, other = named("gone", "other")
    await made(job.client, (out, 1), (other, 1))
    app = hg.App(job.name)
    app.input(inp).to(out)
    one = await job.start(app)
    await one.until_running(1)
    await job.write(inp, [{"n": 1}])
    await job.records(out, 1)
    async with job.admin() as admin:
        await admin.delete_topics([out])
    await job.write(inp, [{"n": 2}])
    await one.until(lambda: out in why(one), "the task says which topic")
    assert "create the topic" in why(one)
    await made(job.client, (out, 1))
    await one.until_running(1)
    assert 2 in [v["n"] for v in await job.values(out, 1)]


async def test_a_revoked_right_is_said_and_granting_it_goes_on(job_on, secure_kafka):
    """TLS and SASL all the way; writing to one of two outputs is forbidden: said with its remedy; allowed again: it goes on."""
    given = secure_kafka.client_settings("app")
    client = ClientSettings.parse(
        given["bootstrap.servers"], [f"{k}={v}" for k, v in given.items() if k != "bootstrap.servers"]
    )
    async with job_on(secure_kafka, client) as job:
        inp, out = named("in", "out")
        await made(client, (inp, 1), (out, 1))
        app = hg.App(job.name)
        app.input(inp).to(out)
        one = await job.start(app)
        await one.until_running(1)
        await job.write(inp, [{"n": 1}])
        await job.records(out, 1)
        deny = Acl("app", "topic", out, "write", allow=False)
        await asyncio.to_thread(secure_kafka.allow, deny)
        try:
            await job.write(inp, [{"n": 2}])
            await one.until(lambda: out in why(one), "the task says which topic")
            assert f"grant WRITE on the topic {out}" in why(one)
        finally:
            await asyncio.to_thread(secure_kafka.disallow, deny)
        assert [v["n"] for v in await job.values(out, 2)] == [1, 2]


FULL = """
import resource, signal
import headgate as hg

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
app = hg.App("JOB")
app.input("IN", key="k").agg(n=hg.count(), last=hg.last("pad"), name="big").to("OUT")
"""


async def test_a_full_disk_fails_the_task_with_reason_and_remedy(job, topic):
    """A worker whose files may not grow: the store says so, the task has failed, the process lives and its page tells."""
    inp, out = topic("in", 1), topic("out", 1)
    source = FULL.replace("IN", inp).replace("OUT", out)
    one = await job.process(source)
    await job.write(inp, [{"k": "a", "pad": "x"}])
    await job.records(out, 1)
    resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE, (200_000, 200_000))
    await job.write(inp, [{"k": f"k{n}", "pad": uuid.uuid4().hex * 20} for n in range(3000)])

    async def told():
        while "accepts no write" not in one.text():
            assert one.process.returncode is None, one.text()[-3000:]
            await asyncio.sleep(0.05)

    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(told(), 240)
    text = one.text()
    assert "accepts no write" in text, text[-3000:]
    assert "free some disk space" in text
    assert one.process.returncode is None
    page = re.search(r"http://127\.0\.0\.1:\d+(?=\D)", text)
    assert page is not None
    async with asyncio.timeout(240), aiohttp.ClientSession() as web:
        while True:
            async with web.get(page[0] + "/api/status") as answer:
                [task] = (await answer.json())["tasks"]
            if task["said"] == "failed" and "accepts no write" in task["why"]:
                break
            await asyncio.sleep(0.05)
    assert one.process.returncode is None
