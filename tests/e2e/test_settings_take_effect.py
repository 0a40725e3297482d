"""Every dynamic setting, changed by an operator while tasks run: seen in what the tasks do, not in what is stored.

Each test says which settings it proves; the last one goes over the table of settings, so that a new one without a proof fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar, TypedDict

import pytest
import structlog
from aiokafka.admin import NewPartitions

import headgate as hg
from headgate.agents.coordinator import machine_edge as driven
from headgate.agents.process.requests import AnsweredFailed
from headgate.agents.worker import logs
from headgate.agents.worker.load.health import readiness
from headgate.core.choosing.chooser import Choice
from headgate.core.names import StreamPartition
from headgate.core.settings import DYNAMIC, SETTINGS
from headgate.spark_bridge.session.session import Spark

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
PROVEN: dict[str, str] = {
    "workers": "test_scale",
    **dict.fromkeys(("trace.sample", "trace.propagate"), "test_traces"),
    **dict.fromkeys(("state.cleanup-delay", "placement.prepare", "stop.prepare", "standby"), "test_locations"),
}


class Order(TypedDict):
    n: int


def proves(*names: str) -> Callable[[Any], Any]:
    """What a test is a proof of."""

    def mark(test: Any) -> Any:
        PROVEN.update(dict.fromkeys(names, test.__name__))
        return test

    return mark


async def change(job, name, value, *workers, wait=True):
    """`headgate config set`, and every worker has acknowledged it."""
    await job.ask("set-config", setting=name, value=value, wait=wait)
    for one in workers:
        await one.until(lambda one=one: one.worker.settings.given.get(name) == value, f"{name} is acknowledged")


class Reads:
    """What a task is given: the batches of an agent, by their values."""

    def __init__(self):
        self.batches: list[list[Any]] = []

    @property
    def values(self):
        return [value for batch in self.batches for value in batch]

    def on(self, app, stream):
        @app.agent(stream, sink=None)
        async def read(batches: hg.Batches):
            async for batch in batches:
                self.batches.append([record.value for record in batch])


@proves("inputs.look-interval")
async def test_inputs_are_looked_at_as_often_as_is_wanted_by_now(job, topic):
    """An operator has added partitions, and does not wait for the next look, which is hours away."""
    inp, out = topic("in", 1), topic("out")
    app = hg.App(job.name, settings={"inputs.look-interval": "10h"})
    app.input(inp).to(out)
    worker = await job.start(app)
    await worker.until_running(1)
    async with job.admin() as admin:
        await admin.create_partitions({inp: NewPartitions(3)})
    await change(job, "inputs.look-interval", "200ms", worker)
    await worker.until_running(3)


@proves(
    "chunk.max-records",
    "chooser.batch-size",
    "chooser.max-starve",
    "streams.<name>.priority",
    "streams.orders.priority",
)
async def test_what_is_read_next_and_how_much_of_it(job, topic):
    """An operator makes chunks smaller because they take too long, and a stream more urgent: nothing happened until the next restart."""
    low, high = topic("low", 2), topic("high")
    app = hg.App(job.name, settings={"chunk.max-records": 50, "grouper": "all"})
    reads = Reads()
    reads.on(app, app.input(low).merge(app.input(high, priority=1)))
    worker = await job.start(app)
    await worker.until_running(1)

    async def given(*written):
        """What comes of records that all are there before the first is taken."""
        await job.ask("pause")
        await worker.until(lambda: set(worker.states().values()) == {"paused"}, "paused")
        reads.batches.clear()
        count = 0
        for name, partition, many in written:
            await job.write(name, [f"{name[0]}{partition}"] * many, partition=partition)
            count += many
        intake = next(iter(worker.worker.actors.values())).reading.intake.intake
        await worker.until(lambda: sum(head.count for head in intake.heads().values()) == count, "all is fetched")
        await job.ask("resume")
        await worker.until(lambda: len(reads.values) == count, "all is read")
        return reads.values

    await given((low, 0, 20))
    assert max(map(len, reads.batches)) > 1
    await change(job, "chunk.max-records", 1, worker)
    await given((low, 0, 20))
    assert max(map(len, reads.batches)) == 1

    assert turns(await given((low, 0, 6), (low, 1, 6))) == 1
    await change(job, "chooser.batch-size", 2, worker)
    assert turns(await given((low, 0, 6), (low, 1, 6))) == 5

    assert (await given((low, 0, 4), (high, 0, 4)))[:4] == ["h0"] * 4
    await change(job, f"streams.{low}.priority", 5, worker)
    assert (await given((low, 0, 4), (high, 0, 4)))[:4] == ["l0"] * 4

    await change(job, "chooser.max-starve", "1h", worker)
    assert (await given((low, 0, 20), (high, 0, 1)))[-1] == "h0"
    await change(job, "chooser.max-starve", "0s", worker)
    assert (await given((low, 0, 20), (high, 0, 1)))[-1] == "l0"


class Amount(TypedDict):
    n: int


@proves("chunk.max-bytes")
async def test_how_much_of_columns_is_read_at_once(job, topic):
    """A batch of 200 records is a chunk of columns, and many chunks where fewer bytes are wanted."""
    inp, chunks = topic("orders"), list[int]()
    app = hg.App(job.name)
    app.input(inp, serde=hg.json(Amount)).columns().sink(lambda batch: chunks.append(len(batch)))
    worker = await job.start(app)
    await worker.until_running(1)

    async def given():
        await job.ask("pause")
        await worker.until(lambda: set(worker.states().values()) == {"paused"}, "paused")
        chunks.clear()
        await job.write(inp, [{"n": n, "more": "x" * 80} for n in range(200)])
        intake = next(iter(worker.worker.actors.values())).reading.intake.intake
        await worker.until(lambda: sum(head.count for head in intake.heads().values()) == 200, "all is fetched")
        await job.ask("resume")
        await worker.until(lambda: sum(chunks) == 200, "all is read")
        return max(chunks)

    assert await given() > 50
    await change(job, "chunk.max-bytes", "1KiB", worker)
    assert await given() <= 12


def turns(values):
    """How often the partition changes."""
    return sum(1 for one, other in pairwise(values) if one != other)


@proves("chooser.align-wait", "watermark.idle-timeout")
async def test_who_is_waited_for_and_for_how_long(job, topic):
    """An input falls silent, and what waits for it waits an hour: the operator's remedy changed nothing."""
    first, second, out = topic("first"), topic("second"), topic("out")
    rules = {"chooser": "time-aligned", "chooser.align-wait": "1h", "watermark.idle-timeout": "1h"}
    app = hg.App(job.name, settings=rules)
    app.input(first).merge(app.input(second)).to(out)
    worker = await job.start(app)
    await worker.until_running(1)
    actor = next(iter(worker.worker.actors.values()))
    await job.write(first, [{"n": 1}])
    await worker.until(lambda: "aligning: waiting for second" in actor.reading.intake.chooser.why, "it waits")
    await change(job, "chooser.align-wait", "1ms", worker)
    assert [v["n"] for v in await job.values(out, 1)] == [1]

    progress = actor.machine.inputs.progress
    assert not progress.idle(second)
    await change(job, "watermark.idle-timeout", "50ms", worker)
    await worker.until(lambda: progress.idle(second), "the silent input is idle")


@proves("share.restate")
async def test_how_often_a_shared_stream_is_told_again(job, topic):
    """Nothing new is read, and the next repetition would come in an hour: the operator asks for one in each tenth of a second."""
    inp, shared = topic("in"), f"shared-{uuid.uuid4().hex[:8]}"
    app = hg.App(job.name, settings={"share.restate": "1h"})
    app.input(inp, key="k").share(shared)
    worker = await job.start(app)
    await worker.until_running(1)
    said = len(await job.records(shared, 1))
    await change(job, "share.restate", "100ms", worker)
    await job.records(shared, said + 5, more_s=0)


@proves("chooser.max-drift")
async def test_how_far_streams_that_meet_may_be_apart(job, topic):
    """One side of a join is a day ahead of the other, of which the job's chooser reads nothing. It waits until the operator lets it go."""
    first, second, out = topic("first"), topic("second"), topic("out")

    def never_first(heads, now):
        ready = [head.at for head in heads if head.takeable and head.at.stream == second]
        return Choice(ready[0], 1) if ready else None

    app = hg.App(job.name, chooser=never_first, settings={"chooser.max-drift": "1h"})
    left, right = (app.input(name, key="k", timestamp="ts") for name in (first, second))
    left.join(right, within="1s", how="outer", into=lambda a, b: [a, b]).to(out)
    await job.write(first, [{"k": "a", "ts": 0}])
    await job.write(second, [{"k": "a", "ts": 86_400_000}])
    worker = await job.start(app)
    await worker.until_running(1)
    actor = next(iter(worker.worker.actors.values()))
    waits = f"aligning the streams of a join: {second}:0 is ahead"
    await worker.until(lambda: actor.reading.intake.chooser.why == waits, "it waits")
    await change(job, "chooser.max-drift", "0s", worker)
    await worker.until(lambda: actor.machine.inputs.positions[StreamPartition(second, 0)] == 1, "it is read")


@proves("commit.interval", "fetch.watchdog", "log.level", "error.retries", "failure.policy")
async def test_commits_watchdog_log_retries_and_what_a_failure_takes_with_it(job, topic):
    """Work that nobody sees for an hour, a broker that is silent without a word, a task that tries a bad record for ever."""
    inp, out = topic("in"), topic("out")
    patient = {"commit.interval": "1h", "fetch.watchdog": "1h", "error.retries": 1000}
    app = hg.App(job.name, settings=patient)
    app.input(inp).map(lambda v: {"n": 1 // v["n"]}).to(out)
    worker = await job.start(app)
    await worker.until_running(1)
    actor = next(iter(worker.worker.actors.values()))
    await job.write(inp, [{"n": 1}])
    await worker.until(lambda: sum(worker.worker.sensor.records.values()) == 1, "it is processed")
    await change(job, "commit.interval", "50ms", worker)
    await job.records(out, 1)

    client = actor.reading.intake.intake._consumer.consumer._client
    send, never = client.send, asyncio.Event()

    async def silent(node, request, **options):
        if type(request).__name__.startswith("Fetch"):
            await never.wait()
        return await send(node, request, **options)

    client.send = silent
    await change(job, "fetch.watchdog", "100ms", worker)
    await worker.until(
        lambda: "no answer" in str(actor.reading.intake.intake.head((inp, 0)).degraded), "the silence is said"
    )
    client.send = send
    never.set()

    await change(job, "log.level", "error", worker)
    assert [shown("info"), shown("error")] == [False, True]
    await change(job, "log.level", "info", worker)
    assert shown("info")

    await job.write(inp, [{"n": 0}])
    await worker.until(lambda: actor.machine.work.attempt >= 1, "it tries")
    await change(job, "failure.policy", "exit", worker)
    assert not worker.task.done()
    with contextlib.suppress(Exception):
        await change(job, "error.retries", 0, wait=False)
    assert await worker.ended() == 1
    assert "failed" in worker.worker.participant.exit_why


@proves("intermediate.max-lag", "intermediate.trim", "watermark.idle-confirm")
async def test_what_stands_between_two_stages(job, topic):
    """Sources run away from a slow stage, streams between stages are never trimmed, and an idle task that is silent holds all."""
    inp, out = topic("in", 2), topic("out", 2)
    rules = {"intermediate.trim": False, "watermark.idle-confirm": "1h", "watermark.idle-timeout": "200ms"}
    app = hg.App(job.name, settings=rules)
    app.input(inp).repartition("k").to(out)
    worker = await job.start(app)
    worker.worker.upkeep._turn_s = 0.02
    await worker.until_running(2)
    between = next(iter(worker.worker.declared.graph.intermediates))
    actors = worker.worker.actors

    def now():
        return {name: actor.machine.inputs.progress.watermark(between) for name, actor in actors.items()}

    writing = asyncio.get_running_loop().create_task(always(job, inp))
    try:
        await worker.until(lambda: actors["Partition 1"].machine.inputs.progress.idle(inp), "one is idle")
        before = max(now().values())
        await change(job, "watermark.idle-confirm", "200ms", worker)
        await worker.until(lambda: min(now().values()) > before, "the idle one is lifted to the other")
    finally:
        writing.cancel()

    first = actors["Partition 0"]
    started = worker.worker.offsets
    await change(job, "intermediate.trim", True, worker)
    async with asyncio.timeout(240):
        while not [n for n in (0, 1) if await started.start_of(StreamPartition(between, n)) > 0]:  # noqa: ASYNC110 - the broker deletes them
            await asyncio.sleep(0.05)

    await job.ask("pause", stream=between)
    await job.write(inp, [{"k": f"{n}"} for n in range(40)], partition=0)
    written = await started.end_of(StreamPartition(inp, 0), committed=True)
    await worker.until(lambda: first.machine.position((inp, 0)) == written, "all of them are taken")
    await change(job, "intermediate.max-lag", 1, worker)

    def closed():
        return [actor for actor in actors.values() if "lag" in actor.machine.inputs.closed.values()]

    # frames and the markers of their commits lie between
    await worker.until(closed, "a source waits for the stage behind it")
    held = closed()[0]
    partition = next(at.partition for at, why in held.machine.inputs.closed.items() if why == "lag")
    end = await started.end_of(StreamPartition(inp, partition), committed=True)
    await job.write(inp, [{"k": "x"}], partition=partition)
    await worker.until(lambda: held.reading.intake.intake.head((inp, partition)).count == 1, "it is fetched")
    assert held.machine.position((inp, partition)) == end
    await change(job, "intermediate.max-lag", 1000, worker)
    await worker.until(lambda: held.machine.position((inp, partition)) == end + 1, "sources flow again")
    await job.ask("resume", stream=between)
    assert first is actors["Partition 0"]


def shown(level):
    """Whether a line of this level would be logged."""
    try:
        logs._threshold(None, level, {"level": level})
    except structlog.DropEvent:
        return False
    return True


async def always(job, inp):
    """One partition never falls silent."""
    while True:
        await job.write(inp, [{"k": f"{n}"} for n in range(4)], partition=0)
        await asyncio.sleep(0.05)


@proves("stop.timeout")
async def test_how_long_a_worker_may_take_to_end(job, topic, monkeypatch):
    """A task does not let go, and its worker has to go: at the time that the operator says, not at that of its start."""
    inp, out = topic("in"), topic("out")
    app = hg.App(job.name, settings={"stop.timeout": "1h", "release.timeout": "1h"})
    app.input(inp).to(out)
    worker = await job.start(app)
    await worker.until_running(1)
    (actor,) = worker.worker.actors.values()
    let_go = asyncio.Event()
    shut_down = actor._shut_down

    async def hung():
        await let_go.wait()
        await shut_down()

    monkeypatch.setattr(actor, "_shut_down", hung)
    await change(job, "stop.timeout", "300ms", worker)
    worker.worker.leave("test")
    await worker.until(lambda: worker.worker.participant.exit_code is not None, "it gives up")
    let_go.set()
    assert await worker.ended() == 3
    assert "could not stop within stop.timeout (0.3 s): not released: Partition 0" in worker.worker.participant.exit_why


class Held(Spark):
    """Spark's own blocks, and batches that run until they are let go."""

    def __init__(self):
        super().__init__("local[1]")
        self.running = 0

    async def run(self, batch, blocks, stages):
        self.running += 1
        await asyncio.Event().wait()

    async def warm(self):
        pass

    async def close(self):
        pass


@proves("spark.in-flight")
async def test_how_many_batches_run_at_a_time(job, topic):
    """A cluster has room for more, and the running job did not take it."""
    inp, out = topic("in"), topic("out")
    app = hg.App(job.name, settings={"spark.in-flight": 1})
    app.input(inp).batch(max_rows=1).spark(lambda df, batch: df, rows=Order, schema="n long", name="same").to(out)
    worker = await job.start(app)
    spark = worker.worker.runtime.spark = Held()
    await worker.until_running(1)
    await job.write(inp, [{"n": n} for n in range(8)])
    await worker.until(lambda: spark.running == 1, "the first runs")
    actor = next(iter(worker.worker.actors.values()))
    await worker.until(lambda: actor.site.pipeline.held(), "no more is taken")
    await change(job, "spark.in-flight", 2, worker)
    await worker.until(lambda: spark.running == 2, "another runs")
    await worker.crash()


class KeptRows(hg.Sink):
    """Keeps how many rows each batch has."""

    sizes: ClassVar[list[int]] = []

    def write(self, rows, batch):
        self.sizes.append(rows.num_rows)


async def closed_by_settings(job, app, inp, of, first, then):
    """Rows that wait for more are closed by what the operator says, and so are those that come after. `first`, `then`: whether five rows
    have come as one batch, and six more as three."""
    worker = await job.start(app, settings={f"{of}.max-age": "1h", f"{of}.max-rows": 1_000_000})
    await worker.until_running(1)
    actor = next(iter(worker.worker.actors.values()))
    [step] = [op for op in actor.site.pipeline.operators if type(op).__name__ == "BatchOp"]
    await job.write(inp, [{"n": n} for n in range(5)])
    await worker.until(lambda: step.rows.kept.opened().rows == 5, "rows wait for more")
    await change(job, f"{of}.max-age", "100ms", worker)
    await worker.until(first, "the batch is old enough")
    await change(job, f"{of}.max-age", "1h", worker)
    await change(job, f"{of}.max-rows", 2, worker)
    await job.write(inp, [{"n": n} for n in range(6)])
    await worker.until(then, "batches are full earlier")
    await worker.crash()


@proves("sink.max-rows", "sink.max-age")
async def test_what_closes_the_batch_of_a_sink(job, topic):
    """Those of a sink of one's own."""
    inp = topic("in")
    app = hg.App(job.name)
    app.input(inp, serde=hg.json(Order)).to_sink(KeptRows)
    KeptRows.sizes.clear()
    await closed_by_settings(
        job, app, inp, "sink", lambda: KeptRows.sizes == [5], lambda: KeptRows.sizes == [5, 2, 2, 2]
    )


@proves("files.max-rows", "files.max-age")
async def test_what_closes_the_batch_of_files(job, topic, tmp_path):
    """The same of files, which have settings of their own."""
    inp, out = topic("in"), tmp_path / "out"
    out.mkdir()
    app = hg.App(job.name)
    app.input(inp, serde=hg.json(Order)).to_files(out)
    await closed_by_settings(
        job, app, inp, "files", lambda: len(hg.published(out)) == 1, lambda: len(hg.published(out)) == 4
    )


@proves("gather.max-bytes")
async def test_how_much_a_gather_may_hold(job, topic):
    """A task that holds too much says so and takes no more; when it may hold more, it goes on where it stopped."""
    inp, out = topic("in", 2), topic("out")
    app = hg.App(job.name, settings={"gather.max-bytes": "1KiB", "error.retries": 1_000})
    app.input(inp).gather().batch(max_age="1h").spark(
        lambda df, batch: df, rows=Order, schema="n long", name="same"
    ).to(out)
    worker = await job.start(app)
    worker.worker.runtime.spark = Held()
    await worker.until_running(2)
    await job.write(inp, [{"n": n} for n in range(1_000)])
    actors = worker.worker.actors.values()
    told = "gather.max-bytes is 1024"
    await worker.until(lambda: any(told in str(one.failures.trouble) for one in actors), "it is refused")
    steps = [op for one in actors for op in one.site.pipeline.operators if type(op).__name__ == "BatchOp"]
    await change(job, "gather.max-bytes", "1MiB", worker)
    await worker.until(lambda: sum(op.rows.kept.opened().rows for op in steps) == 1_000, "all rows wait")
    await worker.crash()


@proves(
    "placement.debounce", "placement.rejoin-grace", "stall.timeout", "release.timeout", "fence.timeout", "answers.keep"
)
async def test_how_long_the_leader_waits(job, topic, monkeypatch):
    """A worker that hangs keeps its tasks for as long as the process was started with, whatever the operator says."""
    inp, out = topic("in", 2), topic("out", 2)
    patient = dict.fromkeys(("stall.timeout", "release.timeout", "fence.timeout", "answers.keep"), "1h")

    def declared():
        app = hg.App(job.name, settings={**patient, "placement.rejoin-grace": "1h"})
        app.input(inp, key="k").agg(n=hg.count(), name="kept").to(out)
        return app

    first = await job.start(declared(), "w1")
    await first.until_running(2)
    known = first.worker.coordination.member.job

    # somebody new
    await change(job, "placement.debounce", "1h", first)
    second = await job.start(declared(), "w2")
    await first.until(lambda: known.member("w2") is not None, "the second one counts")
    assert not second.worker.actors
    await change(job, "placement.debounce", "20ms", first, second)
    await second.until_running(1)

    # somebody who goes
    await second.stop()
    assert len(first.worker.actors) == 1
    await change(job, "placement.rejoin-grace", "0s", first)
    await first.until_running(2)

    # a task that does not let go, on a worker whose fence does not return at first
    third = await job.start(declared(), "w3")
    await third.until_running(1)
    ((name, actor),) = third.worker.actors.items()
    let_go, fences = asyncio.Event(), []
    shut_down, fence = actor._shut_down, driven.fence

    async def hung():
        await let_go.wait()
        await shut_down()

    async def lost(*words):
        fences.append(words)
        if len(fences) == 1:
            await let_go.wait()
        await fence(*words)

    monkeypatch.setattr(actor, "_shut_down", hung)
    monkeypatch.setattr(driven, "fence", lost)
    (other,) = first.worker.actors
    await job.ask("move", task=name, to="w1", wait=False)
    await third.until(lambda: third.state(name) == "releasing", "it is told to let go")
    # the first one lets go of its task in exchange; that may take its time
    await third.until(lambda: third.state(other) == "running", "the other one is here")
    assert not fences
    await change(job, "release.timeout", "200ms", first)
    await first.until(lambda: len(fences) == 1, "it is fenced")
    await change(job, "fence.timeout", "200ms", first)
    await first.until(lambda: len(fences) > 1, "it is fenced again")
    await first.until(lambda: name in first.worker.actors, "the task goes on elsewhere")
    for patience in ("release.timeout", "fence.timeout"):
        await change(job, patience, "1h", first)  # whoever lets go from here on may take his time
    let_go.set()

    # a main loop that hangs
    await first.until(lambda: third.worker.participant.ready, "the third one has begun again")
    say = third.worker.coordination.heartbeat.heartbeats.say
    third.worker.coordination.heartbeat.heartbeats.say = lambda: replace(say(), turn_age_s=100.0)
    await change(job, "stall.timeout", "30s", first)
    await first.until_running(2)

    # what was answered
    answers = known.messages["set-answer"]
    assert answers
    await change(job, "answers.keep", "1s", first, wait=False)
    await first.until(lambda: not answers, "answers are forgotten")


@proves("letter.warn-after")
async def test_a_letter_under_way_counts_as_slow_after_another_time_from_now_on(job, topic):
    """A function that never returned was seen nowhere; how soon it is seen can be changed while it hangs."""
    inp, out, begun, let_go = topic("in"), topic("out"), [], asyncio.Event()

    async def asks(value):
        begun.append(value)
        await let_go.wait()
        return value

    app = hg.App(job.name)
    app.input(inp).map_async(asks).to(out)
    one = await job.start(app)
    await one.until_running(1)
    await job.write(inp, [{"n": 1}])
    await one.until(lambda: begun, "it hangs")

    def ready():
        return readiness(one.worker.participant)[0]

    await one.until(ready, "half a minute is not a time")
    await change(job, "letter.warn-after", "50ms", one)
    await one.until(lambda: not ready(), "it is slow")
    await change(job, "letter.warn-after", "0s", one)
    await one.until(ready, "nothing is slow any more")
    let_go.set()
    await job.records(out, 1)


@proves("await.timeout")
async def test_what_user_code_is_awaited_for_is_bounded_from_now_on(job, topic):
    """A hung service held a task for ever, with no way to let go of it but to end the worker."""
    inp, out, begun = topic("in"), topic("out"), []

    async def asks(value):
        begun.append(value)
        if value == "hangs":
            await asyncio.Event().wait()
        return value

    app = hg.App(job.name, on_error="dead_letter")
    app.input(inp).map_async(asks).to(out)
    one = await job.start(app)
    await one.until_running(1)
    await change(job, "await.timeout", "500ms", one)
    await job.write(inp, ["a", "hangs", "b"], partition=0)
    assert await job.values(out, 2) == ["a", "b"]
    [letter] = await job.records(job.topics.dead_letters, 1)
    assert b"await.timeout" in dict(letter.headers)["hg-exception"]


@proves("drain.callback-timeout")
async def test_a_drain_is_answered_although_a_hook_never_returns(job, topic):
    """Task and hook are named, also when the operator lowers the limit while the drain hangs."""
    inp, begun = topic("in"), []

    class Hangs(hg.Actor):
        async def on_drain(self, ctx):
            begun.append(ctx.task)
            await asyncio.Event().wait()

    app = hg.App(job.name)
    app.actor(app.input(inp))(Hangs)
    one = await job.start(app)
    await one.until_running(1)
    draining = asyncio.get_running_loop().create_task(job.ask("drain"))
    await one.until(lambda: begun, "the hook hangs")
    await change(job, "drain.callback-timeout", "500ms", one)
    with pytest.raises(AnsweredFailed, match=r"Partition 0: .*Hangs\.on_drain did not finish within 0\.5 s"):
        await draining


def test_every_dynamic_setting_is_proven():
    """Eleven of twenty-one were acknowledged and changed nothing: nobody had looked."""
    assert {name for name, row in SETTINGS.items() if row.kind == DYNAMIC} <= set(PROVEN)
