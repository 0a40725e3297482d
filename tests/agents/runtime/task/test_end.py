"""How a task is put down."""

from __future__ import annotations

import asyncio
from typing import Any

from headgate.agents.runtime.task.end import TaskEnd


class Log:
    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def error(self, event: str, *, part: str, **_: Any) -> None:
        self.said.append((event, part))


async def shut_down(*steps: Any, limit_s: float = 30.0) -> list[tuple[str, str]]:
    log = Log()
    await TaskEnd(log, lambda: limit_s).shut_down(*steps[:-1], last=steps[-1])
    return log.said


def test_a_step_that_raises_keeps_none_from_being_done() -> None:
    """Else the store of a task whose intake did not close would stay locked, and its next owner would restore it from nothing."""
    done: list[str] = []

    def at_once() -> None:
        raise ValueError("at once")

    async def later() -> None:
        raise ValueError("later")

    found = asyncio.run(shut_down(("a", at_once), ("b", later), ("store", lambda: done.append("store"))))
    assert done == ["store"]
    assert found == [("the task did not shut down cleanly", part) for part in "ab"]


def test_a_step_that_is_cancelled_is_said() -> None:
    """A client library that cancels what a hook awaits at its end left half of the hook undone, and nobody knew."""

    async def torn() -> None:
        raise asyncio.CancelledError

    found = asyncio.run(shut_down(("user code", torn), ("store", lambda: None)))
    assert found == [("a part of the task was cancelled at shutdown", "user code")]


def test_a_step_that_does_not_end_is_left_behind() -> None:
    """A hung `on_stop` held its task, a release and a drain for ever."""
    done: list[str] = []

    async def life() -> list[tuple[str, str]]:
        let_go = asyncio.Event()

        async def hangs() -> None:
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    done.append("cancelled")

        try:
            async with asyncio.timeout(20):
                found = await shut_down(("user code", hangs), ("store", lambda: done.append("store")), limit_s=0.01)
            await asyncio.sleep(0)
            return found
        finally:
            let_go.set()

    assert asyncio.run(life()) == [("a part of the task does not stop and is abandoned", "user code")]
    assert done[0] == "store"


def test_it_is_put_down_once_and_whole() -> None:
    """A release that is overtaken by the end of the worker must not leave half of a task: a store that is open, a hook that runs twice."""
    done: list[str] = []

    async def life() -> None:
        end, slow, began = TaskEnd(Log(), lambda: 30.0), asyncio.Event(), asyncio.Event()

        async def hook() -> None:
            began.set()
            await slow.wait()
            done.append("hook")

        steps: Any = {"last": ("store", lambda: done.append("store"))}
        first = asyncio.create_task(end.shut_down(("user code", hook), **steps))  # noqa: TID251 - its cancellation is the test
        await began.wait()
        first.cancel()
        slow.set()
        await end.shut_down(**steps)

    asyncio.run(life())
    assert done == ["hook", "store"]
