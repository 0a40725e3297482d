"""A session that does not answer is noticed; a slow one, and a worker that was stopped itself, are not blamed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from headgate.spark_bridge.process.watchdog import Watchdog

PATIENCE_S = 240.0


class Heard:
    """What the watchdog said."""

    def __init__(self) -> None:
        self.why = ""
        self.told = threading.Event()

    def __call__(self, why: str) -> None:
        assert not self.told.is_set(), "it was said twice"
        self.why = why
        self.told.set()


def watched(ask: Callable[[], object], patience_s: float = 0.2) -> Heard:
    heard = Heard()
    Watchdog(ask, heard, patience_s)
    assert heard.told.wait(PATIENCE_S)
    return heard


def test_one_that_never_answers_is_noticed() -> None:
    """As a JVM that was stopped: it takes the question, and says nothing."""
    never = threading.Event()
    assert "has not answered for 0.2 s (spark.probe-timeout)" in watched(never.wait).why
    never.set()


def test_one_that_stops_answering_is_noticed() -> None:
    """After it has answered for a while."""
    never, asked = threading.Event(), []

    def ask() -> None:
        asked.append(1)
        if len(asked) > 3:
            never.wait()

    assert "has not answered" in watched(ask, 2.0).why
    assert len(asked) == 4
    never.set()


def test_one_that_is_dead_is_noticed_at_once() -> None:
    """Without any patience."""

    def ask() -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    assert "does not answer any more: " in watched(ask, 3600.0).why


def test_one_that_complains_is_heard() -> None:
    """A session without executors answers all the same."""
    assert watched(lambda: "its cluster has given no executor", 0.05).why == "its cluster has given no executor"


def test_one_that_is_ended_says_nothing() -> None:
    """Whoever stops a session is not told that it does not answer."""
    heard, asked = Heard(), threading.Event()
    dog = Watchdog(lambda: asked.set(), heard, 0.1)
    assert asked.wait(PATIENCE_S)
    dog.end()
    time.sleep(0.5)
    assert not heard.told.is_set()
