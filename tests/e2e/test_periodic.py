"""`@app.timer` on the real broker: one call per period in the whole job, also over a kill -9 of the worker that calls."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import orjson
import pytest

import headgate as hg

from .. import forked
from .schemas import schema, wrong

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
PERIOD_MS = 200
TICKING = """
import os

import headgate as hg

app = hg.App("JOB")
app.input("IN").to("COPY")
counts = app.table("counts", key=hg.text())


@app.timer("200ms")
async def report(tick):
    counts["ticks"] = counts.get("ticks", 0) + 1
    told = {"number": tick.number, "at": tick.at, "missed": tick.missed, "pid": os.getpid()}
    told |= {"counted": counts["ticks"], "task": tick.task}
    tick.emit("OUT", told)
"""


async def planned(job):
    """What `headgate plan` says of the job that runs."""
    words = ["plan", "the_job:app", "-b", job.bootstrap, "--app-dir", str(job.directory), "-o", "json"]
    done = await asyncio.to_thread(forked.run, words)
    assert done.returncode == 0, done.stderr
    found = orjson.loads(done.stdout)
    assert wrong(found, schema("plan")) == []
    return found


async def test_ticks_are_neither_lost_nor_doubled_when_the_worker_that_calls_is_killed(job, topic):
    """Two workers, three tasks, one timer: killed twice while it ticks, the numbers have no gap, and what was missed is told."""
    inp, out, copy = topic("in", 3), topic("out"), topic("copy")
    source = TICKING.replace("IN", inp).replace("OUT", out).replace("COPY", copy)
    workers = [await job.process(source, name) for name in ("w1", "w2")]
    ticks = await job.values(out, 10, more_s=0)
    for turn in (1, 2):
        caller = ticks[-1]["pid"]
        (killed,) = [one for one in workers if one.process.pid == caller]
        killed.kill()
        await killed.ended()
        workers.remove(killed)
        async with asyncio.timeout(200):
            while ticks[-1]["pid"] == caller:
                ticks = await job.values(out, len(ticks) + 1, more_s=0)
        ticks = await job.values(out, len(ticks) + 10, more_s=0)
        workers.append(await job.process(source, f"w{turn + 2}"))
    assert [one["number"] for one in ticks] == [*range(1, len(ticks) + 1)]
    assert [one["counted"] for one in ticks] == [one["number"] for one in ticks]
    for before, after in pairwise(ticks):
        assert after["at"] - before["at"] == PERIOD_MS * (1 + after["missed"])
    plan = await planned(job)
    assert plan["timers"] == [{"timer": "timer-report", "task": ticks[0]["task"]}]
    assert {one["task"] for one in ticks} == {ticks[0]["task"]}
    handed = [after for before, after in pairwise(ticks) if before["pid"] != after["pid"]]
    assert len(handed) >= 2
    assert sum(one["missed"] > 0 for one in handed) >= 2  # nobody had the task for a session


class Clocked(hg.Actor):
    """Says by the clock what it found when it started."""

    def on_start(self, ctx: hg.Context) -> None:
        self.found = dict(ctx.table("names").items())
        ctx.timer("hello", after="100ms")

    def on_timer(self, ctx: hg.Context, name: str, timestamp: int) -> None:
        ctx.forward({"task": ctx.task, "found": self.found}, key=ctx.task)


async def test_actors_start_by_the_clock_once_the_tables_are_read(job, topic):
    """No record of theirs has come; a table that is read first is there when they start."""
    inp, names, out = topic("in", 2), topic("names"), topic("out")
    for _ in range(20):
        await job.write(names, [{"n": n} for n in range(1000)], key=b"old")
    await job.write(names, [{"n": 7}], key=b"new")
    app = hg.App(job.name, key_serde=hg.text())
    app.input(names).table("names", broadcast=True)
    app.input(inp).process(Clocked).to(out)
    worker = await job.start(app)
    await worker.until_running(2)
    found = {"old": {"n": 999}, "new": {"n": 7}}
    told = await job.values(out, 2)
    assert sorted(told, key=lambda one: one["task"]) == [{"task": f"Partition {n}", "found": found} for n in range(2)]
