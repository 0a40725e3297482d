"""By which counter a task counts an error of a step; see `error_counts`.

Promises: an error is called by its class, and never by its text, which data may decide. A task has a bounded number of these counters,
whatever classes user code makes: what is beyond it is counted as `OTHER`.
"""

from __future__ import annotations

from ...error_counts import BETWEEN, FAILED
from ..base.bad_records import BadRecord
from ..base.stateless import UserCodeError

OTHER = "other"
MOST = 50
"""How many different counters of these one task has."""
MOST_LETTERS = 80


class ErrorKinds:
    """The counters of one task."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def counter(self, step: str, error: BaseException) -> str:
        """The counter for an error of this step, which itself has raised it or what was done for it."""
        name = f"{FAILED}{step}{BETWEEN}{kind_of(error)}"
        if name not in self._known and len(self._known) >= MOST:
            return f"{FAILED}{step}{BETWEEN}{OTHER}"
        self._known.add(name)
        return name


def kind_of(error: BaseException) -> str:
    """What an error is called: its class, behind the package that it comes from if that is not Python itself.

    >>> kind_of(ValueError("no number: 'x'")), kind_of(BadRecord(0, KeyError("user")))
    ('ValueError', 'KeyError')
    """
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    cause = error.cause if isinstance(error, BadRecord) else error
    if isinstance(cause, UserCodeError) and cause.__cause__ is not None:
        cause = cause.__cause__
    kind = type(cause)
    package = kind.__module__.partition(".")[0]
    plain = package in ("builtins", "__main__", "headgate")
    return (kind.__name__ if plain else f"{package}.{kind.__name__}")[:MOST_LETTERS]
