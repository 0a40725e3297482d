"""Which times a record of a source may have, and which one it has. Rows, typed rows, columns, choosers and
Spark's executors ask here.

    timestamp= of the input     the field, or what the function returns
    otherwise                   the record's own time (`records.timestamps`)
    no value, and timestamp=    the partition's time so far, which it does not move: Kafka's time of a deletion is another clock

What it decides: a time before `earliest`, or further than `max_future` ahead of the broker's time, makes its record bad data. One such
record would move time for good. Promises: all bad times of a chunk are found in one pass; the broker's time is that of the moment when the
chunk was cut, so a second attempt judges alike; while that time is unknown, no record is too far ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import compress
from types import NoneType
from typing import NamedTuple

from ....core.errors import DataError
from ...job.steps.sources import SourceStep
from ...job.types.timestamps import BadTimestamp, Extract, timestamps_of
from ...job.types.windows import said
from ...records.limits import NO_TIMESTAMP
from ...records.memory.event_time import FIRST_TIME, LAST_TIME, are_times, is_time, latest

BadRows = list[tuple[int, BaseException]]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class EventLimits(NamedTuple):
    """The times that the records of a chunk may have."""

    least: int = FIRST_TIME
    greatest: int = LAST_TIME
    ahead_ms: int | None = None
    """How far `greatest` is ahead of the broker's time; None if that does not bound it."""
    own: bool = True
    """The times are Kafka's: a record without one is accepted."""

    def outside(self, times: Sequence[int]) -> BadRows:
        """Which of these times are none that a record may have, and why. `times`: a list, or a buffer of 64-bit integers."""
        if are_times(times, self.least, self.greatest):
            return []
        return [
            (place, self._why(time))
            for place, time in enumerate(times)
            if not (is_time(time, self.least, self.greatest) or (self.own and time == NO_TIMESTAMP))
        ]

    def _why(self, time: int) -> DataError:
        what = f"the event time {time}{_shown(time)} is "
        if not is_time(time):
            return DataError(f"{what}out of range")
        if time < self.least:
            return DataError(
                f"{what}before {_shown(self.least).strip(' ()')}, the earliest that the input takes",
                remedy="app.input(…, earliest=…) takes earlier ones; None takes all",
            )
        return DataError(
            f"{what}more than {said(self.ahead_ms or 0)} ahead of the broker's time",
            remedy="check that it is in milliseconds (hg.field(…, unit=…)); app.input(…, max_future=…) takes later ones, None takes all",
        )


@dataclass(frozen=True, slots=True)
class Guard:
    """What an input declares of its times."""

    earliest_ms: int | None
    max_future_ms: int | None
    own: bool

    def limits(self, now_ms: int | None) -> EventLimits:
        """The limits for records that are read when it is this time at the broker; None: that is unknown."""
        ahead = None if now_ms is None else self.max_future_ms
        return EventLimits(
            FIRST_TIME if self.earliest_ms is None else self.earliest_ms,
            LAST_TIME if now_ms is None or ahead is None else now_ms + ahead,
            ahead,
            self.own,
        )

    def until(self, latest_ms: int | None) -> EventLimits:
        """The limits for records of a range, of which no time may be behind `latest_ms`; None: that was unknown when it was cut."""
        found = self.limits(None)
        return found if latest_ms is None else found._replace(greatest=latest_ms, ahead_ms=self.max_future_ms)


def guard_of(step: SourceStep) -> Guard:
    """What this source declares of its times. Those of a stream between two steps were judged at the inputs."""
    return Guard(step.earliest_ms, step.max_future_ms, step.timestamp is None)


class RowTimes:
    """The event times of rows."""

    def __init__(self, step: SourceStep) -> None:
        self._extract: Extract | None = None if step.timestamp is None else timestamps_of(step.timestamp)

    def of(
        self, values: list[object], stamps: list[int], so_far_ms: int | None, limits: EventLimits
    ) -> tuple[list[int], int | None, BadRows]:
        """The times of these rows, the greatest that moves the partition's time, and which of the rows have none.

        `stamps`: the records' own times. `so_far_ms`: the partition's time before them; None if it has none yet, then a record without a
        value has its own time."""
        if self._extract is None:
            return stamps, latest(stamps), limits.outside(stamps)
        if NoneType not in map(type, values):  # by type: a value's own == may do anything
            times, bad = self._times(self._extract, values, stamps, limits)
            return times, latest(times), bad
        there = [value is not None for value in values]
        places = list(compress(range(len(values)), there))
        found, bad = self._times(self._extract, list(compress(values, there)), list(compress(stamps, there)), limits)
        times = list(stamps)
        rest = iter(found)
        for place, is_there in enumerate(there):
            if is_there:
                times[place] = time = next(rest)
                so_far_ms = time if so_far_ms is None else max(so_far_ms, time)
            elif so_far_ms is not None:
                times[place] = so_far_ms
        return times, latest(found), [(places[index], why) for index, why in bad]

    def _times(
        self, extract: Extract, values: list[object], stamps: list[int], limits: EventLimits
    ) -> tuple[list[int], BadRows]:
        try:
            times = extract(values, stamps)
        except BadTimestamp:
            bad, times = BadRows(), list(stamps)
            for index, value in enumerate(values):
                try:
                    (times[index],) = found = extract([value], [stamps[index]])
                    bad += [(index, why) for _, why in limits.outside(found)]
                except BadTimestamp as error:
                    bad.append((index, error))
            return times, bad
        return times, limits.outside(times)


def _shown(time: int) -> str:
    """A time for people, in brackets; nothing if no calendar has it.

    >>> _shown(0), _shown(1 << 61)
    (' (1970-01-01T00:00:00+00:00)', '')
    """
    try:
        return f" ({(_EPOCH + timedelta(milliseconds=time)).isoformat()})"
    except OverflowError:
        return ""
