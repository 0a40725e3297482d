"""Finds the line of the user's code that an error comes from. Messages and tracebacks begin with it.

It is the innermost frame that belongs neither to headgate nor to a library. An error that was raised in no such frame (a record that does
not fit its type, an expression over columns) comes from where the user declared the step. So there is always a line to look at, and no
reader has to find it among headgate's own.
"""

from __future__ import annotations

import linecache
import os.path
import sysconfig
import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import TracebackType

from ....core.errors import HeadgateError, causes
from ...job.steps.step import Step

MOST_SOURCE = 120
"""Characters of a line that stand in a message."""
MOST_TEXT = 8000
"""Characters of a traceback that are kept, from its end."""
_OURS = tuple(f"{Path(__file__).parents[3] / room}{os.path.sep}" for room in ("agents", "core", "spark_bridge"))
_PYTHON = tuple({f"{sysconfig.get_path(name)}{os.path.sep}" for name in ("stdlib", "platstdlib")})
_INSTALLED = ("site-packages", "dist-packages")


def user_line(error: BaseException, step: Step) -> str:
    """File, number and text of the line that an error comes from, in one line. `step`: the one that failed."""
    file, number = _raised_at(error, step) or _named(error) or declared(step)
    source = linecache.getline(file, number).strip()
    text = source if len(source) <= MOST_SOURCE else f"{source[:MOST_SOURCE]}…"
    return f"{file}:{number} `{text}`" if text else f"{file}:{number}" if file else ""


def near(where: str, line: str) -> str:
    """A file and line in a message that begins with `line`: without the directory if it is the same file.

    >>> near("/jobs/shop.py:17", "/jobs/shop.py:12 `return 1 / 0`"), near("/jobs/shop.py:17", "/jobs/shares.py:3 `return 1 / 0`")
    ('shop.py:17', '/jobs/shop.py:17')
    """
    file, _, number = where.rpartition(":")
    return f"{os.path.basename(file)}:{number}" if file and line.startswith(f"{file}:") else where


def own_traceback(error: BaseException, step: Step | None) -> str:
    """The traceback of an error, from the user's first line on. If no line of the user raised it, the declaration of `step` stands first,
    and frames of headgate follow only if it was not raised on purpose.
    """
    cut(error, step)
    if _raised_at(error, step) is not None or step is None:
        return "".join(traceback.format_exception(error))[-MOST_TEXT:]
    first = [
        traceback.FrameSummary(file, number, what)
        for (file, number), what in (
            (declared(step), f"the declaration of {step.verb}"),
            (_named(error) or ("", 0), "a Python worker of Spark"),
        )
        if file
    ]
    frames = [
        *first,
        *([] if isinstance(error, HeadgateError) else traceback.extract_tb(error.__traceback__)),
    ]
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
    return "".join([*lines, *traceback.format_exception_only(error)])[-MOST_TEXT:]


def cut(error: BaseException, step: Step | None) -> None:
    """Leave out of an error, and of its causes, what the user cannot change: frames of headgate above his own, all of them where headgate
    raises on purpose, and errors of an earlier try of the same work. Of a bug of headgate all frames stay.
    """
    for one in list(causes(error)):
        first = next((tb for tb in _frames(one.__traceback__) if _is_users(tb, _home_of(step))), None)
        if first is not None or isinstance(one, HeadgateError):
            one.__traceback__ = first
        before = one.__context__
        if before is not None and before is not one.__cause__ and _caught_by_headgate(before):
            one.__context__ = None


def declared(step: Step) -> tuple[str, int]:
    """File and number of the line where a step is declared.

    >>> declared(Step(where="/jobs/shop.py:7"))
    ('/jobs/shop.py', 7)
    """
    file, _, number = step.where.rpartition(":")
    return file, int(number) if number.isdecimal() else 0


def _raised_at(error: BaseException, step: Step | None) -> tuple[str, int] | None:
    """The innermost line of the user's code of the first of these errors that has any."""
    for one in causes(error):
        if by_user := [tb for tb in _frames(one.__traceback__) if _is_users(tb, _home_of(step))]:
            return by_user[-1].tb_frame.f_code.co_filename, by_user[-1].tb_lineno
    return None


def _named(error: BaseException) -> tuple[str, int] | None:
    """The line that a Python worker of Spark has named."""
    return next((line for one in causes(error) if (line := getattr(one, "worker_line", None)) is not None), None)


def _frames(tb: TracebackType | None) -> Iterator[TracebackType]:
    while tb is not None:
        yield tb
        tb = tb.tb_next


def _is_users(tb: TracebackType, home: str) -> bool:
    """Whether it is a frame of the user's code. `home`: the directory of a job that is installed as a package, which is no library here."""
    file = tb.tb_frame.f_code.co_filename
    return not _is_ours(file) and (not _is_library(file) or (bool(home) and file.startswith(home)))


def _home_of(step: Step | None) -> str:
    return "" if step is None else _home(declared(step)[0])


@cache
def _home(file: str) -> str:
    """The directory of this file, or only the file if its directory holds other packages."""
    directory = os.path.dirname(file)
    return file if os.path.basename(directory) in _INSTALLED else directory + os.path.sep


@cache
def _is_ours(file: str) -> bool:
    return file.startswith(_OURS)


@cache
def _is_library(file: str) -> bool:
    return file.startswith((*_PYTHON, "<frozen ")) or not set(_INSTALLED).isdisjoint(file.split(os.path.sep))


def _caught_by_headgate(error: BaseException) -> bool:
    """Whether headgate, not the user's code, had caught this error when the next one was raised."""
    return error.__traceback__ is None or _is_ours(error.__traceback__.tb_frame.f_code.co_filename)
