"""The logger of a module: `log = Logger("headgate.task")`.

It decides when structlog is imported: with the first line. structlog brings rich, pygments and attrs along, a fifth of what a command
imports, and a command that goes well logs nothing. What a line looks like and where it goes is configured elsewhere: for a worker in
`worker.logs`, for a command by `to_stderr`. Where no one has configured it (a test driver, a worker inside of another program), lines look
as structlog's own, but for tracebacks: see `processors`.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, TextIO

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
            to = sys.stderr
            structlog.configure(processors=processors(to), logger_factory=structlog.WriteLoggerFactory(to))
        if structlog.is_configured():
            return getattr(structlog.get_logger(self._name), how)
        return getattr(
            structlog.wrap_logger(None, processors=processors(sys.stdout), logger_factory_args=(self._name,)), how
        )


def processors(to: TextIO) -> list[Any]:
    """structlog's own, with Python's traceback. Its default draws one with the local variables of each frame: that holds up a loop for
    seconds, and the variables contain rows and passwords. Only while no one has configured structlog.
    """
    isatty = getattr(to, "isatty", None)  # a program may have put an object there that has only what print() needs
    terminal = bool(os.environ.get("FORCE_COLOR")) or (isatty is not None and isatty())
    return [*_processors(terminal and not os.environ.get("NO_COLOR"))]


@functools.cache
def _processors(colors: bool) -> tuple[Any, ...]:
    """They are asked for with each line."""
    import structlog

    *others, _ = structlog.get_config()["processors"]
    return *others, structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)


def to_stderr() -> None:
    """Write lines to standard error, unless something else is configured: standard output is for what a command says."""
    if not _wanted:
        _wanted.append(True)


def configured() -> bool:
    """Whether somebody has said where lines go."""
    structlog = sys.modules.get("structlog")
    return bool(_wanted) or (structlog is not None and structlog.is_configured())
