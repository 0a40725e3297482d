"""Starts of tasks that are overtaken: between `Start` and the actor lies time, and much may happen in it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

import headgate as hg
from headgate.agents.process.configuration import CommandLine, configure
from headgate.agents.process.launch import Identity, Seat, worker_options
from headgate.agents.worker.worker import Worker
from headgate.core.orders import Abandon, RunView, Start

TASK = "Partition 0"


@pytest_asyncio.fixture
async def worker(tmp_path: Path) -> Any:
    """A worker that has a task which is about to end, and no producer: it was lost a moment ago."""
    app = hg.App("overtaken", serde=hg.json())
    app.input("orders").to("copies")
    said = CommandLine("127.0.0.1:1", settings={"state.dir": str(tmp_path), "state.memory": "48MiB"})
    options = worker_options(
        app,
        configure(said, environ={}, directory=tmp_path),
        Seat("w1", True),
        Identity(),
        root=tmp_path / "overtaken-1",
    )
    worker = Worker(options)
    worker.actors[TASK] = SimpleNamespace(ended=asyncio.Event(), site=SimpleNamespace(pipeline=None))  # type: ignore[assignment]
    yield worker
    for task in list(worker.host.spawned):
        task.cancel()


async def settled(worker: Worker) -> None:
    """Until every start that can go on has gone on."""
    if worker.host.spawned:
        await asyncio.wait(list(worker.host.spawned), timeout=60.0)


@pytest.mark.asyncio
async def test_settings_of_one_worker_reach_it(worker: Worker) -> None:
    """They are not written into the run, and count nevertheless."""
    assert worker.memory.limit + worker.memory.decoded.limit == 48 << 20
    assert "state.memory" not in worker.settings.given


def start(grant: int) -> Start:
    return Start(TASK, grant, RunView("r1", "u1"), 0)


@pytest.mark.asyncio
async def test_a_start_that_is_called_off_while_its_predecessor_ends_begins_nothing(worker: Worker) -> None:
    """The producer was lost meanwhile. The worker goes on; it does not fall over the missing producer."""
    old: Any = worker.actors[TASK]
    worker.runtime.granted.tell(TASK, start(1))
    worker.runtime.granted.tell(TASK, Abandon("fenced"))
    worker.runtime.granted.gone(TASK)
    old.ended.set()
    await settled(worker)
    assert (worker._crash, worker.actors, worker.runtime.granted.waiting) == (None, {}, {})


@pytest.mark.asyncio
async def test_of_two_starts_that_wait_only_the_last_counts(worker: Worker) -> None:
    """Both wait for the same predecessor; two actors of one task would be two owners."""
    old: Any = worker.actors[TASK]
    worker.runtime.granted.tell(TASK, start(1))
    worker.runtime.granted.tell(TASK, Abandon("fenced"))
    worker.runtime.granted.tell(TASK, start(2))
    worker.runtime.granted.tell(TASK, Abandon("fenced"))
    worker.runtime.granted.gone(TASK)
    old.ended.set()
    await settled(worker)
    assert (worker._crash, worker.actors, worker.runtime.granted.waiting) == (None, {}, {})
