"""Silences the progress log of a test driver's job. Failures are raised, and states can be read, so tests do not need it.

If structlog is configured, nothing is silenced.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import structlog

from ..logger import processors

COURSE = frozenset(
    {
        "headgate.task",
        "headgate.commit",
        "headgate.copies",
        "headgate.outbox",
        "headgate.intake",
        "headgate.worker",
        "headgate.batches",
        "headgate.spark",
    }
)
"""The loggers for the progress of tasks, their batches and Spark."""


class _Silent:
    """A logger that logs nothing."""

    def __getattr__(self, name: str) -> Any:
        return _nothing


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _logger(*names: Any) -> Any:
    return _Silent() if names and names[0] in COURSE else structlog.PrintLogger()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the progress log in this context."""
    if structlog.is_configured():
        yield
        return
    structlog.configure(processors=processors(sys.stdout), logger_factory=_logger)
    try:
        yield
    finally:
        structlog.reset_defaults()
