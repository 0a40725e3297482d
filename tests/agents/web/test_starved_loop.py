"""A main loop that does not turn: whether its own code holds it up, or the machine gives it no processor."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.agents.web import stuck
from headgate.agents.web.stuck import AFTER_S, Stuck


class Watched:
    """A loop that last turned at `turned_s`, seen by the thread's looks, and what was logged."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, listening: socket.socket) -> None:
        self.now_s = self.turned_s = 100.0
        self.runs = selectors.__file__
        self.said: list[tuple[str, str]] = []
        log = {
            level: lambda event, level=level, **_: self.said.append((level, event))
            for level in ("info", "warning", "error")
        }
        monkeypatch.setattr(stuck, "log", SimpleNamespace(**log))
        monkeypatch.setattr(stuck, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(stuck, "main_frame_file", lambda: self.runs)
        self.thread = Stuck(listening, lambda: self.turned_s, blocked=lambda: self.said.append(TOLD))

    def looks(self, seconds: float) -> bool:
        """It looks twice a second for so long. Whether it answers requests at the end."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += 0.5
            blocked = self.thread._blocked()
        return blocked


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    with socket.socket() as listening:
        one: Any = Watched(monkeypatch, listening)
        yield one
        one.thread._socket.close()


STARVED = ("warning", "the main loop is ready to run, but gets no processor time")
TOLD = ("told", "blocked")
BLOCKED = ("error", "the main loop is blocked")


def test_a_loop_that_waits_in_select_is_starved_and_not_blocked(watched: Watched) -> None:
    """On a busy machine `/livez` answered 503 with a stack in `select`, and a supervisor ended a healthy worker."""
    assert not watched.looks(4 * AFTER_S)
    assert watched.said == [STARVED]
    watched.turned_s = watched.now_s
    assert not watched.looks(AFTER_S - 1)
    assert watched.said == [STARVED]  # nothing was blocked, so nothing turns again
    assert not watched.looks(2 * AFTER_S)
    assert watched.said == [STARVED, STARVED]


def test_a_starved_loop_that_then_runs_user_code_for_long_is_blocked(watched: Watched) -> None:
    assert not watched.looks(2 * AFTER_S)
    watched.runs = "job.py"
    assert watched.looks(1.0)
    watched.runs = selectors.__file__
    assert not watched.looks(1.0)
    assert watched.said == [STARVED, TOLD, BLOCKED]
    watched.turned_s = watched.now_s
    assert not watched.looks(0.5)
    assert watched.said == [STARVED, TOLD, BLOCKED, ("info", "the main loop runs again")]
