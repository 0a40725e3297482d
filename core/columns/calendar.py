"""Times in milliseconds since 1970, in UTC, as parts of dates and as texts.

What it decides: what the parts of a time are, and which texts are times of a form. Promises:

- Every whole number of 64 bits has all parts, by the calendar of today, before 1582, too. The first day of a week is Monday, 0.
- A form is one of `strptime`, of directives that mean the same everywhere: no names of months, nothing that a locale decides. A text must
  have all digits of each, and nothing more; a time that does not exist, such as 30 February, is none.
- What was written by a form with a date, a time and `%f` reads as the same time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

DAY_MS = 86_400_000
DIRECTIVES = "YmdHMSfz%"
"""The directives that a form may have."""
_DIGITS = {"Y": 4, "m": 2, "d": 2, "H": 2, "M": 2, "S": 2}
_READ = {"f": "([0-9]{1,9}+)", "z": "(Z|[+-][0-9]{2}:?[0-9]{2})"}
_MONTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def date_of(days: int) -> tuple[int, int, int]:
    """The year, month and day of a number of days since 1970.

    >>> date_of(-1), date_of(11_016)
    ((1969, 12, 31), (2000, 2, 29))
    """
    era, day = divmod(days + 719_468, 146_097)  # of 400 years, which begin in March
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    return year + era * 400 + (month > 9), month + 3 if month < 10 else month - 9, day - (153 * month + 2) // 5 + 1


def days_of(year: int, month: int, day: int) -> int:
    """The number of days since 1970 of a date.

    >>> days_of(2000, 2, 29)
    11016
    """
    era, year = divmod(year - (month < 3), 400)
    month = month - 3 if month > 2 else month + 9
    return era * 146_097 + year * 365 + year // 4 - year // 100 + (153 * month + 2) // 5 + day - 1 - 719_468


PARTS: dict[str, Callable[[int], int]] = {
    "year": lambda ms: date_of(ms // DAY_MS)[0],
    "month": lambda ms: date_of(ms // DAY_MS)[1],
    "day": lambda ms: date_of(ms // DAY_MS)[2],
    "hour": lambda ms: ms // 3_600_000 % 24,
    "minute": lambda ms: ms // 60_000 % 60,
    "second": lambda ms: ms // 1000 % 60,
    "weekday": lambda ms: (ms // DAY_MS + 3) % 7,
}
"""The parts of a time."""


def pieces(form: str) -> Iterator[tuple[str, str]]:
    """The parts of a form: each a directive, or the empty text, and the letter that it stands for, or that stands there.

    >>> list(pieces("%Y-%%"))
    [('Y', ''), ('', '-'), ('', '%')]
    """
    letters = iter(form)
    for letter in letters:
        if letter != "%":
            yield "", letter
        elif (directive := next(letters, "")) == "%":
            yield "", "%"
        else:
            yield directive, ""


def reader(form: str) -> Callable[[str], int | None]:
    """The function that reads a time in this form; it gives None for a text that is none.

    >>> reader("%Y-%m-%dT%H:%M:%S.%f%z")("1970-01-02T01:00:00.25+01:00")
    86400250
    """
    parts = list(pieces(form))
    names = [directive for directive, _ in parts if directive]
    match = re.compile(
        "".join(
            _READ.get(directive) or f"([0-9]{{{_DIGITS[directive]}}})" if directive else re.escape(letter)
            for directive, letter in parts
        )
    ).fullmatch

    def read(text: str) -> int | None:
        found = match(text)
        return None if found is None else _time_of(dict(zip(names, found.groups(), strict=True)))

    return read


def _time_of(found: dict[str, str]) -> int | None:
    year, month, day, hour, minute, second = (int(found.get(name, "0")) for name in "YmdHMS")
    if not (
        year and 1 <= month <= 12 and 1 <= day <= _days_in(year, month) and hour < 24 and minute < 60 and second < 60
    ):
        return None
    zone = found.get("z", "Z")
    away = 0 if zone == "Z" else int(zone[1:3]) * 60 + int(zone[-2:])
    if zone != "Z" and (int(zone[1:3]) > 23 or int(zone[-2:]) > 59):
        return None
    minutes = (days_of(year, month, day) * 24 + hour) * 60 + minute - (-away if zone[0] == "-" else away)
    return (minutes * 60 + second) * 1000 + int(f"{found.get('f', ''):0<3}"[:3])


def _days_in(year: int, month: int) -> int:
    return _MONTHS[month - 1] + (month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0))


def writer(form: str) -> Callable[[int], str | None]:
    """The function that writes a time in this form; it gives None for a time before the year 1 or after 9999.

    >>> writer("%d.%m.%Y %H:%M")(86_400_000 + 60_000)
    '02.01.1970 00:01'
    """
    parts = list(pieces(form))

    def write(ms: int) -> str | None:
        days, left = divmod(ms, DAY_MS)
        year, month, day = date_of(days)
        if not 1 <= year <= 9999:
            return None
        minutes, left = divmod(left, 60_000)
        found = {
            "Y": f"{year:04}",
            "m": f"{month:02}",
            "d": f"{day:02}",
            "H": f"{minutes // 60:02}",
            "M": f"{minutes % 60:02}",
            "S": f"{left // 1000:02}",
            "f": f"{left % 1000 * 1000:06}",
            "z": "+0000",
        }
        return "".join(found[directive] if directive else letter for directive, letter in parts)

    return write
