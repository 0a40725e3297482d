"""`/livez` and `/readyz` of a worker that restores, drains or leaves: whoever routes to it is told the truth at every moment."""

from __future__ import annotations

import asyncio
import re
import signal

import aiohttp
import orjson
import pytest

from ..conftest import READY_S
from .scenes import made, named, restore_held_up

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
PATIENCE_S = 240.0


async def asked(one, path):
    """Status and text of a page of this worker; None while it has none."""
    found = re.search(r"http://127\.0\.0\.1:\d+(?=\D)", one.text())
    if found is None:
        return None
    try:
        async with aiohttp.ClientSession() as web, web.get(found[0] + path) as answer:
            return answer.status, await answer.text()
    except aiohttp.ClientError:
        return None


async def until(one, path, status, text):
    """Ask until it is answered like this; a worker that has ended will never do so."""
    async with asyncio.timeout(PATIENCE_S):
        while (said := await asked(one, path)) is None or said[0] != status or text not in said[1]:
            assert one.process.returncode is None, one.text()[-3000:]
            await asyncio.sleep(0.02)


async def test_a_worker_is_not_ready_before_its_state_is_restored(job, topic):
    """Somebody's open transaction holds the restore up: alive, and 503; when it is through, 200."""
    async with restore_held_up(job, topic) as second:
        await until(second, "/api/status", 200, '"state": "restoring"')
        await until(second, "/readyz", 503, "(restoring)")
        status, said = await asked(second, "/readyz")
        assert (status, said.partition(": Partition")[0]) == (503, "not ready: waiting for its tasks")
        assert "(restoring)" in said
        assert await asked(second, "/livez") == (200, "ok\n")
    await until(second, "/readyz", 200, "ready")


WAITS = """
import asyncio, pathlib
import headgate as hg

class Waits(hg.Actor):
    def on_batch(self, ctx, batch):
        ctx.emit("OUT", len(batch))

    async def on_drain(self, ctx):
        await self.allowed()

    async def on_stop(self, ctx):
        await self.allowed()

    async def allowed(self):
        while not pathlib.Path("FLAG").exists():
            await asyncio.sleep(0.01)

app = hg.App("JOB")
app.actor(app.input("IN"))(Waits)
"""


@pytest.mark.parametrize("way", ["drain", "stop", "SIGTERM"])
async def test_a_worker_is_not_ready_from_the_first_moment_of_its_end(job, topic, tmp_path, way):
    """User code holds the end up: the worker lives, and says that nobody should count on it."""
    inp, out, flag = topic("in"), topic("out"), tmp_path / "flag"
    source = WAITS.replace("IN", inp).replace("OUT", out).replace("FLAG", str(flag))
    one = await job.process(source)
    await job.write(inp, [{"n": 1}])
    await job.records(out, 1)
    await until(one, "/readyz", 200, "ready")
    if way == "SIGTERM":
        one.process.send_signal(signal.SIGTERM)
    else:
        await job.ask(way, wait=False)
    await until(one, "/readyz", 503, "leaving" if way == "SIGTERM" else "is ")
    assert await asked(one, "/livez") == (200, "ok\n")
    flag.touch()
    assert await one.ended() == 0


RAISES = """
import headgate as hg

class Raises(hg.Actor):
    def on_batch(self, ctx, batch):
        ctx.emit("OUT", len(batch))

    def on_stop(self, ctx):
        raise RuntimeError("not like this")

app = hg.App("JOB")
app.actor(app.input("IN"))(Raises)
"""


@pytest.mark.parametrize("way", ["drain", "stop"])
async def test_a_hook_that_raises_at_the_end_holds_no_one_up(job, topic, way):
    """The log says so; what was done is committed, and the run goes on to its end."""
    inp, out = topic("in"), topic("out")
    one = await job.process(RAISES.replace("IN", inp).replace("OUT", out))
    await job.write(inp, [{"n": 1}])
    await job.records(out, 1)
    assert (await job.ask(way)).state == "done"
    assert await one.ended() == 0
    assert "not like this" in one.text()


HANGS = """
import asyncio
import headgate as hg

class Hangs(hg.Actor):
    def on_batch(self, ctx, batch):
        ctx.emit("OUT", len(batch))

    async def on_stop(self, ctx):
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass  # as some client libraries do

app = hg.App("JOB")
app.actor(app.input("IN"))(Hangs)
"""


async def test_a_hook_that_hangs_at_the_end_holds_up_neither_a_drain_nor_its_worker(job, topic):
    """It held its task, the drain and the process for ever; nobody was told which part it was."""
    inp, out = topic("in"), topic("out")
    one = await job.process(
        HANGS.replace("IN", inp).replace("OUT", out), "w1", "--set", "release.timeout=2s", "--set", "stop.timeout=60s"
    )
    await job.write(inp, [{"n": 1}])
    await job.records(out, 1)
    assert (await job.ask("drain", timeout_s=240)).state == "done"
    assert await one.ended(240) == 0
    assert "a part of the task does not stop and is abandoned" in one.text()
    assert "these did not stop and were abandoned: TaskActor._end_hooks" in one.text()


FORWARDS = """
import headgate as hg

app = hg.App("JOB")
app.input("IN").to("OUT")
"""


async def test_a_worker_without_a_broker_says_so_everywhere_and_takes_it_back(job_on, private_kafka):
    """The broker is killed. Ready, lag, log, status: whatever a person or an alert looks at names the cause, and none of it outlives it."""
    async with job_on(private_kafka) as job:
        inp, out = named("in", "out")
        await made(job.client, (inp, 1), (out, 1))
        one = await job.process(FORWARDS.replace("IN", inp).replace("OUT", out))
        await job.write(inp, [{"n": 1}])
        await job.records(out, 1, more_s=0)
        await until(one, "/readyz", 200, "ready")
        lag, unknown = metric("headgate_input_lag_records", inp), metric("headgate_input_lag_unknown_partitions", inp)
        await found(one, "/metrics", lag + "0.0", unknown + "0.0")
        await asyncio.to_thread(private_kafka.kill)
        try:
            await until(one, "/readyz", 503, "the broker of the coordinator stream has not answered since")
            await found(one, "/metrics", lag + "NaN", unknown + "1.0")
            tasks = orjson.loads((await asked(one, "/api/status"))[1])["tasks"]
            assert [(task["task"], task["lag"]) for task in tasks] == [("Partition 0", None)]
            assert await asked(one, "/livez") == (200, "ok\n")
            await is_logged(one, "the broker does not answer")
            assert not logged(one, "the broker answers again")
        finally:
            await asyncio.to_thread(private_kafka.restart, timeout_s=READY_S)
        await until(one, "/readyz", 200, "ready")
        await is_logged(one, "the broker answers again")
        await job.renew_producer()
        await job.write(inp, [{"n": 2}])
        assert [value["n"] for value in await job.values(out, 2, more_s=0)] == [1, 2]
        await found(one, "/metrics", lag + "0.0", unknown + "0.0")
        await found(one, "/api/status", r'(?s)\A(?!.*"degraded").*"state": "ok"')


def metric(name, stream):
    """The line of this metric, as a pattern, up to its value."""
    return rf'(?m)^{name}\{{[^}}]*stream="{stream}"[^}}]*\}} '


async def found(one, path, *patterns):
    """Ask until the answer has all of these."""
    async with asyncio.timeout(PATIENCE_S):
        while (said := await asked(one, path)) is None or not all(re.search(pattern, said[1]) for pattern in patterns):
            assert one.process.returncode is None, one.text()[-3000:]
            await asyncio.sleep(0.1)


async def is_logged(one, event):
    """Wait until the log has it."""
    async with asyncio.timeout(PATIENCE_S):
        while not logged(one, event):
            assert one.process.returncode is None, one.text()[-3000:]
            await asyncio.sleep(0.1)


def logged(one, event):
    """The lines of the worker's log with this event."""
    return [line for line in one.text().splitlines() if f'"event": "{event}"' in line or f'"event":"{event}"' in line]
