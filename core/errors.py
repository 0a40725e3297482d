"""Errors that say what is wrong, where, and what to do about it.

Every error that a user can see derives from `HeadgateError` and carries a `remedy`. The cause decides the class: a wrong declaration of the
job is a `DeclarationError`, a wrong setting a `SettingError`, bytes that cannot be read a `DataError`, and a fault of the environment
(broker, disk, permission) an `EnvironmentFault`.
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


class UnknownName(DeclarationError, AttributeError):
    """A verb or an attribute that a thing does not have. Also an `AttributeError`, so that `hasattr` and `getattr` with a default work."""

    def __init__(self, what: str, *, remedy: str = "") -> None:
        super().__init__(what, remedy=remedy)
        self.name, self.obj = what, None  # Python looks for similar names of `obj`; the remedy says it better


class SettingError(HeadgateError):
    """A setting is unknown, has a value of the wrong type, or may not be changed now."""


class DataError(HeadgateError):
    """Bytes or a value that are not what they should be."""


class RowRefused(DataError):
    """A changed row that its table cannot store."""

    table = ""
    """The name of the table."""


class CheckpointError(DataError):
    """Bytes in a task log that this version cannot read."""


class EnvironmentFault(HeadgateError):
    """The environment is at fault: broker, permission, disk, Java, a port."""


class TopicsDiffer(EnvironmentFault):
    """The job's own topics are there, and are not as it needs them. Only a person changes that."""


class StoreUnreadable(EnvironmentFault):
    """A store could not be read. No record is to blame, so no policy may leave one out because of it."""

    def __init__(self, where: object, error: BaseException | str) -> None:
        super().__init__(
            f"the store in {where} cannot be read: {error}",
            remedy="none needed: the task reopens or restores it",
        )


class LimitReached(EnvironmentFault):
    """A task may not hold more. No record is to blame, so no policy may leave one out because of it."""


class DeadlinePassed(HeadgateError):
    """Something did not happen before its deadline."""


class NotFound(HeadgateError):
    """What the user named does not exist."""


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, its cause, the cause of that, and so on: each once, even if a library has linked them in a cycle.

    >>> [type(one).__name__ for one in causes(HeadgateError("a"))]
    ['HeadgateError']
    """
    seen: list[BaseException] = []
    while error is not None and all(one is not error for one in seen):
        seen.append(error)
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def cause_for(error: BaseException, cause: BaseException | None) -> BaseException | None:
    """What to write after `raise error from` if the error may be the cause itself, or one of its causes: then Python would make the error
    its own cause, and walking the chain would never end.

    >>> error = ValueError("a")
    >>> cause_for(error, error), cause_for(error, KeyError("b"))
    (None, KeyError('b'))
    """
    return error.__cause__ if any(one is error for one in causes(cause)) else cause
