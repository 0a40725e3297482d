"""Columns of nested objects in a job: expressions read them, and objects come out whole."""

from __future__ import annotations

import dataclasses
from typing import Any, TypedDict

import msgspec
import pyarrow as pa
import pytest

import headgate as hg
from headgate.core.errors import DeclarationError

pytestmark = pytest.mark.usefixtures("either_part")


class Address(msgspec.Struct):
    city: str
    zip: int | None = None


class Customer(TypedDict):
    country: str
    address: Address | None


@dataclasses.dataclass
class Order:
    id: int
    customer: Customer
    ship: Address | None = None


class Event(msgspec.Struct):
    meta: Meta


class Meta(msgspec.Struct):
    ts: int
    user: str


class Tree(TypedDict):
    n: int
    child: Tree | None


class Both(TypedDict("Dotted", {"customer.country": str})):
    customer: Customer


class Late(TypedDict, total=False):
    customer: Customer


SENT: list[dict[str, Any]] = [
    {"id": 1, "customer": {"country": "DE", "address": {"city": "Ulm", "zip": 5}}, "ship": None},
    {"id": 2, "customer": {"country": "DE", "address": None, "odd": [1]}},
    {"customer": {"country": "FR"}, "ship": {"city": "Nice"}, "id": 3},
]


def app_of(kind: Any = Order, **given: Any) -> tuple[hg.App, Any]:
    """An app with an input of this type, as columns."""
    app = hg.App("shop", on_bad_data="dead_letter")
    return app, app.input("orders", serde=hg.json(kind), **given).columns()


def written(app: hg.App, sent: list[Any], topic: str = "out") -> list[Any]:
    """What the app makes of these records."""
    with hg.testing.Driver(app) as d:
        d.send_all("orders", sent)
        d.drain()
        return [one.value for one in d.read(topic)]


def test_filtered_records_are_their_original_bytes() -> None:
    """Down to the order of their fields."""
    app, orders = app_of()
    orders.filter(hg.col("customer.country") == "FR").to("out")
    found = written(app, SENT)
    assert found == [SENT[2]]
    assert list(found[0]) == ["customer", "ship", "id"]


def test_extended_records_keep_their_objects() -> None:
    """A record with a nested field that is not declared is written in full."""
    app, orders = app_of()
    orders.with_columns(city=hg.coalesce(hg.col("customer.address.city"), hg.col("ship.city"), "?").upper()).to("out")
    assert written(app, SENT) == [
        {**SENT[0], "city": "ULM"},
        {"id": 2, "customer": {"country": "DE", "address": None}, "ship": None, "city": "?"},
        {**SENT[2], "city": "NICE"},
    ]


def test_rows_are_whole_objects() -> None:
    """Of the declared types; dicts behind a step that adds a column."""
    app, orders = app_of()
    found: list[Any] = []
    orders.rows().sink(lambda batch: found.extend(one.value for one in batch))
    orders.with_columns(n=hg.col("id") + 1).rows().map(lambda row: [row["customer"], row["n"]]).to("out")
    assert written(app, SENT[2:]) == [[{"country": "FR", "address": None}, 4]]
    assert found == [Order(3, {"country": "FR", "address": None}, Address("Nice"))]


def test_columns_of_rows_are_read_in_their_objects() -> None:
    """And a value that does not fit is an error of its record."""
    app = hg.App("shop", on_error="dead_letter")
    rows = app.input("orders").map(lambda value: {**value, "ship": Address("Ulm")})
    rows.columns(Order).select("customer.country", "ship").to("out")
    with hg.testing.Driver(app) as d:
        d.send_all("orders", [SENT[0], {"id": 1, "customer": {"country": 7}}, {"id": 1, "customer": "DE"}])
        assert [one.value for one in d.read("out")] == [
            {"customer": {"country": "DE"}, "ship": {"city": "Ulm", "zip": None}}
        ]
        letters = [one.exception for one in d.dead_letters()]
    assert "the field 'customer.country' is 7, not text" in letters[0]
    assert "the field 'customer' is 'DE', not an object" in letters[1]


def test_bad_records_say_where() -> None:
    """The others go on."""
    app, orders = app_of()
    orders.to("out")
    bad = [{"id": 4}, {"id": 5, "customer": {"country": 5}}, {"id": 6, "customer": {"country": "X", "address": {}}}]
    with hg.testing.Driver(app) as d:
        d.send_all("orders", [*bad, SENT[0]])
        assert [one.value for one in d.read("out")] == [SENT[0]]
        letters = [one.exception for one in d.dead_letters()]
    for letter, what in zip(
        letters,
        ["'customer' is missing", "'customer.country' is of another type", "'customer.address.city' is missing"],
        strict=True,
    ):
        assert f"the field {what}" in letter


def test_nested_fields_go_through_shuffles_and_windows() -> None:
    """As keys, times and sums; an object comes whole out of a repartition."""
    app, events = app_of(Event, timestamp="meta.ts")
    by_user = events.repartition("meta.user")
    by_user.to("out")
    by_user.window(hg.tumbling("1s")).agg(n=hg.count(), last=hg.max("meta.ts")).to("windows")
    sent = [{"meta": {"ts": ts, "user": "a"}} for ts in range(0, 2000, 10)]
    with hg.testing.Driver(app) as d:
        d.send_all("orders", sent)
        d.drain()
        assert [one.value for one in d.read("out")] == sent
        assert [(one.value["n"], one.value["last"]) for one in d.read("windows")] == [(100, 990), (100, 1990)]


class Meta2(TypedDict):
    ts: int
    user: str


class Event2(TypedDict):
    meta: Meta2


@pytest.mark.parametrize("kind", [Event, Event2, None])
@pytest.mark.parametrize("columns", [False, True])
def test_time_and_key_of_an_input_may_be_nested(kind: Any, columns: bool) -> None:
    """Of rows and of columns, whatever the type is; of rows without a type, too."""
    if columns and kind is None:
        return
    app = hg.App("shop", on_bad_data="dead_letter")
    events: Any = app.input("orders", serde=hg.json(kind), timestamp="meta.ts", key="meta.user")
    (events.columns() if columns else events).to("out")
    with hg.testing.Driver(app) as d:
        d.send("orders", {"meta": {"ts": 7, "user": "a"}})
        d.send("orders", {"meta": {"user": "a"}})
        d.send("orders", {"meta": {"ts": 9}})
        assert [(one.key, one.timestamp, one.value) for one in d.read("out")] == [
            ("a", 7, {"meta": {"ts": 7, "user": "a"}})
        ]
        assert [one.offset for one in d.dead_letters()] == [1, 2]


@pytest.mark.parametrize("name", ["meta.tz", "mota.ts"])
@pytest.mark.parametrize("kind", [Event, Event2])
def test_a_nested_time_that_is_not_there_is_refused(kind: Any, name: str) -> None:
    """Where it is declared."""
    with pytest.raises(DeclarationError, match=r"no field '(tz|mota\.ts)'"):
        hg.App("shop").input("orders", serde=hg.json(kind), timestamp=name)


def test_an_object_is_selected_with_its_fields() -> None:
    """And asked whether it is there."""
    app, orders = app_of()
    orders.filter(~hg.col("ship").is_null()).select("ship", "customer.country", of=hg.col("id")).to("out")
    assert written(app, SENT) == [{"ship": {"city": "Nice", "zip": None}, "customer": {"country": "FR"}, "of": 3}]


def test_a_schema_of_arrow_may_have_structs() -> None:
    """They are objects."""
    inner = pa.struct([pa.field("country", pa.string(), nullable=False), ("zip", pa.int64())])
    app, orders = app_of(pa.schema([pa.field("customer", inner, nullable=False)]))
    assert str(orders.schema) == "customer.country: text, customer.zip: int64 | null"
    orders.rows().map(lambda row: row["customer"]["country"]).to("out")
    assert written(app, SENT) == ["DE", "DE", "FR"]


def test_an_expression_between_objects_and_functions_of_frames() -> None:
    """A function of a frame gets the fields as columns of their own."""
    app, orders = app_of()
    orders.frame(lambda frame: frame, like="pyarrow", schema=Order).to("out")
    assert written(app, SENT[2:]) == [
        {
            "id": 3,
            "customer": {"country": "FR", "address": None},
            "ship": {"city": "Nice", "zip": None},
        }
    ]


COUNTRY = hg.col("customer.country")


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda o: o.filter(hg.col("customer") == "DE"), "'customer' is an object, and its fields are columns"),
        (lambda o: o.filter(hg.col("ship")), "'ship' is an object"),
        (lambda o: o.filter(hg.col("ship") == "Ulm"), "'ship' is an object"),
        (lambda o: o.filter(hg.col("customer.contry") == "DE"), "no column 'customer.contry'"),
        (lambda o: o.with_columns(customer=COUNTRY), "is not replaced"),
        (lambda o: o.with_columns(**{"customer.country": COUNTRY}), "is not replaced"),
        (lambda o: o.select("customer.country", customer=COUNTRY), "has the name of an object"),
        (lambda o: o.select("customer", "customer.country"), "two columns 'customer.country'"),
        (lambda o: o.select(there=hg.col("ship")), "'ship' is an object"),
        (lambda o: o.repartition("ship"), "'ship' is an object"),
        (lambda o: o.repartition("id").agg(n=hg.min("ship")), "'ship' is an object"),
        (
            lambda o: o.to_sql("sqlite:////nowhere/x.db", "orders", key="id"),
            "to_sql.* takes no fields of nested objects",
        ),
        (lambda o: o.share("shared"), "share\\(\\) takes no fields"),
        (lambda o: o.repartition("id").window(hg.tumbling("1s"), late="late"), "late=…\\) takes no fields"),
    ],
)
def test_what_objects_cannot_be_is_refused(declare: Any, message: str) -> None:
    """With what to name instead."""
    with pytest.raises(DeclarationError, match=message) as refused:
        declare(app_of()[1])
    assert refused.value.remedy


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Both, "the field 'customer.country' and a nested field have one name"),
        (Tree, "may lie in itself"),
        (Late, "may be missing"),
        (TypedDict("Listed", {"inner": TypedDict("Inner", {"tags": set[str]})}), "the field 'tags' of Inner"),
    ],
)
def test_types_that_are_no_columns_are_refused(kind: Any, message: str) -> None:
    """At the declaration, with the field."""
    with pytest.raises(DeclarationError, match=message):
        app_of(kind)
