"""A drain, whatever the job is doing: every input and intermediate stream stands on the same cluster, every record counts once.

What else a drain meets is tested elsewhere: a restart and kill -9 (`test_completeness`), Spark batches (`test_spark_line`), timers of both
kinds (`test_actors_on_kafka`), a failed task (`test_seeks_and_drains`), before the start, and under `headgate run --workers`
(`test_cli_runs`), under a supervisor that starts each worker again whatever it ended with (`test_always_restarted`), a hook that hangs
(`test_settings_take_effect`).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time

import orjson
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import NewPartitions
from structlog.testing import capture_logs

import headgate as hg
from headgate.agents.cli.options import Target
from headgate.agents.cli.see.status import read
from headgate.agents.cli.steer.steering import DrainWatch
from headgate.agents.process.configuration import CommandLine, configure
from headgate.agents.status.draining import progress_lines
from headgate.core.errors import HeadgateError
from headgate.core.names import JobName

from .scenes import checkpointed
from .schemas import schema, wrong

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
ROUTES = {"direct": "1024", "aggregated": "0"}


def numbers(count, first=0):
    return [{"k": f"k{n % 7}", "v": n} for n in range(first, first + count)]


async def drained(job, *workers):
    """Drain the job; every worker ends with 0."""
    answer = await job.ask("drain", mode="default")
    assert (answer.state, answer.run_state) == ("done", "drained")
    for one in workers:
        assert await one.ended() == 0


async def nothing_unread(job, worker):
    """Behind the last checkpoint of each task stands no record of an intermediate stream, and no control message either."""
    streams = worker.worker.declared.graph.intermediates
    positions = await checkpointed(job)
    consumer = AIOKafkaConsumer(**job.client.consumer(enable_auto_commit=False, isolation_level="read_committed"))
    await consumer.start()
    try:
        places = {TopicPartition(*at): position for at, position in positions.items() if at.stream in streams}
        assert {at.topic for at in places} == set(streams)
        consumer.assign(list(places))
        for at, position in places.items():
            consumer.seek(at, position)
        ends, give_up = await consumer.end_offsets(list(places)), time.monotonic() + 240
        while any([await consumer.position(at) < end for at, end in ends.items()]):
            assert await consumer.getmany(timeout_ms=100) == {}
            assert time.monotonic() < give_up, "the ends were not reached"
    finally:
        await consumer.stop()


# ---------------------------------------------------------------------------------------------- inputs, routes and actors


class Heard(hg.Actor):
    """Writes what it is given, and at a drain how much that was."""

    def __init__(self, out):
        self.out = out
        self.rows = 0

    def on_batch(self, ctx, batch):
        self.rows += len(batch.values)
        for value in batch.values:
            ctx.emit(self.out, {"actor": value["v"]})

    def on_drain(self, ctx):
        ctx.emit(self.out, {"drained": ctx.task, "rows": self.rows})


def both_kinds(job, out, inputs, **first):
    """A shuffle, behind it an actor and an agent."""
    app = hg.App(job.name)
    streams = [app.input(name, **(first if n == 0 else {})) for n, name in enumerate(inputs)]
    merged = streams[0] if len(streams) == 1 else streams[0].merge(*streams[1:])
    shuffled = merged.repartition("k", partitions=3)
    shuffled.process(Heard, out=out)

    @app.agent(shuffled, sink=out)
    async def follows(batches: hg.Batches):
        async for batch in batches:
            yield [{"agent": value["v"]} for value in batch.values]

    return app


@pytest.mark.parametrize(("inputs", "route"), [(1, "direct"), (3, "aggregated")])
async def test_inputs_routes_and_actors_of_both_kinds(job, topic, inputs, route):
    """With several inputs the first one has ended before (Samza's hole 8). The task owns several partitions of the shuffle, among them that
    which aggregates the control messages (hole 18). Agents and actors hear of it, not operators only (hole 4). What was read comes through,
    once, and each hook runs once a task.
    """
    names, out = [topic("in", 2) for _ in range(inputs)], topic("out")
    for n, name in enumerate(names):
        await job.write(name, numbers(100, first=1000 * n))
    app = both_kinds(job, out, names, **({"until": "newest"} if inputs > 1 else {}))
    worker = await job.start(app, settings={"control.aggregate-above": ROUTES[route], "grouper": "all"})
    await job.values(out, 2 * 100 * inputs)
    if inputs > 1:
        [actor] = worker.worker.actors.values()
        await worker.until(lambda: actor.machine.inputs.progress.ended(names[0]), "the end of the bounded input")
    await drained(job, worker)
    found = await job.values(out, 2 * 100 * inputs + 1)
    wanted = sorted(1000 * n + v for n in range(inputs) for v in range(100))
    assert sorted(one["actor"] for one in found if "actor" in one) == wanted
    assert sorted(one["agent"] for one in found if "agent" in one) == wanted
    hooks = [one for one in found if "drained" in one]
    assert len(hooks) == len({one["drained"] for one in hooks}) == 1
    assert sum(one["rows"] for one in hooks) == len(wanted)
    await nothing_unread(job, worker)


# ------------------------------------------------------------------------------------------------------- work in flight


def target(job):
    return Target(JobName(job.name), job.topics, configure(CommandLine(job.bootstrap)))


async def status(job):
    """What `headgate status` says; the document is as its schema says."""
    found = await read(target(job))
    assert wrong(found, schema("status")) == []
    return found


async def until_status(job, true):
    give_up = time.monotonic() + 240
    while not true(found := await status(job)):
        assert time.monotonic() < give_up, found["drain"]
    return found


async def test_awaited_calls_in_flight_are_finished_and_whoever_waits_is_named(job, topic, capsys):
    """One task awaits a service: by stream and by task the status says that the drain waits for it, and for nobody else. What comes
    meanwhile is not read, although the tasks go on to read the stream between the stages, which is on the same cluster, and no drain is
    lost on it (Samza's hole 7).
    """
    inp, out, go = topic("in", 2), topic("out"), asyncio.Event()
    begun = []

    async def slow(value):
        if value["v"] == 1:
            begun.append(value)
            await go.wait()
        return value

    app = hg.App(job.name)
    app.input(inp).map_async(slow).repartition("k").to(out)
    worker = await job.start(app)
    await worker.until_running(2)
    await job.write(inp, numbers(2))
    await worker.until(lambda: begun, "one task awaits")
    await job.ask("drain", wait=False)
    [stream] = worker.worker.declared.graph.intermediates

    def all_is_told(s):
        shown = s["drain"] and [one["for"] for one in (*s["drain"]["streams"], *s["drain"]["waiting"])]
        # a task's own state comes by its heartbeat
        return shown == [["Partition 1"]] * 2 and any(
            ": draining" in one for one in progress_lines(s["drain"], s["tasks"])
        )

    found = await until_status(job, all_is_told)
    assert found["drain"]["streams"] == [{"stream": stream, "drained": 1, "of": 2, "for": ["Partition 1"]}]
    assert found["drain"]["waiting"] == [{"task": "Partition 0", "stream": stream, "for": ["Partition 1"]}]
    lines = progress_lines(found["drain"], found["tasks"])
    assert lines[0] == f"{stream}: 1 of 2 producers have drained; waits for Partition 1"
    assert lines[1].startswith("Partition 1 on w1: draining")
    watch = DrainWatch(target(job))  # as `headgate drain --wait` does from time to time
    with capture_logs():  # the worker is in this process, and may log at any moment
        capsys.readouterr()
        await watch.look(worker.worker.coordination.member.job)
        assert capsys.readouterr().err.startswith(f"0 of 2 tasks have drained\n  {lines[0]}\n")
        again = [""] * 8
        for n in range(8):  # what heartbeats bring is said, and nothing twice
            await watch.look(worker.worker.coordination.member.job)
            again[n] = capsys.readouterr().err
        assert "" in again
        assert all(one == "" or one != after for one, after in itertools.pairwise(again)), again
    await job.write(inp, numbers(10, first=2))
    go.set()
    assert await worker.ended() == 0
    assert sorted(one["v"] for one in await job.values(out, 2)) == [0, 1]


async def test_a_drain_under_way_is_listed_also_after_it_was_answered_failed(job, topic):
    """The request is answered and deleted when a task gives up; the run drains on, and its list said that nothing was pending."""
    inp, out, go = topic("in", 2), topic("out"), asyncio.Event()

    async def slow(value):
        await go.wait()
        raise ValueError("boom")

    app = hg.App(job.name, settings={"error.retries": "0"})
    app.input(inp).map_async(slow).to(out)
    worker = await job.start(app)
    await worker.until_running(2)
    await job.write(inp, numbers(1), partition=0)
    await worker.until(lambda: not all(one.machine.work.idle for one in worker.worker.actors.values()), "work in hand")
    asked = asyncio.get_running_loop().create_task(job.ask("drain"))

    async def listed():
        return await asyncio.to_thread(hg.drains, job.name, bootstrap=job.bootstrap)

    found = []
    while not found or found[0]["done"] == 0:
        found = await listed()
    [one] = found
    assert (one["run"], one["state"], one["why"], one["done"], one["of"]) == (
        worker.worker.coordination.member.job.run.run_id,
        "running",
        "",
        1,
        2,
    )
    go.set()
    with pytest.raises(HeadgateError, match="boom"):
        await asked
    while one["written"] is not None:  # until the leader has deleted the request
        [one] = await listed()
    assert (one["state"], "boom" in one["why"], one["done"], one["of"]) == ("running", True, 1, 2)


# ------------------------------------------------------------------------------------- bootstrap, pause, moves, growth


async def test_a_drain_during_bootstrap_ends_and_the_next_run_bootstraps_again(job, topic):
    """Samza's hole 9: the chooser waited for ever for a bootstrap partition that was told to drain. Nothing meets half a table."""
    rates, orders, out = topic("rates"), topic("orders"), topic("out")
    await job.write(rates, [{"k": "k0", "x": 1}])
    await job.write(orders, [{"k": "k0", "v": 1}])

    def joined():
        app = hg.App(job.name)
        table = app.input(rates, key="k").table("rates")
        app.input(orders, key="k").join(table, into=lambda row, rate: {**row, "x": rate["x"]}).to(out)
        return app

    first = await job.start(joined())
    assert await job.values(out, 1) == [{"k": "k0", "v": 1, "x": 1}]
    await job.ask("pause", stream=rates)
    await first.crash()
    await job.write(rates, [{"k": "k0", "x": 2}])
    await job.write(orders, [{"k": "k0", "v": 2}])
    second = await job.start(joined())  # what it bootstraps from is paused
    await second.until(lambda: second.state("Partition 0") == "bootstrapping", "the task bootstraps")
    await drained(job, second)
    third = await job.start(joined(), run_id="third")
    assert (await job.values(out, 2))[1:] == [{"k": "k0", "v": 2, "x": 2}]
    await drained(job, third)


def fetched(worker, stream):
    """Up to where each partition of this stream has been fetched, as far as this worker has it."""
    places = {}
    for actor in worker.worker.actors.values():
        taken = actor.reading.intake
        inner = taken.intake if taken is not None else None
        for at in inner.positions() if inner is not None else ():
            if at.stream == stream:
                places[at] = inner.drains_to(at)
    return places


def closed(workers, stream):
    """Why the tasks of these workers take nothing of the partitions of this stream."""
    inputs = [actor.machine.inputs for one in workers for actor in one.worker.actors.values()]
    return [one.closed.get(at) for one in inputs for at in one.external if at.stream == stream]


@pytest.mark.parametrize(("whole", "meanwhile"), [(True, ""), (False, "a restart"), (True, "a second worker")])
async def test_what_came_since_a_pause_is_left_to_the_next_run(job, topic, whole, meanwhile):
    """Fetches go on while an input is paused. What they have brought is no part of the drain, whoever holds the task by then."""
    inp, other, out = topic("in", 2), topic("other", 2), topic("out")

    def app():
        app = hg.App(job.name)
        app.input(inp).repartition("k", name="one").to(out)
        app.input(other).repartition("k", name="two").to(out)
        return app

    worker = await job.start(app())
    await worker.until_running(2)
    await job.write(inp, numbers(10))
    await job.values(out, 10)
    await job.ask("pause", **({} if whole else {"stream": inp}))
    workers = [worker]
    if meanwhile == "a restart":
        await worker.crash()
        workers = [await job.start(app())]
    elif meanwhile == "a second worker":
        workers.append(await job.start(app(), "w2"))
        await workers[1].until(lambda: len(workers[1].worker.actors) == 1, "one task has moved")
    await workers[-1].until(lambda: closed(workers, inp) == ["paused"] * 2, "both partitions are paused")
    await job.write(inp, numbers(40, first=10))
    await workers[-1].until(
        lambda: sum(end for one in workers for end in fetched(one, inp).values()) == 50, "all of it is fetched"
    )
    await drained(job, *workers)
    read = {at: position for at, position in (await checkpointed(job)).items() if at.stream == inp}
    assert sum(read.values()) == 10
    assert sorted(one["v"] for one in await job.values(out, 10)) == list(range(10))
    again = await job.start(app(), run_id="again")
    assert sorted(one["v"] for one in await job.values(out, 50)) == list(range(50))
    await drained(job, again)


def _copies(job, inp, out):
    app = hg.App(job.name)
    app.input(inp).repartition("k").to(out)
    return app


@pytest.mark.parametrize("dies", [False, True], ids=["", "kill -9"])
async def test_a_drain_during_a_move(job, topic, dies):
    """Two workers; a task is asked to move, and the drain comes at once. In the second case the old owner dies between the two."""
    inp, out = topic("in", 4), topic("out")
    one = await job.start(_copies(job, inp, out), "w1")
    await one.until_running(4)
    two = await job.start(_copies(job, inp, out), "w2")
    await two.until_running(2)
    await one.until_running(2)
    await job.write(inp, numbers(400))
    task = sorted(one.states())[0]
    await job.ask("move", task=task, to="w2", wait=False)
    draining = asyncio.get_running_loop().create_task(job.ask("drain"))
    if dies:
        await one.crash()
    answer = await draining
    assert (answer.state, answer.run_state) == ("done", "drained")
    assert await two.ended() == 0
    if not dies:
        assert await one.ended() == 0
    again = await job.start(_copies(job, inp, out), "w2", run_id="again")
    await again.until_running(4)
    found = sorted(one["v"] for one in await job.values(out, 400))
    assert found == list(range(400))
    await drained(job, again)


async def test_an_input_that_grows_during_a_drain_is_the_next_runs(job, topic):
    """New partitions make no new tasks in a run that drains; nothing that is written to them is lost."""
    inp, out, go = topic("in", 2), topic("out"), asyncio.Event()

    async def slow(value):
        await go.wait()
        return value

    app = hg.App(job.name)
    app.input(inp).map_async(slow).to(out)
    worker = await job.start(app)
    await worker.until_running(2)
    await job.write(inp, numbers(10))
    await worker.until(lambda: not any(one.machine.work.idle for one in worker.worker.actors.values()), "work in hand")
    draining = asyncio.get_running_loop().create_task(job.ask("drain"))
    await worker.until(lambda: set(worker.states().values()) == {"draining"}, "the drain")
    async with job.admin() as admin:
        await admin.create_partitions({inp: NewPartitions(4)})
    await job.renew_producer()
    for partition in (2, 3):
        await job.write(inp, numbers(5, first=10 * partition), partition=partition)
    go.set()
    assert (await draining).run_state == "drained"
    assert await worker.ended() == 0
    assert len(worker.worker.coordination.member.job.model.tasks) == 2
    again = await job.start(app, run_id="again")
    await again.until_running(4)
    found = sorted(one["v"] for one in await job.values(out, 20))
    assert found == [*range(10), *range(20, 25), *range(30, 35)]
    await drained(job, again)


# ----------------------------------------------------------------------------------------------------- the incompatible upgrade


class Old:
    """The first version's format between the stages: nobody else can read it."""

    @staticmethod
    def dumps(value):
        return b"1" + orjson.dumps(value)

    @staticmethod
    def loads(raw):
        assert raw[:1] == b"1", "not of the first version"
        return orjson.loads(raw[1:])


class New(Old):
    """The second version's."""

    @staticmethod
    def dumps(value):
        return b"2" + orjson.dumps([value["k"], value["v"]])

    @staticmethod
    def loads(raw):
        assert raw[:1] == b"2", "not of the second version"
        k, v = orjson.loads(raw[1:])
        return {"k": k, "v": v}


def version(job, inp, out, serde):
    """A version of the job: copies behind a shuffle, and sums."""
    app = hg.App(job.name)
    shuffled = app.input(inp).repartition(
        "k", serde=hg.custom(serde.loads, serde.dumps, name=serde.__name__), partitions=3
    )
    shuffled.to(out)
    return app


async def test_a_version_with_an_incompatible_format_starts_at_the_next_record(job, topic):
    """Drain, deploy, go on under load: over both lives nothing is lost or doubled, and nothing old is read by the new code."""
    inp, out = topic("in", 2), topic("out")
    old = await job.start(version(job, inp, out, Old))
    await old.until_running(3)
    writing = asyncio.get_running_loop().create_task(_written(job, inp, batches=40))
    await job.values(out, 200, more_s=0)
    await drained(job, old)
    await nothing_unread(job, old)
    new = await job.start(version(job, inp, out, New), deployment="next")
    await writing
    found = await job.values(out, 2000)
    assert sorted(one["v"] for one in found) == list(range(2000))
    await drained(job, new)


async def _written(job, inp, *, batches):
    for n in range(batches):
        await job.write(inp, numbers(50, first=50 * n))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.02)  # load, spread over the drain
