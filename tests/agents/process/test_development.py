"""What `headgate dev` does with the worker before, when other code replaces it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.process import development
from headgate.agents.process.requests import Outcome
from headgate.core.errors import DeadlinePassed, HeadgateError

TAKES_S = 30.0
"""How long the drain of this run takes."""


class Working:
    """A worker that works until it is ended."""

    alive = True

    def __init__(self) -> None:
        self.offer = development.Offer("sales", "", {}, ())
        self.over = asyncio.Event()
        self.process = self

    async def wait(self) -> int:
        await self.over.wait()
        return 0

    async def end(self) -> int:
        self.over.set()
        return 0


def test_a_run_that_takes_half_a_minute_to_drain_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it stays open, and the new code cannot begin."""

    async def ask(*_: object, timeout_s: float, **__: object) -> Outcome:
        if timeout_s < TAKES_S:
            raise DeadlinePassed("not yet drained")
        return Outcome("u1", "done")

    async def closed() -> list[HeadgateError]:
        shown: list[HeadgateError] = []
        work = development.Development([], ClientSettings(bootstrap="127.0.0.1:1"), tmp_path, 1, print, shown.append)
        await work._close(worker := Working())  # type: ignore[arg-type]
        assert worker.over.is_set()
        return shown

    monkeypatch.setattr(development, "ask", ask)
    assert asyncio.run(closed()) == []
