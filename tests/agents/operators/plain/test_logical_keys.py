"""Times, dates and decimals as keys of columns: the key is the text that an output has of the value."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import msgspec
import pytest

import headgate as hg

pytestmark = pytest.mark.usefixtures("either_part")

KEYS = ("at", "local", "day", "price")


class Order(TypedDict):
    id: int
    at: datetime
    local: Annotated[datetime, msgspec.Meta(tz=False)]
    day: date
    price: Annotated[Decimal, hg.Digits(12, 2)]
    due: date | None


class Rate(TypedDict):
    rate: int


def app_of() -> tuple[hg.App, Any]:
    """An app with an input of orders, as columns."""
    app = hg.App("shop", on_error="dead_letter")
    return app, app.input("orders", serde=hg.json(Order)).columns()


def orders(count: int, seed: str) -> list[tuple[dict[str, Any], dict[str, str]]]:
    """Orders as they may stand in a topic, each with the keys that a few lines of Python make of it."""
    chance = random.Random(seed)
    found: list[tuple[dict[str, Any], dict[str, str]]] = []
    for number in range(count):
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(
            hours=chance.randrange(4), microseconds=chance.choice([0, 1, 500_000])
        )
        zone = chance.choice(["Z", "+00:00", "+02:00"])
        shown = (at + timedelta(hours=2) if zone == "+02:00" else at).replace(tzinfo=None).isoformat() + zone
        cents = chance.choice([-5, 0, 5, 10, 100, 12345])
        day = date(2026, 1, 30) + timedelta(chance.randrange(3))
        local = at.replace(tzinfo=None).isoformat()
        price = chance.choice([f"{cents / 100:.2f}", f"{cents / 100:.3f}", cents / 100])
        due = chance.choice([None, day.isoformat()])
        value = {"id": number, "at": shown, "local": local, "day": day.isoformat(), "price": price, "due": due}
        text = at.replace(tzinfo=None).isoformat() + "Z"
        found.append((value, {"at": text, "local": local, "day": day.isoformat(), "price": f"{cents / 100:.2f}"}))
    return found


@pytest.mark.parametrize("key", KEYS)
def test_rows_of_one_value_meet(key: str) -> None:
    """However it was written: combined before the shuffle, in windows, and one by one."""
    sent = orders(60, key)
    app, columns = app_of()
    some = columns.filter(hg.col("id") % 5 != 3)
    some.repartition(key).agg(n=hg.count(), ids=hg.sum("id")).to("counted")
    some.repartition(key, name="windows").window(hg.tumbling("1d")).agg(n=hg.count()).to("windows")
    listed = some.repartition(key, name="listed-windows").window(hg.tumbling("1d"), name="listed")
    listed.agg(ids=hg.collect("id"), last=hg.last("day")).to("listed")
    some.repartition(key, name="collected").agg(ids=hg.collect("id")).to("collected")
    some.repartition(key, name="first").dedupe().select("id").to("first")
    some.select("id", key).to("keyed", key=key)
    ids: dict[str, list[int]] = {}
    for value, keys in sent:
        if value["id"] % 5 != 3:
            ids.setdefault(keys[key], []).append(value["id"])
    with hg.testing.Driver(app) as d:
        for first in range(0, 60, 20):
            d.send_all("orders", [value for value, _ in sent[first : first + 20]])
        d.end()
        counted = {one.key: (one.value["n"], one.value["ids"]) for one in d.read("counted")}
        assert counted == {text: (len(those), sum(those)) for text, those in ids.items()}
        assert {one.key: one.value["n"] for one in d.read("windows")} == {
            text: len(those) for text, those in ids.items()
        }
        for topic in ("collected", "listed"):
            assert {one.key: one.value["ids"] for one in d.read(topic)} == ids
        assert sorted(one.value["id"] for one in d.read("first")) == sorted(those[0] for those in ids.values())
        assert [(one.key, one.value["id"]) for one in d.read("keyed")] == [
            (keys[key], value["id"]) for value, keys in sent if value["id"] % 5 != 3
        ]


def test_a_table_is_asked_by_the_text() -> None:
    """Null finds no row."""
    app, columns = app_of()
    rates = app.input("rates", serde=hg.json(Rate), key_serde=hg.text()).table("rates", broadcast=True)
    columns.filter(hg.col("id") > 0).join(rates, on="due", how="left").select("id", "rate").to("out")
    with hg.testing.Driver(app) as d:
        d.send("rates", {"rate": 7}, key="2026-01-31")
        (value, _), *_ = orders(1, "table")
        d.send_all(
            "orders",
            [{**value, "id": n, "due": due} for n, due in enumerate(["2026-01-31", "2026-01-31", "2026-02-01", None])],
        )
        assert [one.value["rate"] for one in d.read("out")] == [7, None, None]


def test_a_row_without_the_value_has_no_key() -> None:
    """It is an error of its record, as of text."""
    app, columns = app_of()
    columns.repartition("due").agg(n=hg.count()).to("out")
    with hg.testing.Driver(app) as d:
        (value, _), *_ = orders(1, "null")
        d.send_all("orders", [{**value, "due": None}, {**value, "due": "2026-02-01"}])
        assert [(one.key, one.value) for one in d.read("out")] == [("2026-02-01", {"n": 1})]
        (letter,) = d.dead_letters()
        assert "the key is None" in letter.exception


def test_the_digits_of_a_decimal_belong_to_the_job() -> None:
    """They decide how its key is written, so that a live job does not change them."""
    _, columns = app_of()
    steps = [columns.repartition(key).step for key in ("price", "day", "id")]
    assert [one.key_text for one in steps] == ["price as decimal(12, 2)", "day as date", ""]
