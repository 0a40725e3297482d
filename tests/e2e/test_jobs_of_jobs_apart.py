"""Two or three jobs around a shared stream on a real broker, each with a life of its own: workers come and go, tasks move, processes die,
and a job that shares is away for a while. What comes out is what one job would give."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

import headgate as hg
from headgate.core.progress.frames import ArrowFrame, Watermark, decode

from .conftest import WAIT_S
from .test_jobs_of_jobs import HELD, TEN_S, first_of, results, rows

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


@dataclass
class Order:
    k: str
    v: int
    ts: int


def sums(stream, out):
    stream.window(hg.tumbling("10s"), name="tens").agg(n=hg.count(), total=hg.sum("v")).to(out)


def second_of(job, shared, out, *producers):
    app = hg.App(job.name, settings=HELD)
    sums(app.input(shared, producers=[one.name for one in producers]), out)
    return app


def wanted(values, before=None):
    """The results of these rows by key and window; only windows that end by then."""
    found = {}
    for one in values:
        at = one["k"], one["ts"] // TEN_S * TEN_S
        n, total = found.get(at, (0, 0))
        if before is None or at[1] + TEN_S <= before:
            found[at] = n + 1, total + 2 * one["v"]
    return found


def sums_in(found):
    return {at: numbers[:2] for at, numbers in found.items()}


def times(running):
    """The time that each task of a worker has told its window."""
    return {name: actor.machine.step_times.get("tens") for name, actor in running.worker.actors.items()}


async def announced(side, running, shared):
    """Until this run has said in each partition of the shared stream that it has begun: from there on it is waited for."""
    await running.until_running(1)
    run = running.worker.coordination.member.job.run.run_id
    partitions = set()
    async with asyncio.timeout(WAIT_S):
        while partitions != {0, 1}:
            frames = [(one.partition, decode(one.value)) for one in await side.records(shared, 1)]
            partitions = {partition for partition, frame in frames if isinstance(frame, Watermark) and frame.run == run}


async def drained(first):
    return await asyncio.to_thread(hg.drain, first.name, bootstrap=first.bootstrap, cascade=True, timeout="4m")


async def test_workers_of_both_jobs_come_go_and_die_and_tasks_move_while_the_other_job_runs(job, make, topic):
    """The shared stream has columns: of many rows as Arrow frames, of few as batches."""
    inp, shared, out = topic("in", 2), f"shared-{job.name}", topic("out")
    second = make()

    def sharing():
        app = hg.App(job.name, settings=HELD)
        columns = app.input(inp, serde=hg.json(Order), timestamp="ts").columns()
        columns.with_columns(v=hg.col("v") * 2).share(shared, key="k", partitions=2)
        return app

    def reading():
        app = hg.App(second.name, settings=HELD)
        sums(app.input(shared, serde=hg.json(Order), producers=[job.name]).columns(), out)
        return app

    apps = {job: sharing, second: reading}
    await job.write(inp, rows(0, 600))
    one = {of: await of.start(app(), "w1") for of, app in apps.items()}
    expected = wanted(rows(0, 600), before=598_000)
    assert sums_in(await results(second, out, len(expected))) == expected
    assert {type(decode(frame.value)) for frame in await job.records(shared, 1)} >= {ArrowFrame, Watermark}

    two = {of: await of.start(app(), "w2") for of, app in apps.items()}  # a worker joins each job, and takes a task
    for of in apps:
        await two[of].until_running(1)
        await one[of].until_running(1)
        await job.write(inp, rows(600, 20) if of is job else rows(620, 20))
        [mine], [others] = one[of].states(), two[of].states()
        await of.ask("move", task=mine, to="w2")
        await of.ask("move", task=others, to="w1")
    await job.write(inp, rows(640, 20))
    expected = wanted(rows(0, 660), before=658_000)
    assert sums_in(await results(second, out, len(expected))) == expected

    await two[job].crash()
    await job.write(inp, rows(660, 20))
    assert await one[second].stop() == 0
    await two[second].until_running(2)
    await job.write(inp, rows(680, 20))
    await two[second].crash()
    await second.start(apps[second](), "w3")
    await job.write(inp, rows(700, 10))
    expected = wanted(rows(0, 710), before=708_000)
    found = await results(second, out, len(expected))
    assert sums_in(found) == expected
    assert {by for *_, by in found.values()} == {"watermark"}
    await drained(job)
    assert sums_in(await results(second, out, len(wanted(rows(0, 710))))) == wanted(rows(0, 710))


async def test_no_one_waits_for_a_job_that_is_drained_and_its_next_run_goes_on(job, make, topic):
    """Two jobs share one stream. One is drained: the time of the other goes on. Then it begins again, and is waited for."""
    inp, extras, shared, out = topic("in", 1), topic("extras", 1), f"shared-{job.name}", topic("out")
    side, second = make(), make()
    await job.write(inp, rows(0, 30))
    await side.write(extras, rows(0, 30))
    await job.start(first_of(job, inp, shared))
    other = await side.start(first_of(side, extras, shared))
    later = await second.start(second_of(second, shared, out, job, side))
    both = rows(0, 30) + rows(0, 30)
    expected = wanted(both, before=29_000)
    assert sums_in(await results(second, out, len(expected))) == expected

    await side.ask("drain")
    assert await other.ended() == 0
    await job.write(inp, rows(30, 30))
    expected = wanted(both + rows(30, 30), before=59_000)
    assert sums_in(await results(second, out, len(expected))) == expected

    await later.crash()
    other = await side.start(first_of(side, extras, shared), "w2")
    await side.ask("start")
    await announced(side, other, shared)
    await side.write(extras, rows(60, 10))
    await job.write(inp, rows(60, 40))
    later = await second.start(second_of(second, shared, out, job, side))
    all_ = both + rows(30, 30) + rows(60, 10) + rows(60, 40)
    expected = wanted(all_, before=69_000)
    assert sums_in(await results(second, out, len(expected))) == expected
    await later.until(lambda: set(times(later).values()) == {69_000}, "the side job holds the time")

    await side.write(extras, rows(70, 30))
    all_ += rows(70, 30)
    expected = wanted(all_, before=99_000)
    found = await results(second, out, len(expected))
    assert sums_in(found) == expected
    assert {by for *_, by in found.values()} == {"watermark"}
    await side.ask("drain")
    await drained(job)
    assert sums_in(await results(second, out, len(wanted(all_)))) == wanted(all_)


PRICING = """
import headgate as hg

app = hg.App("JOB", settings={"watermark.idle-timeout": "1h"})
app.input("ORDERS", timestamp="ts").share("SHARED", key="k", partitions=2)
"""
MATCHING = """
import headgate as hg

app = hg.App("JOB", settings={"watermark.idle-timeout": "1h"})
priced = app.input("SHARED", producers=["PRICING"])
payments = app.input("PAYMENTS", timestamp="ts", max_out_of_order="2s").repartition("k", name="payments", partitions=2)

def both(left, right):
    return [left and left["v"], right and right["v"]]

priced.join(payments, within="300ms", how="outer", into=both, late="LATE").to("PAIRS")
"""


def joined(lefts, rights):
    """Every pair, and every row without a partner."""
    pairs = [(a["v"], b["v"]) for a in lefts for b in rights if a["k"] == b["k"] and abs(a["ts"] - b["ts"]) <= 300]
    alone = [(a["v"], None) for a in lefts if a["v"] not in {left for left, _ in pairs}]
    return sorted(pairs + alone + [(None, b["v"]) for b in rights if b["v"] not in {v for _, v in pairs}], key=str)


async def test_a_join_over_a_shared_stream_has_each_pair_and_each_row_alone_once_over_kill_9_of_both_jobs(
    job, make, topic
):
    """The stream of another job meets an input of the job itself. Each process dies in the middle, with rows of both sides waiting."""
    names = {"ORDERS": topic("orders", 2), "PAYMENTS": topic("payments", 2), "SHARED": f"shared-{job.name}"}
    names |= {"PAIRS": topic("pairs", 2), "LATE": topic("late"), "PRICING": job.name}
    second = make()

    def source(text):
        for name, value in names.items():
            text = text.replace(name, value)
        return text

    processes = {of: await of.process(source(text)) for of, text in ((job, PRICING), (second, MATCHING))}
    lefts, rights = [], []
    for turn, victim in enumerate((second, job, None)):
        some = range(turn * 100, turn * 100 + 100)
        lefts += (left := [{"k": f"k{n % 7}", "v": n, "ts": n * 100} for n in some if n % 3 != 0])
        rights += (right := [{"k": f"k{n % 7}", "v": -n, "ts": n * 100 + n % 5 * 300} for n in some if n % 3 != 1])
        await job.write(names["ORDERS"], left)
        await job.write(names["PAYMENTS"], sorted(right, key=lambda row: row["ts"]))
        pairs = sum(None not in one for one in joined(lefts, rights))
        values = []
        while sum(None not in one for one in values) < pairs:  # rows without a partner come in between
            values = await job.values(names["PAIRS"], len(values) + 1, more_s=0)
        if victim is not None:
            processes[victim].kill()
            await processes[victim].ended()
            processes[victim] = await victim.process(source(PRICING if victim is job else MATCHING))
    await drained(job)
    assert [await one.ended() for one in processes.values()] == [0, 0]
    expected = joined(lefts, rights)
    assert {one.count(None) for one in expected} == {0, 1}
    values = [tuple(one) for one in await job.values(names["PAIRS"], len(expected))]
    assert sorted(values, key=str) == expected
    assert await job.values(names["LATE"], 0) == []
