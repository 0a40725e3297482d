"""kill -9 of a real process: how much of the task log its successor on the same disk replays, in numbers."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil

import aiohttp
import orjson
import pytest

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
KEYS = 100
ROUNDS = 20
SOURCE = """
import headgate as hg

app = hg.App("JOB")
app.input("IN", key="k").agg(n=hg.count(), name="counts").to("OUT")
"""


async def replayed(one):
    """How many records of its log the task of this worker took in, once it runs."""
    async with asyncio.timeout(240), aiohttp.ClientSession() as web:
        while True:
            assert one.process.returncode is None, one.text()[-3000:]
            page = re.search(r"http://127\.0\.0\.1:\d+(?=\D)", one.text())
            if page is not None:
                with contextlib.suppress(aiohttp.ClientError):  # the port is known before anybody listens
                    async with web.get(page[0] + "/api/status") as answer:
                        tasks = (await answer.json())["worker"]["tasks"]
                    if [task["state"] for task in tasks] == ["running"]:
                        return tasks[0]["restore"]["records"] if tasks[0]["restore"] else 0
            await asyncio.sleep(0.02)


async def logged(job):
    """Committed records of the task log."""
    return len(await job.records(job.topics.log, 1))


async def test_a_restart_replays_the_difference_and_a_lost_disk_everything(job, topic):
    """Twenty commits of a hundred keys: behind a kill -9 at most two of them are replayed, however long the log has become; without
    its disk the successor replays all of it; every count is right."""
    inp, out = topic("in", 1), topic("out", 1)
    source = SOURCE.replace("IN", inp).replace("OUT", out)
    one = await job.process(source)
    for turn in range(1, ROUNDS + 1):
        await job.write(inp, [{"k": f"k{n}"} for n in range(KEYS)])
        await job.records(out, turn * KEYS, more_s=0)
    one.kill()
    await one.ended()
    log = await logged(job)
    assert log > ROUNDS * KEYS
    two = await job.process(source)
    assert await replayed(two) <= 2 * (KEYS + 10)
    two.kill()
    await two.ended()
    shutil.rmtree(job.directory / "state")
    three = await job.process(source)
    assert await replayed(three) >= log
    await job.write(inp, [{"k": f"k{n}"} for n in range(KEYS)])
    try:
        found = await job.records(out, (ROUNDS + 1) * KEYS, within_s=240)
    except AssertionError as error:
        raise AssertionError(three.text()[-6000:]) from error
    assert {r.key: orjson.loads(r.value)["n"] for r in found} == {f"k{n}".encode(): ROUNDS + 1 for n in range(KEYS)}
