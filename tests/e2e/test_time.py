"""Event time on the real broker: through every kind of step and both routes, over streams that end or say nothing, and over restarts.

Each job ends in an actor that records what it hears of time, and every row that came behind a time that it had already heard.
"""

from __future__ import annotations

import contextlib
import signal
import time

import orjson
import pytest

import headgate as hg
from headgate.agents.cli.options import Target
from headgate.agents.cli.see.status import read
from headgate.agents.process.configuration import CommandLine, configure
from headgate.core.errors import NotFound
from headgate.core.names import JobName

from .scenes import held_open
from .schemas import schema, wrong

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
HELD = {"watermark.idle-timeout": "1h"}
"""No partition is left out, however long the machine stands still between two writes."""


class Hears(hg.Actor):
    """Says how far time is, what comes too late for that, and that the end has come."""

    def __init__(self, out):
        self.out = out

    def on_batch(self, ctx, batch):
        for record in batch:
            if ctx.watermark is not None and record.timestamp < ctx.watermark:
                ctx.emit(self.out, {"late": record.timestamp, "time": ctx.watermark})

    def on_watermark(self, ctx, timestamp):
        ctx.emit(self.out, {"task": ctx.task, "time": timestamp})


async def heard(job, out, times, *, tasks=1):
    """Wait until each task has heard these times last; what was heard before has never gone back, and nothing came late."""
    give_up = time.monotonic() + 240
    while True:
        found = [orjson.loads(r.value) for r in await job.records(out, 1, more_s=0.1)]
        assert [one for one in found if "late" in one] == []
        by_task = {}
        for one in found:
            by_task.setdefault(one["task"], []).append(one["time"])
        assert all(told == sorted(set(told)) for told in by_task.values()), by_task
        if len(by_task) == tasks and {told[-1] for told in by_task.values()} == {times}:
            return by_task
        assert time.monotonic() < give_up, f"{times} is not the last of {by_task}"


def at(ts, key="k"):
    return {"ts": ts, "k": key}


async def test_through_a_map_and_a_shuffle_whose_markers_are_aggregated(job, topic):
    """Every task hears the least of what all partitions of the input have reached, whoever tells it."""
    inp, out = topic("in", 3), topic("out")
    app = hg.App(job.name, settings={**HELD, "control.aggregate-above": 0})
    stream = app.input(inp, timestamp="ts", max_out_of_order="1s").map(dict).filter(bool)
    stream.repartition("k", partitions=3).process(Hears, out=out, name="hears")
    worker = await job.start(app)
    await worker.until_running(3)
    for partition, ts in enumerate((50_000, 60_000, 70_000)):
        await job.write(inp, [at(ts - n * 100, f"k{n}") for n in range(9)], partition=partition)
    await heard(job, out, 49_000, tasks=3)
    await job.write(inp, [at(90_000)], partition=0)
    await heard(job, out, 59_000, tasks=3)


async def test_through_a_broadcast_a_merge_and_a_join_with_a_table_that_is_read_on(job, topic):
    """Time is that of the rows that come out: the table's own stream, which is read for others, too, and is far behind, holds nobody."""
    left, right, rates, copy, out = topic("left", 2), topic("right", 2), topic("rates", 2), topic("copy"), topic("out")
    app = hg.App(job.name, settings=HELD)
    rate = app.input(rates, key="k", timestamp="ts")
    rate.to(copy)
    table = rate.repartition("k", partitions=2, name="rates-by-k").table("rates")
    both = app.input(left, timestamp="ts").merge(app.input(right, timestamp="ts"))
    joined = both.repartition("k", partitions=2).join(table, into=lambda row, rate: row, how="left")
    joined.broadcast(name="all").process(Hears, out=out, name="hears")
    worker = await job.start(app)
    await worker.until_running(2)
    await job.write(rates, [at(10)] * 2)
    for partition in (0, 1):
        await job.write(left, [at(100_000)], partition=partition)
        await job.write(right, [at(80_000 + partition)], partition=partition)
    await heard(job, out, 80_000, tasks=2)
    await job.write(right, [at(120_000)] * 2)
    await heard(job, out, 100_000, tasks=2)


async def test_streams_that_end_or_are_idle_hold_no_one_and_a_restart_goes_on(job, topic):
    """Of three streams one has ended, and one says nothing for long enough. The next worker goes on where time was, and never before it."""
    ends, quiet, goes_on, out = topic("ends"), topic("quiet"), topic("on"), topic("out")

    def app():
        made = hg.App(job.name, settings={"watermark.idle-timeout": "300ms"})
        ended = made.input(ends, timestamp="ts", until=({0: 1}))
        streams = [ended, *(made.input(name, timestamp="ts") for name in (quiet, goes_on))]
        first, *others = [one.repartition("k", partitions=1, name=f"by{n}") for n, one in enumerate(streams)]
        first.merge(*others).process(Hears, out=out, name="hears")
        return made

    first = await job.start(app())
    await first.until_running(1)
    await job.write(ends, [at(10_000)])
    await job.write(quiet, [at(20_000)])
    ts = 30_000
    told: list[int] = []
    give_up = time.monotonic() + 240
    while not told or told[-1] <= 30_000:  # one goes on, so that not all are idle
        assert time.monotonic() < give_up
        ts += 1_000
        await job.write(goes_on, [at(ts)])
        told = [orjson.loads(r.value)["time"] for r in await job.records(out, 0, more_s=0.1)]
    await first.crash()
    second = await job.start(app())
    await second.until_running(1)
    (actor,) = second.worker.actors.values()
    assert actor.machine.step_times["hears"] >= told[-1]
    while told[-1] <= ts:
        assert time.monotonic() < give_up
        await job.write(goes_on, [at(ts + 1_000)])
        found = [orjson.loads(r.value) for r in await job.records(out, 1, more_s=0.1)]
        assert [one for one in found if "late" in one] == []
        told = [one["time"] for one in found]
    assert told == sorted(set(told))


# --------------------------------------------------------------------------------------------------------------- who holds it


async def status(job):
    """What `headgate status` says; the document is as its schema says."""
    found = await read(Target(JobName(job.name), job.topics, configure(CommandLine(job.bootstrap))))
    assert wrong(found, schema("status")) == []
    return found


async def times(job):
    """What it says of event time, by place."""
    return {one["place"]: one for one in (await status(job))["times"]}


def because(why):
    return lambda holders: why in [one["why"] for one in holders]


async def until_held(job, place, true, at=None):
    """Wait until those who hold this place are as wanted, at that time if one is given: heartbeats may be older than what was read last."""
    give_up = time.monotonic() + 240
    while True:
        found = (await times(job)).get(place)
        if found is not None and true(found["held_by"]) and at in (None, found["watermark"]):
            return found
        assert time.monotonic() < give_up, f"{place} is not held so: {found}"


STOPPED = """
import headgate as hg

app = hg.App("JOB", settings={"watermark.idle-timeout": "1h"})

@app.actor(app.input("IN", timestamp="ts").repartition("k", partitions=3))
class Hears(hg.Actor):
    def on_watermark(self, ctx, timestamp):
        ctx.emit("OUT", {"task": ctx.task, "time": timestamp})
"""


async def test_a_producer_that_is_stopped_is_named_by_whoever_asks_why_time_stands(job, topic):
    """Three workers with a task each; one is stopped by SIGSTOP. `headgate status` names its task, and its worker, until it goes on."""
    inp, out = topic("in", 3), topic("out")
    source = STOPPED.replace("IN", inp).replace("OUT", out)
    patient = ("--set", "session.timeout=120s")
    processes = {name: await job.process(source, name, *patient) for name in ("w1", "w2", "w3")}
    owners: dict[str, str] = {}
    give_up = time.monotonic() + 240
    while len(set(owners.values())) < 3:
        assert time.monotonic() < give_up, [one.text()[-1000:] for one in processes.values()]
        with contextlib.suppress(NotFound):  # the first of them has not begun
            owners = {one["task"]: one["worker"] for one in (await status(job))["tasks"] if one["state"] == "running"}
    await job.write(inp, [at(10_000)] * 3)
    await heard(job, out, 10_000, tasks=3)
    task, worker = next(iter(sorted(owners.items())))
    processes[worker].process.send_signal(signal.SIGSTOP)
    try:
        await job.write(inp, [at(90_000)] * 3)
        shuffled = job.topics.intermediate("by-k")
        held, then = [(task, worker)], "1970-01-01T00:00:10.000Z"
        await until_held(job, shuffled, lambda all_: [(one["who"], one["worker"]) for one in all_] == held, at=then)
        # status takes only what was said just now, so whoever has said nothing for a moment is not there
        await until_held(job, "Hears", lambda all_: [one["who"] for one in all_] == [shuffled])
    finally:
        processes[worker].process.send_signal(signal.SIGCONT)
    await heard(job, out, 90_000, tasks=3)


async def test_a_partition_that_is_paused_or_behind_an_open_transaction_says_so(job, topic):
    """Each is no idleness: it holds time, and the reason stands beside it."""
    inp, other, out = topic("in", 2), topic("other"), topic("out")
    app = hg.App(job.name)
    for name in (inp, other):
        app.input(name, timestamp="ts").process(Hears, out=out, name=f"of-{name}")
    worker = await job.start(app, settings={"watermark.idle-timeout": "300ms"})
    await worker.until_running(2)
    await job.write(inp, [at(10_000), at(20_000)])
    await job.ask("pause", stream=inp)
    found = await until_held(job, inp, because("paused"))
    assert {one["worker"] for one in found["held_by"]} == {"w1"}
    await job.ask("resume", stream=inp)
    await until_held(job, inp, lambda holders: not because("paused")(holders))
    async with held_open(job, other):
        await job.write(other, [at(30_000)])
        await until_held(job, other, because("open-transaction"))
    await until_held(job, other, because("idle"))
