"""What a test driver's job logs of its own course interests no test: what fails is raised, and states can be asked for.

Who has configured structlog wants to see logs, and sees all of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import structlog

COURSE = frozenset({"headgate.task", "headgate.commit", "headgate.outbox", "headgate.intake", "headgate.worker"})
"""Loggers that speak of how a task goes on."""


class _Nobody:
    """A logger that says nothing."""

    def __getattr__(self, name: str) -> Any:
        return _nothing


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _logger(*names: Any) -> Any:
    return _Nobody() if names and names[0] in COURSE else structlog.PrintLogger()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """What is done in here is not told."""
    if structlog.is_configured():
        yield
        return
    structlog.configure(logger_factory=_logger)
    try:
        yield
    finally:
        structlog.reset_defaults()
