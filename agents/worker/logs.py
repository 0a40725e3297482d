"""What is logged, and how: structured events with the words that say who speaks.

Decides the form (a line for people on a terminal, JSON elsewhere), the fields that every event of a worker carries (`job`, `worker`,
`run`, `incarnation`; a task's add `task` and `grant`), and what becomes of other libraries' logs (the same form, warnings only, and
repetitions counted).

Promises: what is secret by its name, and every secret value that a client was given, is masked in every event, also inside of texts and
tracebacks; a log line is one line.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, TextIO

import structlog

from ...core.settings import MASK, shown
from ..kafka.settings import is_secret

FORMS = ("auto", "console", "json")
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
SHORTEST_SECRET = 4
"""Shorter values are not looked for inside of texts: they would mask half of every line."""

REPEATED_AFTER_S = 10.0
SELDOM_S = 300.0
"""What goes on being repeated is let through ever more rarely, down to this."""
REPEATS_KNOWN = 1000

LogEvent = MutableMapping[str, Any]


class _Threshold:
    """Drops what is below the level; a value that can change, because loggers are bound for long."""

    def __init__(self) -> None:
        self.level = logging.INFO

    def __call__(self, logger: Any, method: str, event: LogEvent) -> LogEvent:
        if LEVELS.get("error" if method in ("exception", "critical") else method, logging.WARNING) < self.level:
            raise structlog.DropEvent
        return event


_threshold = _Threshold()


class Repeats(logging.Filter):
    """What another library says again and again is let through once in a while, ever more rarely, with how often it was said: a client
    whose broker is away repeats itself a hundred times a second. The same is what has the same logger and the same text before its
    arguments are filled in."""

    def __init__(self, every_s: float = REPEATED_AFTER_S) -> None:
        super().__init__()
        self.every_s = every_s
        self._last: dict[tuple[str, str], tuple[float, int, float]] = {}
        """When it was let through, how often it was not since, and for how long it is not."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this one is let through."""
        key = (record.name, str(record.msg)[:200])
        said, kept_back, pause = self._last.get(key, (-self.every_s, 0, self.every_s))
        if record.created - said < pause:
            self._last[key] = (said, kept_back + 1, pause)
            return False
        if len(self._last) >= REPEATS_KNOWN:
            self._last.clear()
        self._last[key] = (record.created, 0, min(SELDOM_S, pause * 2) if kept_back else self.every_s)
        if kept_back:
            record.msg, record.args = f"{record.getMessage()} (and {kept_back} times more before)", None
        return True


class Masking:
    """Takes secrets out of an event, by the name of a field and by value."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self.values = sorted({v for v in values if len(v) >= SHORTEST_SECRET}, key=len, reverse=True)

    def __call__(self, logger: Any, method: str, event: LogEvent) -> LogEvent:
        """One event, clean."""
        for name in list(event):
            event[name] = shown(name, self.clean(event[name]))
        return event

    def clean(self, value: Any) -> Any:
        """The same value without secrets in it."""
        if isinstance(value, str):
            for secret in self.values:
                value = value.replace(secret, MASK)
            return value
        if isinstance(value, Mapping):
            return {k: shown(str(k), self.clean(v)) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.clean(one) for one in value]
        if isinstance(value, int | float | bool) or value is None:
            return value
        return self.clean(str(value))


def secrets_of(settings: Mapping[str, str]) -> list[str]:
    """The values of client settings that must not be seen."""
    return [value for name, value in settings.items() if is_secret(name)]


def set_up(
    *,
    form: str = "auto",
    level: str = "info",
    secrets: Iterable[str] = (),
    bound: Mapping[str, Any] | None = None,
    out: TextIO | None = None,
) -> None:
    """Log from here on, to standard error unless told otherwise; `bound` stands in every event."""
    to: TextIO = sys.stderr if out is None else out
    people = form == "console" or (form == "auto" and to.isatty())
    masking = Masking(secrets)
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        _with(dict(bound or {})),
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    render: list[Any] = (
        [structlog.processors.format_exc_info, masking, structlog.dev.ConsoleRenderer(colors=to.isatty())]
        if people
        else [
            structlog.processors.format_exc_info,
            masking,
            structlog.processors.EventRenamer("event"),
            structlog.processors.JSONRenderer(default=str),
        ]
    )
    set_level(level)
    structlog.configure(
        processors=[_threshold, *shared, *render],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.WriteLoggerFactory(to),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(to)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    handler.addFilter(Repeats())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)


def set_level(level: str) -> None:
    """Log more or less from here on (`log.level` is dynamic)."""
    _threshold.level = LEVELS[level]


def _with(bound: dict[str, Any]) -> Callable[[Any, str, LogEvent], LogEvent]:
    def add(logger: Any, method: str, event: LogEvent) -> LogEvent:
        for name, value in bound.items():
            event.setdefault(name, value() if callable(value) else value)
        return event

    return add
