"""Examples of the page about columns: each function is one, and its first line says of what."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

import msgspec

import headgate as hg


class Order(msgspec.Struct, gc=False):
    country: str
    amount: float
    ts: int | None = None


class Rate(msgspec.Struct):
    rate: float


def column_stream() -> None:
    """ColumnStream"""
    app = hg.App("sales")
    orders = app.input("orders", serde=hg.json(Order)).columns()
    orders.filter(hg.col("amount") > 0).repartition("country").agg(total=hg.sum("amount")).to("totals")

    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [Order("DE", 3.0), Order("DE", 4.0), Order("FR", 0.0)])
        assert [record.value for record in driver.read("totals")] == [{"total": 7.0}]


def keep() -> None:
    """ColumnStream.filter"""
    app = hg.App("sales")
    orders = app.input("orders", serde=hg.json(Order)).columns()
    orders.filter((hg.col("amount") >= 10) & ~hg.col("country").is_in(["DE", "FR"])).to("others")

    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [Order("DE", 30.0), Order("IT", 30.0), Order("IT", 3.0)])
        assert [record.value["country"] for record in driver.read("others")] == ["IT"]


def merge() -> None:
    """ColumnStream.merge"""
    app = hg.App("all")
    web, shop = (
        app.input(topic, serde=hg.json(Order)).columns().select("country", "amount") for topic in ("web", "shop")
    )
    web.merge(shop).to("orders")

    with hg.testing.Driver(app) as driver:
        driver.send("web", Order("DE", 5.0))
        driver.send("shop", Order("FR", 3.0))
        assert [record.value["country"] for record in driver.read("orders")] == ["DE", "FR"]


def dedupe() -> None:
    """ColumnStream.dedupe"""
    app = hg.App("sales")
    app.input("orders", serde=hg.json(Order)).columns().repartition("country").dedupe().to("first-of-country")

    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [Order("DE", 100.0), Order("DE", 5.0), Order("FR", 5.0)])
        assert sorted(record.value["country"] for record in driver.read("first-of-country")) == ["DE", "FR"]


def branch() -> None:
    """ColumnStream.branch"""
    app = hg.App("sales")
    orders = app.input("orders", serde=hg.json(Order)).columns()
    large, german = orders.branch(hg.col("amount") >= 100, hg.col("country") == "DE")  # of those that are not large
    large.to("large")
    german.to("german")

    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [Order("DE", 100.0), Order("DE", 5.0), Order("FR", 5.0)])
        assert [len(driver.read(topic)) for topic in ("large", "german")] == [1, 1]


def select() -> None:
    """ColumnStream.select"""
    app = hg.App("sales")
    orders = app.input("orders", serde=hg.json(Order)).columns()
    orders.select("country", cents=hg.col("amount") * 100).to("cents")

    with hg.testing.Driver(app) as driver:
        driver.send("orders", Order("DE", 3.0, 1))
        assert [record.value for record in driver.read("cents")] == [{"country": "DE", "cents": 300.0}]


def key_as() -> None:
    """ColumnStream.key_as"""
    app = hg.App("sales")
    orders = app.input("orders", serde=hg.json(Order)).columns()
    totals = orders.repartition("country").agg(total=hg.sum("amount"))
    totals.as_events().columns().key_as("country").to("totals")

    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [Order("DE", 3.0), Order("FR", 4.0)])
        found = sorted((record.value["country"], record.value["total"]) for record in driver.read("totals"))
        assert found == [("DE", 3.0), ("FR", 4.0)]


def explode() -> None:
    """ColumnStream.explode"""

    class Cart(msgspec.Struct):
        user: str
        skus: list[str]

    app = hg.App("sales")
    carts = app.input("carts", serde=hg.json(Cart)).columns()
    carts.explode("skus", name="sku").to("lines")

    with hg.testing.Driver(app) as driver:
        driver.send_all("carts", [Cart("a", ["x", "y"]), Cart("b", [])])
        lines = [record.value for record in driver.read("lines")]
        assert lines == [{"user": "a", "sku": "x"}, {"user": "a", "sku": "y"}]


def join() -> None:
    """ColumnStream.join"""
    app = hg.App("sales")
    rates = app.input("rates", serde=hg.json(Rate), key_serde=hg.text()).table("rates", broadcast=True)
    orders = app.input("orders", serde=hg.json(Order)).columns()
    joined = orders.join(rates, on="country", take=["rate"], how="left")
    joined.with_columns(local=hg.col("amount") * hg.coalesce(hg.col("rate"), 1.0)).to("orders-in-local-currency")

    with hg.testing.Driver(app) as driver:
        driver.send("rates", Rate(0.5), key="SE")
        driver.send_all("orders", [Order("SE", 8.0), Order("DE", 8.0)])
        assert [record.value["local"] for record in driver.read("orders-in-local-currency")] == [4.0, 8.0]


def join_streams() -> None:
    """ColumnStream.join"""
    app = hg.App("sales")
    orders = app.input("orders", serde=hg.json(Order), key="country", timestamp="ts").columns()
    visits = app.input("visits", serde=hg.json(Order), key="country", timestamp="ts").columns()
    orders.join(visits, within="10s", take={"visit": "ts"}).to("orders-with-visits")

    with hg.testing.Driver(app) as driver:
        driver.send("orders", Order("DE", 3.0, 61_000))
        driver.send("visits", Order("DE", 0.0, 60_000))
        assert [record.value["visit"] for record in driver.read("orders-with-visits")] == [60_000]


def with_columns() -> None:
    """ColumnStream.with_columns"""
    app = hg.App("sales")
    orders = app.input("orders", serde=hg.json(Order)).columns()
    orders.with_columns(total=hg.col("amount") * 1.5, minute=hg.col("ts").floor("1m")).to("totals")

    with hg.testing.Driver(app) as driver:
        driver.send("orders", Order("DE", 10.0, 61_000))
        assert driver.read("totals")[0].value == {
            "country": "DE", "amount": 10.0, "ts": 61_000, "total": 15.0, "minute": 60_000,
        }  # fmt: skip


def repartition() -> None:
    """ColumnStream.repartition"""
    app = hg.App("sales")
    app.input("orders", serde=hg.json(Order)).columns().repartition("country").agg(n=hg.count()).to("counts")

    with hg.testing.Driver(app, partitions={"orders": 2}) as driver:
        driver.send("orders", Order("DE", 1.0), partition=0)
        driver.send("orders", Order("DE", 2.0), partition=1)
        assert driver.read("counts")[-1] == hg.Record("DE", {"n": 2}, 0)


def running_aggregates() -> None:
    """ColumnStream.agg"""
    app = hg.App("sales")
    orders = app.input("orders", serde=hg.json(Order), key="country").columns()
    orders.agg(n=hg.count(), mean=hg.mean("amount")).to("means")

    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [Order("DE", 3.0), Order("DE", 4.0)])
        assert driver.read("means")[-1].value == {"n": 2, "mean": 3.5}


def windows() -> None:
    """ColumnStream.window"""
    app = hg.App("sales")
    orders = app.input("orders", serde=hg.json(Order), key="country", timestamp="ts").columns()
    orders.window(hg.tumbling("1m")).agg(total=hg.sum("amount")).to("minutes")

    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [Order("DE", 3.0, 1_000), Order("DE", 4.0, 61_000)])
        assert driver.read("minutes")[0].value["total"] == 3.0


def frame() -> None:
    """ColumnStream.frame"""
    import polars

    class Doubled(msgspec.Struct):
        country: str
        twice: float

    def doubled(frame: polars.DataFrame) -> polars.DataFrame:
        return frame.select("country", twice=polars.col("amount") * 2)

    app = hg.App("sales")
    app.input("orders", serde=hg.json(Order)).columns().frame(doubled, like="polars", schema=Doubled).to("doubled")

    with hg.testing.Driver(app) as driver:
        driver.send("orders", Order("DE", 3.0))
        assert driver.read("doubled")[0].value == {"country": "DE", "twice": 6.0}


def rows() -> None:
    """ColumnStream.rows"""
    app = hg.App("sales")
    large = app.input("orders", serde=hg.json(Order)).columns().filter(hg.col("amount") >= 10)
    large.rows().map(lambda order: order.country.lower()).to("countries")

    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [Order("DE", 3.0), Order("FR", 30.0)])
        assert [record.value for record in driver.read("countries")] == ["fr"]


def write() -> None:
    """ColumnStream.to"""
    app = hg.App("sales")
    app.input("orders", serde=hg.json(Order)).columns().to("by-country", key="country")

    with hg.testing.Driver(app) as driver:
        driver.send("orders", Order("DE", 3.0, 5))
        assert driver.read("by-country")[0] == hg.Record("DE", {"country": "DE", "amount": 3.0, "ts": 5}, 0)


def share() -> None:
    """ColumnStream.share"""
    sales = hg.App("sales")
    sales.input("orders", serde=hg.json(Order)).columns().filter(hg.col("amount") > 0).share("paid", key="country")

    report = hg.App("report")
    report.input("paid", producers=["sales"], serde=hg.json(Order)).columns().to("large")

    with hg.testing.Driver(sales) as writer, hg.testing.Driver(report) as reader:
        writer.send("orders", Order("DE", 3.0))
        reader.follow("paid", writer)
        assert reader.read("large")[0].value["amount"] == 3.0


def sink() -> None:
    """ColumnStream.sink"""
    import polars

    sums: list[float] = []

    def store(batch: hg.ColumnBatch) -> None:
        sums.append(polars.DataFrame(batch)["amount"].sum())  # nothing is copied

    app = hg.App("sales")
    app.input("orders", serde=hg.json(Order)).columns().sink(store)

    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [Order("DE", 3.0), Order("FR", 4.0)])
    assert sums == [7.0]


def column_batch() -> None:
    """ColumnBatch"""
    import pyarrow

    seen: list[tuple[str, int, list[str]]] = []

    def look(batch: hg.ColumnBatch) -> None:
        arrow = pyarrow.record_batch(batch)
        seen.append((batch.stream, batch.partition, arrow.column_names))

    app = hg.App("sales")
    app.input("orders", serde=hg.json(Order)).columns().sink(look)

    with hg.testing.Driver(app) as driver:
        driver.send("orders", Order("DE", 3.0))
    assert seen == [("orders", 0, ["country", "amount", "ts"])]


def col() -> None:
    """col"""
    expression = (hg.col("amount") * 1.2 >= 10) & (hg.col("country") == "DE")
    assert "amount * 1.2" in repr(expression)


def parts_of_time() -> None:
    """Expression.year, Expression.month, Expression.day"""
    ts = hg.col("ts")
    date = ts.year() * 10_000 + ts.month() * 100 + ts.day()
    assert computed(date, Order("DE", 1.0, 1_795_771_800_000)) == [20261127]


def parts_of_day() -> None:
    """Expression.hour, Expression.minute, Expression.second"""
    ts = hg.col("ts")
    assert computed(ts.hour() * 10_000 + ts.minute() * 100 + ts.second(), Order("DE", 1.0, 1_795_771_805_000)) == [
        93005
    ]


def weekday() -> None:
    """Expression.weekday"""
    assert computed(hg.col("ts").weekday(), Order("DE", 1.0, 1_795_771_800_000)) == [4]  # a Friday


def strptime() -> None:
    """Expression.strptime"""
    Event = msgspec.defstruct("Event", [("at", str)])
    assert computed(hg.col("at").strptime("%Y-%m-%dT%H:%M:%S%z"), Event("2026-11-27T09:30:00Z"), kind=Event) == [
        1_795_771_800_000
    ]


def strftime() -> None:
    """Expression.strftime"""
    assert computed(hg.col("ts").strftime("%d.%m.%Y %H:%M"), Order("DE", 1.0, 1_795_771_800_000)) == [
        "27.11.2026 09:30"
    ]


def absolute() -> None:
    """Expression.abs"""
    assert computed(hg.col("amount").abs(), Order("DE", -3.5)) == [3.5]


def rounded() -> None:
    """Expression.round"""
    assert computed(hg.col("amount").round(2), Order("DE", 3.14159)) == [3.14]
    assert computed(hg.col("amount").round(), Order("DE", 2.5)) == [2.0]


def hashed() -> None:
    """Expression.hash"""
    assert computed(hg.col("country").hash(), Order("DE", 1.0)) == [-2325406367082704377]
    tenth = hg.col("country").hash() % 10 == 0  # of the countries, always the same
    assert computed(tenth, Order("DE", 1.0)) == [False]


def least() -> None:
    """least"""
    assert computed(hg.least(hg.col("amount"), hg.col("ts"), 100), Order("DE", 3.5, 7)) == [3.5]


def greatest() -> None:
    """greatest"""
    assert computed(hg.greatest(hg.col("amount"), 0), Order("DE", -3.5)) == [0.0]


def lower() -> None:
    """Expression.lower"""
    assert computed(hg.col("country").lower(), Order("DE", 1.0)) == ["de"]


def upper() -> None:
    """Expression.upper"""
    assert computed(hg.col("country").upper(), Order("de", 1.0)) == ["DE"]


def strip() -> None:
    """Expression.strip"""
    assert computed(hg.col("country").strip(), Order(" DE\n", 1.0)) == ["DE"]
    assert computed(hg.col("country").strip("/"), Order("/DE/", 1.0)) == ["DE"]


def length() -> None:
    """Expression.length"""
    assert computed(hg.col("country").length(), Order("Österreich", 1.0)) == [10]


def sliced() -> None:
    """Expression.slice"""
    assert computed(hg.col("country").slice(0, 2), Order("DE-BY", 1.0)) == ["DE"]
    assert computed(hg.col("country").slice(-2), Order("DE-BY", 1.0)) == ["BY"]


def split() -> None:
    """Expression.split"""
    assert computed(hg.col("country").split("-", 1), Order("DE-BY", 1.0), Order("FR", 1.0)) == ["BY", None]


def replaced() -> None:
    """Expression.replace"""
    assert computed(hg.col("country").replace("-", "/"), Order("DE-BY", 1.0)) == ["DE/BY"]


def matches() -> None:
    """Expression.matches"""
    assert computed(hg.col("country").matches(r"^[A-Z]{2}$"), Order("DE", 1.0), Order("Italy", 1.0)) == [True, False]


def concat() -> None:
    """concat"""
    assert computed(hg.concat(hg.col("country"), "-", hg.col("ts").cast(str)), Order("DE", 1.0, 7)) == ["DE-7"]


def when() -> None:
    """when"""
    size = hg.when(hg.col("amount") >= 100).then("large").when(hg.col("amount") >= 10).then("middle").otherwise("small")
    assert computed(size, Order("DE", 100.0), Order("DE", 30.0), Order("DE", 3.0)) == ["large", "middle", "small"]
    german = hg.when(hg.col("country") == "DE").then(1000 / hg.col("amount"))  # the amounts of others may be zero
    assert computed(german, Order("DE", 100.0), Order("FR", 0.0)) == [10.0, None]


def coalesce() -> None:
    """coalesce"""
    Named = msgspec.defstruct("Named", [("nickname", str | None, None), ("name", str | None, None)])
    shown = hg.coalesce(hg.col("nickname"), hg.col("name"), "guest")
    assert computed(shown, {"nickname": "Al", "name": "Albert"}, {"name": "Eve"}, {}, kind=Named) == [
        "Al",
        "Eve",
        "guest",
    ]


def digits() -> None:
    """Digits"""
    Priced = msgspec.defstruct("Priced", [("price", Annotated[Decimal, hg.Digits(12, 2)])])
    assert computed(hg.col("price") * 3, {"price": "0.10"}, {"price": 2}, kind=Priced) == ["0.30", "6.00"]


def computed(expression: hg.Expression, *orders: Any, kind: Any = Order) -> list[Any]:
    """The values of an expression for these rows."""
    app = hg.App("expressions")
    app.input("orders", serde=hg.json(kind)).columns().with_columns(found=expression).to("found")
    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", orders)
        return [record.value["found"] for record in driver.read("found")]


def expression() -> None:
    """Expression"""
    assert computed(hg.col("amount") * 2 - 1, Order("DE", 3.0)) == [5.0]
    assert computed((hg.col("amount") > 2) & (hg.col("country") != "FR"), Order("DE", 3.0)) == [True]


def is_null() -> None:
    """Expression.is_null"""
    Maybe = msgspec.defstruct("Maybe", [("amount", float | None, None)])
    assert computed(hg.col("amount").is_null(), {"amount": 3.0}, {}, kind=Maybe) == [False, True]


def is_in() -> None:
    """Expression.is_in"""
    assert computed(hg.col("country").is_in(["DE", "FR"]), Order("DE", 1.0), Order("IT", 1.0)) == [True, False]


def cast() -> None:
    """Expression.cast"""
    assert computed(hg.col("amount").cast(int), Order("DE", 3.7)) == [3]


def starts_with() -> None:
    """Expression.starts_with"""
    assert computed(hg.col("country").starts_with("D"), Order("DE", 1.0), Order("IT", 1.0)) == [True, False]


def contains() -> None:
    """Expression.contains"""
    assert computed(hg.col("country").contains("E"), Order("DE", 1.0), Order("IT", 1.0)) == [True, False]


def floor() -> None:
    """Expression.floor"""
    assert computed(hg.col("ts").floor("1m"), Order("DE", 1.0, 61_500)) == [60_000]
