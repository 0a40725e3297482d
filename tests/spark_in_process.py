"""Spark in the process of the tests: sessions that outlive workers and bridges, and what is sent to their JVM.

A start of Spark and its first query cost more than dozens of tests, and a process has one session. So files that want the same one stay
with one pytest worker (`lanes.TOGETHER`), and the session ends with the last of them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_kept: dict[Path, Any] = {}
"""By directory: the sessions that its next file takes over."""


def warm_sessions(**settings: str) -> Iterator[Any]:
    """Sessions that have started, and are stopped at the end: the body of a fixture."""
    sessions = _started(settings)
    yield sessions
    sessions.stop()


def shared_sessions(directory: Path, **settings: str) -> Iterator[Any]:
    """The same for a fixture `warm` of a directory, whose files hand the sessions on (`hand_on`)."""
    sessions = _kept.pop(directory, None) or _started(settings)
    yield sessions
    if _next.get(directory):
        _kept[directory] = sessions
    else:
        sessions.stop()


_next: dict[Path, bool] = {}


def hand_on(directory: Path, item: pytest.Item | None) -> None:
    """To be called before a test is put down: whether the file of the test that comes next is of this directory and wants its sessions."""
    _next[directory] = item is not None and any(
        one.path == item.path and "warm" in getattr(one, "fixturenames", ())
        for one in item.session.items
        if one.path.is_relative_to(directory)
    )


def _started(settings: dict[str, str]) -> Any:
    # most tests that know this file have nothing to do with Spark
    from headgate.agents.worker.spark_jvm import java_home
    from headgate.spark_bridge.process.jvm import Sessions

    sessions = Sessions("local[2]", settings, java_home=java_home)
    sessions.get()
    return sessions


def on_a_loop() -> bool:
    """Whether this is the thread of a loop."""
    return asyncio._get_running_loop() is not None


def in_the_test() -> bool:
    """Whether this is the thread that runs the test: py4j has one of its own that forgets objects after Python has collected them."""
    return threading.current_thread() is threading.main_thread()


def sent_to_jvm(monkeypatch: pytest.MonkeyPatch, when: Callable[[], bool] = in_the_test) -> list[str]:
    """The commands that this process sends to the JVM from here on; only those that are sent `when` this is true."""
    from py4j.clientserver import ClientServerConnection

    sent: list[str] = []
    real: Any = ClientServerConnection.send_command

    def send(connection: Any, command: str) -> str:
        if when():
            sent.append(command)
        return real(connection, command)

    monkeypatch.setattr(ClientServerConnection, "send_command", send)
    return sent
