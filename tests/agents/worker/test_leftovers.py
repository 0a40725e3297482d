"""The worker's part of `state.cleanup-delay`: when it looks, what it says, and that no error of the disk ends it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace as Bag
from typing import Any

import pytest

from headgate.agents.state.leftovers import RemovedStore
from headgate.agents.worker import leftovers as tried
from headgate.agents.worker.leftovers import Leftovers

pytestmark = pytest.mark.asyncio


class Port:
    """Threads that are none, and a clock whose timers fire when they are told to."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Any]] = []
        self.clock = Bag(now=lambda: Bag(wall=5_000, mono=5.0), call_later=self._later)
        self.asked = asyncio.Event()

    def _later(self, delay_s: float, callback: Any, *arguments: Any) -> Any:
        timer = (delay_s, lambda: callback(*arguments))
        self.timers.append(timer)
        self.asked.set()
        return Bag(cancel=lambda: self.timers.remove(timer) if timer in self.timers else None)

    async def in_thread(self, work: Any) -> Any:
        return work()


async def test_it_looks_when_the_delay_is_over_and_at_once_when_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A delay of 0 looks never, and asks for no timer; before there is a run, no one can say whose a store is."""
    looked: list[tuple[str, float]] = []
    state: Any = Bag(run=None)
    port = Port()
    left: Any = Leftovers(Path("/none"), "w1", Bag(), port, 30.0)  # type: ignore[arg-type]

    async def look(_: Any, uuid: str) -> None:
        looked.append((uuid, left._delay_s))

    monkeypatch.setattr(left, "look", look)
    running = asyncio.get_running_loop().create_task(left.run(lambda: state))
    await port.asked.wait()
    assert [delay_s for delay_s, _ in port.timers] == [30.0]
    port.asked.clear()
    left.keep_for(5.0)
    await port.asked.wait()
    assert (looked, [delay_s for delay_s, _ in port.timers]) == ([], [5.0])
    state.run = Bag(job_uuid="u1")
    port.asked.clear()
    port.timers[0][1]()
    await port.asked.wait()
    assert looked == [("u1", 5.0)]
    left.keep_for(5.0)  # nothing new
    left.keep_for(0.0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert (looked, port.timers) == ([("u1", 5.0)], [])
    running.cancel()


async def test_an_error_of_the_disk_is_said_once_and_the_other_tasks_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was removed is counted all the same."""
    port = Port()
    left = Leftovers(Path("/none"), "w1", Bag(), port, 30.0)  # type: ignore[arg-type]
    monkeypatch.setattr(tried, "left_behind", lambda *_: {"a": 0, "b": 1})

    def removes(job: Path, owner: Any, *_: Any) -> list[RemovedStore]:
        if owner.task == "a":
            raise OSError("the disk is read only")
        return [RemovedStore("b", job / "tasks" / "b", 100, 60.0)]

    def removes_copies(job: Path, *_: Any) -> list[RemovedStore]:
        return [RemovedStore("the copy of table t", job / "copies" / "t" / "2", 50, 70.0)]

    monkeypatch.setattr(tried, "remove_left", removes)
    monkeypatch.setattr(tried, "remove_copies", removes_copies)
    for _ in range(2):
        await left.look(Bag(), "u1")  # type: ignore[arg-type]
    assert (left.removed, left.removed_bytes) == (4, 300)
    said = capsys.readouterr().err
    assert said.count("the store that 'a' has left behind cannot be removed: the disk is read only") == 1
    assert said.count("the task runs elsewhere, and nothing was written here for 60 s (state.cleanup-delay)") == 2
    assert said.count("no worker here uses this copy, and nothing was written here for 70 s (state.cleanup-delay)") == 2
