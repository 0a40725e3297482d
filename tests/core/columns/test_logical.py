"""Logical types: what is stored, what is refused, and what expressions over them give, beside Python's own datetimes and decimals."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.columns import expressions as e
from headgate.core.columns.evaluate import NotComputable, compiled
from headgate.core.columns.logical import (
    DATE,
    LIST,
    LOCAL,
    TIMESTAMP,
    Logical,
    NotStorable,
    decimal,
    of_constant,
    shown,
    stored,
    stored_times,
    written,
)
from headgate.core.columns.schema import FLOAT, INT, TEXT, ColumnSchema, ColumnSpec
from headgate.core.columns.typing import column_of
from headgate.core.errors import DeclarationError

PRICE = decimal(12, 2)
SCHEMA = ColumnSchema(
    (
        ColumnSpec("at", INT, True, logical=Logical(TIMESTAMP)),
        ColumnSpec("local", INT, True, logical=Logical(LOCAL)),
        ColumnSpec("day", INT, True, logical=Logical(DATE)),
        ColumnSpec("price", INT, True, logical=PRICE),
        ColumnSpec("rate", INT, True, logical=decimal(6, 4)),
        ColumnSpec("n", INT, True),
        ColumnSpec("f", FLOAT),
        ColumnSpec("tags", TEXT, logical=Logical(LIST, of=(Logical(TEXT),))),
    )
)
at, local, day, price, rate, n = map(e.col, ("at", "local", "day", "price", "rate", "n"))
ZONES = st.timezones() | st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=st.just(UTC))
NEAR = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))
PRICES = st.decimals(-(10**10) + 1, 10**10 - 1, places=2)
RATES = st.decimals(-99, 99, places=4)


def outcome(of: e.Expression, **row: Any) -> Any:
    """The value of an expression of one row, as a user sees it; the error if it has none."""
    kinds = {one.name: one.logical for one in SCHEMA.columns}
    columns = {
        name: [value if value is None or (kind := kinds[name]) is None else stored(value, kind)]
        for name, value in row.items()
    }
    made = column_of("made", of.node, SCHEMA)
    try:
        (found,) = compiled(of.node, SCHEMA)(columns, 1)
    except NotComputable as error:
        return error
    return found if found is None or made.logical is None else shown(found, made.logical)


# --------------------------------------------------------------------------------------------------------------- storing


@given(MOMENTS, ZONES)
def test_a_time_is_stored_exactly(moment: datetime, zone: Any) -> None:
    """In whatever zone it is given: it comes back as the same point in time, in UTC."""
    kind = Logical(TIMESTAMP)
    found = shown(stored(moment.astimezone(zone), kind), kind)
    assert found == moment
    assert found.tzinfo is UTC


@given(NEAR)
def test_local_times_and_dates_are_stored_exactly(moment: datetime) -> None:
    """From the first to the last of them, and in their order."""
    assert shown(stored(moment, Logical(LOCAL)), Logical(LOCAL)) == moment
    assert shown(stored(moment.date(), Logical(DATE)), Logical(DATE)) == moment.date()


@given(st.integers(1, 18).flatmap(lambda digits: st.tuples(st.just(digits), st.integers(0, digits))), st.decimals())
def test_a_decimal_is_stored_exactly_or_not_at_all(kind: tuple[int, int], value: Decimal) -> None:
    """It is never rounded."""
    digits, scale = kind
    try:
        found = stored(value, decimal(digits, scale))
    except NotStorable:
        assert not value.is_finite() or not fits(value, digits, scale)
        return
    assert fits(value, digits, scale)
    assert shown(found, decimal(digits, scale)) == value
    assert -found.bit_length() or not found or len(str(abs(found))) <= digits


def fits(value: Decimal, digits: int, scale: int) -> bool:
    """By another way: as a fraction."""
    whole, over = value.as_integer_ratio()
    return 10**scale * whole % over == 0 and abs(10**scale * whole // over) < 10**digits


@pytest.mark.parametrize(
    ("value", "kind", "why"),
    [
        (datetime(2026, 1, 1), Logical(TIMESTAMP), "without a time zone"),
        (datetime(2026, 1, 1, tzinfo=UTC), Logical(LOCAL), "with a time zone"),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))), Logical(TIMESTAMP), "years 1 to 9999"),
        (datetime(9999, 12, 31, 23, 30, tzinfo=timezone(timedelta(hours=-1))), Logical(TIMESTAMP), "years 1 to 9999"),
        ("2026-01-01", Logical(TIMESTAMP), "not a datetime"),
        (datetime(2026, 1, 1), Logical(DATE), "not a date"),
        (1.5, PRICE, "not a Decimal"),
        (Decimal("NaN"), PRICE, "not a finite number"),
        (Decimal("1E+30"), PRICE, "10 digits before the point"),
        (Decimal("0.001"), PRICE, "2 digits behind the point"),
        (Decimal("1E-999999"), PRICE, "2 digits behind the point"),
    ],
)
def test_what_cannot_be_stored_says_why(value: Any, kind: Logical, why: str) -> None:
    with pytest.raises(NotStorable, match=why):
        stored(value, kind)


def test_types_have_a_plain_form() -> None:
    """For other processes; and they say what they are."""
    item = Logical("object", of=(Logical(TEXT), decimal(6, 2)), fields=("sku", "price"), optional=True)
    for kind, said in [
        (Logical(TIMESTAMP), "timestamp"),
        (PRICE, "decimal(12, 2)"),
        (Logical("list", of=(item,)), "list[{sku: text, price: decimal(6, 2)} | null]"),
    ]:
        assert Logical.of_plain(*kind.plain()) == kind
        assert str(kind) == said
        spec = ColumnSpec("x", TEXT if kind.name == "list" else INT, True, logical=kind)
        assert ColumnSpec.of_plain(*spec.plain()) == spec
        assert str(spec) == f"x: {said} | null"
    assert [str(of_constant(one)) for one in (Decimal("-0.05"), Decimal("1E+2"), date(2026, 1, 1), 5)] == [
        "decimal(2, 2)",
        "decimal(1, 0)",
        "date",
        "None",
    ]


@given(st.lists(st.none() | MOMENTS, max_size=5), st.lists(st.none() | NEAR, max_size=5))
def test_many_times_are_stored_and_written_as_one(moments: list[Any], near: list[Any]) -> None:
    """Beside `isoformat`."""
    for kind, values in ((Logical(TIMESTAMP), moments), (Logical(LOCAL), near)):
        found = stored_times(values, kind)
        assert found == [None if one is None else stored(one, kind) for one in values]
        seconds: dict[int, str] = {}
        for number, value in zip(found, values, strict=True):
            if number is not None:
                assert written(number, kind, seconds) == value.isoformat().replace("+00:00", "Z")


def test_times_outside_of_all_years_are_not_stored() -> None:
    first = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    with pytest.raises(NotStorable, match="years 1 to 9999"):
        stored_times([None, first], Logical(TIMESTAMP))


@given(PRICES, st.dates())
def test_decimals_and_dates_are_written_as_python_does(price: Decimal, day: date) -> None:
    number = stored(price, PRICE)
    assert written(number, PRICE, {}) == str(price if price else abs(price))
    assert written(stored(day, Logical(DATE)), Logical(DATE), {}) == str(day)


def test_schemas_know_what_they_are_stored_as() -> None:
    assert SCHEMA.logical
    assert str(SCHEMA.stored.only({"at", "tags"})) == "at: int64 | null, tags: text"
    assert SCHEMA.stored.stored is SCHEMA.stored
    SCHEMA.stored.only_stored("share()")
    with pytest.raises(DeclarationError, match=r"share\(\) takes no columns of the type timestamp, such as 'at'"):
        SCHEMA.only_stored("share()")


# ----------------------------------------------------------------------------------------------------------- expressions


def test_a_constant_may_be_a_column() -> None:
    assert outcome(e.Expression(e.constant(Decimal("1.50"), "x")), f=0.0) == Decimal("1.50")
    found = column_of("made", e.constant(date(2026, 1, 1), "x"), SCHEMA)
    assert found.said == "date"


@given(MOMENTS, MOMENTS)
def test_times_are_compared_and_have_parts(one: datetime, other: datetime) -> None:
    for compare in (operator.lt, operator.le, operator.eq, operator.ne, operator.ge, operator.gt):
        assert outcome(compare(at, other), at=one) is compare(one, other)
    parts = [
        outcome(getattr(at, part)(), at=one) for part in ("year", "month", "day", "hour", "minute", "second", "weekday")
    ]
    assert parts == [one.year, one.month, one.day, one.hour, one.minute, one.second, one.weekday()]
    assert outcome(at.cast(date), at=one) == one.date()
    assert outcome(at.cast(int), at=one) == (one - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert outcome(at.strftime("%Y-%m-%d %H:%M:%S"), at=one) == f"{one.replace(microsecond=0, tzinfo=None)}"
    assert outcome(at.floor("1h"), at=one) == one.replace(minute=0, second=0, microsecond=0)
    assert outcome(e.least(at, other), at=one) == min(one, other)
    assert outcome(at.is_in([one, other]), at=other) is True


@given(NEAR.map(datetime.date), NEAR)
def test_dates_and_local_times(one: date, moment: datetime) -> None:
    assert [outcome(part, day=one) for part in (day.year(), day.month(), day.day(), day.weekday())] == [
        one.year,
        one.month,
        one.day,
        one.weekday(),
    ]
    assert outcome(day.strftime("%Y-%m-%d"), day=one) == one.isoformat()
    assert outcome(day == one, day=one) is True
    assert outcome(local.cast(date) == day, local=moment, day=moment.date()) is True
    assert outcome(local >= moment, local=moment) is True


@given(PRICES, RATES, st.integers(-(10**9), 10**9))
def test_decimals_are_computed_exactly(a: Decimal, b: Decimal, m: int) -> None:
    """Python's decimals in a wide context are the oracle; what needs more than 64 bits is an error."""
    cases: list[tuple[e.Expression, Any]] = [
        (price + rate, a + b),
        (price - rate, a - b),
        (rate - price, b - a),
        (price * rate, a * b),
        (price * n, a * m),
        (n * price, a * m),
        (price + n, a + m),
        (5 - price, 5 - a),
        (price * Decimal("1.19"), a * Decimal("1.19")),
        (-price, -a),
        (price.abs(), abs(a)),
        (e.coalesce(price, 0), a),
        (e.greatest(price, Decimal("0.5")), max(a, Decimal("0.5"))),
        (e.when(price > 0).then(price).otherwise(n), a if a > 0 else Decimal(m)),
    ]
    for of, wanted in cases:
        scale = column_of("x", of.node, SCHEMA).logical
        assert scale is not None
        found = outcome(of, price=a, rate=b, n=m)
        if abs(wanted) * 10**scale.scale < 2**63:
            assert found == wanted, of
            assert found.as_tuple().exponent == -scale.scale
        else:
            assert isinstance(found, NotComputable)
    for compare in (operator.lt, operator.eq, operator.ge):
        assert outcome(compare(price, n), price=a, n=m) is compare(a, m)
        assert outcome(compare(price, Decimal("1.5")), price=a) is compare(a, Decimal("1.5"))
    assert outcome(price.cast(float), price=a) == pytest.approx(float(a), rel=1e-15)


def test_null_is_null() -> None:
    row: dict[str, Any] = {"at": None, "price": None, "n": None, "day": None}
    for of in (at.year(), price * 2, price > 1, day.cast(int), at.floor("1d"), e.least(price, 1)):
        assert outcome(of, **row) is None
    assert outcome(price.is_null(), **row) is True
    assert outcome(e.coalesce(at, datetime(2026, 1, 1, tzinfo=UTC)), **row) == datetime(2026, 1, 1, tzinfo=UTC)


def test_a_sum_beyond_64_bits_is_an_error_of_its_record() -> None:
    big = Decimal("9999999999.99")
    assert isinstance(outcome(price * price * 1000000, price=big), NotComputable)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: at + 1, r"\+ takes no timestamp.*cast\(int\)"),
        (lambda: at - at, "- takes no timestamp"),
        (lambda: price / 2, r"/ takes no decimal\(12, 2\).*cast\(float\)"),
        (lambda: price // 2, "takes no decimal"),
        (lambda: price + at, "takes no timestamp"),
        (lambda: price + e.col("f"), "whole numbers, and f is float64"),
        (lambda: at > 5, "not of one type"),
        (lambda: at > local, "point in time"),
        (lambda: at > datetime(2026, 1, 1), "point in time"),
        (lambda: day > datetime(2026, 1, 1), "not of one type"),
        (lambda: n == date(2026, 1, 1), "not of one type"),
        (lambda: price == rate, "not of one type"),
        (lambda: price == Decimal("0.001"), "2 digits behind the point"),
        (lambda: price.is_in([0.5]), "not all of the values"),
        (lambda: n.is_in([date(2026, 1, 1)]), "n is a plain value"),
        (lambda: day.hour(), "hour takes no date"),
        (lambda: day.floor("1h"), "floor takes no date"),
        (lambda: at.cast(str), "strftime"),
        (lambda: n.cast(date), "only a timestamp"),
        (lambda: price.cast(str), "takes no decimal"),
        (lambda: at.length(), "length takes no timestamp"),
        (lambda: e.col("tags") == e.col("tags"), "takes no list"),
        (lambda: e.col("tags").length(), "takes no list.*is_null"),
        (lambda: e.col("tags").hash(), "takes no list"),
        (lambda: e.when(at).then(1), "compare it"),
        (lambda: e.coalesce(at, 5), "not of one type"),
        (lambda: rate * rate * rate * rate * rate, "20 digits behind the point"),
        (lambda: price > 10**18, "64 bits"),
    ],
)
def test_what_has_no_meaning_is_refused(make: Callable[[], e.Expression], why: str) -> None:
    with pytest.raises(DeclarationError, match=why):
        column_of("made", make().node, SCHEMA)
