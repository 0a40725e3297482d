"""Disks that do not follow, and disks that are full: one task's store is one task's matter."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
import re
import resource
import shutil
import time
import uuid

import aiohttp
import pytest

import headgate as hg
from headgate.agents.state.rocks import StoreMemory

from ..pauses import Beside, waited_s
from .scenes import why

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


class SlowDisk(StoreMemory):
    """RocksDB may write out 100 kB a second, and a table of 256 KiB at a time."""

    def options(self):
        found = super().options()
        found.set_write_buffer_size(256 << 10)
        found.set_ratelimiter(100_000, 100_000, 10)
        return found


def keeping(job, inp):
    """A table of what came last, for each key."""
    app = hg.App(job.name)
    kept = app.table("kept", key=hg.text(), value=hg.json())

    async def keep(batches):
        async for batch in batches:
            kept.update({record.value["k"]: record.value for record in batch})

    app.agent(app.input(inp))(keep)
    return app


@contextlib.asynccontextmanager
async def turning():
    """The longest time for which the loop of the worker did not turn, by its own fault; known when the block is over."""
    longest, pauses = [0.0], []

    async def turn():
        while True:
            before, waited = time.monotonic(), waited_s()
            await asyncio.sleep(0.01)
            if (now := time.monotonic()) - before > 0.5:
                pauses.append((before, now, waited_s() - waited))

    with Beside() as beside:
        task = asyncio.get_running_loop().create_task(turn())
        try:
            yield longest
        finally:
            task.cancel()
    longest[0] = max([min(beside.own(b, e), e - b - waited) for b, e, waited in pauses], default=0.0)


def rows_of(one, task="Partition 0"):
    store = one.worker.actors[task].state.store
    return 0 if store is None else len(list(store.range("kept")))


async def test_a_slow_disk_delays_commits_and_restores_and_nothing_else(job, topic, monkeypatch, capsys):
    """Rows come faster than 100 kB a second: the worker's loop goes on turning, so it is neither taken for dead nor deaf, and nothing is
    lost. Each portion fills a table of RocksDB, and is read as soon as something of the one before is committed.
    """
    monkeypatch.setattr("headgate.agents.worker.worker.StoreMemory", SlowDisk)
    inp = topic("in", 1)
    one = await job.start(keeping(job, inp))
    await one.until_running(1)

    def durable():
        return sum(one.worker.actors["Partition 0"].contribution.durable.values())

    written, said = 0, ""
    async with turning() as longest:
        while written < 1000 or ("wait for the disk" not in said and written < 10_000):
            before = durable()
            rows = [{"k": f"k{n}", "text": random.randbytes(500).hex()} for n in range(written, written + 250)]
            await job.write(inp, rows)
            written += 250
            await one.until(lambda before=before: durable() > before, "something of it is committed")
            said += capsys.readouterr().err
        await one.until(lambda: durable() == written, "all is committed")
        assert "wait for the disk" in said + capsys.readouterr().err
        assert rows_of(one) == written
        await one.stop()
        await asyncio.to_thread(shutil.rmtree, job.directory / "state")
        two = await job.start(keeping(job, inp))
        await two.until_running(1)
        assert rows_of(two) == written
    assert longest[0] < 1.5


async def test_a_store_that_fails_beside_the_letters_fails_its_task_and_no_other(job, topic, monkeypatch):
    """Upkeep writes to an idle store, and its disk is full: the task says so, and the worker goes on with its other one."""
    monkeypatch.setattr("headgate.agents.worker.housekeeping.TOUCH_AFTER", 1)
    inp = topic("in", 2)
    one = await job.start(keeping(job, inp))
    await one.until_running(2)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    one.worker.actors["Partition 0"].state.store._put = full
    await one.until(lambda: why(one), "the task has failed")
    assert "No space left on device" in why(one)
    assert "free some disk space" in why(one)
    await job.write(inp, [{"k": f"k{n}"} for n in range(100)])
    await one.until(lambda: rows_of(one, "Partition 1") > 0, "the other task works on")
    assert not one.task.done()


FULL = """
import resource, signal
import headgate as hg

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
app = hg.App("JOB")
app.input("IN", key="k").agg(n=hg.count(), last=hg.last("pad"), name="big").to("OUT")
"""


async def test_a_full_disk_fails_the_task_with_reason_and_remedy(job, topic):
    """A worker whose files may not grow: the store says so, the task has failed, the process lives and its page tells."""
    inp, out = topic("in", 1), topic("out", 1)
    source = FULL.replace("IN", inp).replace("OUT", out)
    one = await job.process(source)
    await job.write(inp, [{"k": "a", "pad": "x"}])
    await job.records(out, 1)
    resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE, (200_000, 200_000))
    await job.write(inp, [{"k": f"k{n}", "pad": uuid.uuid4().hex * 20} for n in range(3000)])

    async def told():
        while "accepts no write" not in one.text():
            assert one.process.returncode is None, one.text()[-3000:]
            await asyncio.sleep(0.05)

    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(told(), 240)
    text = one.text()
    assert "accepts no write" in text, text[-3000:]
    assert "free some disk space" in text
    assert one.process.returncode is None
    page = re.search(r"http://127\.0\.0\.1:\d+(?=\D)", text)
    assert page is not None
    async with asyncio.timeout(240), aiohttp.ClientSession() as web:
        while True:
            async with web.get(page[0] + "/api/status") as answer:
                [task] = (await answer.json())["tasks"]
            if task["said"] == "failed" and "accepts no write" in task["why"]:
                break
            await asyncio.sleep(0.05)
    assert one.process.returncode is None
