"""Records of a chunk that cannot be read, as the error that the task's policies decide about."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from types import MappingProxyType

from ....core.errors import cause_for

NOTHING: Mapping[int, BaseException] = MappingProxyType({})


class BadRecord(Exception):
    """Row `index` of a chunk cannot be read.

    `all`: by row, ascending, why rows are bad that were found in the same pass, so that the chunk need not be tried again for each of them.
    Empty if the other rows were not looked at, or if leaving out rows does not help.
    """

    def __init__(self, index: int, cause: BaseException, found: Mapping[int, BaseException] = NOTHING) -> None:
        super().__init__(str(cause))
        self.index = index
        self.cause = cause
        self.all = found


def named(bad: list[tuple[int, BaseException]]) -> BadRecord | None:
    """The error for the first of these rows, which names all of them; None if there are none. The first error of a row counts."""
    causes: dict[int, BaseException] = {}
    for index, cause in sorted(bad, key=itemgetter(0)):
        causes.setdefault(index, cause)
    return next((BadRecord(index, cause, causes) for index, cause in causes.items()), None)


def refuse(bad: list[tuple[int, BaseException]]) -> None:
    """Raise `BadRecord` for these rows, if there are any."""
    error = named(bad)
    if error is not None:
        raise error from cause_for(error, error.cause)


class NoColumns(Exception):
    """A chunk can be run as rows only."""
