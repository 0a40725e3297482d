"""Configures logging: structured events, with fields that identify the worker.

It decides the format (lines for people on a terminal, JSON elsewhere), the fields of every event (`job`, `worker`, `run`, `incarnation`; a
task adds `task` and `grant`), and the treatment of other libraries' logs (the same format, warnings and errors only, repetitions counted).

Promises: fields with secret names, and all secret values that a client was given, are masked in every event, also within texts and
tracebacks. A log event is one line; only on a terminal its traceback follows in lines of its own. Nothing that is logged steers a terminal.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, TextIO

import structlog

from ...core.secrets import MASK
from ...core.settings import shown
from ..printable import printable

FORMS = ("auto", "console", "json")
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
SHORTEST_SECRET = 4
"""Shorter secrets are not masked within texts, because they would mask half of every line."""

COORDINATOR_OF_GROUP = "aiokafka.consumer.group_coordinator"
REPEATED_AFTER_S = 10.0
SELDOM_S = 300.0
"""The longest interval between two repetitions of the same message."""
REPEATS_KNOWN = 1000
LINES = ("exception", "stack")
"""The fields of an event that are written in lines of their own on a terminal."""

LogEvent = MutableMapping[str, Any]


class _Threshold:
    """Drops events below the level. A mutable value, because loggers are bound for a long time."""

    def __init__(self) -> None:
        self.level = logging.INFO

    def __call__(self, logger: Any, method: str, event: LogEvent) -> LogEvent:
        if LEVELS.get("error" if method in ("exception", "critical") else method, logging.WARNING) < self.level:
            raise structlog.DropEvent
        return event


_threshold = _Threshold()


class Repeats(logging.Filter):
    """Limits the repeated messages of other libraries. A client whose broker does not answer repeats its message a hundred times a second;
    this filter lets it through at growing intervals, with a count. Messages are the same if their logger and their text before formatting
    are the same.
    """

    def __init__(self, every_s: float = REPEATED_AFTER_S) -> None:
        super().__init__()
        self.every_s = every_s
        self._last: dict[tuple[str, str], tuple[float, int, float]] = {}
        """For each message: when it was last let through, how often it was suppressed since then, and the interval."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to let this record through."""
        key = (record.name, str(record.msg)[:200])
        said, kept_back, pause = self._last.get(key, (-self.every_s, 0, self.every_s))
        if record.created - said < pause:
            self._last[key] = (said, kept_back + 1, pause)
            return False
        if len(self._last) >= REPEATS_KNOWN:
            self._last.clear()
        self._last[key] = (record.created, 0, min(SELDOM_S, pause * 2) if kept_back else self.every_s)
        if kept_back:
            record.msg, record.args = f"{record.getMessage()} (and {kept_back} more times before)", None
        return True


def unless_retried(record: logging.LogRecord) -> bool:
    """Whether to let this record through: not if it is the coordinator of a group that aiokafka looks for again.

    A new broker knows none before the first request, and moves it after; only the published positions ask for it. What is not retried is
    raised there.
    """
    if record.name != COORDINATOR_OF_GROUP:
        return True
    if record.funcName == "coordinator_dead":  # it says that it looks for another one
        return False
    if not isinstance(record.args, tuple) or not record.args:
        return True
    return not getattr(record.args[0], "retriable", False)


class Masking:
    """Masks secrets in events, by field name and by value."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self.values = sorted({v for v in values if len(v) >= SHORTEST_SECRET}, key=len, reverse=True)

    def __call__(self, logger: Any, method: str, event: LogEvent) -> LogEvent:
        """Mask one event."""
        for name in list(event):
            event[name] = shown(name, self.clean(event[name]))
        return event

    def clean(self, value: Any) -> Any:
        """The value with all secrets masked."""
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


class _Quoted:
    """A text that the renderer for people quotes, as it does with values that are no texts."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return repr(self._text)


def unsteering(logger: Any, method: str, event: LogEvent) -> LogEvent:
    """The event with what would steer a terminal shown instead: reasons and tracebacks hold what records hold."""
    for name, value in event.items():
        if not isinstance(value, str) or value.isprintable():
            continue
        if name == "event" or name in LINES:
            event[name] = printable(value, but="\n" if name in LINES else "")
        else:
            event[name] = _Quoted(value)
    return event


def set_up(
    *,
    form: str = "auto",
    level: str = "info",
    secrets: Iterable[str] = (),
    bound: Mapping[str, Any] | None = None,
    out: TextIO | None = None,
) -> None:
    """Set up logging, to standard error by default. Every event contains the `bound` fields."""
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
        [structlog.processors.format_exc_info, masking, unsteering, structlog.dev.ConsoleRenderer(colors=to.isatty())]
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
    handler.addFilter(unless_retried)
    handler.addFilter(Repeats())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)


def set_level(level: str) -> None:
    """Change the level (`log.level` is dynamic)."""
    _threshold.level = LEVELS[level]


def _with(bound: dict[str, Any]) -> Callable[[Any, str, LogEvent], LogEvent]:
    def add(logger: Any, method: str, event: LogEvent) -> LogEvent:
        for name, value in bound.items():
            event.setdefault(name, value() if callable(value) else value)
        return event

    return add
