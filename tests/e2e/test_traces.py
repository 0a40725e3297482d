"""Traces: what a job does, as a receiver of OpenTelemetry's spans sees it, over real HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import headgate as hg
from headgate.agents.status.metrics import render
from headgate.core.errors import EnvironmentFault

from ..otlp import Receiver

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
OTHER = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
"""The span of a program that writes to the input."""
OF_OTHER = [("traceparent", f"00-{OTHER[0]}-{OTHER[1]}-01".encode())]
ALL = {"trace.sample": "1", "trace.propagate": "true"}


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Any:
    with Receiver() as one:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", one.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield one


async def test_links_lead_from_stage_to_stage_and_from_commits_to_what_they_make_durable(job, topic, receiver):
    """From a record of the output back to the program that wrote to the input: each span names the one before."""
    inp, out = topic("in", 1), topic("out", 1)
    app = hg.App(job.name, settings=ALL)
    app.input(inp).repartition("k", name="by-k").to(out)
    worker = await job.start(app)
    await worker.until_running(1)
    await job.write(inp, [{"k": "a", "n": n} for n in range(5)], headers=OF_OTHER)
    records = await job.records(out, 5)
    await worker.stop()

    between = f"{job.name}-1-by-k"
    (first,) = receiver.named(f"process {inp}")
    assert first.links == [OTHER]
    assert first.resource["service.name"] == f"{job.name}-1"
    assert first.resource["service.instance.id"] == "w1"
    said = {
        "messaging.destination.name": inp,
        "messaging.destination.partition.id": "0",
        "messaging.batch.message_count": 5,
        "headgate.offset.first": 0,
        "headgate.offset.last": 4,
        "headgate.task": "Partition 0",
        "headgate.attempt": 1,
        "headgate.bytes": 5 * len(b'{"k":"a","n":0}'),
    }
    assert {name: first.attributes[name] for name in said} == said
    assert any(name.startswith("headgate.step.") and took > 0 for name, took in first.attributes.items())
    (second,) = receiver.named(f"process {between}")
    assert second.links == [first.id]
    assert {value for one in records for name, value in one.headers if name == "traceparent"} == {second.header}
    linked = [link for one in receiver.named("commit") for link in one.links]
    assert linked.count(first.id) == linked.count(second.id) == 1
    assert {"restore", "release"} <= {one.name for one in receiver.spans}


async def test_what_is_held_back_for_a_commit_links_to_all_that_it_was_made_of(job, topic, receiver):
    """Partial states of several chunks go on as one frame, at the commit."""
    inp, out = topic("in", 1), topic("out", 1)
    app = hg.App(job.name, settings={**ALL, "chunk.max-records": 2, "commit.interval": "2s"})
    app.input(inp).repartition("k").agg(n=hg.count()).to(out)
    worker = await job.start(app)
    await worker.until_running(1)
    await job.write(inp, [{"k": "a"} for _ in range(6)])
    assert (await job.values(out, 1))[-1] == {"n": 6}
    await worker.stop()
    chunks = {one.id: one for one in receiver.named(f"process {inp}")}
    assert sum(one.attributes["messaging.batch.message_count"] for one in chunks.values()) == 6
    handed = {one.id: one for one in receiver.named("hand over")}
    (read,) = [one for one in receiver.spans if one.name.startswith(f"process {job.name}-1-")]
    assert set(handed[read.links[0]].links) == set(chunks)


async def test_a_chunk_that_fails_says_why(job, topic, receiver):
    """The failed attempt is a span with an error; so is each one after it."""
    inp, out = topic("in", 1), topic("out", 1)
    failures = [ValueError("not yet"), ValueError("not yet")]

    def fails(value: Any) -> Any:
        if failures:
            raise failures.pop()
        return value

    app = hg.App(job.name, settings=ALL)
    app.input(inp).map(fails).to(out)
    worker = await job.start(app)
    await job.write(inp, [{"n": 1}])
    assert await job.values(out, 1) == [{"n": 1}]
    await worker.stop()
    spans = receiver.named(f"process {inp}")
    assert [(one.attributes["headgate.attempt"], one.failed) for one in spans] == [(1, True), (2, True), (3, False)]


async def test_a_receiver_that_hangs_delays_nothing(job, topic, receiver, monkeypatch):
    """The job goes on; what does not fit into the queue is dropped and counted; when the receiver answers again, spans arrive again."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "8")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    receiver.answers.clear()
    inp, out = topic("in", 1), topic("out", 1)
    app = hg.App(job.name, settings={**ALL, "chunk.max-records": 1, "chooser.batch-size": 1})
    app.input(inp).to(out)
    worker = await job.start(app)
    await job.write(inp, [{"n": n} for n in range(200)])
    assert len(await job.values(out, 200)) == 200
    spans = worker.worker.traces.spans
    await worker.until(lambda: spans.dropped > 100, "spans are dropped")
    assert "headgate_trace_spans_dropped_total{" in render(worker.worker).decode()
    receiver.answers.set()
    before = receiver.requests
    await job.write(inp, [{"n": 200}])
    await worker.until(lambda: receiver.requests > before and spans.sent > 0, "spans arrive")
    await worker.stop()


async def test_tracing_is_switched_on_and_off_while_the_job_runs(job, topic, receiver):
    """An operator wants to see what happens, for an hour; before and after nothing is made."""
    inp, out = topic("in", 1), topic("out", 1)
    app = hg.App(job.name)
    app.input(inp).to(out)
    worker = await job.start(app)
    await worker.until_running(1)

    async def change(name: str, value: str) -> None:
        await job.ask("set-config", setting=name, value=value)
        await worker.until(lambda: worker.worker.settings.given.get(name) == value, name)

    await job.write(inp, [{"n": 0}])
    await job.records(out, 1)
    assert worker.worker.traces.spans is None
    await change("trace.sample", "1")
    await job.write(inp, [{"n": 1}])
    await job.records(out, 2)
    await change("trace.propagate", "true")
    await job.write(inp, [{"n": 2}])
    await job.records(out, 3)
    await change("trace.sample", "0")
    await job.write(inp, [{"n": 3}])
    records = await job.records(out, 4)
    await worker.stop()
    spans = receiver.named(f"process {inp}")
    assert [one.attributes["headgate.offset.first"] for one in spans] == [1, 2]
    assert [dict(one.headers).get("traceparent") for one in records] == [None, None, spans[1].header, None]


async def test_a_worker_that_is_to_trace_and_cannot_says_so(job, topic, monkeypatch):
    """Without the extra, it does not start; one that works already works on."""
    monkeypatch.setitem(__import__("sys").modules, "headgate.agents.tracing.otel", None)
    inp, out = topic("in", 1), topic("out", 1)
    app = hg.App(job.name)
    app.input(inp).to(out)
    refused = await job.start(app, settings={"trace.sample": "0.5"})
    with pytest.raises(EnvironmentFault, match="trace\\.sample needs OpenTelemetry") as caught:
        await asyncio.wait_for(refused.task, 60)
    assert caught.value.remedy == "pip install 'headgate[otel]'"
    worker = await job.start(app)
    await worker.until_running(1)
    await job.ask("set-config", setting="trace.sample", value="0.5")
    await worker.until(lambda: worker.worker.settings.given.get("trace.sample") == "0.5")
    await job.write(inp, [{"n": 1}])
    assert await job.values(out, 1) == [{"n": 1}]
