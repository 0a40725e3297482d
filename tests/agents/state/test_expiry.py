"""When a task deletes what has expired."""

from __future__ import annotations

import asyncio

from headgate.agents.state.expiry import Expiry
from headgate.agents.state.table import Expired


class Task:
    """Has so many keys that have expired; a share is ten of them."""

    def __init__(self, keys: int) -> None:
        self.keys, self.works, self.changes = keys, True, 0
        self.failures: list[BaseException] = []
        self.expiry = Expiry(lambda: self.works, self.share, self.changed, self.failures.append)

    def share(self) -> Expired:
        gone = min(10, self.keys)
        self.keys -= gone
        return Expired(gone, gone, self.keys > 0)

    def changed(self) -> None:
        self.changes += 1


async def turns(most: int = 100) -> None:
    for _ in range(most):
        await asyncio.sleep(0)


def test_an_idle_task_works_off_all_that_is_due_in_one_go() -> None:
    """One share a look, which comes once a second: what expired faster than that was kept for ever."""

    async def life() -> Task:
        task = Task(105)
        task.expiry.look()
        await turns()
        return task

    task = asyncio.run(life())
    assert (task.keys, task.changes) == (0, 11)


def test_a_busy_task_takes_a_share_after_each_letter() -> None:
    """It waited for a moment without a letter, which never came: a table under load only grew."""

    async def life() -> list[int]:
        task, left = Task(105), []
        task.works = False  # a letter is under way when somebody looks, and another one follows each at once
        task.expiry.look()
        for _ in range(4):
            task.works = True
            task.expiry.go_on()
            task.works = False
            await turns()
            left.append(task.keys)
        return left

    assert asyncio.run(life()) == [95, 85, 75, 65]


def test_a_store_that_fails_is_its_tasks_failure() -> None:
    """A full disk ended the whole worker, with all tasks whose disks were well."""

    async def life() -> Task:
        task = Task(5)
        task.expiry = Expiry(lambda: True, broken, task.changed, task.failures.append)
        task.expiry.look()
        with task.expiry.alone():
            raise OSError("No space left on device")
        return task

    def broken() -> Expired:
        raise OSError("No space left on device")

    assert len(asyncio.run(life()).failures) == 2
