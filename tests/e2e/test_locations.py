"""Workers of one location: a task that moves between them replays only the difference, counted in records; and what a wrong promise costs.

Processes of their own, on the real broker. Two tasks with a table each; their logs are far longer than what is still to be replayed.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from types import MappingProxyType

import aiohttp
import orjson
import pytest

from .scenes import COUNTS

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
KEYS = 100
ROUNDS = 10
TWO_COMMITS = 2 * (KEYS + 10)
"""So much a process that is killed may not have written to its disk."""


class Fleet:
    """Workers of one job that counts records by key, in two tasks."""

    def __init__(self, job, topic, source):
        self.job, self.inp, self.out = job, topic("in", 2), topic("out", 2)
        self.source = source.replace("IN", self.inp).replace("OUT", self.out)
        self.rounds = 0

    async def worker(self, processor, *words, **environment):
        return await self.job.process(self.source, processor, *words, **environment)

    async def write(self, rounds):
        """Each round is a commit, or two, of all keys of both tasks."""
        for _ in range(rounds):
            self.rounds += 1
            for partition in (0, 1):
                rows = [{"k": f"{partition}-{n}"} for n in range(KEYS)]
                await self.job.write(self.inp, rows, partition=partition)
            await self.job.records(self.out, self.rounds * 2 * KEYS, more_s=0)

    async def right(self):
        """One more round; then every key has been counted once in each."""
        await self.write(1)
        found = await self.job.records(self.out, self.rounds * 2 * KEYS)
        counts = {record.key: orjson.loads(record.value)["n"] for record in found}
        assert counts == {f"{p}-{n}".encode(): self.rounds for p in (0, 1) for n in range(KEYS)}


async def running(one):
    """The tasks that run in this worker, with how many records of its log each has taken in; empty before it says."""
    assert one.process.returncode is None, one.text()[-3000:]
    page = re.search(r"http://127\.0\.0\.1:\d+(?=\D)", one.text())
    if page is None:
        return {}
    with contextlib.suppress(aiohttp.ClientError):  # the port is known before anybody listens
        async with aiohttp.ClientSession() as web, web.get(page[0] + "/api/status") as answer:
            tasks = [task for task in (await answer.json())["worker"]["tasks"] if task["state"] == "running"]
            return {task["task"]: task["restore"]["records"] if task["restore"] else 0 for task in tasks}
    return {}


async def until_running(one, number):
    """What `running` says as soon as the worker runs so many tasks."""
    async with asyncio.timeout(240):
        while len(found := await running(one)) != number:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)
    return found


async def one_each(fleet, *words, first=MappingProxyType({}), second=MappingProxyType({})):
    """Two workers with a task each, after ten rounds. `first`, `second`: their environments."""
    one = await fleet.worker("w1", *words, **first)
    await until_running(one, 2)
    two = await fleet.worker("w2", *words, **second)
    await until_running(two, 1)
    await until_running(one, 1)
    await fleet.write(ROUNDS)
    return one, two


@pytest.mark.parametrize("how", ["SIGTERM", "kill -9"])
async def test_the_tasks_of_a_worker_that_goes_continue_on_the_disk_that_a_sibling_shares(job, topic, how):
    """In order it leaves nothing to replay. Killed, it leaves at most two commits, of the ten rounds that the log holds."""
    fleet = Fleet(job, topic, COUNTS)
    one, two = await one_each(fleet)
    (moved,) = await running(two)
    two.process.send_signal(signal.SIGTERM if how == "SIGTERM" else signal.SIGKILL)
    await two.ended()
    found = await until_running(one, 2)
    assert found[moved] <= (0 if how == "SIGTERM" else TWO_COMMITS)
    await fleet.right()


async def test_a_task_that_is_moved_by_command_continues_on_the_disk_that_both_workers_share(job, topic):
    """`headgate move` exchanges the two tasks, for balance. Neither replays anything."""
    fleet = Fleet(job, topic, COUNTS)
    one, two = await one_each(fleet)
    (mine,), (moved,) = await running(one), await running(two)
    assert (await job.ask("move", task=moved, to="w1")).state == "done"
    async with asyncio.timeout(240):
        while [list(found := await running(one)), list(given := await running(two))] != [[moved], [mine]]:  # noqa: ASYNC110 - others
            await asyncio.sleep(0.02)
    assert (found, given) == ({moved: 0}, {mine: 0})
    await fleet.right()


async def test_a_wrong_promise_costs_a_restore_and_nothing_else(job, topic):
    """Two workers claim one location and have different disks. What one had, the other restores from the log, and every count is right."""
    fleet = Fleet(job, topic, COUNTS)
    claim = ("--set", "location.provider=env:RACK")
    own = [str(job.directory / name) for name in ("disk-1", "disk-2")]
    one = await fleet.worker("w1", *claim, "--state-dir", own[0], RACK="rack-1")
    await until_running(one, 2)
    two = await fleet.worker("w2", *claim, "--state-dir", own[1], RACK="rack-1")
    (moved,) = await until_running(two, 1)
    await until_running(one, 1)
    await fleet.write(ROUNDS)
    two.kill()
    await two.ended()
    found = await until_running(one, 2)
    assert found[moved] >= ROUNDS * KEYS
    await fleet.right()
