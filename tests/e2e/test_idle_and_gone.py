"""A task that was idle goes away, and what its partition gets meanwhile is not late: what was idle outlives nobody."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterable

import orjson
import pytest

from headgate.agents.cli.options import Target
from headgate.agents.cli.see.status import read
from headgate.agents.process.configuration import CommandLine, configure
from headgate.core.errors import NotFound
from headgate.core.names import JobName

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

WINDOWS = """
import headgate as hg

idle = {"watermark.idle-timeout": "500ms", "watermark.idle-confirm": "200ms"}
app = hg.App("JOB", settings={**idle, "placement.rejoin-grace": "10m"})  # elsewhere, its task would be idle, and what comes would be late
rows = app.input("IN", timestamp="ts", max_future=None).repartition("k", partitions=2)
rows.window(hg.tumbling("1s"), late="LATE").agg(n=hg.count()).to("OUT")
"""
WAIT_S = 240


async def owners(job) -> dict[str, str]:
    """Who runs which task."""
    with contextlib.suppress(NotFound):  # the first worker has not begun
        found = await read(Target(JobName(job.name), job.topics, configure(CommandLine(job.bootstrap))))
        return {one["task"]: one["worker"] for one in found["tasks"] if one["state"] == "running"}
    return {}


async def closed(job, out) -> dict[int, int]:
    """By the beginning of a window: how many rows its results count."""
    found: dict[int, int] = {}
    for record in await job.records(out, 0, more_s=0.1):
        value = orjson.loads(record.value)
        found[value["window_start"]] = found.get(value["window_start"], 0) + value["n"]
    return found


async def test_what_comes_to_an_idle_partition_while_its_worker_is_away_is_not_late(job, topic):
    """Time went on without the task that had been idle once: an ordinary rolling restart lost hundreds of rows as late."""
    inp, out, late = topic("in", 2), topic("out"), topic("late")
    source = WINDOWS.replace("IN", inp).replace("OUT", out).replace("LATE", late)
    workers = {name: await job.process(source, name) for name in ("w1", "w2")}
    give_up = time.monotonic() + WAIT_S
    while len(set((found := await owners(job)).values())) < 2:
        assert time.monotonic() < give_up, [one.text()[-1000:] for one in workers.values()]
    quiet = found["Partition 1"]
    now_ms = 10_000
    await job.write(inp, [{"ts": now_ms, "k": f"{n}"} for n in range(4)], partition=1)

    async def until_closed(windows: Iterable[int], what: str) -> dict[int, int]:
        """Write to the busy partition alone until these windows are out, from whichever task their keys are at."""
        nonlocal now_ms
        while not set(windows) <= set(found := await closed(job, out)):
            assert time.monotonic() < give_up, (what, found, [one.text()[-1500:] for one in workers.values()])
            now_ms += 250
            await job.write(inp, [{"ts": now_ms, "k": f"{now_ms % 7}"}], partition=0)
        return found

    await until_closed([12_000], "the idle partition holds nobody")
    workers[quiet].process.send_signal(signal.SIGTERM)
    await workers[quiet].ended()
    both = range(now_ms, now_ms + 60_000, 500)
    for ts in both:
        await job.write(inp, [{"ts": ts, "k": f"{ts % 5}"}], partition=0)  # one after the other: each moves time
    await job.write(inp, [{"ts": ts, "k": f"{ts % 3}"} for ts in both], partition=1)
    now_ms = both[-1]
    workers["again"] = await job.process(source, quiet)
    windows = range(both[0] // 1000 * 1000 + 1000, both[-1] // 1000 * 1000, 1000)
    found = await until_closed(windows, "time goes on when its task is back")
    while any(found[window] < 4 for window in windows):  # each of the two tasks commits for itself
        assert time.monotonic() < give_up, found
        found = await closed(job, out)
    assert {found[window] for window in windows} == {4}
    assert await job.records(late, 0, more_s=0.5) == []
