"""Columns of times, decimals, bytes, lists and maps reach Spark with its own types, from columns and from rows, and come back."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import msgspec
import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver

pytestmark = [pytest.mark.spark]


class Item(msgspec.Struct):
    sku: str
    price: Annotated[Decimal, hg.Digits(10, 2)] | None = None


class Order(msgspec.Struct):
    id: int
    at: datetime
    local: Annotated[datetime, msgspec.Meta(tz=False)] | None
    day: date
    price: Annotated[Decimal, hg.Digits(12, 2)]
    blob: bytes | None
    items: list[Item]
    counts: dict[str, int] | None = None


SEEN = (
    "id bigint, at timestamp, local timestamp, day date, price decimal(12,2), blob binary, "
    "items array<struct<sku:string,price:decimal(10,2)>>, counts map<string,bigint>"
)
TAKEN = (
    "id",
    "unix_micros(at) as us",
    "cast(price * 2 as string) as twice",
    "cast(blob as string) as blob",
    "cast(day as string) as day",
    "cast(local as string) as local",
    "cast(get(items, 0).price as string) as price",
    "counts['x'] as x",
)
SENT: list[dict[str, Any]] = [
    {
        "id": 1,
        "at": "2026-01-02T03:04:05.000006+01:00",
        "local": "2026-01-02T03:04:05",
        "day": "2026-01-02",
        "price": "12.50",
        "blob": "YWJj",
        "items": [{"sku": "a", "price": "1.10"}, {"sku": "b"}],
        "counts": {"x": 1},
    },
    {"id": 2, "at": "1969-12-31T23:59:59Z", "day": "1969-12-31", "price": -7, "items": []},
]


@pytest.fixture
def session(warm: Any) -> Any:
    """As a user's own fixture would make it."""
    return warm.get()


def test_spark_has_the_declared_types(session: Any) -> None:
    """Of columns and of rows. What Spark makes of them comes back exactly."""
    for columns in (True, False):
        seen: list[str] = []

        def same(df: Any, batch: Any, seen: list[str] = seen) -> Any:
            seen.append(", ".join(f"{name} {kind}" for name, kind in df.dtypes))
            return df.selectExpr(*TAKEN)

        app = hg.App("shop", on_bad_data="fail")
        orders: Any = app.input("orders", serde=hg.json(Order))
        if columns:
            orders = orders.columns()
        schema = "id long, us long, twice string, blob string, day string, local string, price string, x long"
        orders.batch(max_rows=2).spark(same, schema=schema).to("out")
        with Driver(app, spark=session) as d:
            d.send_all("orders", SENT)
            d.drain()
            found = [one.value for one in d.read("out")]
        assert seen[0] == SEEN
        assert found == [
            {
                "id": 1,
                "us": int(datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC).timestamp()) * 1_000_000 + 6,
                "twice": "25.00",
                "blob": "abc",
                "day": "2026-01-02",
                "local": "2026-01-02 03:04:05",
                "price": "1.10",
                "x": 1,
            },
            {
                "id": 2,
                "us": -1_000_000,
                "twice": "-14.00",
                "blob": None,
                "day": "1969-12-31",
                "local": None,
                "price": None,
                "x": None,
            },
        ]


class Few(TypedDict):
    user: str
    at: datetime


def test_windows_of_columns_go_to_spark_with_their_times(session: Any) -> None:
    """Behind a filter, whose other rows are not looked at."""
    app = hg.App("shop")
    orders = app.input("orders", serde=hg.json(Few), timestamp="at").columns()
    late = orders.filter(hg.col("at") >= datetime(2026, 1, 1, tzinfo=UTC)).with_columns(day=hg.col("at").cast(date))
    window = late.repartition("user").window(hg.tumbling("1d"))
    window.spark(lambda df, batch: df.groupBy("day").count(), schema="day date, count long", name="days").to("out")
    with Driver(app, spark=session) as d:
        d.send_all("orders", [{"user": "a", "at": f"{year}-03-01T00:00:00Z"} for year in (2025, 2026, 2026)])
        d.end()
        assert [one.value for one in d.read("out")] == [{"day": "2026-03-01", "count": 2}]
