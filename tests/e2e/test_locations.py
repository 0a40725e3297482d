"""Workers of one location: a task that moves between them replays only the difference, counted in records; what a wrong promise costs; and
what becomes of the stores that tasks leave behind.

On the real broker. Two tasks with a table each; their logs are far longer than what is still to be replayed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import time
from types import MappingProxyType

import aiohttp
import orjson
import pytest

import headgate as hg
from headgate.agents.state.rocks import open_rocks
from headgate.agents.state.store import Owner
from headgate.agents.status.metrics import render
from headgate.core.coordination.leader.plan import GRACE_S

from .scenes import COUNTS
from .schemas import schema, wrong
from .test_skipped_records import command

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


RACKS = ("--set", "location.provider=env:RACK")


def disk(job, number):
    """The words that give a worker a disk of its own."""
    return "--state-dir", str(job.directory / f"disk-{number}")


async def one_each(fleet, *words, first=MappingProxyType({}), second=MappingProxyType({}), other=()):
    """Two workers with a task each, after ten rounds. `first`, `second`: their environments; `other`: further words of the second."""
    one = await fleet.worker("w1", *words, **first)
    await until_running(one, 2)
    two = await fleet.worker("w2", *words, *other, **second)
    await until_running(two, 1)
    await until_running(one, 1)
    await fleet.write(ROUNDS)
    return one, two


@pytest.mark.parametrize("how", ["SIGTERM", "kill -9"])
async def test_the_tasks_of_a_worker_that_goes_continue_on_the_disk_that_a_sibling_shares(job, topic, how):
    """In order it leaves nothing to replay. Killed, it leaves at most two commits, of the ten rounds that the log holds. With
    `placement.rejoin-grace=auto` the sibling does not wait for the return of one that goes in order.
    """
    fleet = Fleet(job, topic, COUNTS)
    auto = ("--set", "placement.rejoin-grace=auto") if how == "SIGTERM" else ()
    one, two = await one_each(fleet, *auto)
    (moved,) = await running(two)
    two.process.send_signal(signal.SIGKILL if how == "kill -9" else signal.SIGTERM)
    await two.ended()
    gone = time.monotonic()
    found = await until_running(one, 2)
    assert time.monotonic() - gone < GRACE_S or not auto
    assert found[moved] <= (TWO_COMMITS if how == "kill -9" else 0)
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


async def test_a_task_that_moves_to_another_disk_is_prepared_there_and_replays_only_the_difference(job, topic):
    """Two machines. Each task's log holds ten rounds; what is replayed under the grant is what was written after the store was near the
    end. With `placement.prepare=0s` nothing is prepared, and nothing is lost or counted twice, either.
    """
    fleet = Fleet(job, topic, COUNTS)
    one, two = await one_each(
        fleet, *RACKS, *disk(job, 1), first={"RACK": "a"}, second={"RACK": "b"}, other=disk(job, 2)
    )
    (mine,), (moved,) = await running(one), await running(two)
    assert (await job.ask("move", task=moved, to="w1")).state == "done"
    found, given = await until_exchanged(one, two, moved, mine)
    assert found[moved] <= TWO_COMMITS
    assert given[mine] <= TWO_COMMITS
    assert "a task log is followed" in one.text()
    await job.ask("set-config", setting="placement.prepare", value="0s")
    await job.ask("move", task=moved, to="w2")
    await until_exchanged(one, two, mine, moved)
    await fleet.right()


async def test_a_worker_that_is_told_to_leave_works_on_until_its_task_is_prepared_elsewhere(job, topic):
    """With `stop.prepare` a SIGTERM is a planned move of all that it has: no wait for its return, and no restore from the beginning. Both
    workers are restarted one after the other so, and no task ever replays more than the difference."""
    fleet = Fleet(job, topic, COUNTS)
    settings = ("--set", "stop.prepare=10m", "--set", "placement.rejoin-grace=10m")
    one, two = await one_each(
        fleet, *RACKS, *settings, *disk(job, 1), first={"RACK": "a"}, second={"RACK": "b"}, other=disk(job, 2)
    )
    (moved,) = await running(two)
    two.process.send_signal(signal.SIGTERM)
    assert await two.ended() == 0
    assert (await until_running(one, 2))[moved] <= TWO_COMMITS
    assert "a task log is followed" in one.text()
    assert '"why": "prepared"' in one.text() + two.text()
    await fleet.write(ROUNDS)
    again = await fleet.worker("w2", *RACKS, *settings, *disk(job, 2), RACK="b")
    (back,) = (await until_running(again, 1)).values()
    assert back <= TWO_COMMITS
    await until_running(one, 1)
    one.process.send_signal(signal.SIGTERM)
    assert await one.ended() == 0
    assert max((await until_running(again, 2)).values()) <= TWO_COMMITS
    await fleet.right()
    again.process.send_signal(signal.SIGTERM)  # no other one is left to wait for
    assert await again.ended() == 0


async def test_a_worker_that_is_stopped_by_command_works_on_until_its_task_is_prepared_elsewhere(job, topic):
    """With `stop.prepare`, `headgate stop --worker` is what a SIGTERM is. The command says what it waits for, and ends when the worker has
    gone. Its task has replayed no more than the difference, although its own disk is not there any more."""
    fleet = Fleet(job, topic, COUNTS)
    settings = ("--set", "stop.prepare=10m", "--set", "placement.rejoin-grace=10m")
    one, two = await one_each(
        fleet, *RACKS, *settings, *disk(job, 1), first={"RACK": "a"}, second={"RACK": "b"}, other=disk(job, 2)
    )
    (moved,) = await running(two)
    said, code = await command(job, "stop", job.name, "--worker", "w2", "--for-good", "--wait", "--timeout", "200s")
    assert (code, await two.ended()) == (0, 0)
    assert f"stop of {job.name}: done" in said
    assert (await until_running(one, 2))[moved] <= TWO_COMMITS
    assert '"why": "prepared"' in one.text() + two.text()
    assert "leaving: for good; others prepare its tasks" in two.text()
    await fleet.right()
    said, code = await command(job, "stop", job.name, "--worker", "w1", "--wait", "--timeout", "200s")
    assert await one.ended() == 0  # no other one is left to wait for, and none to answer


async def test_a_standby_takes_over_the_tasks_of_a_worker_that_is_killed_with_its_disk(job, topic):
    """It has followed the log on a disk of its own. What it replays are the last commits, of the ten rounds that the log holds."""
    fleet = Fleet(job, topic, COUNTS)
    one, two = await one_each(
        fleet, *RACKS, *disk(job, 1), first={"RACK": "a"}, second={"RACK": "b"}, other=disk(job, 2)
    )
    (moved,) = await running(two)
    assert (await job.ask("set-config", setting="standby", value="1")).state == "done"
    async with asyncio.timeout(60):
        while not followed(one, moved):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
    said, _ = await command(job, "status", job.name, "-o", "json")
    assert [task["standby"] for task in json.loads(said)["tasks"] if task["task"] == moved] == ["w1"]
    words = ["plan", "the_job:app", "--app-dir", str(job.directory), "--workers", "2"]
    planned, code = await command(job, *words, "-o", "json")
    document, _ = json.JSONDecoder().raw_decode(planned[planned.index("{") :])
    assert (code, wrong(document, schema("plan"))) == (0, [])
    assert {task["task"]: (task["worker"], task["standby"]) for task in document["tasks"]}[moved] == ("w2", "w1")
    assert "STANDBY" in (await command(job, *words))[0]
    two.kill()
    await two.ended()
    found = await until_running(one, 2)
    assert found[moved] <= TWO_COMMITS
    await fleet.right()


def followed(one, task):
    """Whether a worker has said that it follows the log of a task."""
    return any(f'"task": "{task}"' in line for line in one.text().splitlines() if "a task log is followed" in line)


async def until_exchanged(one, two, first, second):
    """What `running` says of both once one runs `first` and the other `second`."""
    async with asyncio.timeout(240):
        while [list(found := await running(one)), list(given := await running(two))] != [[first], [second]]:  # noqa: ASYNC110 - others
            await asyncio.sleep(0.02)
    return found, given


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


async def test_a_wrong_promise_ends_no_worker_of_the_same_id(job, topic):
    """Two machines of one name claim one location. The lock file of the second is free, but it is on another disk: the first lives. So the
    second does not start, and says why; the first goes on with the same incarnation.
    """
    fleet = Fleet(job, topic, COUNTS)
    claim = ("--set", "location.provider=env:RACK")
    one = await fleet.worker("w1", *claim, "--state-dir", str(job.directory / "disk-1"), RACK="rack-1")
    await until_running(one, 2)
    await fleet.write(1)
    two = await fleet.worker("w1", *claim, "--state-dir", str(job.directory / "disk-2"), RACK="rack-1")
    assert await two.ended() == 1
    assert "is still running" in two.text()
    await fleet.right()
    assert len(await running(one)) == 2
    assert "000002-" not in one.text()


def stores(job, disk):
    """The tasks that have a store on this disk."""
    return sorted(path.parent.name for path in (disk / f"{job.name}-1" / "tasks").glob("*/db"))


async def shown(job, inp, out, *workers):
    """`headgate status` and `headgate plan` say where each worker is, and where the last state of each task is."""
    at = {task: one.worker.options.location for one in workers for task in one.states()}
    said, code = await command(job, "status", job.name, "-o", "json")
    document, _ = json.JSONDecoder().raw_decode(said[said.index("{") :])
    assert (code, wrong(document, schema("status"))) == (0, [])
    assert {one["task"]: one["location"] for one in document["tasks"]} == at
    said, code = await command(job, "status", job.name)
    rows = [line.split() for line in said.splitlines()]
    assert [row[:6] for row in rows if row[:1] == ["WORKER"]] == [
        ["WORKER", "STATE", "READY", "HEARD", "TASKS", "LOCATION"]
    ]
    assert {row[0]: row[5] for row in rows if row and row[0] in ("w1", "w2")} == {"w1": "rack-1", "w2": "rack-2"}
    assert {" ".join(row[:2]): row[5] for row in rows if row[:1] == ["Partition"]} == at

    source = COUNTS.replace("JOB", job.name).replace("IN", inp).replace("OUT", out)
    (job.directory / "planned_job.py").write_text(source)
    words = ["plan", "planned_job:app", "--app-dir", str(job.directory), "--workers", "2"]
    said, code = await command(job, *words, "-o", "json")
    document, _ = json.JSONDecoder().raw_decode(said[said.index("{") :])
    assert (code, wrong(document, schema("plan"))) == (0, [])
    assert document["locations"] == [{"worker": f"w{n}", "location": f"rack-{n}"} for n in (1, 2)]
    where = {one["worker"]: one["location"] for one in document["locations"]}
    assert {one["task"]: one["location"] for one in document["tasks"]} == at
    assert {one["task"]: where[one["worker"]] for one in document["tasks"]} == at
    said, code = await command(job, *words)
    rows = [line.split() for line in said.splitlines() if line.startswith("Partition")]
    assert {" ".join(row[:2]): row[3:5] for row in rows} == {task: [place, place] for task, place in at.items()}


async def test_what_tasks_leave_behind_is_removed_after_the_delay_and_nothing_else(job, topic, capsys):
    """Two workers with disks of their own exchange their tasks. Each keeps the store that its task has left, until an operator shortens
    `state.cleanup-delay`: then it is removed, counted and logged, a store of another job stays, and a task that returns restores.
    """
    inp, out = topic("in", 2), topic("out", 2)

    def counting():
        app = hg.App(job.name)
        app.input(inp, key="k").agg(n=hg.count(), name="counts").to(out)
        return app

    disks = [job.directory / name for name in ("disk-1", "disk-2")]
    one = await job.start(counting(), "w1", state_dir=disks[0], location="rack-1")
    await one.until_running(2)
    two = await job.start(counting(), "w2", state_dir=disks[1], location="rack-2")
    await two.until_running(1)
    await one.until_running(1)
    for partition in (0, 1):
        await job.write(inp, [{"k": f"{partition}-{n}"} for n in range(KEYS)], partition=partition)
    await job.records(out, 2 * KEYS)
    (mine,), (moved,) = one.states(), two.states()
    await job.ask("move", task=moved, to="w1")
    await one.until(lambda: one.states() == {moved: "running"}, "it runs here")
    await two.until(lambda: two.states() == {mine: "running"}, "the other runs there")
    both = ["Partition-0", "Partition-1"]
    assert [stores(job, disk) for disk in disks] == [both, both]
    other = open_rocks(
        disks[0] / f"{job.name}-1" / "spares" / mine.replace(" ", "-") / "1", one.worker.memory, Owner("x")
    )
    other.close()

    await job.ask("set-config", setting="state.cleanup-delay", value="1s")
    for worker in (one, two):
        await worker.until(lambda worker=worker: worker.worker.leftovers.removed == 1, "what was left is removed")
        assert worker.worker.leftovers.removed_bytes > 0
    assert [stores(job, disk) for disk in disks] == [[moved.replace(" ", "-")], [mine.replace(" ", "-")]]
    assert (other.path / "db").exists()
    said = capsys.readouterr().err
    assert said.count("the task runs elsewhere, and nothing was written here for") == 2
    assert "headgate_stores_removed_total" in render(one.worker).decode()

    await job.ask("set-config", setting="state.cleanup-delay", value="0s")
    await job.ask("set-config", setting="placement.prepare", value="0s")  # what it replays is counted where it starts
    await job.ask("move", task=moved, to="w2")
    await two.until(lambda: two.states() == {moved: "running"}, "it is back")
    assert two.worker.actors[moved].state.replayed >= KEYS
    for partition in (0, 1):
        await job.write(inp, [{"k": f"{partition}-{n}"} for n in range(KEYS)], partition=partition)
    last = {record.key: orjson.loads(record.value)["n"] for record in await job.records(out, 4 * KEYS)}
    assert set(last.values()) == {2}
    assert len(last) == 2 * KEYS
