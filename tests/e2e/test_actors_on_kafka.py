"""`@app.actor` on the real broker: timers over a restart, commit and stop on request. All else is told on the test driver."""

from __future__ import annotations

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


async def test_commit_and_stop_on_request(job, topic):
    """The interval is an hour; what asked for a commit is durable at once, with all that stands before it. Then user code has seen enough:
    what it did is durable; it was the only task, so the run has ended and the worker with it."""
    left, right, out = topic("left"), topic("right"), topic("out")
    worker = await job.start(bookkeeping(job, left, right, out), settings={"commit.interval": "1h"})
    await worker.until_running(1)
    await job.write(left, [{"ts": 1}])
    await worker.until(lambda: worker.worker.sensor.records[left] == 1, "the first record is processed")
    await job.write(left, [{"ts": 2, "do": "commit"}])
    assert [one["n"] for one in await said(job, out, 2)] == [1, 2]
    await job.write(left, [{"ts": 3, "do": "stop"}])
    assert await worker.ended() == 0
    assert [one["n"] for one in await said(job, out, 3)] == [1, 2, 3]
    assert worker.worker.coordination.member.job.run.state == "ended"
