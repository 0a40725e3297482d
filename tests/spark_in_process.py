"""Spark in the process of the tests: sessions that outlive workers and bridges, and what is sent to their JVM."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest


def warm_sessions(**settings: str) -> Iterator[Any]:
    """Sessions that have started, and are stopped at the end: the body of a fixture."""
    # most tests that know this file have nothing to do with Spark
    from headgate.agents.worker.spark_jvm import java_home
    from headgate.spark_bridge.process.jvm import Sessions

    sessions = Sessions("local[2]", settings, java_home=java_home)
    sessions.get()
    yield sessions
    sessions.stop()


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
