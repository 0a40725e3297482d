"""A worker that finds its run closed: what it says, and when it says nothing."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.agents.cli.start.run import Waiting

CLOSED = "run r1 is drained"
SAID = (
    f"Waiting: {CLOSED}.\nTo continue: `headgate start sales` begins the next run, and so does `headgate run` with a new --run-id, "
    "a new --deployment or another graph\n"
)


async def say(why: str, *, state: str = "drained") -> None:
    """A worker finds its run closed; in the next moment, this is why it is not ready."""
    worker: Any = SimpleNamespace(participant=SimpleNamespace(why=CLOSED))
    waiting = Waiting(worker, "sales", after_s=0)
    waiting(CLOSED, state, "")
    waiting(CLOSED, state, "")
    worker.participant.why = why
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, over.set)
    await over.wait()


@pytest.mark.parametrize(
    ("why", "said"),
    [
        pytest.param(CLOSED, SAID, id="it waits, and says once what goes on"),
        pytest.param("waiting for its tasks", "", id="its own leader has begun the next run at once"),
    ],
)
def test_who_waits_says_so_and_who_goes_on_does_not(why: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`--bounded` and a new `--run-id` begin the next run: `headgate start` is no advice then."""
    asyncio.run(say(why))
    assert capsys.readouterr().err == said


def test_a_worker_that_leaves_says_nothing_more(capsys: pytest.CaptureFixture[str]) -> None:
    async def leave() -> None:
        waiting = Waiting(SimpleNamespace(participant=SimpleNamespace(why=CLOSED)), "sales", after_s=0)
        waiting(CLOSED, "drained", "")
        waiting.no_more()
        await asyncio.sleep(0.01)

    asyncio.run(leave())
    assert capsys.readouterr().err == ""
