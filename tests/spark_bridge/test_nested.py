"""Nested objects reach Spark as structs, from columns and from rows, and structs come back as objects."""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec
import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver

pytestmark = [pytest.mark.spark]
SEEN = "id bigint, customer struct<country:string,address:struct<city:string,zip:bigint>>, address struct<city:string,zip:bigint>"


class Address(msgspec.Struct):
    city: str
    zip: int | None = None


class Customer(TypedDict):
    country: str
    address: Address | None


class Order(msgspec.Struct):
    id: int
    customer: Customer
    address: Address | None = None


SENT: list[dict[str, Any]] = [
    {"id": 1, "customer": {"country": "DE", "address": {"city": "Ulm", "zip": 5}}, "address": None},
    {"id": 2, "customer": {"country": "FR", "address": None}, "address": {"city": "Nice", "zip": None}},
]


@pytest.fixture
def session(warm: Any) -> Any:
    """As a user's own fixture would make it."""
    return warm.get()


def cities(df: Any, batch: Any) -> Any:
    """The nested fields by their names, and an object as it came."""
    from pyspark.sql import functions as F

    kinds = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in df.schema)
    city = F.coalesce("customer.address.city", "address.city")
    return df.select("id", city.alias("city"), "customer", F.lit(kinds).alias("kinds")).orderBy("id")


@pytest.mark.parametrize("way", ["columns", "rows", "gathered"])
def test_objects_are_structs(session: Any, way: str) -> None:
    """Their types follow from the declared type."""
    app = hg.App("shop")
    orders: Any = app.input("orders", serde=hg.json(Order))
    orders = orders if way == "rows" else orders.columns()
    orders = orders.gather() if way == "gathered" else orders
    schema = (
        "id long, city string, customer struct<country: string, address: struct<city: string, zip: long>>, kinds string"
    )
    orders.batch(name="lot", max_rows=2).spark(cities, schema=schema).to("cities")
    with Driver(app, spark=session) as d:
        d.send_all("orders", SENT)
        d.drain()
        found = [one.value for one in d.read("cities")]
    assert [(one["id"], one["city"], one["customer"]) for one in found] == [
        (1, "Ulm", SENT[0]["customer"]),
        (2, "Nice", SENT[1]["customer"]),
    ]
    assert found[0]["kinds"] == SEEN
