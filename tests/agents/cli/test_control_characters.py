"""What is data does not steer the terminal of whoever looks at it."""

from __future__ import annotations

import doctest
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import click
import pytest
import structlog
from click.testing import CliRunner, Result

from headgate.agents import printable
from headgate.agents.cli import output
from headgate.agents.cli.data import dead_letters, frames, records, tables
from headgate.agents.cli.group import fail
from headgate.agents.cli.see.status import show_why
from headgate.agents.cli.steer import config as config_verb
from headgate.agents.cli.steer import coordinator
from headgate.agents.cli.steer.steering import show_outcome
from headgate.agents.process.requests import Outcome, Request
from headgate.core.coordination.state import JobState
from headgate.core.errors import HeadgateError
from headgate.core.names import JobName

CLEARS = "\x1b[2J\x9b31m\x07\u202e"
"""Clears the screen, colours it, rings, and turns the direction of letters."""
BROKER = ("-b", "127.0.0.1:1")


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """A command silences the log of its process, which is that of other tests, too."""
    of_kafka, configured = logging.getLogger("aiokafka"), structlog.is_configured()
    before = of_kafka.propagate, of_kafka.handlers[:]
    yield
    of_kafka.propagate, of_kafka.handlers[:] = before
    if not configured:
        structlog.reset_defaults()


def run(command: click.Command, *words: str) -> Result:
    done = CliRunner().invoke(command, [*words, *BROKER])
    assert done.exception is None, done.exception
    return done


def harmless(text: str) -> bool:
    """Whether it is printable, line by line, and still shows what was there."""
    assert "[2J" in text
    return all(line.isprintable() for line in text.split("\n"))


def record() -> Any:
    """A dead letter, and any other record, with such data everywhere."""
    raw = CLEARS.encode()
    headers = [
        ("hg-topic", raw),
        ("hg-exception", raw),
        ("hg-traceback", b"Traceback:\n  " + raw),
        ("own" + CLEARS, raw),
    ]
    return SimpleNamespace(partition=0, offset=7, timestamp=0, key=raw, value=raw, headers=tuple(headers))


async def scanned(*_: Any, **__: Any) -> AsyncIterator[Any]:
    yield record()


def answering(value: Any) -> Any:
    async def answer(*_: Any) -> Any:
        return value

    return answer


def test_the_examples_hold() -> None:
    assert doctest.testmod(output).failed == doctest.testmod(printable).failed == 0


def test_a_traceback_keeps_its_lines_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "_read", answering([record()]))
    shown = run(dead_letters.dead_letters, "show", "sales", "7").stdout
    assert harmless(shown)
    assert "\nTraceback:\n  \\x1b[2J" in shown
    assert harmless(run(dead_letters.dead_letters, "list", "sales").stdout)


def test_why_a_task_failed_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("task", "state", "worker", "why", "failure", "failure_since", "failure_until", "refused")
    found = dict.fromkeys(names, CLEARS)
    show_why({**found, "asked": True, "traceback": f"Traceback:\n  ValueError: {CLEARS}"})
    show_why({**found, "asked": False, "traceback": ""})
    said = capsys.readouterr()
    assert harmless(said.out)
    assert harmless(said.err)
    assert "\nTraceback:\n  ValueError: \\x1b[2J" in said.out


def test_messages_of_the_stream_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    found = dict.fromkeys(("time", "type", "problem", "host", "username", "source"), CLEARS)
    monkeypatch.setattr(coordinator, "_read", answering([{**found, "offset": 1, "key": [CLEARS], "values": None}]))
    assert harmless(run(coordinator.coordinator, "cat", "sales").stdout)


def test_the_value_of_a_key_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"task": "Partition 0", "key": "k", "value": f"a\n{CLEARS}"}
    monkeypatch.setattr(tables, "read_tables", answering({"table": "totals", "rows": [row], "more": False}))
    shown = run(tables.tables, "sales", "totals", "k").stdout
    assert (harmless(shown), shown.startswith("a\n\\x1b[2J")) == (True, True)


def test_the_value_of_a_setting_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def following(*_: object) -> AsyncIterator[Any]:
        yield SimpleNamespace(job=JobState())

    monkeypatch.setattr(config_verb, "following", following)
    monkeypatch.setenv("HEADGATE_STATE_DIR", CLEARS)
    assert harmless(run(config_verb.config, "get", "sales", "state.dir").stdout)


def test_records_and_frames_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are JSON, which stays JSON."""
    monkeypatch.setattr(records, "scan_topic", scanned)
    shown = run(records.tail, "orders").stdout
    assert harmless(shown)
    assert json.loads(shown)["headers"]["hg-topic"] == CLEARS
    row = {"key": CLEARS, "timestamp": "now", "value": CLEARS, "headers": [[CLEARS, CLEARS]]}
    found = {"partition": 0, "offset": 1, "type": "user", "schema": CLEARS, "rows": [row]}
    monkeypatch.setattr(frames, "scan_topic", scanned)
    monkeypatch.setattr(frames, "frame_document", lambda _: found)
    assert harmless(run(frames.frames, "cat", "between", "--type", "user").stdout)


def test_errors_and_answers_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    """The reason may be an exception's text."""
    with pytest.raises(SystemExit):
        fail(HeadgateError(f"no\n  {CLEARS}", remedy=CLEARS))
    target: Any = SimpleNamespace(job=JobName("sales"))
    show_outcome(target, Request("stop"), Outcome("u", "failed", CLEARS), "table")
    said = capsys.readouterr()
    assert harmless(said.err)
    assert said.err.startswith("Error: no\n  \\x1b[2J")
    assert harmless(said.out)
