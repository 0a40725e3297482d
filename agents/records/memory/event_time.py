"""Which numbers are event times, and what makes milliseconds of other units. Rows, columns, frames, executors and choosers ask here.

Event times lie strictly between minus `TIME_LIMIT` and `TIME_LIMIT`. What an input declares besides (`earliest=`, `max_future=`) only makes
that narrower: `are_times` with other bounds.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..layout import Buffer
from ..limits import TIME_LIMIT
from .longs import extremes, listed_extremes, scaled

FIRST_TIME, LAST_TIME = 1 - TIME_LIMIT, TIME_LIMIT - 1
UNITS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
"""What makes milliseconds of numbers of a unit: times the first, divided by the second."""


def is_time(time: int, least: int = FIRST_TIME, greatest: int = LAST_TIME) -> bool:
    """Whether this is an event time, within these bounds."""
    return least <= time <= greatest


def are_times(times: Sequence[int] | Buffer, least: int = FIRST_TIME, greatest: int = LAST_TIME) -> bool:
    """Whether all of these are, in one pass: a list, or a buffer of 64-bit integers.

    >>> are_times([5, 1 << 62]), are_times([5, 7], least=6), are_times([])
    (False, False, True)
    """
    if not len(times):
        return True
    first, last = _span(times) if isinstance(times, list) else extremes(times)
    return least <= first and last <= greatest


def latest(times: list[int]) -> int | None:
    """The greatest of these; None if there is none.

    >>> latest([5, 7, 6]), latest([])
    (7, None)
    """
    return _span(times)[1] if times else None


def _span(times: list[int]) -> tuple[int, int]:
    """The least and the greatest of a list that is not empty. What user code gave as times may be anything that compares."""
    return listed_extremes(times) or (min(times), max(times))


def whole_in_ms(unit: str, times: list[int]) -> list[int]:
    """Whole numbers of this unit as milliseconds, cut off towards the past.

    >>> whole_in_ms("us", [1999, -1]), whole_in_ms("s", [2])
    ([1, -1], [2000])
    """
    factor, divisor = UNITS[unit]
    if divisor > 1:
        return [one // divisor for one in times]
    return [one * factor for one in times] if factor > 1 else times


def column_in_ms(unit: str, times: Buffer) -> Buffer | None:
    """The same for a buffer of 64-bit integers; None if one of them is no event time."""
    factor, divisor = UNITS[unit]
    if len(times):
        least, greatest = extremes(times)
        if not (is_time(least * factor) and is_time(greatest * factor)):
            return None
    return times if factor == divisor else scaled(times, factor=factor, divisor=divisor)


def units_said() -> str:
    """The units of numbers, for messages.

    >>> units_said()
    "'s', 'ms', 'us' or 'ns'"
    """
    *most, last = map(repr, UNITS)
    return f"{', '.join(most)} or {last}"
