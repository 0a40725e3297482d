"""What does not answer is said in one line at a time, and ever more rarely."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.agents.port import absence
from headgate.agents.port.absence import Absence, Unread


class Clock:
    """A time that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Log:
    """What was said."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []
        self.twice = asyncio.Event()

    def warning(self, text: str, **fields: Any) -> None:
        self.said.append((text, fields))
        if len(self.said) == 2:
            self.twice.set()

    info = warning


def test_brokers_that_do_not_answer_are_said_within_seconds_and_then_more_rarely(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Two minutes away, asked by ten clients each second: a handful of lines, the first after three seconds."""
    monkeypatch.setattr(absence, "configured", lambda: False)
    clock = Clock()
    brokers = Absence(clock)
    lines: list[int] = []
    for second in range(120):
        for client in range(10):
            brokers.missed(f"client {client}", "refused", "look")
        if capsys.readouterr().err:
            lines.append(second)
        clock.now += 1.0
    assert lines == [3, 9, 21, 45, 93]
    brokers.answered()
    brokers.missed("one", "refused", "look")
    assert capsys.readouterr().err == ""  # it begins anew: a moment is not said


def test_inputs_that_are_not_read_share_their_lines():
    """Forty inputs of a worker whose Kafka is away: the first at once, then one line for all of them, and one when they are back."""

    async def story() -> list[tuple[str, dict[str, Any]]]:
        log = Log()
        unread = Unread(log, Clock())
        for n in range(40):
            unread.tell(f"orders:{n}", "no answer")
        await asyncio.wait_for(log.twice.wait(), 30)
        for n in range(40):
            unread.back(f"orders:{n}")
        unread.back("orders:0")
        return log.said

    first, all_of_them, back = asyncio.run(story())
    assert first == ("input is not read", {"input": "orders:0", "why": "no answer", "for_s": 0})
    assert all_of_them[0] == "inputs are not read"
    assert all_of_them[1]["count"] == 40
    assert all_of_them[1]["inputs"] == ["orders:0", "orders:1", "orders:2", "and 37 more"]
    assert back == ("inputs are read again", {"inputs": 40, "after_s": 0})


def test_what_was_reported_is_withdrawn_when_its_task_has_left():
    """The inputs were named for minutes by a worker that did not own them any more."""

    async def story() -> list[tuple[str, dict[str, Any]]]:
        log = Log()
        unread = Unread(log, Clock())
        unread.tell("orders:0", "no answer")
        unread.left("orders:0")
        unread.left("orders:0")
        unread.tell("orders:0", "no answer")
        unread.stop()
        return log.said

    assert [event for event, _ in asyncio.run(story())] == [
        "input is not read", "input is not read here any more", "input is not read",
    ]  # fmt: skip
