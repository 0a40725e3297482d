"""Records of a chunk that cannot be read, as the error that the task's policies decide about."""

from __future__ import annotations

from collections.abc import Sequence

from ..records.writable import TIME_LIMIT, Unwritable


class BadRecord(Exception):
    """Row `index` of a chunk cannot be read."""

    def __init__(self, index: int, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.index = index
        self.cause = cause


class NoColumns(Exception):
    """A chunk can be run as rows only."""


def greatest_of(times: list[int], kept: Sequence[int] | None) -> int | None:
    """The greatest event time. A time out of range is bad data: a producer may write it, but nothing could be subtracted from it.

    `kept`: which records of the chunk these are; None for all.
    """
    if not times:
        return None
    greatest = max(times)
    if greatest < TIME_LIMIT and min(times) > -TIME_LIMIT:
        return greatest
    for place, time in enumerate(times):
        if not -TIME_LIMIT < time < TIME_LIMIT:
            index = place if kept is None else kept[place]
            raise BadRecord(index, Unwritable(index, f"the event time {time} is out of range"))
    return greatest
