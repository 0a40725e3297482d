"""`/livez` and `/readyz` of a worker that restores, drains or leaves: whoever routes to it is told the truth at every moment."""

from __future__ import annotations

import asyncio
import re
import signal

import aiohttp
import pytest

from .scenes import restore_held_up

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
