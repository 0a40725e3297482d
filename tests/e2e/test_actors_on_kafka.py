"""`@app.actor` on the real broker: several inputs, tables, both kinds of timers, commit and stop on request, hooks over a restart."""

from __future__ import annotations

import time

import orjson
import pytest

import headgate as hg

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


async def said(job, out, count):
    return [orjson.loads(r.value) for r in await job.records(out, count)]


def bookkeeping(job, left, right, out):
    """An actor over two inputs that keeps a table, sets timers and says everything that it hears."""
    app = hg.App(job.name, key_serde=hg.text(), settings={"watermark.idle-timeout": "200ms"})
    app.table("seen", value=hg.json())

    @app.actor(app.input(left, timestamp="ts"), app.input(right, timestamp="ts"))
    class Keeper(hg.Actor):
        def on_start(self, ctx):
            self.started = True

        async def on_batch(self, ctx, batch):
            assert self.started
            seen = ctx.table("seen")
            for record in batch:
                seen[batch.stream] = seen.get(batch.stream, 0) + 1
                match record.value:
                    case {"event": at}:
                        ctx.timer("event", at=at)
                    case {"clock": after}:
                        ctx.timer("clock", after=after)
                    case {"do": "commit"}:
                        ctx.commit()
                    case {"do": "stop"}:
                        ctx.stop()
                    case _:
                        pass
            ctx.emit(out, {"of": batch.stream, "n": seen[batch.stream]}, key=ctx.task)

        def on_timer(self, ctx, name, timestamp):
            ctx.emit(out, {"timer": name, "at": timestamp})

        def on_drain(self, ctx):
            ctx.emit(out, {"said": "drain", "seen": dict(ctx.table("seen").items())})

    return app


async def test_two_inputs_one_table_and_timers_of_event_and_clock(job, topic):
    """Each chunk says where it is from; a timer of event time fires when both inputs are past it, one of the clock by itself."""
    left, right, out = topic("left"), topic("right"), topic("out")
    worker = await job.start(bookkeeping(job, left, right, out))
    await worker.until_running(1)
    await job.write(left, [{"ts": 10, "event": 50}])
    assert await said(job, out, 1) == [{"of": left, "n": 1}]
    await job.write(left, [{"ts": 100}])
    await job.write(right, [{"ts": 60}])
    found = await said(job, out, 4)
    assert {"timer": "event", "at": 50} in found
    assert [one["n"] for one in found if one.get("of") == left] == [1, 2]
    began = time.time() * 1000
    await job.write(right, [{"ts": 61, "clock": "300ms"}])
    found = await said(job, out, 6)
    fired = found[-1]
    assert fired["timer"] == "clock"
    assert fired["at"] >= began + 290


async def test_a_drain_fires_timers_of_both_kinds_once_also_after_a_restart(job, topic):
    """Timers are state: the worker that set them is gone when the drain comes."""
    left, right, out = topic("left"), topic("right"), topic("out")
    first = await job.start(bookkeeping(job, left, right, out))
    await first.until_running(1)
    await job.write(left, [{"ts": 10, "event": 10**13}])
    await said(job, out, 1)
    await job.write(right, [{"ts": 10, "clock": "1d"}])
    await said(job, out, 2)
    await first.crash()
    second = await job.start(bookkeeping(job, left, right, out))
    await second.until_running(1)
    assert (await job.ask("drain")).run_state == "drained"
    assert await second.ended() == 0
    found = await said(job, out, 5)
    assert sorted(one["timer"] for one in found if "timer" in one) == ["clock", "event"]
    assert found[-1] == {"said": "drain", "seen": {left: 1, right: 1}}


async def test_commit_on_request_does_not_wait_for_the_interval(job, topic):
    """The interval is an hour; what asked for a commit is durable at once, with all that stands before it."""
    left, right, out = topic("left"), topic("right"), topic("out")
    app = bookkeeping(job, left, right, out)
    worker = await job.start(app, settings={"commit.interval": "1h"})
    await worker.until_running(1)
    await job.write(left, [{"ts": 1}])
    await worker.until(lambda: worker.worker.sensor.records[left] == 1, "the first record is processed")
    await job.write(left, [{"ts": 2, "do": "commit"}])
    assert [one["n"] for one in await said(job, out, 2)] == [1, 2]


async def test_stop_on_request_commits_and_ends_the_task(job, topic):
    """User code has seen enough: what it did is durable; it was the only task, so the run has ended and the worker with it."""
    left, right, out = topic("left"), topic("right"), topic("out")
    worker = await job.start(bookkeeping(job, left, right, out))
    await worker.until_running(1)
    await job.write(left, [{"ts": 1, "do": "stop"}])
    assert await worker.ended() == 0
    assert [one["n"] for one in await said(job, out, 1)] == [1]
    assert worker.worker.coordination.member.job.run.state == "ended"
