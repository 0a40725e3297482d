"""Errors that say what is wrong, where, and what to do about it.

Every error that a user can meet derives from `HeadgateError` and carries a `remedy`. Whose fault it is decides the class:
declaring a job wrongly is a `DeclarationError`, a setting a `SettingError`, bytes that cannot be read a `DataError`,
something in the surroundings (broker, disk, permission) an `EnvironmentFault`.
"""

from __future__ import annotations

from collections.abc import Iterator


class HeadgateError(Exception):
    """Base of every error that headgate raises on purpose.

    >>> str(HeadgateError("no job 'sales'", remedy="start it with `headgate run`"))
    "no job 'sales'. Remedy: start it with `headgate run`"
    """

    def __init__(self, what: str, *, remedy: str = "") -> None:
        self.what = what
        self.remedy = remedy
        super().__init__(f"{what.rstrip('.')}. Remedy: {remedy}" if remedy else what)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.remedy))


def _rebuild(kind: type[HeadgateError], what: str, remedy: str) -> HeadgateError:
    error = kind.__new__(kind)
    HeadgateError.__init__(error, what, remedy=remedy)
    return error


class DeclarationError(HeadgateError):
    """The job is declared in a way that cannot work; raised before anything runs."""


class SettingError(HeadgateError):
    """A setting is unknown, has a value of the wrong kind, or may not be changed now."""


class DataError(HeadgateError):
    """Bytes or a value that cannot be what they should be."""


class CheckpointError(DataError):
    """Bytes of a task log that this version cannot read."""


class EnvironmentFault(HeadgateError):
    """The surroundings do not allow it: broker, permission, disk, Java, a port."""


class StoreUnreadable(EnvironmentFault):
    """A store could not be read. No record is to blame, whatever was read for: no policy may leave one out for it."""

    def __init__(self, where: object, error: BaseException | str) -> None:
        super().__init__(
            f"the store in {where} cannot be read: {error}",
            remedy="none needed: the task reopens or restores it",
        )


class DeadlinePassed(HeadgateError):
    """What was waited for did not happen in time."""


class NotFound(HeadgateError):
    """There is no such thing."""


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, what caused it, what caused that, and so on: each once, also where a library has made a ring of them.

    >>> [type(one).__name__ for one in causes(HeadgateError("a"))]
    ['HeadgateError']
    """
    seen: list[BaseException] = []
    while error is not None and all(one is not error for one in seen):
        seen.append(error)
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def cause_for(error: BaseException, cause: BaseException | None) -> BaseException | None:
    """What to write behind `raise error from`, where the error may be the cause itself, or one of the causes of it: Python would make it
    its own cause then, and whoever walks the chain never ends.

    >>> error = ValueError("a")
    >>> cause_for(error, error), cause_for(error, KeyError("b"))
    (None, KeyError('b'))
    """
    return error.__cause__ if any(one is error for one in causes(cause)) else cause
