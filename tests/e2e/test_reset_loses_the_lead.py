"""`headgate reset` that does not get the leader's id, or loses it while it works: nothing is deleted, and it says why."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import pytest_asyncio

import headgate as hg
from headgate.agents.cli.data import reset, unattended
from headgate.agents.cli.options import Target
from headgate.agents.coordinator.coordinator_stream import LeaderLost, LeaderWriter
from headgate.agents.kafka.port import KafkaPort
from headgate.agents.process import reading
from headgate.agents.process.configuration import CommandLine, configure
from headgate.agents.process.reading import following, heard
from headgate.core.coordination.messages import Stamp
from headgate.core.errors import EnvironmentFault, HeadgateError
from headgate.core.names import JobName

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


@pytest_asyncio.fixture
async def to(job, topic) -> Target:
    """A job that has run, and whose worker has gone."""
    app = hg.App(job.name)
    app.input(topic("in")).to(topic("out"))
    worker = await job.start(app)
    await worker.until_running(1)
    await worker.stop()
    return Target(JobName(job.name), job.topics, configure(CommandLine(job.bootstrap)))


async def test_a_worker_that_leads_while_a_reset_works_stops_it(to, monkeypatch):
    """It came when everybody had been fenced: reset went on, and deleted the topics under its feet."""
    rival = LeaderWriter(KafkaPort(to.client), to.job, to.topics.coordinator, Stamp())
    fence_all = reset.fence_all

    async def and_then_somebody_leads(*what) -> None:
        await fence_all(*what)
        await rival.start()

    monkeypatch.setattr(reset, "fence_all", and_then_somebody_leads)
    agreed = await reset._look(to, False)
    with pytest.raises(EnvironmentFault, match="has changed nothing: a worker or another command") as told:
        await reset._reset(to, agreed, False)
    assert told.value.remedy == "run the same command again"
    await rival.stop()
    async with following(to.client, to.topics) as stream:
        assert stream.job.run is not None
    monkeypatch.setattr(reset, "fence_all", fence_all)
    assert (await reset._reset(to, agreed, False)).topics == agreed.topics


@pytest.mark.parametrize(
    ("cause", "says", "remedy"),
    [
        (EnvironmentFault("no broker answered", remedy="check the address"), "no broker answered", "check the address"),
        (RuntimeError("no"), "the leader's id could not be initialised: no", "run the same command again"),
    ],
)
async def test_a_leaders_id_that_is_not_given_is_said(to, monkeypatch, cause, says, remedy):
    """`LeaderLost` is no error for people: a traceback was shown."""

    async def refused(_: LeaderWriter) -> None:
        raise LeaderLost(f"the leader's id could not be initialised: {cause}", fenced=False) from cause

    monkeypatch.setattr(LeaderWriter, "start", refused)
    with pytest.raises(EnvironmentFault) as told:
        async with unattended.leading(to, "reset"):
            raise AssertionError("nobody leads")
    assert told.value.what.endswith(f"has changed nothing: {says}")
    assert told.value.remedy == remedy


async def test_a_worker_that_only_waits_for_a_run_ends_as_the_refusal_says(job, topic):
    """`headgate stop JOB --wait`, as it said, stops nobody where no run is live."""
    app = hg.App(job.name)
    app.input(topic("in")).to(topic("out"))
    first = await job.start(app)
    await first.until_running(1)
    await job.ask("stop")
    await first.ended()
    waits = await job.start(app, processor="w2")
    await waits.until(lambda: "stopped" in waits.worker.participant.why, "it waits")
    to = Target(JobName(job.name), job.topics, configure(CommandLine(job.bootstrap)))
    found = await reset._look(to, False)
    with pytest.raises(HeadgateError) as told:
        unattended.refuse_living(to, found.alive)
    assert f"`headgate stop {job.name} --worker P --wait`" in told.value.remedy
    assert (await job.ask("stop", worker="w2")).state == "done"
    assert await waits.ended() == 0
    unattended.refuse_living(to, (await reset._look(to, False)).alive)


@pytest.mark.parametrize("ahead_s", [3600, -3600])
async def test_who_lives_is_seen_with_a_wrong_clock(job, topic, monkeypatch, ahead_s):
    """On a machine whose clock was some seconds ahead nobody had sent a heartbeat lately: `headgate status` called all workers silent, and
    `headgate reset` deleted the topics of a job that ran."""
    app = hg.App(job.name)
    app.input(topic("in")).to(topic("out"))
    worker = await job.start(app)
    await worker.until_running(1)
    to = Target(JobName(job.name), job.topics, configure(CommandLine(job.bootstrap)))
    wrong = SimpleNamespace(time=lambda: time.time() + ahead_s, monotonic=time.monotonic)
    monkeypatch.setattr(reading, "time", wrong)
    assert (await reset._look(to, False)).alive == ["w1"]
    async with following(to.client, to.topics) as stream:
        beats = await heard(to.client, to.topics.heartbeat, stream.job)
        assert [one.processor for one in beats.present(stream.job)] == ["w1"]
    await worker.stop()
    assert (await reset._look(to, False)).alive == []
