"""Event time: where `timestamp=` of an input says that it is.

A field's name means milliseconds since the epoch; `hg.field("ts", unit="s")` or `unit="iso"` other notations; a function takes the
value and returns milliseconds. What is missing or cannot be read is bad data of the record, with its index.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ...core.errors import DeclarationError
from ..cancellation import passes, said
from ..records.selecting import column_of
from ..records.writable import check_times, whole_ms
from .checks import check_function, check_selector

Extract = Callable[[list[Any], list[int]], list[int]]


@dataclass(frozen=True, slots=True)
class TimeField:
    """A field that holds the event time, and its unit."""

    name: str
    unit: str = "ms"


def field(name: str, *, unit: str = "ms") -> TimeField:
    """The event time stands in this field, as `ms` or `s` since the epoch, or as `iso` text.

    >>> field("ts", unit="iso")
    Field(name='ts', unit='iso')
    """
    if unit not in ("ms", "s", "iso"):
        raise DeclarationError(f"hg.field('{name}', unit={unit!r})", remedy="'ms', 's' or 'iso'")
    return TimeField(name, unit)


INT = frozenset((int,))
When = str | TimeField | Callable[[Any], Any]
"""A field's name, `hg.field(…)`, or a function of the value that returns milliseconds."""


class BadTimestamp(ValueError):
    """Row `index` has no event time that can be read."""

    def __init__(self, index: int, why: str) -> None:
        super().__init__(why)
        self.index = index


def _iso_ms(text: str) -> int:
    when = datetime.fromisoformat(text)
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def timestamps_of(of: When) -> Extract:
    """A column of event times from a column of values; null values keep Kafka's timestamp."""
    if isinstance(of, str):
        of = TimeField(of)
    if not (isinstance(of, TimeField) or callable(of)):
        raise DeclarationError(f"timestamp={of!r}", remedy="a field's name, hg.field(…) or a function of the value")
    if isinstance(of, TimeField):
        check_selector(of.name, "timestamp")
        column, unit = column_of(of.name), of.unit
    else:
        check_function(of, "timestamp")
        column, unit = column_of(of), "ms"

    def one(value: Any) -> int:
        found = column([value])[0]
        if unit == "iso":
            if not isinstance(found, str):
                raise TypeError(
                    f"expected ISO text, as in '2026-01-31T12:00:00Z', but found {found!r:.60}; numbers take unit='ms' or 's'"
                )
            return _iso_ms(found)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise TypeError(f"{found!r} is not a time")
        return round(found * 1000) if unit == "s" else int(found)

    def extract(values: list[Any], arrived: list[int]) -> list[int]:
        if unit == "ms":
            try:
                times = column(values)
                if INT.issuperset(map(type, times)):
                    return check_times(times, "timestamp")
            except BaseException:  # noqa: BLE001, S110 - the slow way below finds which row it was
                pass
        result: list[int] = []
        for index, value in enumerate(values):
            if value is None:
                result.append(arrived[index])
                continue
            try:
                result.append(whole_ms(one(value), "timestamp"))
            except BaseException as cause:
                if passes(cause):
                    raise
                raise BadTimestamp(index, f"no event time: {said(cause)}") from cause
        return result

    return extract
