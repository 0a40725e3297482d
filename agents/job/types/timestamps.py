"""Event time: `timestamp=` of an input says where it is.

    "ts", hg.field("ts")                   a number of milliseconds since 1970
    hg.field("ts", unit="s"|"us"|"ns")     of seconds, microseconds, nanoseconds
    hg.field("ts", unit="iso")             ISO 8601 text, such as `2026-01-31T12:00:00.250+01:00`; without a time zone it is UTC
    a function of the value                milliseconds
    nothing                                Kafka's own timestamp of the record

A `datetime` is accepted everywhere; without a time zone it is UTC. Fractions of a millisecond are cut off towards the past, so that times
before 1970 stay in order, too; only fractional seconds are rounded to the nearest millisecond. Event time is a signed 64-bit number of
milliseconds. A record whose time is missing or unreadable is bad data: `BadTimestamp` says which record it is.

Promise: a column of whole numbers costs one C-level pass, whatever its unit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import floor
from typing import Any

from ....core.columns.schema import BOOL, TEXT
from ....core.errors import DeclarationError
from ...cancellation import passes, said
from ...records.columns.selecting import Column, nested_column_of
from ...records.kafka.writable import check_times, whole_ms
from ...records.memory.event_time import UNITS as NUMBERED
from ...records.memory.event_time import units_said, whole_in_ms
from .arguments import check_function, check_selector

Extract = Callable[[list[Any], list[int]], list[int]]


UNITS = (*NUMBERED, "iso")


@dataclass(frozen=True, slots=True)
class TimeField:
    """A field that contains the event time, and its unit."""

    name: str
    unit: str = "ms"

    def __str__(self) -> str:
        return self.name if self.unit == "ms" else f"{self.name} in {self.unit}"


def text_of(given: Any) -> str:
    """A field, or the name of a function, as text that stays the same as long as the declaration does.

    >>> text_of("ts"), text_of(TimeField("ts", "s")), text_of(None), text_of(text_of)
    ('ts', 'ts in s', '', 'function text_of')
    """
    if given is None or isinstance(given, str | TimeField):
        return str(given or "")
    return f"function {getattr(given, '__qualname__', type(given).__name__)}"


def is_time(column: str, of: Any) -> bool:
    """Whether a column of this type can be the event time that `of` names: a number, or text for ISO.

    >>> is_time(TEXT, TimeField("ts", unit="iso")), is_time(TEXT, "ts"), is_time(BOOL, "ts")
    (True, False, False)
    """
    return column != BOOL and (column == TEXT) == (isinstance(of, TimeField) and of.unit == "iso")


def field(name: str, *, unit: str = "ms") -> TimeField:
    """The event time is in this field: a number of `s`, `ms`, `us` or `ns` since 1970, or `iso` text (UTC if it has no time zone).

    >>> field("ts", unit="iso")
    TimeField(name='ts', unit='iso')
    """
    if unit not in UNITS:
        raise DeclarationError(
            f"hg.field('{name}', unit={unit!r})", remedy="use one of 's', 'ms', 'us' (microseconds), 'ns' and 'iso'"
        )
    return TimeField(name, unit)


INT = frozenset((int,))
NUMBERS = frozenset((int, float))
When = str | TimeField | Callable[[Any], Any]
"""A field's name, `hg.field(…)`, or a function of the value that returns milliseconds."""


class BadTimestamp(ValueError):
    """Row `index` has no readable event time."""

    def __init__(self, index: int, why: str) -> None:
        super().__init__(why)
        self.index = index


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


def _datetime_ms(when: datetime) -> int:
    return ((when if when.tzinfo else when.replace(tzinfo=UTC)) - EPOCH) // MILLISECOND


def _iso_ms(text: str) -> int:
    return _datetime_ms(datetime.fromisoformat(text))


def moment(given: Any) -> Any:
    """Convert a `datetime` or ISO text to milliseconds; return anything else unchanged.

    >>> moment("1970-01-01T00:00:01+00:00"), moment("newest"), moment(5)
    (1000, 'newest', 5)
    """
    if isinstance(given, datetime):
        return _datetime_ms(given)
    if isinstance(given, str):
        with contextlib.suppress(ValueError):
            return _iso_ms(given)
    return given


def _one(unit: str, found: Any) -> int:
    """Convert one time of this unit to milliseconds; raise if it is not a time."""
    if isinstance(found, datetime):
        return _datetime_ms(found)
    if unit == "iso":
        if not isinstance(found, str):
            raise TypeError(
                f"expected ISO text, as in '2026-01-31T12:00:00Z', but found {found!r:.60}; numbers take unit={units_said()}"
            )
        return _iso_ms(found)
    if isinstance(found, bool) or not isinstance(found, int | float):
        text = "; ISO text takes hg.field(…, unit='iso')" if isinstance(found, str) else ""
        raise TypeError(f"{found!r:.60} is not a time{text}")
    if isinstance(found, int):
        return whole_in_ms(unit, [found])[0]
    factor, divisor = NUMBERED[unit]
    return round(found * factor) if factor > 1 else floor(found / divisor)


def timestamps_of(of: When) -> Extract:
    """The function that extracts a column of event times from a column of values. Null values keep Kafka's timestamp."""
    if isinstance(of, str):
        of = TimeField(of)
    if not (isinstance(of, TimeField) or callable(of)):
        raise DeclarationError(f"timestamp={of!r}", remedy="a field's name, hg.field(…) or a function of the value")
    if isinstance(of, TimeField):
        check_selector(of.name, "timestamp")
        return _extract(nested_column_of(of.name), of.unit)
    check_function(of, "timestamp")
    return _extract(nested_column_of(of), "ms")


def times_of_column(unit: str) -> Extract:
    """The function that makes event times of a column of times in this unit. None of them is null."""
    return _extract(list, unit)


def _extract(column: Column, unit: str) -> Extract:
    def extract(values: list[Any], arrived: list[int]) -> list[int]:
        try:
            times = column(values)
            if unit == "iso":
                return check_times(list(map(_iso_ms, times)), "timestamp")
            kinds = set(map(type, times))
            if kinds <= INT:
                return check_times(whole_in_ms(unit, times), "timestamp")
            if unit == "s" and kinds <= NUMBERS:
                return check_times([round(one * 1000) for one in times], "timestamp")
        except BaseException:  # noqa: BLE001, S110 - the slow path below finds the row that failed
            pass
        result: list[int] = []
        for index, value in enumerate(values):
            if value is None:
                result.append(arrived[index])
                continue
            try:
                result.append(whole_ms(_one(unit, column([value])[0]), "timestamp"))
            except BaseException as cause:
                if passes(cause):
                    raise
                raise BadTimestamp(index, f"no event time: {said(cause)}") from cause
        return result

    return extract
