"""Columns of times, dates, decimals, bytes, lists and maps in a job: expressions, aggregates, windows, shuffles, and each way out."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import msgspec
import polars
import pyarrow
import pytest

import headgate as hg
from headgate.core.errors import DeclarationError

pytestmark = pytest.mark.usefixtures("either_part")


class Item(msgspec.Struct):
    sku: str
    price: Annotated[Decimal, hg.Digits(6, 2)] | None = None


class Order(TypedDict):
    user: str
    at: datetime
    day: date | None
    price: Annotated[Decimal, hg.Digits(12, 2)]
    blob: bytes | None
    items: list[Item]
    counts: dict[str, int] | None


class Inner(TypedDict):
    at: datetime


class Outer(TypedDict):
    user: str
    meta: Inner | None


def order(user: str = "a", at: str = "2026-01-31T12:00:00Z", price: Any = "1.50", **more: Any) -> dict[str, Any]:
    """An order as it stands in its topic."""
    return {
        "user": user,
        "at": at,
        "day": "2026-02-01",
        "price": price,
        "blob": "YWI=",
        "items": [{"sku": "x"}],
        **more,
    }


def app_of(kind: Any = Order, **given: Any) -> tuple[hg.App, Any]:
    """An app with an input of this type, as columns."""
    app = hg.App("shop", on_bad_data="dead_letter")
    return app, app.input("orders", serde=hg.json(kind), **given).columns()


def written(app: hg.App, sent: list[Any], topic: str = "out") -> list[Any]:
    """What the app makes of these records."""
    with hg.testing.Driver(app) as d:
        d.send_all("orders", sent)
        d.end()
        return [one.value for one in d.read(topic)]


def test_filtered_and_extended_records_keep_their_bytes() -> None:
    """A time stays in its zone, and a decimal as it was written."""
    app, orders = app_of()
    kept = orders.filter((hg.col("at") < datetime(2026, 2, 1, tzinfo=UTC)) & (hg.col("price") > 1))
    kept.with_columns(gross=hg.col("price") * Decimal("1.19"), hour=hg.col("at").hour()).to("out")
    one, other = order(at="2026-01-31T12:00:00.5+02:00", price=1.5), order(price="1.000")
    assert written(app, [one, other, order(at="2026-02-01T00:00:00Z")]) == [{**one, "gross": "1.7850", "hour": 10}]


def test_records_are_written_in_full_as_msgspec_writes_them() -> None:
    app, orders = app_of()
    orders.with_columns(user=hg.col("user").upper(), day=hg.col("at").cast(date)).to("out")
    assert written(app, [order(at="2026-01-31T12:00:00.5+02:00", price=1.5)]) == [
        order("A", at="2026-01-31T10:00:00.500000Z", day="2026-01-31") | {"counts": None}
    ]


def test_rows_have_values_of_python() -> None:
    """Of the declared types; behind an expression, in dicts. The row goes out again."""
    app, orders = app_of()
    seen: list[Any] = []
    orders.rows().map(lambda row: seen.append(row) or row).to("out")
    orders.with_columns(n=hg.col("price") * 2).rows().map(lambda row: seen.append(row) or 1).to("other")
    (found,) = written(app, [order(counts={"x": 1})])
    typed, plain = seen
    assert typed == {
        "user": "a",
        "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
        "day": date(2026, 2, 1),
        "price": Decimal("1.50"),
        "blob": b"ab",
        "items": [Item("x")],
        "counts": {"x": 1},
    }
    assert plain == {**typed, "items": [{"sku": "x"}], "n": Decimal("3.00")}
    assert found == order(at="2026-01-31T12:00:00+00:00", items=[{"sku": "x", "price": None}], counts={"x": 1})


def test_rows_become_columns() -> None:
    """A value of another type, or one that no column holds, is an error of its record."""
    app = hg.App("shop", on_error="dead_letter")

    def made(value: dict[str, Any]) -> dict[str, Any]:
        price = value["price"] if isinstance(value["price"], float) else Decimal(value["price"])
        return {"at": datetime.fromisoformat(value["at"]), "price": price, "items": [Item("y", Decimal("2.5"))]}

    class Few(TypedDict):
        at: datetime
        price: Annotated[Decimal, hg.Digits(6, 2)]
        items: list[Item]

    app.input("orders").map(made).columns(Few).filter(hg.col("price") > 0).to("out")
    with hg.testing.Driver(app) as d:
        for one in (order(), order(at="2026-01-31T12:00:00"), order(price="1.001"), order(price=1.5)):
            d.send("orders", one)
        assert [one.value for one in d.read("out")] == [
            {"at": "2026-01-31T12:00:00Z", "price": "1.50", "items": [{"sku": "y", "price": "2.5"}]}
        ]
        whys = [one.exception for one in d.dead_letters()]
    for why, part in zip(whys, ("without a time zone", "2 digits behind the point", "not a Decimal"), strict=True):
        assert part in why


def test_bad_values_are_bad_data() -> None:
    app, orders = app_of()
    orders.to("out")
    bad = {
        "at": "2026-01-31T12:00:00",
        "day": "31.1.",
        "price": "1.501",
        "blob": "!",
        "items": [{}],
        "counts": {"x": 1.5},
    }
    with hg.testing.Driver(app) as d:
        d.send_all("orders", [order(), *({**order(), name: value} for name, value in bad.items()), order(user="b")])
        assert [one.value["user"] for one in d.read("out")] == ["a", "b"]
        whys = [one.exception for one in d.dead_letters()]
    for name, kind, why in zip(bad, ("timestamp", "date", "decimal(12, 2)", "bytes", "list", "map"), whys, strict=True):
        assert f"the field '{name}' is no {kind}" in why


@pytest.mark.parametrize("count", [3, 300])
def test_aggregates_behind_a_shuffle(count: int) -> None:
    """In frames of rows and of columns. A sum of decimals is exact."""
    app, orders = app_of()
    grouped = orders.repartition("user")
    one = {"low": hg.min("at"), "high": hg.max("day"), "total": hg.sum("price")}
    more = {
        "first": hg.first("blob"),
        "last": hg.last("items"),
        "days": hg.count_distinct("day"),
        "top": hg.arg_max("price", "at"),
    }
    grouped.agg(**one, name="numbers").to("out")
    grouped.agg(**one, **more, name="all").to("more")
    grouped.window(hg.tumbling("1d")).agg(**one).to("windows")
    sent = [
        order(at=f"2026-01-31T12:{at // 60:02}:{at % 60:02}Z", price="0.10", day=f"2026-01-{at % 9 + 1:02}")
        for at in range(count)
    ]
    with hg.testing.Driver(app) as d:
        d.send_all("orders", sent)
        d.end()
        low, total = "2026-01-31T12:00:00+00:00", f"{count * Decimal('0.10')}"
        numbers, everything, window = (d.read(topic)[-1].value for topic in ("out", "more", "windows"))
    assert numbers == {"low": low, "high": f"2026-01-{min(count, 9):02}", "total": total}
    assert window.items() >= numbers.items()
    assert everything == {
        **numbers,
        "first": "YWI=",
        "last": [{"sku": "x"}],
        "days": min(count, 9),
        "top": "0.10",
    }


def test_a_sum_of_more_than_64_bits_is_exact() -> None:
    app, orders = app_of()
    orders.repartition("user").agg(total=hg.sum("price")).to("out")
    assert written(app, [order(price="9999999999.99")] * 20)[-1] == {"total": "199999999999.80"}


def test_the_event_time_may_be_a_timestamp() -> None:
    """Of columns and of rows, at the top and nested."""
    for columns in (True, False):
        app = hg.App("shop")
        orders: Any = app.input("orders", serde=hg.json(Order), timestamp="at")
        (orders.columns() if columns else orders).to("out")
        with hg.testing.Driver(app) as d:
            d.send("orders", order(at="1970-01-01T01:00:00.0019+01:00"))
            assert [one.timestamp for one in d.read("out")] == [1]
    app, orders = app_of(Outer, timestamp="meta.at")
    orders.filter(hg.col("meta.at").year() == 2026).select("user", hour=hg.col("meta.at").floor("1h")).to("out")
    assert written(app, [{"user": "a", "meta": {"at": "2026-01-31T12:34:56Z"}}]) == [
        {"user": "a", "hour": "2026-01-31T12:00:00Z"}
    ]


def test_functions_of_frames_get_arrow_types() -> None:
    """And give them back; rows keep their times."""
    app, orders = app_of()

    class Given(TypedDict):
        user: str
        at: datetime
        price: Annotated[Decimal, hg.Digits(12, 2)]
        items: list[Item]

    def later(df: Any) -> Any:
        return df.with_columns(at=polars.col("at").dt.offset_by("1d"), price=polars.col("price") * 2)

    orders.frame(later, like="polars", schema=Given).to("out")
    seen: list[Any] = []
    orders.sink(lambda batch: seen.append((batch["at"].values(), batch["user"].values(), pyarrow.record_batch(batch))))
    assert written(app, [order(items=[{"sku": "x", "price": "1.1"}])]) == [
        {"user": "a", "at": "2026-02-01T12:00:00Z", "price": "3.00", "items": [{"sku": "x", "price": "1.10"}]}
    ]
    times, users, batch = seen[0]
    assert (times, users) == ([datetime(2026, 1, 31, 12, tzinfo=UTC)], ["a"])
    assert str(batch.schema.field("at").type) == "timestamp[us, tz=UTC]"
    assert batch.to_pylist()[0]["price"] == Decimal("1.50")


def test_columns_pass_a_join_with_a_table() -> None:
    app, orders = app_of()
    names = app.input("names", key="user").table("names", broadcast=True)

    class Named(TypedDict):
        user: str
        name: str

    named = app.input("more", serde=hg.json(Named), key_serde=hg.text()).table("more", broadcast=True)
    orders.join(named, on="user", take=["name"]).filter(hg.col("price") > 1).select("name", "price", "items").to("out")
    assert names is not None
    with hg.testing.Driver(app) as d:
        d.send("more", {"user": "a", "name": "Ann"}, key="a")
        d.send("orders", order())
        assert [one.value for one in d.read("out")] == [{"name": "Ann", "price": "1.50", "items": [{"sku": "x"}]}]


@pytest.mark.parametrize("how", ["inner", "left", "outer"])
def test_two_streams_are_joined(how: Any) -> None:
    """The values of both sides are what they were, also of records that have waited in the table; without a partner they are null."""

    class Payment(TypedDict):
        user: str
        paid_at: datetime
        paid: Annotated[Decimal, hg.Digits(12, 2)]
        notes: dict[str, list[date]]

    app, orders = app_of(timestamp="at", key="user")
    payments = app.input("payments", serde=hg.json(Payment), timestamp="paid_at", key="user").columns()
    taken = {"paid_at": "paid_at", "paid": "paid", "notes": "notes"}
    both = orders.join(payments, within="1m", how=how, take=taken)
    assert str(both.schema["paid"]) == "paid: decimal(12, 2)" + (" | null" if how != "inner" else "")
    both.with_columns(late=hg.col("paid_at") > hg.col("at"), rest=hg.col("price") - hg.col("paid")).to("out")
    sent = [order(user, f"2026-01-31T12:0{at}:00.000001Z", price=f"{at}.10") for at, user in enumerate("abc")]
    pays = [
        {"user": "a", "paid_at": "2026-01-31T13:00:30+01:00", "paid": "0.05", "notes": {"x": ["2026-02-01"]}},
        {"user": "b", "paid_at": "2026-01-31T12:00:30Z", "paid": "1.1", "notes": {}},
        {"user": "d", "paid_at": "2026-01-31T12:00:40Z", "paid": "9.00", "notes": {}},
    ]
    with hg.testing.Driver(app) as d:
        d.send_all("orders", sent[:1])
        d.send_all("payments", pays)
        d.restart()
        d.send_all("orders", sent[1:])
        d.end()
        found = {one.key: one.value for one in d.read("out")}
    left = [{**one, "counts": None} for one in sent]
    expected = {
        "a": {**left[0], **pays[0], "paid_at": "2026-01-31T12:00:30Z", "late": True, "rest": "0.05"},
        "b": {**left[1], **pays[1], "paid": "1.10", "late": False, "rest": "0.00"},
    }
    if how != "inner":
        expected["c"] = {**left[2], **dict.fromkeys(("paid_at", "paid", "notes", "late", "rest"))}
    if how == "outer":
        expected["d"] = {**dict.fromkeys(left[0]), **pays[2], "user": None, "late": None, "rest": None}
    assert found == expected


def test_an_arrow_schema_may_have_these_types() -> None:
    inner = pyarrow.struct([pyarrow.field("sku", pyarrow.string(), nullable=False)])
    schema = pyarrow.schema(
        [
            pyarrow.field("at", pyarrow.timestamp("us", "UTC"), nullable=False),
            ("local", pyarrow.timestamp("us")),
            ("day", pyarrow.date32()),
            pyarrow.field("price", pyarrow.decimal128(12, 2), nullable=False),
            ("blob", pyarrow.binary()),
            pyarrow.field("items", pyarrow.list_(pyarrow.field("item", inner, nullable=False)), nullable=False),
            ("counts", pyarrow.map_(pyarrow.string(), pyarrow.int64())),
        ]
    )
    _, orders = app_of(schema)
    assert str(orders.schema) == (
        "at: timestamp, local: local timestamp | null, day: date | null, price: decimal(12, 2), blob: bytes | null, "
        "items: list[{sku: text}], counts: map[int64 | null] | null"
    )


@pytest.mark.parametrize(
    ("use", "why"),
    [
        (lambda o: o.repartition("items"), r"list.* makes no key.*hash"),
        (lambda o: o.to("out", key="blob"), r"bytes makes no key"),
        (lambda o: o.share("shared"), "share.* takes no columns of the type timestamp"),
        (lambda o: o.repartition("user").window(hg.tumbling("1m"), late="late"), "late=.*takes no columns of the type"),
        (lambda o: o.to_sql("sqlite:////nowhere/x.db", "orders"), r"takes no columns of the type list.*explode"),
        (lambda o: o.to_files("/nowhere", partition_by="price"), r"partition_by: 'price' is decimal\(12, 2\)"),
        (lambda o: o.join(o, within="1m", take={"u": "user"}, late="late"), "late=.*takes no columns of the type"),
        (lambda o: o.repartition("user").agg(x=hg.mean("price")), r"takes no decimal.*cast\(float\)"),
        (lambda o: o.repartition("user").agg(x=hg.sum("at")), "takes no timestamp"),
        (lambda o: o.repartition("user").agg(x=hg.min("items")), "takes no list"),
        (lambda o: o.repartition("user").agg(x=hg.collect("at")), "takes no timestamp"),
        (lambda o: o.repartition("user").agg(x=hg.first(["user", "at"])), "takes no timestamp"),
        (lambda o: o.repartition("user").agg(x=hg.arg_max("user", "items")), "takes no list"),
        (lambda o: o.filter(hg.col("at")), "not a condition"),
    ],
)
def test_what_does_not_take_them_says_so(use: Any, why: str) -> None:
    _, orders = app_of()
    with pytest.raises(DeclarationError, match=why):
        use(orders)


@pytest.mark.parametrize(
    ("hint", "why"),
    [
        (Decimal, r"hg.Digits\(12, 2\)"),
        (Annotated[datetime, msgspec.Meta(description="x")], "rules of its own"),
        (dict[int, str], "JSON has text as keys"),
        (list[object], "contains <class 'object'>"),
        (list[set[int]], "no column can hold"),
        (set[int], "no column can hold; columns are int, float, bool, str, datetime"),
    ],
)
def test_types_that_leave_something_open_are_refused(hint: Any, why: str) -> None:
    with pytest.raises(DeclarationError, match=why):
        app_of(TypedDict("Odd", {"x": hint}))


def test_digits_are_checked() -> None:
    for digits, scale in ((0, 0), (19, 2), (2, 3), (2, -1), (True, 0)):
        with pytest.raises(DeclarationError, match=r"hg.Digits\("):
            hg.Digits(digits, scale)


def test_states_say_of_which_type_they_are() -> None:
    """So that those of a column that was a whole number are not taken for times."""
    _, orders = app_of()
    step = orders.repartition("user").agg(low=hg.min("at"), total=hg.sum("price"), n=hg.count()).step
    assert [(one.name, one.type) for one in step.plan.fields] == [
        ("low", "timestamp"),
        ("total", "decimal(19, 2)"),
        ("n", step.plan.fields[2].type),
    ]
