"""`.key_as(name)`: the keys of records as a column, of text and of whole numbers, wherever the keys came from."""

from __future__ import annotations

import re
from typing import Any, TypedDict

import pytest

import headgate as hg
from headgate.agents.records.native import chosen
from headgate.agents.testing.driver import Driver

needs_compiler = pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")
TEXTS = ["a", "", "ü", "x" * 300, "a"]


class Order(TypedDict):
    n: int


class Keyed(TypedDict):
    user: str
    n: int


@pytest.fixture(params=[pytest.param(True, marks=needs_compiler), False], ids=["compiled", "plain"], autouse=True)
def way(request, monkeypatch):
    """Each test runs with both."""
    if not request.param:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)


def records(keys: list[Any]) -> list[Any]:
    return [hg.Record(key, {"n": n}, n) for n, key in enumerate(keys)]


@pytest.mark.parametrize("serde", [None, hg.text(), hg.key(str), hg.text("latin-1"), hg.json()])
@pytest.mark.parametrize("filtered", [False, True], ids=["all", "some"])
def test_keys_of_text(serde: Any, filtered: bool):
    app = hg.App("shop")
    more = {} if serde is None else {"key_serde": serde}
    orders = app.input("orders", serde=hg.json(Order), **more).columns()
    orders = orders.filter(hg.col("n") != 1) if filtered else orders
    orders.key_as("user").filter(hg.col("user") != "ü").select("user", "n").to("out")
    with Driver(app) as d:
        d.send_all("orders", records([*TEXTS, None]))
        found = [(one.value["user"], one.value["n"]) for one in d.read("out")]
    wanted = [(key, n) for n, key in enumerate(TEXTS) if key != "ü" and not (filtered and n == 1)]
    assert found == wanted  # where the key is null, so is the condition


def test_a_record_without_a_key_has_null():
    app = hg.App("shop")
    app.input("orders", serde=hg.json(Order)).columns().key_as("user").to("out")
    with Driver(app) as d:
        d.send_all("orders", records(["a", None]))
        d.send_all("orders", records([None]))
        assert [one.value for one in d.read("out")] == [
            {"n": 0, "user": "a"},
            {"n": 1, "user": None},
            {"n": 0, "user": None},
        ]


def test_keys_that_are_whole_numbers():
    app = hg.App("shop", on_error="dead_letter")
    orders = app.input("orders", serde=hg.json(Order), key_serde=hg.key(int)).columns()
    orders.key_as("id", int).with_columns(twice=hg.col("id") * 2).to("out")
    with Driver(app) as d:
        d.send_all("orders", records([7, -(2**63), None, 2**63 - 1, 0]))
        assert [one.value["id"] for one in d.read("out")] == [7, None, 0]  # twice the others is too much
        assert [one.offset for one in d.dead_letters()] == [1, 3]


@pytest.mark.parametrize(
    ("kind", "key", "said"),
    [
        (str, 7, "the key is 7, and the column 'user' is text"),
        (int, "a", "the key is 'a', and the column 'user' is int64"),
        (int, True, "the key is True, and the column 'user' is int64"),
        (str, ("a", 1), r"the key is \('a', 1\), and the column 'user' is text"),
    ],
)
def test_a_key_of_another_type_is_an_error_of_its_record(kind: Any, key: Any, said: str):
    app = hg.App("shop", on_error="dead_letter")
    app.input("orders", serde=hg.json(Order)).columns().key_as("user", kind).to("out")
    good: Any = "b" if kind is str else 8
    with Driver(app) as d:
        d.send_all("orders", records([good, key, good]))
        assert [one.value["n"] for one in d.read("out")] == [0, 2]
        (letter,) = d.dead_letters()
        assert letter.offset == 1
        assert re.search(said, letter.exception)


def test_the_group_of_results_and_the_key_behind_a_shuffle():
    app = hg.App("shop")
    orders = app.input("orders", serde=hg.json(Keyed)).columns()
    totals = orders.repartition("user").agg(n=hg.sum("n"))
    totals.as_events().columns().key_as("user").to("totals")
    orders.repartition("n", name="by-n").key_as("number", int).select("number", "user").to("numbers")
    with Driver(app) as d:
        d.send_all("orders", [hg.Record(None, {"user": user, "n": n}, 0) for user, n in (("a", 1), ("b", 2), ("a", 3))])
        found = {one.key: one.value for one in d.read("totals")}
        assert found == {"a": {"n": 4, "user": "a"}, "b": {"n": 2, "user": "b"}}
        assert sorted((one.value["number"], one.value["user"]) for one in d.read("numbers")) == [
            (1, "a"),
            (2, "b"),
            (3, "a"),
        ]


def test_a_key_of_a_field():
    app = hg.App("shop")
    app.input("orders", serde=hg.json(Keyed), key="user").columns().key_as("key").select("key", "n").to("out")
    with Driver(app) as d:
        d.send_all("orders", [hg.Record("a", {"user": "a", "n": 1}, 0)])
        assert [one.value for one in d.read("out")] == [{"key": "a", "n": 1}]


def test_what_the_declaration_refuses():
    app = hg.App("shop")
    orders = app.input("orders", serde=hg.json(Keyed)).columns()
    with pytest.raises(hg.DeclarationError, match="there is a column 'user'"):
        orders.key_as("user")
    with pytest.raises(hg.DeclarationError, match="is no name of a column"):
        orders.key_as(7)  # type: ignore[arg-type]
    with pytest.raises(hg.DeclarationError, match="is no type of a key that a column can hold"):
        orders.key_as("id", bytes)  # type: ignore[arg-type]
    with pytest.raises(hg.DeclarationError, match="extra='keep'"):
        app.input("more", serde=hg.json(Keyed)).columns(extra="keep").key_as("id")
