"""A pipeline of two jobs on a real broker: one shares a stream, the other reads it as if both were one job."""

from __future__ import annotations

import asyncio
import json

import orjson
import pytest
from aiokafka.admin import NewPartitions

import headgate as hg
from headgate.core.errors import NotFound
from headgate.core.progress.frames import BatchFrame, Drain, decode

from .test_keys import headgate

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

TEN_S = 10_000
HELD = {"watermark.idle-timeout": "1h"}
"""No partition is left out, however long the machine stands still between two writes."""


def rows(first, count):
    return [{"k": f"k{n % 5}", "v": n, "ts": n * 1_000} for n in range(first, first + count)]


def doubled(row):
    return {**row, "v": row["v"] * 2}


def orders(app, inp, **options):
    return app.input(inp, timestamp="ts", **options).map(doubled)


def sums(stream, out):
    stream.window(hg.tumbling("10s")).agg(n=hg.count(), total=hg.sum("v")).to(out)


def first_of(job, inp, shared, **options):
    app = hg.App(job.name, settings=HELD)
    orders(app, inp, **options).share(shared, key="k", partitions=2)
    return app


def second_of(job, shared, out, *producers, **options):
    app = hg.App(job.name, settings=HELD)
    sums(app.input(shared, producers=[one.name for one in producers], **options), out)
    return app


def wanted(values, closed):
    """The result of each key and window of these rows; `closed` says by the window's start what has closed it."""
    found = {}
    for one in values:
        at = one["k"], one["ts"] // TEN_S * TEN_S
        n, total = found.get(at, (0, 0))
        found[at] = n + 1, total + 2 * one["v"]
    return {(key, start): (*states, closed(start)) for (key, start), states in found.items() if closed(start)}


async def results(job, out, count):
    """What has come out, each result once."""
    records = await job.records(out, count)
    found = {}
    for one in records:
        value = orjson.loads(one.value)
        at = one.key.decode(), value["window_start"]
        assert at not in found
        found[at] = value["n"], value["total"], value["closed_by"]
    return found


async def said(job, *words):
    """What a command prints for programs."""
    done = await headgate(job, *words, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_the_end_of_the_first_job_ends_the_second_with_the_same_results(job, make, topic, when):
    """The second one begins before the stream exists, or when the first has ended."""
    inp, shared, out, values = topic("in", 2), f"shared-{job.name}", topic("out"), rows(0, 200)
    second = make()
    await job.write(inp, values)
    reading = second_of(second, shared, out, job, until="producers")
    if when == "before":
        later = await second.start(reading)
        await asyncio.sleep(0)
    first = await job.start(first_of(job, inp, shared, until="newest"))
    assert await first.ended() == 0
    if when == "after":
        later = await second.start(reading)
    assert await later.ended() == 0
    assert later.worker.coordination.member.job.run.state == "ended"
    expected = wanted(values, lambda _: "watermark or end")
    found = await results(second, out, len(expected))
    assert {at: states[:2] for at, states in found.items()} == {at: states[:2] for at, states in expected.items()}


async def test_both_jobs_are_killed_drained_and_begun_again_and_nothing_is_lost_or_closed_early(job, make, topic):
    """The first goes on in a new run with more tasks; the second is killed in between, and then drained itself, in a new run."""
    inp, shared, out = topic("in", 2), f"shared-{job.name}", topic("out")
    second = make()
    await job.write(inp, rows(0, 55))
    first = await job.start(first_of(job, inp, shared))
    later = await second.start(second_of(second, shared, out, job))
    await results(second, out, 5 * 4)
    await later.crash()
    await job.ask("drain")
    assert await first.ended() == 0
    later = await second.start(second_of(second, shared, out, job), "w2")
    await later.until_running(2)
    async with job.admin() as admin:
        await admin.create_partitions({inp: NewPartitions(4)})
    await job.renew_producer()
    for partition in range(4):
        await job.write(inp, rows(55, 80)[partition::4], partition=partition)
    first = await job.start(first_of(job, inp, shared), "w3")
    await job.ask("start")
    everything = rows(0, 135)
    expected = wanted(everything, lambda start: "watermark" if start <= 120_000 else "")
    assert await results(second, out, len(expected)) == expected
    await second.ask("drain")
    assert await later.ended() == 0
    rest = wanted(everything, lambda start: "watermark" if start <= 120_000 else "drain")
    found = await results(second, out, len(rest))
    assert {at: states for at, states in found.items() if states[2] == "watermark"} == expected
    assert sum(n for n, *_ in found.values()) == 135
    assert await first.stop() == 0


async def test_two_jobs_share_one_stream_and_the_silent_one_is_named(job, make, topic):
    inp, extras, shared, out = topic("in", 1), topic("extras", 1), f"shared-{job.name}", topic("out")
    other, second = make(), make()
    await job.write(inp, rows(0, 30))
    await job.start(first_of(job, inp, shared))
    later = await second.start(second_of(second, shared, out, job, other))
    await later.until_running(2)

    while f"{other.name}/1 (1 never seen)" not in str(await said(job, "status", second.name)):
        assert not later.task.done()
    await other.write(extras, [{"k": "k0", "v": 1, "ts": 12_000}])
    await other.start(first_of(other, extras, shared))
    expected = wanted(rows(0, 10), lambda _: "watermark")
    assert await results(second, out, len(expected)) == expected


async def test_a_cascade_drains_both_jobs_in_order_and_leaves_nothing_unread(job, make, topic):
    inp, shared, out = topic("in", 2), f"shared-{job.name}", topic("out")
    second = make()
    await job.write(inp, rows(0, 200))
    first = await job.start(first_of(job, inp, shared))
    later = await second.start(second_of(second, shared, out, job))
    await first.until_running(2)
    await later.until_running(2)
    answer = await said(job, "drain", job.name, "--cascade", "--timeout", "240s")
    assert [(one["job"], one["run_state"]) for one in answer["drained"]] == [
        (f"{job.name}/1", "drained"),
        (f"{second.name}/1", "drained"),
    ]
    assert [await first.ended(), await later.ended()] == [0, 0]
    with pytest.raises(NotFound, match="nor a job downstream of it"):  # asked again, it passes over what is drained
        await asyncio.to_thread(hg.drain, job.name, bootstrap=job.bootstrap, cascade=True)
    frames = [decode(one.value) for one in await job.records(shared, 0)]
    assert {frame.job for frame in frames if isinstance(frame, Drain)} == {f"{job.name}/1"}
    written = sum(len(frame.values) for frame in frames if isinstance(frame, BatchFrame))
    found = await results(second, out, 5)
    assert sum(n for n, *_ in found.values()) == written > 0


@pytest.mark.parametrize("known", [False, True])
async def test_a_stream_that_another_job_shares_takes_no_plain_records(job, make, topic, capsys, known):
    """One record that is no frame stops every job that reads the stream. A declared output is refused at start, and a name that user code
    has computed when it is first written to; also if the job reads that topic, and so knows it."""
    inp, shared = topic("in", 1), f"shared-{job.name}"
    first = await job.start(first_of(job, inp, shared))
    await first.until_running(1)
    other, third = make(), make()
    declared = hg.App(other.name)
    declared.input(inp).to(shared)
    if known:
        declared.input(shared, on_bad_data="skip").sink(print)
    with pytest.raises(
        hg.DeclarationError, match=f"cannot write '{shared}': it holds the frames of the job '{job.name}/1'"
    ):
        await (await other.start(declared)).ended()
    computed = hg.App(third.name)
    if known:
        computed.input(shared, on_bad_data="skip").sink(print)

    @computed.actor(computed.input(inp))
    class Writer(hg.Actor):
        def on_batch(self, ctx, batch):
            ctx.emit(shared, batch.values[0])

    writer = await third.start(computed)
    capsys.readouterr()
    await job.write(inp, rows(0, 1))
    told = []
    await writer.until(
        lambda: (
            told.append(capsys.readouterr().err) or f"it holds the frames of the job '{job.name}/1'" in "".join(told)
        ),
        "the target is refused",
    )
