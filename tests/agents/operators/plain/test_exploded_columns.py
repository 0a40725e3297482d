"""`.explode(…)`: a row for each element of a list, with what it keeps of its record."""

from __future__ import annotations

import random
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import msgspec
import orjson
import pytest

import headgate as hg
from headgate.agents.records.logical.elements import ElementReader
from headgate.agents.records.memory.vectors import Vector
from headgate.core.columns.evaluate import NotComputable
from headgate.core.columns.logical import Logical
from headgate.core.errors import DeclarationError

pytestmark = pytest.mark.usefixtures("either_part")


class Size(msgspec.Struct):
    cm: float
    unit: str | None = None


class Item(msgspec.Struct, rename={"n": "count"}):
    sku: str
    n: int | None = None
    price: Annotated[Decimal, hg.Digits(6, 2)] | None = None
    size: Size | None = None
    tags: list[str | None] | None = None


class Order(TypedDict):
    id: int
    user: str | None
    items: list[Item | None] | None
    days: list[date]
    names: list[str]


class Meta(TypedDict):
    at: datetime
    marks: list[float | None] | None


class Nested(TypedDict):
    id: int
    meta: Meta | None


FULL = {
    "sku": "x",
    "count": 2,
    "price": "1.50",
    "size": {"cm": 2.5, "unit": "in"},
    "tags": ["a", None, 'ü"\n'],
}
BARE = {"sku": "y", "count": None, "price": None, "size": None, "tags": None}


def order(number: int, **more: Any) -> dict[str, Any]:
    """An order as it stands in its topic."""
    return {"id": number, "user": "a", "items": [], "days": [], "names": [], **more}


def app_of(kind: Any = Order, **given: Any) -> tuple[hg.App, Any]:
    """An app with an input of this type, as columns."""
    app = hg.App("shop", on_bad_data="dead_letter", on_error="dead_letter")
    return app, app.input("orders", serde=hg.json(kind), **given).columns()


def written(app: hg.App, sent: list[Any], topic: str = "out") -> list[Any]:
    """What the app makes of these records."""
    with hg.testing.Driver(app) as d:
        d.send_all("orders", sent)
        d.end()
        return [one.value for one in d.read(topic)]


def test_each_element_is_a_row() -> None:
    """The other columns are repeated; an empty list, and null, make none."""
    app, orders = app_of()
    orders.explode("names").select("id", "names").to("out")
    assert str(orders.explode("names").schema["names"]) == "names: text"
    sent = [order(1, names=["a", "b"]), order(2), order(3, names=["c"])]
    assert written(app, sent) == [{"id": 1, "names": "a"}, {"id": 1, "names": "b"}, {"id": 3, "names": "c"}]


def test_a_copy_of_the_list_stays() -> None:
    app, orders = app_of()
    orders.with_columns(all=hg.col("names")).explode("names").select("names", "all").to("out")
    assert written(app, [order(1, names=["a", "b"])]) == [{"names": one, "all": ["a", "b"]} for one in "ab"]


def test_objects_become_columns_of_their_fields() -> None:
    """Those that a step reads; written whole, they are the objects that were in the list."""
    app, orders = app_of()
    each = orders.explode("items", name="item").select("id", "item")
    assert str(each.schema) == (
        "id: int64, item: bool | null, item.sku: text | null, item.count: int64 | null, item.price: decimal(6, 2) | null, "
        "item.size: bool | null, item.size.cm: float64 | null, item.size.unit: text | null, item.tags: list[text | null] | null"
    )
    each.to("out")
    each.select("id", sku=hg.col("item.sku"), each=hg.col("item.price") * 2).to("skus")
    sent = [order(1, items=[FULL, {"sku": "y", "more": [1]}, None]), order(2, items=None), order(3, items=[BARE])]
    with hg.testing.Driver(app) as d:
        d.send_all("orders", sent)
        assert [one.value for one in d.read("out")] == [
            {"id": 1, "item": FULL},
            {"id": 1, "item": BARE},
            {"id": 1, "item": None},
            {"id": 3, "item": BARE},
        ]
        assert [(one.value["sku"], one.value["each"]) for one in d.read("skus")] == [
            ("x", "3.00"),
            ("y", None),
            (None, None),
            ("y", None),
        ]


def test_empty_lists_may_stay() -> None:
    """As one row whose element is null; so does null."""
    app, orders = app_of()
    orders.explode("items", keep_empty=True).select("id", "items.sku").to("out")
    names = orders.explode("names", name="name", keep_empty=True).select("id", "name")
    assert str(names.schema) == "id: int64, name: text | null"
    names.to("names")
    sent = [order(1, items=[{"sku": "x"}], names=["a"]), order(2), order(3, items=None)]
    with hg.testing.Driver(app) as d:
        d.send_all("orders", sent)
        skus = [one.value["items"] and one.value["items"]["sku"] for one in d.read("out")]
        assert (skus, [one.value["name"] for one in d.read("names")]) == (["x", None, None], ["a", None, None])


def test_rows_keep_where_they_came_from() -> None:
    """Key, headers and timestamp, behind a filter, too, and through a repartition by an element."""
    app, orders = app_of(timestamp="id")
    kept = orders.filter(hg.col("user") == "a").explode("names", name="n")
    kept.select("n").to("out")
    kept.repartition("n").agg(ids=hg.count(), last=hg.max("id")).to("names")
    with hg.testing.Driver(app) as d:
        for number, user in ((1, "a"), (2, "b"), (3, "a")):
            value = order(number, user=user, names=["x", f"y{number}"])
            d.send("orders", value, key=f"k{number}", headers=[("h", bytes([number]))])
        d.end()
        assert [(one.key, one.value["n"], one.timestamp, list(one.headers)) for one in d.read("out")] == [
            ("k1", "x", 1, [("h", b"\1")]),
            ("k1", "y1", 1, [("h", b"\1")]),
            ("k3", "x", 3, [("h", b"\3")]),
            ("k3", "y3", 3, [("h", b"\3")]),
        ]
        found = {one.key: one.value for one in d.read("names")}
    assert found == {"x": {"ids": 2, "last": 3}, "y1": {"ids": 1, "last": 1}, "y3": {"ids": 1, "last": 3}}


def test_elements_that_are_lists_are_exploded_again() -> None:
    app, orders = app_of()
    orders.explode("items").explode("items.tags", name="tag").select("id", "tag").to("out")
    assert written(app, [order(1, items=[FULL, BARE, FULL])]) == [
        {"id": 1, "tag": one} for one in ["a", None, 'ü"\n'] * 2
    ]


def test_a_list_in_a_nested_object() -> None:
    """The other fields of the object stay."""
    app, events = app_of(Nested)
    events.explode("meta.marks").to("out")
    named = events.explode("meta.marks", name="mark", keep_empty=True).select("id", "mark")
    named.to("marks")
    at = "2026-01-31T12:00:00Z"
    sent = [{"id": 1, "meta": {"at": at, "marks": [1, None, 2.5]}}, {"id": 2, "meta": None}]
    with hg.testing.Driver(app) as d:
        d.send_all("orders", sent)
        assert [one.value for one in d.read("out")] == [
            {"id": 1, "meta": {"at": at, "marks": mark}} for mark in (1.0, None, 2.5)
        ]
        assert [one.value["mark"] for one in d.read("marks")] == [1.0, None, 2.5, None]


def test_an_error_behind_it_is_one_of_its_record() -> None:
    """The record is left out with all of its rows."""
    app, orders = app_of()
    orders.explode("items", name="i").with_columns(n=10 // hg.col("i.count")).select("id", "n").to("out")
    with hg.testing.Driver(app) as d:
        few = {"sku": "x", "count": 5}
        d.send_all("orders", [order(1, items=[few]), order(2, items=[few, {**few, "count": 0}]), order(3, items=[few])])
        assert [one.value["id"] for one in d.read("out")] == [1, 3]
        (letter,) = d.dead_letters()
        assert letter.offset == 1
        assert "is divided by zero" in letter.exception


def test_text_that_is_no_list_is_named_by_its_row() -> None:
    """All of it at once: no list of a column is such text, whatever was read."""
    reader = ElementReader(Logical("int64"), "n", frozenset({"n"}), keep_empty=False)
    with pytest.raises(NotComputable, match=r"a list\[int64\] that cannot be read: JSON is malformed") as failed:
        reader.read(Vector.of("text", ["[1]", "[x", None, '{"a":1}']))
    assert (failed.value.index, sorted(failed.value.all)) == (1, [1, 3])


@pytest.mark.parametrize(
    ("use", "why"),
    [
        (lambda o: o.explode("user"), "text is no list.*flat_map"),
        (lambda o: o.explode("itms"), "no column 'itms'.*items"),
        (lambda o: o.explode(7), "does not name a column"),
        (lambda o: o.explode("items", name="user"), "there is a column 'user'"),
        (lambda o: o.explode("items", name=""), "is no name"),
        (lambda o: o.explode("items").explode("items"), "'items' is an object"),
        (lambda o: o.explode("days", on_error="no"), "on_error"),
    ],
)
def test_what_cannot_be_exploded_says_so(use: Any, why: str) -> None:
    _, orders = app_of()
    with pytest.raises(DeclarationError, match=why):
        use(orders)


def test_fields_that_are_kept_would_be_lost() -> None:
    app = hg.App("shop")
    with pytest.raises(DeclarationError, match=r"explode\(\) gets the declared columns alone"):
        app.input("orders", serde=hg.json(Order)).columns(extra="keep").explode("names")


def test_the_key_of_a_repartition_is_what_it_was_made_of() -> None:
    """Elements of another list are another key, under whatever name."""
    _, orders = app_of()
    by_day = orders.with_columns(days=hg.col("days")).explode("names", name="k").repartition("k")
    by_sku = orders.explode("items", name="k").with_columns(k2=hg.col("k.sku")).repartition("k2")
    assert (by_day.step.key_text, by_sku.step.key_text) == ("explode(names)", "explode(items).sku")


# ---------------------------------------------------------------------------------------------------- as rows, by chance


TEXTS = ["", "a", "ü", '"', "null", "\u2028", "x" * 40]


def _item(chance: random.Random) -> Any:
    if chance.random() < 0.15:
        return None
    made = {**BARE, "sku": chance.choice(TEXTS)}
    if chance.random() < 0.5:
        made["count"] = chance.randrange(-(2**63), 2**63)
    if chance.random() < 0.5:
        made["price"] = f"{chance.randrange(10**6) / 100:.2f}"
    if chance.random() < 0.5:
        made["size"] = {"cm": chance.random() * 10, "unit": chance.choice([None, "in"])}
    if chance.random() < 0.5:
        made["tags"] = [chance.choice([None, *TEXTS]) for _ in range(chance.randrange(3))]
    for name in ("count", "price", "size", "tags"):
        if made[name] is None and chance.random() < 0.5:
            del made[name]
    return made


def _order(chance: random.Random, number: int) -> dict[str, Any]:
    items = None if chance.random() < 0.1 else [_item(chance) for _ in range(chance.randrange(4))]
    days = [f"20{chance.randrange(10, 99)}-01-{chance.randrange(10, 29)}" for _ in range(chance.randrange(3))]
    return order(number, items=items, days=days, names=[chance.choice(TEXTS) for _ in range(chance.randrange(4))])


def _as_rows(sent: list[dict[str, Any]], name: str, keep_empty: bool) -> list[dict[str, Any]]:
    """What a few lines of Python make of it."""
    return [
        {**one, name: {**BARE, **element} if isinstance(element, dict) else element}
        for one in sent
        for element in one[name] or ([None] if keep_empty else [])
    ]


@pytest.mark.parametrize("keep_empty", [False, True])
@pytest.mark.parametrize("name", ["items", "days", "names"])
def test_by_chance(name: str, keep_empty: bool) -> None:
    """Behind the decoder, behind a filter, behind a shuffle, and of columns of rows, in chunks of any length."""
    chance = random.Random(f"{name}{keep_empty}")
    sent = [_order(chance, number) for number in range(80)]
    app, orders = app_of()
    orders.explode(name, keep_empty=keep_empty).to("out")
    orders.filter(hg.col("id") % 3 != 1).explode(name, keep_empty=keep_empty).to("some")
    orders.repartition("id").explode(name, keep_empty=keep_empty).to("shuffled")
    rows = app.input("rows", serde=hg.json(Order)).columns(Order)
    rows.explode(name, keep_empty=keep_empty).to("rows-out")
    expected = _as_rows(sent, name, keep_empty)
    with hg.testing.Driver(app) as d:
        left = [orjson.dumps(one) for one in sent]
        while left:
            count = chance.choice([1, 3, 40])
            d.send_all("orders", left[:count])
            d.send_all("rows", left[:count])
            del left[:count]
        d.end()
        found = {topic: [one.value for one in d.read(topic)] for topic in ("out", "some", "shuffled", "rows-out")}
    assert found["out"] == found["rows-out"] == expected
    assert found["some"] == [one for one in expected if one["id"] % 3 != 1]
    assert sorted(found["shuffled"], key=lambda one: one["id"]) == expected
