"""Types of columns beyond numbers, booleans and text: what they mean, and as what they are stored.

    timestamp         a point in time            int64: microseconds since 1970, in UTC
    local timestamp   a time without a zone      int64: the same, of that time as if it were UTC
    date              a day                      int64: days since 1970
    decimal(12, 2)    a number of 12 digits, two of them behind the point      int64: the number times 100
    bytes             bytes                      text: base64, as in JSON
    list, map         of any of these, and objects in them      text: JSON

What it decides: that such a column is one of the four stored types in all that compares, groups, stores and sends columns, and something
else only at the borders: where it is read, shown to a user, written, or given to another library. Promises:

- A type follows from the declaration alone, never from a value; it is frozen data, and has a plain form for other processes.
- `stored` and `shown` are inverse to each other for all values of the type, and exact: nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any, Final

TIMESTAMP: Final = "timestamp"
LOCAL: Final = "local timestamp"
DATE: Final = "date"
DECIMAL: Final = "decimal"
BYTES: Final = "bytes"
LIST: Final = "list"
MAP: Final = "map"
OBJECT: Final = "object"
TIMES = frozenset((TIMESTAMP, LOCAL))
WHOLE = frozenset((TIMESTAMP, LOCAL, DATE, DECIMAL))
"""Those that are stored as whole numbers, and have an order."""
JSON = frozenset((LIST, MAP))
"""Those that are stored as JSON."""
MOST_DIGITS: Final = 18
"""How many digits a declared decimal may have: as many as 64 bits hold, whatever they are."""
COMPUTED_DIGITS: Final = 19
"""How many digits 64 bits may hold: a sum, or a product, may have them."""
DAY_US = 86_400_000_000

_EPOCH, _LOCAL_EPOCH, _DAY_ONE = datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1), date(1970, 1, 1).toordinal()
_US = timedelta(microseconds=1)
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_LEAST, _MOST = (datetime.min - _LOCAL_EPOCH) // _US, (datetime.max - _LOCAL_EPOCH) // _US


class NotStorable(ValueError):
    """A value that a column of this type cannot hold; why not."""


@dataclass(frozen=True, slots=True)
class Logical:
    """A type. `of`: what a list, a map or an object contains, which may also be one of the four stored types, by its name."""

    name: str
    digits: int = 0
    """Of a decimal: how many digits it has in all."""
    scale: int = 0
    """Of a decimal: how many of them are behind the point."""
    of: tuple[Logical, ...] = ()
    fields: tuple[str, ...] = ()
    """Of an object: the names of its fields."""
    optional: bool = False
    """Of an element: whether it may be null."""

    def __str__(self) -> str:
        null = " | null" if self.optional else ""
        if self.name == DECIMAL:
            return f"decimal({self.digits}, {self.scale}){null}"
        if self.name == OBJECT:
            return f"{{{', '.join(f'{name}: {one}' for name, one in zip(self.fields, self.of, strict=True))}}}{null}"
        return f"{self.name}{f'[{self.of[0]}]' if self.of else ''}{null}"

    def plain(self) -> tuple[Any, ...]:
        """The same as plain values, for other processes."""
        return (
            self.name,
            self.digits,
            self.scale,
            tuple(one.plain() for one in self.of),
            self.fields,
            self.optional,
        )

    @classmethod
    def of_plain(
        cls, name: str, digits: int, scale: int, of: Sequence[Any], fields: Sequence[str], optional: bool
    ) -> Logical:
        """The type of these plain values."""
        return cls(name, digits, scale, tuple(cls.of_plain(*one) for one in of), tuple(fields), optional)


def decimal(digits: int, scale: int) -> Logical:
    """The type of decimals with so many digits, of which so many are behind the point."""
    return Logical(DECIMAL, digits, scale)


# ------------------------------------------------------------------------------------------------------------ one value


def stored(value: Any, kind: Logical) -> int:
    """A value of a type that is stored as a whole number.

    >>> stored(Decimal("12.5"), decimal(6, 2)), stored(date(1970, 1, 3), Logical(DATE))
    (1250, 2)
    """
    match kind.name:
        case "timestamp":
            return _time(value, True)
        case "local timestamp":
            return _time(value, False)
        case "date":
            if type(value) is not date:
                raise NotStorable("not a date")
            return value.toordinal() - _DAY_ONE
        case _:
            return _scaled(value, kind)


def _time(value: Any, zoned: bool) -> int:
    if not isinstance(value, datetime):
        raise NotStorable("not a datetime")
    if zoned != (value.utcoffset() is not None):
        raise NotStorable("without a time zone" if zoned else "with a time zone")
    found = (value - (_EPOCH if zoned else _LOCAL_EPOCH)) // _US
    if not _LEAST <= found <= _MOST:
        raise NotStorable("outside of the years 1 to 9999 in UTC")
    return found


def _scaled(value: Any, kind: Logical) -> int:
    if not isinstance(value, Decimal):
        raise NotStorable("not a Decimal")
    if not value.is_finite():
        raise NotStorable("not a finite number")
    if not value:
        return 0
    if value.adjusted() >= kind.digits - kind.scale:
        raise NotStorable(f"of more than {kind.digits - kind.scale} digits before the point")
    if value.adjusted() < -kind.scale:
        raise NotStorable(f"of more than {kind.scale} digits behind the point")
    whole, over = value.as_integer_ratio()  # small numbers now
    found, rest = divmod(whole * 10**kind.scale, over)
    if rest:
        raise NotStorable(f"of more than {kind.scale} digits behind the point")
    return found


def shown(number: int, kind: Logical) -> Any:
    """The value that is stored as this whole number.

    >>> shown(1250, decimal(6, 2)), shown(2, Logical(DATE))
    (Decimal('12.50'), datetime.date(1970, 1, 3))
    """
    match kind.name:
        case "timestamp":
            return _EPOCH + timedelta(microseconds=number)
        case "local timestamp":
            return _LOCAL_EPOCH + timedelta(microseconds=number)
        case "date":
            return date.fromordinal(number + _DAY_ONE)
        case _:
            return _EXACT.scaleb(Decimal(number), -kind.scale)


def stored_times(values: Sequence[Any], kind: Logical) -> list[int | None]:
    """Times as `stored` has them, faster. They have a zone if those of this type have one."""
    start = _EPOCH if kind.name == TIMESTAMP else _LOCAL_EPOCH
    away = [None if one is None else one - start for one in values]
    found = [None if d is None else (d.days * 86_400 + d.seconds) * 1_000_000 + d.microseconds for d in away]
    if any(one is not None and not _LEAST <= one <= _MOST for one in found):
        raise NotStorable("outside of the years 1 to 9999 in UTC")
    return found


def written(number: int, kind: Logical, seconds: dict[int, str]) -> str:
    """What is stored as this whole number as text, in ISO 8601 or as a decimal, as msgspec writes it. `seconds`: texts to use again.

    >>> written(1_500_000, Logical(TIMESTAMP), {}), written(-5, decimal(6, 2), {})
    ('1970-01-01T00:00:01.500000Z', '-0.05')
    """
    if kind.name == DATE:
        return date.fromordinal(number + _DAY_ONE).isoformat()
    if kind.name == DECIMAL:
        return str(shown(number, kind))
    second, us = divmod(number, 1_000_000)
    text = seconds.get(second)
    if text is None:
        text = seconds[second] = (_LOCAL_EPOCH + timedelta(0, second)).isoformat()
    fraction = f".{us:06}" if us else ""
    return f"{text}{fraction}Z" if kind.name == TIMESTAMP else text + fraction


def of_constant(value: Any) -> Logical | None:
    """The type of a constant; None if it is of a stored type.

    >>> str(of_constant(Decimal("9.99")))
    'decimal(3, 2)'
    """
    if isinstance(value, datetime):
        return Logical(TIMESTAMP if value.utcoffset() is not None else LOCAL)
    if isinstance(value, date):
        return Logical(DATE)
    if isinstance(value, Decimal):
        scale = max(0, -value.as_tuple().exponent) if value.is_finite() else 0  # type: ignore[operator]
        return decimal(max(len(value.as_tuple().digits), scale), scale)
    return None
