"""The logger of a module: `log = Logger("headgate.task")`.

It decides when structlog is imported: with the first line. structlog brings rich, pygments and attrs along, a fifth of what a command
imports, and a command that goes well logs nothing. What a line looks like and where it goes is configured elsewhere: for a worker in
`worker.logs`, for a command by `to_stderr`.
"""

from __future__ import annotations

import sys
from typing import Any

_wanted: list[bool] = []
"""Not empty once a command has said where its lines go."""


class Logger:
    """Logs as structlog's logger of this name does."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, how: str) -> Any:
        import structlog

        if _wanted and not structlog.is_configured():
            structlog.configure(logger_factory=structlog.WriteLoggerFactory(sys.stderr))
        return getattr(structlog.get_logger(self._name), how)


def to_stderr() -> None:
    """Write lines to standard error, unless something else is configured: standard output is for what a command says."""
    if not _wanted:
        _wanted.append(True)


def configured() -> bool:
    """Whether somebody has said where lines go."""
    structlog = sys.modules.get("structlog")
    return bool(_wanted) or (structlog is not None and structlog.is_configured())
