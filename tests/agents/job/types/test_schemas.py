"""What of a declaration is compared, and how rows of an earlier one are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.job.types.aggregates import plan
from headgate.agents.job.types.schemas import schema_of_table
from headgate.agents.records.values import serdes as serde
from headgate.agents.state.opening import Opened, open_tables, unowned_text
from headgate.agents.state.store import MemoryStore
from headgate.core.errors import DataError, DeclarationError


@dataclass
class Inner:
    zip: int


@dataclass
class Order:
    n: int
    to: Inner
    tags: list[str | None]
    note: str | None = None


class Row(TypedDict, total=False):
    n: int


class Placed(msgspec.Struct, array_like=True):
    a: int
    b: int


def opened(store: MemoryStore, app: hg.App, now: int = 0) -> Opened:
    return open_tables(store, Declared(app), clock=lambda: now)


def durable(found: Opened) -> None:
    """What waits for the commit is committed."""
    found.tables.complete()
    found.tables.seal()
    found.tables.applied(1)


def job(**table: Any) -> hg.App:
    app = hg.App("job")
    app.table("kept", key=table.pop("key", hg.text()), **table)
    app.input("in").to("out")
    return app


def test_what_is_known_of_typed_values() -> None:
    """Their fields, through and through: a change inside of a field is a change of it."""
    found = {one.name: (one.type, one.required) for one in schema_of_table(hg.text(), hg.json(Order)).fields}
    assert found == {
        "n": ("int", True),
        "to": ("{zip: int}", True),
        "tags": ("list[none/str]", True),
        "note": ("none | str", False),
    }
    assert [one.name for one in schema_of_table(hg.text(), hg.msgpack(Row)).fields] == ["n"]
    assert schema_of_table(hg.text(), hg.json(Order)).value == schema_of_table(hg.text(), hg.json()).value == "json"
    assert "arrays of" in schema_of_table(hg.text(), serde.json(Placed)).value


def test_what_is_known_of_aggregates() -> None:
    made = plan({"a": hg.sum("x"), "b": hg.aggregate(list, lambda s, v: s), "c": hg.max(abs), "n": hg.count()})
    assert [(one.name, one.kind, one.type, one.of) for one in made.fields] == [
        ("a", "sum", "any", "x"),
        ("b", "aggregate", "list", ""),
        ("c", "max", "any", "abs"),
        ("n", "count", "any", ""),
    ]


def test_a_table_whose_values_get_another_format() -> None:
    """Refused with the difference; with a function each row is made anew when it is read, and keeps the time at which it expires."""
    store = MemoryStore()
    first = opened(store, job(value=hg.json(), ttl="10s"))
    first.tables.table("kept").update({"a": {"n": 1}, "b": {"n": 2}})
    durable(first)
    with pytest.raises(DeclarationError, match="its values are json, and would become text"):
        opened(store, job(value=hg.text()))
    with pytest.raises(DeclarationError, match="its keys are text, and would become json"):
        opened(store, job(value=hg.json(), key=hg.json()))
    migrating = job(value=hg.text(), ttl="10s", migrate=lambda names, old: f"was {old['n']}")
    second = opened(store, migrating, now=5_000)
    assert second.news == ("table 'kept': its values are json, and would become text",)
    assert second.tables.table("kept")["a"] == "was 1"
    durable(second)
    with pytest.raises(DeclarationError, match="some rows can be read only"):
        opened(store, job(value=hg.text()))
    assert second.tables.rewrite() == (2, [], True)
    durable(second)
    assert second.tables.rewrite() == (0, ["kept"], True)
    durable(second)
    third = opened(store, job(value=hg.text()), now=9_999)
    assert dict(third.tables.table("kept").range()) == {"a": "was 1", "b": "was 2"}
    assert dict(opened(store, job(value=hg.text()), now=10_000).tables.table("kept").range()) == {}


def test_a_function_that_fails_names_its_table() -> None:
    store = MemoryStore()
    first = opened(store, job(value=hg.json()))
    first.tables.table("kept")["a"] = {"n": 1}
    durable(first)
    second = opened(store, job(value=hg.text(), migrate=lambda names, old: old["m"]))
    with pytest.raises(DataError, match=r"table kept: migrate\(\) raised KeyError: 'm' for \{'n': 1\}"):
        second.tables.table("kept").get("a")


def test_a_function_that_would_end_the_process_fails_its_row() -> None:
    """`sys.exit` in a migration function would have ended the worker with all of its tasks."""

    def leaves(names: tuple[str, ...], old: object) -> object:
        raise SystemExit("no way to read this")

    store = MemoryStore()
    first = opened(store, job(value=hg.json()))
    first.tables.table("kept")["a"] = {"n": 1}
    durable(first)
    second = opened(store, job(value=hg.text(), migrate=leaves))
    with pytest.raises(DataError, match=r"migrate\(\) raised SystemExit: no way to read this"):
        second.tables.table("kept").get("a")


@pytest.mark.parametrize(
    ("gives", "says"),
    [
        ({"m": 1}, "it returned 'm', but the aggregate has n"),
        (7, "it returned 7, not a mapping"),
        ({"n": "many"}, "it returned 'many' for 'n', which is sum and needs a number"),
    ],
)
def test_states_that_an_aggregate_cannot_go_on_with(gives: Any, says: str) -> None:
    """They would fail later, where nothing may fail."""

    def aggregating(**fields: Any) -> hg.App:
        app = hg.App("job")
        app.input("in").agg(name="agg", **fields)
        return app

    store = MemoryStore()
    first = opened(store, aggregating(n=hg.count()))
    first.tables.table("agg")["a"] = [3]
    durable(first)
    second = opened(store, aggregating(n=hg.sum("x"), migrate=lambda names, states: gives))
    with pytest.raises(DataError, match=says):
        second.tables.table("agg").get("a")
    mended = opened(store, aggregating(n=hg.sum("x"), migrate=lambda names, states: {"n": states["n"] * 2}))
    assert mended.tables.table("agg").get("a") == [6]


@pytest.mark.parametrize(
    ("made", "good", "bad"),
    [
        (hg.first("x"), [[], [7]], [7, [1, 2]]),
        (hg.last("x", where=lambda row: row["x"]), [[], [7]], [7, [1, 2]]),
        (hg.collect("x"), [[], [7, None]], [7, (7,)]),
        (hg.arg_max("x", "y"), [[], [3, "a"]], [3, [3]]),
        (hg.top(2, "x"), [[], [[3, 3], [1, 1]]], [3, [3, 1]]),
        (hg.count_distinct("x"), [[], [b"a"], bytes(4096)], [3, ["a"], b"a"]),
        (hg.quantile("x", 0.5), [[[], []], [[40_000], [2]]], [[], 3, [[1], []], [["a"], [1]], [1, 2]]),
    ],
)
def test_states_that_are_no_numbers_are_what_can_be_added_to(made: Any, good: list[Any], bad: list[Any]) -> None:
    """Columns are added to them where nothing may fail."""

    def aggregating(gives: Any, **fields: Any) -> hg.App:
        app = hg.App("job")
        app.input("in").agg(name="agg", **fields, migrate=lambda names, states: {"n": gives})
        return app

    for state in (*good, *bad):
        store = MemoryStore()
        first = opened(store, aggregating(0, n=hg.count()))
        first.tables.table("agg")["a"] = [3]
        durable(first)
        second = opened(store, aggregating(state, n=made)).tables.table("agg")
        if state in good:
            assert second.get("a") == [state]
            continue
        with pytest.raises(DataError, match="and needs a"):
            second.get("a")


def test_everything_that_does_not_fit_is_said_at_once() -> None:
    store = MemoryStore()
    app = job(value=hg.json())
    app.table("other", value=hg.json())
    durable(opened(store, app))
    app = job(value=hg.text())
    app.table("other", value=hg.raw())
    with pytest.raises(DeclarationError, match=r"'kept' does not fit .* — the table 'other' does not fit"):
        opened(store, app)


def test_a_table_that_nobody_declares_is_named_while_it_holds_rows() -> None:
    """An actor's timers and a batch's rows are state, too."""

    class Waits(hg.Actor):
        def on_timer(self, ctx: Any, name: str, timestamp: int) -> None: ...

    app = job(value=hg.json())
    app.input("more").process(Waits, name="waits")
    store = MemoryStore()
    first = opened(store, app)
    first.tables.table("waits.timers")["t"] = ("event", 7)
    durable(first)
    empty = hg.App("job")
    empty.input("in").to("out")
    second = opened(store, empty)
    assert dict(second.unowned) == {"waits.timers": ""}
    assert "the code no longer declares the table 'waits.timers'" in unowned_text(second.unowned)
    durable(second)
    assert [key for key, _ in store.range("__schema")] == [b"waits.timers"]
    assert unowned_text(opened(store, app).unowned) == ""


def test_a_function_is_checked_where_it_is_declared() -> None:
    for declare in (
        lambda app: app.table("t", migrate=lambda old: old),
        lambda app: app.input("in").agg(n=hg.count(), migrate=lambda old: old),
        lambda app: app.input("in").table("t", migrate=7),
    ):
        with pytest.raises(DeclarationError, match=r"migrate=…"):
            declare(hg.App("job"))
