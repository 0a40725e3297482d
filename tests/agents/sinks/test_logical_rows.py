"""Times, dates, decimals, bytes, lists and nested objects in sinks: what arrives is the value, in the type that the target has for it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec
import pyarrow as pa
import pytest
from pyarrow import dataset

import headgate as hg
from headgate.core.errors import DeclarationError

from .conftest import Target


class Order(TypedDict):
    id: int
    at: datetime
    local: Annotated[datetime, msgspec.Meta(tz=False)] | None
    day: date
    price: Annotated[Decimal, hg.Digits(18, 2)] | None
    blob: bytes | None


class Item(TypedDict):
    sku: str
    price: Annotated[Decimal, hg.Digits(6, 2)] | None


class Customer(TypedDict):
    country: str
    since: date | None


class Whole(Order):
    items: list[Item]
    counts: dict[str, int] | None
    customer: Customer | None


SENT: list[dict[str, Any]] = [
    {
        "id": 1,
        "at": "2026-01-31T12:00:00.25+01:00",
        "local": "2026-01-31T12:00:00",
        "day": "2026-02-01",
        "price": "-1234567890123456.5",
        "blob": "YWI=",
        "items": [{"sku": "x", "price": "1.5"}, {"sku": "y", "price": None}],
        "counts": {"a": 7},
        "customer": {"country": "DE", "since": "2020-02-29"},
    },
    {
        "id": 2,
        "at": "1969-12-31T23:59:59Z",
        "local": None,
        "day": "1969-12-31",
        "price": None,
        "blob": None,
        "items": [],
        "counts": None,
        "customer": None,
    },
]
FLAT = [
    {
        "id": 1,
        "at": datetime(2026, 1, 31, 11, 0, 0, 250_000, UTC),
        "local": datetime(2026, 1, 31, 12),
        "day": date(2026, 2, 1),
        "price": Decimal("-1234567890123456.50"),
        "blob": b"ab",
    },
    {
        "id": 2,
        "at": datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
        "local": None,
        "day": date(1969, 12, 31),
        "price": None,
        "blob": None,
    },
]
MORE: list[dict[str, Any]] = [
    {
        "items": [{"sku": "x", "price": Decimal("1.50")}, {"sku": "y", "price": None}],
        "counts": [("a", 7)],
        "customer": {"country": "DE", "since": date(2020, 2, 29)},
    },
    {"items": [], "counts": None, "customer": None},
]
WHOLE = [{**flat, **more} for flat, more in zip(FLAT, MORE, strict=True)]


def delivered(kind: Any, columns: bool, to: Any) -> None:
    """Send the orders through a job whose stream ends as `to` says."""
    app = hg.App("shop")
    orders: Any = app.input("orders", serde=hg.json(kind), key="id")
    to(orders.columns() if columns else orders)
    with hg.testing.Driver(app) as d:
        d.send_all("orders", [dict(one) for one in SENT])
        d.end()


@pytest.mark.parametrize("columns", [True, False], ids=["columns", "rows"])
def test_a_database_has_their_types(columns: bool, target: Target) -> None:
    """SQLite has none of times and decimals, and gets their text; a row is found again by such a key."""
    delivered(Order, columns, lambda orders: orders.to_sql(target.url, "orders"))
    delivered(Order, columns, lambda orders: orders.to_sql(target.url, "days", key=("day", "id"), order="any"))
    if target.url.startswith("sqlite"):
        expected = [
            (1, "2026-01-31T11:00:00.250000Z", "2026-01-31T12:00:00", "2026-02-01", "-1234567890123456.50", b"ab"),
            (2, "1969-12-31T23:59:59Z", None, "1969-12-31", None, None),
        ]
        seconds = "CAST(strftime('%s', \"at\") AS INTEGER)"
    else:
        expected = [tuple(one.values()) for one in FLAT]
        seconds = 'CAST(floor(extract(epoch FROM "at")) AS BIGINT)'
    for table in ("orders", "days"):
        if target.url.startswith("duckdb"):  # which makes a datetime of a time with a zone by another library
            found = target.run(f"SELECT id, local, day, price, blob FROM {table} ORDER BY id")
            assert found == [(one[0], *one[2:]) for one in expected]
        else:
            assert target.run(f"SELECT * FROM {table} ORDER BY id") == expected
        assert target.run(f"SELECT {seconds} FROM {table} ORDER BY id") == [(1_769_857_200,), (-1,)]


@pytest.mark.parametrize("columns", [True, False], ids=["columns", "rows"])
def test_files_have_their_types(columns: bool, tmp_path: Path) -> None:
    """Lists, maps and nested objects, too; directories may be named by a date."""
    delivered(Whole, columns, lambda orders: orders.to_files(tmp_path / "whole"))
    delivered(Order, columns, lambda orders: orders.to_files(tmp_path / "days", partition_by="day"))
    whole, days = (dataset.dataset(hg.published(str(tmp_path / one))) for one in ("whole", "days"))
    assert sorted(whole.to_table().to_pylist(), key=lambda one: one["id"]) == WHOLE
    files = sorted(hg.published(str(tmp_path / "days")))
    assert ["day=1969-12-31" in files[0], "day=2026-02-01" in files[1]] == [True, True]
    assert days.to_table().num_rows == 2


@pytest.mark.parametrize("columns", [True, False], ids=["columns", "rows"])
def test_a_sink_of_ones_own_gets_the_types_of_arrow(columns: bool) -> None:
    got: list[Any] = []
    delivered(Whole, columns, lambda orders: orders.to_sink(Kept, into=got))
    (table,) = got
    assert table.to_pylist() == WHOLE
    assert table.schema.field("at").type == pa.timestamp("us", "UTC")
    assert table.schema.field("price").type == pa.decimal128(18, 2)


class Kept(hg.Sink):
    """Keeps what it gets, in a list of the test."""

    def __init__(self, into: list[Any]) -> None:
        self.into = into

    def write(self, rows: Any, batch: Any) -> None:
        self.into.append(rows)


@pytest.mark.parametrize(
    ("to", "why"),
    [
        (lambda o: o.to_sql("sqlite:////nowhere/x.db", "orders"), "takes no fields of nested objects"),
        (lambda o: o.to_files("/nowhere", partition_by="at"), "'at' is timestamp.*a date"),
        (lambda o: o.to_files("/nowhere", partition_by="customer.country"), "is a field of a nested object"),
    ],
)
def test_what_a_target_has_no_place_for_is_refused(to: Any, why: str) -> None:
    app = hg.App("shop")
    orders = app.input("orders", serde=hg.json(Whole)).columns()
    with pytest.raises(DeclarationError, match=why):
        to(orders)
