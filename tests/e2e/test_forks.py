"""Processes that user code forks: they hold nobody up when their worker is told to go."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.asyncio,
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="this system has no /proc"),
]

FORKS = """
import multiprocessing, os, time
import headgate as hg

def by_hand():
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    return child

def by_library():
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True)
    child.start()
    return child.pid

app = hg.App("JOB")
app.input("IN").map(lambda value: {"child": WAY()}).to("OUT")
"""


def sleeps(pid: int) -> bool:
    """Whether this process is there and has not ended; its parent may not have asked for its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("way", ["by_hand", "by_library"])
async def test_a_worker_whose_user_code_has_forked_a_sleeper_ends_when_it_is_told(job, topic, way):
    """The child had the worker's handlers without the thread behind them, so no signal ended it, and the worker waited for it until its
    deadline and exited with 3.
    """
    inp, out = topic("in", 1), topic("out", 1)
    one = await job.process(FORKS.replace("IN", inp).replace("OUT", out).replace("WAY", way))
    await job.write(inp, [{"n": 1}])
    [said] = await job.values(out, 1, more_s=0)
    child = said["child"]
    try:
        assert sleeps(child)
        one.process.send_signal(signal.SIGTERM)
        assert await one.ended() == 0
        assert "stop within stop.timeout" not in one.text()
        if way == "by_hand":  # nobody ends it but who signals the whole group
            assert sleeps(child)
            os.kill(child, signal.SIGTERM)
        async with asyncio.timeout(240):
            while sleeps(child):  # noqa: ASYNC110 - the end of somebody else's process has no event
                await asyncio.sleep(0.05)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
