"""Aggregates by key: each of them, their updates, their states, and combining before a shuffle."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce as reduced
from typing import Any, TypedDict

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.agents.job.types.aggregates import plan
from headgate.agents.testing.driver import Driver

from ...forms import Form


class Row(TypedDict):
    k: str
    x: int


ROWS = [{"k": "a", "x": 3}, {"k": "b", "x": 5}, {"k": "a", "x": 1}, {"k": "a", "x": 2}]


def everything() -> dict[str, hg.Aggregate]:
    return {
        "n": hg.count(),
        "total": hg.sum("x"),
        "least": hg.min("x"),
        "most": hg.max(lambda row: row["x"]),
        "mean": hg.mean("x"),
        "first": hg.first("x"),
        "last": hg.last("x"),
        "all": hg.collect("x"),
        "squares": hg.aggregate(int, lambda state, row: state + row["x"] ** 2, lambda a, b: a + b),
        "shown": hg.aggregate(
            list, lambda state, row: [*state, row["x"]], result=lambda state: "-".join(map(str, state))
        ),
    }


def for_columns() -> dict[str, hg.Aggregate]:
    """Those that need no function of a value."""
    return {
        "n": hg.count(),
        "total": hg.sum("x"),
        "least": hg.min("x"),
        "most": hg.max("x"),
        "mean": hg.mean("x"),
        "first": hg.first("x"),
        "last": hg.last("x"),
        "all": hg.collect("x"),
        "low": hg.min("k"),
    }


def of(form: Form) -> dict[str, hg.Aggregate]:
    return everything() if form is Form.ROWS else for_columns()


def numbers_of(form: Form) -> dict[str, hg.Aggregate]:
    """Those that merge, of which columns hold the states in arrays."""
    if form is Form.ROWS:
        return {name: one for name, one in everything().items() if one.merge is not None}
    return {name: one for name, one in for_columns().items() if name not in ("first", "last", "all", "low")}


def test_every_aggregate_of_columns() -> None:
    """In arrays those of numbers, and all others."""
    found: list[Any] = []
    for form in Form:
        app = hg.App("job")
        form.input(app, "in", Row, key="k").agg(name="agg", **for_columns()).to("out")
        with Driver(app) as d:
            d.send_all("in", ROWS)
            found.append((dict(d.table("agg")), d.read("out")))
    assert found[0] == found[1] == found[2]
    assert list(found[0][0]["a"].values()) == [3, 6, 1, 3, 2.0, 3, 2, [3, 1, 2], "a"]


def test_every_aggregate() -> None:
    """All at once, over one key."""
    app = hg.App("job")
    app.input("in", key="k").agg(name="agg", **everything()).to("out")
    with Driver(app) as d:
        d.send_all("in", ROWS)
        assert d.table("agg")["a"] == {
            "n": 3,
            "total": 6,
            "least": 1,
            "most": 3,
            "mean": 2.0,
            "first": 3,
            "last": 2,
            "all": [3, 1, 2],
            "squares": 14,
            "shown": "3-1-2",
        }


def test_updates_go_on_once_a_commit_and_key(form: Form) -> None:
    """A chunk of four rows of two keys gives two updates, with the greatest time of each key's rows."""
    app = hg.App("job")
    form.input(app, "in", Row, key="k", timestamp="x").agg(n=hg.count()).to("out")
    with Driver(app) as d:
        d.send_all("in", ROWS)
        assert d.read("out") == [hg.Record("a", {"n": 3}, 3), hg.Record("b", {"n": 1}, 5)]
        d.send("in", ROWS[1])
        assert d.read("out") == [hg.Record("b", {"n": 2}, 5)]


def test_an_update_may_be_awaited(form: Form) -> None:
    """What awaits cannot run while a transaction closes: then updates go on with each chunk."""

    async def name(update: Any) -> str:
        return f"{update['n']} rows"

    app = hg.App("job")
    form.input(app, "in", Row, key="k").agg(n=hg.count()).map_async(name).to("out")
    with Driver(app) as d:
        d.send_all("in", ROWS)
        assert [r.value for r in d.read("out")] == ["3 rows", "1 rows"]


def test_an_aggregate_of_an_aggregate(form: Form) -> None:
    """Updates of one stage are the rows of the next, behind another shuffle."""
    app = hg.App("job")
    counts = form.input(app, "in", Row).repartition("k").agg(n=hg.count())
    counts.as_events().repartition(lambda update: "all", name="all").agg(name="most", most=hg.max("n")).to("out")
    with Driver(app, partitions={"in": 3}) as d:
        for n in range(9):
            d.send("in", {"k": "a" if n % 3 else "b", "x": n}, partition=n % 3)
        assert d.table("most")["all"] == {"most": 6}
        d.drain()


def test_states_survive_a_restart(form: Form) -> None:
    """They are in the task's log, and are counted on."""
    app = hg.App("job")
    form.input(app, "in", Row).repartition("k").agg(name="agg", **of(form)).to("out")
    with Driver(app, partitions={"in": 2}) as d:
        d.send_all("in", ROWS)
        before = dict(d.table("agg"))
        d.restart()
        assert dict(d.table("agg")) == before
        d.send("in", {"k": "a", "x": 4})
        assert d.table("agg")["a"]["all"] == [3, 1, 2, 4]


def test_a_failing_chunk_leaves_states_as_they_were(form: Form) -> None:
    """Also those that are changed in place."""
    app = hg.App("job")
    own = {"own": hg.aggregate(list, lambda s, row: s.append(1) or s)} if form is Form.ROWS else {}
    stream = form.input(app, "in", Row, key="k")
    stream.agg(name="agg", all=hg.collect("x"), n=hg.sum("x"), **own).to("out")
    stream.agg(name="numbers", n=hg.sum("x"), c=hg.count()).to("more")
    form.with_columns(stream, lambda row: {**row, "x": 1 // (row["x"] - 7)}, {"x": 1 // (hg.col("x") - 7)}).to("far")
    with Driver(app) as d:
        d.send("in", ROWS[0])
        d.read("out")
        d.read("more")
        with pytest.raises(hg.UserCodeError, match="zero"):
            d.send_all("in", [ROWS[2], {"k": "a", "x": 7}])
        assert d.table("agg")["a"] == {"all": [3], "n": 3} | ({"own": [1]} if own else {})
        assert d.table("numbers")["a"] == {"n": 3, "c": 1}
        assert d.read("out") == d.read("more") == []


def test_a_result_that_raises_fails_the_task_and_commits_nothing() -> None:
    """It runs while the transaction is closed, so the whole contribution is void; then with its record, and that one is to fail."""
    app = hg.App("job")
    app.input("in", key="k").agg(bad=hg.aggregate(int, lambda s, _: s, result=lambda s: 1 // s)).to("out")
    with Driver(app) as d:
        with pytest.raises(hg.UserCodeError, match="ZeroDivisionError"):
            d.send("in", ROWS[0])
        assert d.states == {"Partition 0": "failed"}
        assert d.read("out") == []


def _refused(state: int) -> int:
    if state < 0:
        raise ValueError("below zero")
    return state


@pytest.mark.parametrize("combines", [False, True])
def test_a_record_that_a_commit_fails_on_is_left_out(combines: bool) -> None:
    """What came with it in the same transaction counts, and so does what comes later."""
    app = hg.App("job", on_error="dead_letter")
    rows = app.input("in").repartition("k") if combines else app.input("in", key="k")
    total = hg.aggregate(int, lambda s, row: s + row["x"], lambda a, b: a + b, result=_refused)
    rows.agg(total=total, name="agg").to("out")
    with Driver(app) as d:
        d.send_all("in", [*ROWS, {"k": "c", "x": -1}, {"k": "b", "x": 1}])
        assert {r.key: r.value["total"] for r in d.read("out")} == {"a": 6, "b": 6}
        [letter] = d.dead_letters()
        assert letter.exception == "ValueError: below zero"
        d.send("in", {"k": "a", "x": 1})
        assert [r.value for r in d.read("out")] == [{"total": 7}]
        d.end()
        assert d.states == {"Partition 0": "ended"}


rows = st.lists(
    st.fixed_dictionaries({"k": st.sampled_from("abcd"), "x": st.integers(-100, 100), "p": st.integers(0, 2)}),
    max_size=60,
)


@settings(deadline=None, max_examples=15)
@given(rows, st.integers(1, 7))
def test_combining_before_the_shuffle_changes_nothing(form: Form, sent: list[dict[str, Any]], size: int) -> None:
    """The same rows, in the same chunks: partial states give what the rows themselves give."""
    merging = numbers_of(form)
    found: list[Any] = []
    for combines in (True, False):
        app = hg.App("job")
        shuffled = form.input(app, "in", Row).repartition("k")
        shuffled.agg(name="agg", **merging).to("out")
        if not combines:
            shuffled.to("copy")  # another reader needs the rows as they are
        combined = [getattr(step, "combine", None) for step in Driver(app).declared.steps]
        assert any(combined) is combines
        with Driver(app, partitions={"in": 3}) as d:
            for partition in range(3):
                mine = [row for row in sent if row["p"] == partition]
                for start in range(0, len(mine), size):
                    d.send_all("in", mine[start : start + size], partition=partition)
            found.append(dict(d.table("agg")))
    assert found[0] == found[1]


def _whole(state: int, row: dict[str, Any]) -> Any:
    return object() if "bad" in row else state


@settings(deadline=None, max_examples=40)
@given(rows, st.integers(1, 7), st.booleans())
def test_holding_nothing_back_changes_nothing(sent: list[dict[str, Any]], size: int, combines: bool) -> None:
    """A task that a commit has failed on emits with each chunk: its table and each key's last update are the same."""
    merging = {name: one for name, one in everything().items() if one.merge is not None}
    found: list[Any] = []
    for bad in ([], [{"k": "bad", "x": 1, "bad": True}]):
        app = hg.App("job", on_error="skip")
        rows = app.input("in").repartition("k") if combines else app.input("in", key="k")
        rows.agg(name="agg", whole=hg.aggregate(int, _whole, lambda a, b: a), **merging).to("out")
        with Driver(app, settings={"chunk.max-records": size}) as d:
            d.send_all("in", bad)
            d.send_all("in", sent)
            assert d.counters["records_skipped"] == len(bad)
            found.append((dict(d.table("agg")), {r.key: r.value for r in d.read("out")}))
    assert found[0] == found[1]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(-50, 50), min_size=1), st.data())
def test_states_merge_as_rows_add(numbers: list[int], data: Any) -> None:
    """For every aggregate that merges: two halves merged are the whole."""
    merging = {name: one for name, one in everything().items() if one.merge is not None}
    one = plan(merging)
    cut = data.draw(st.integers(0, len(numbers)))
    whole, left, right = ({"k": one.start()} for _ in range(3))
    for states, part in ((whole, numbers), (left, numbers[:cut]), (right, numbers[cut:])):
        one.add(["k"] * len(part), [{"x": x} for x in part], states)
    one.merge(["k"], [right["k"]], left)
    assert one.results([left["k"]]) == one.results([whole["k"]])


def test_states_are_plain_together_as_they_are_each():
    """A chunk's states are judged by column: what is judged plain together and is not would be added to as a number, and fail."""
    made = plan({"n": hg.count(), "least": hg.min("v"), "mean": hg.mean("v")})
    good = [[1, 2.5, (3, 1)], [2, 1, [4.0, 2]]]
    assert made.all_plain(good)
    assert made.all_plain([])
    for odd in (["1", 1, (1, 1)], [1, "x", (1, 1)], [1, 1, "ab"], [1, 1, None], [1, 1], [1, 1, (1, 1), 1], []):
        assert not made.plain(odd)
        assert not made.all_plain([*good, odd])
        assert not made.all_plain([odd])


# ----------------------------------------------------------------------------------------- each aggregate against an oracle


class Sale(TypedDict):
    k: str
    t: int
    item: str | None
    price: float
    n: int
    open: bool | None


class Optional(TypedDict):
    k: str
    x: int | None
    y: int


Sales = list[dict[str, Any]]


def sale_drawn(draw: Any) -> Sales:
    """Sales whose times rise."""
    one = st.fixed_dictionaries(
        {
            "k": st.sampled_from("ab"),
            "t": st.sampled_from([0, 1, 30, 400]),
            "item": st.sampled_from(["x", "y", "ü", "", None]),
            "price": st.sampled_from([1, 2.5, -3.25, 2.5, 1e9]),
            "n": st.integers(-3, 3),
            "open": st.sampled_from([True, False, None]),
        }
    )
    sales, at = draw(st.lists(one, min_size=1, max_size=25)), 1_000
    for sale in sales:
        at += sale["t"]
        sale["t"] = at
    return sales


def ranked(sales: Sales, by: str, sign: int) -> Sales:
    """By this field, then by the item; null is the least."""
    return sorted(sales, key=lambda one: (sign * one[by], one["item"] is not None, one["item"] or ""))


def fields_of(sales: Sales, names: Sequence[str]) -> Sales:
    """Only these fields."""
    return [{name: one[name] for name in names} for one in sales]


def several(sales: Sales, by: str, names: Sequence[str] = ("item", "n")) -> Sales:
    """By this field, the greatest first, then by the bytes of the others."""
    order = sorted(range(len(sales)), key=lambda at: (-sales[at][by], msgpack.packb(fields_of(sales, names)[at])))
    return fields_of([sales[at] for at in order], names)


def near(values: list[float], q: float) -> Any:
    """The value of this rank; 1 % more or less is no matter."""
    return pytest.approx(values[math.floor(q * (len(values) - 1))], rel=0.0101) if values else None


def is_open(sale: Any) -> Any:
    return sale["open"]


Made = Callable[[hg.Expression | Callable[[Any], Any]], hg.Aggregate]
ORACLES: dict[str, tuple[Made, Callable[[Sales, Sales], Any]]] = {
    "count": (lambda w: hg.count(where=w), lambda _, counting: len(counting)),
    "sum": (lambda w: hg.sum("n", where=w), lambda _, counting: sum(one["n"] for one in counting)),
    "total": (lambda w: hg.sum("price", where=w), lambda _, counting: sum(one["price"] for one in counting)),
    "min": (lambda w: hg.min("n", where=w), lambda _, counting: min((one["n"] for one in counting), default=None)),
    "max": (
        lambda w: hg.max("price", where=w),
        lambda _, counting: max((one["price"] for one in counting), default=None),
    ),
    "mean": (
        lambda w: hg.mean("n", where=w),
        lambda _, counting: sum(one["n"] for one in counting) / len(counting) if counting else None,
    ),
    "first": (lambda w: hg.first("item", where=w), lambda _, counting: counting[0]["item"] if counting else None),
    "last": (lambda w: hg.last("item", where=w), lambda _, counting: counting[-1]["item"] if counting else None),
    "collect": (lambda w: hg.collect("item", where=w), lambda _, counting: [one["item"] for one in counting]),
    "reduce": (
        lambda w: hg.reduce("n", lambda a, b: 2 * a + b, where=w),
        lambda _, counting: reduced(lambda a, b: 2 * a + b, [one["n"] for one in counting]) if counting else None,
    ),
    "arg_max": (
        lambda w: hg.arg_max("item", by="price", where=w),
        lambda _, counting: next(iter(ranked(counting, "price", -1)), {"item": None})["item"],
    ),
    "arg_min": (
        lambda w: hg.arg_min("price", "k", where=w),
        lambda _, counting: next(iter(sorted((one["k"], one["price"]) for one in counting)), (None, None))[1],
    ),
    "top": (
        lambda w: hg.top(3, "item", by="n", where=w),
        lambda _, counting: [one["item"] for one in ranked(counting, "n", -1)[:3]],
    ),
    "greatest": (
        lambda w: hg.top(2, "price", where=w),
        lambda _, counting: sorted((one["price"] for one in counting), reverse=True)[:2],
    ),
    "arg_max of several fields": (
        lambda w: hg.arg_max(["item", "n"], by="price", where=w),
        lambda _, counting: next(iter(several(counting, "price")), None),
    ),
    "top of several fields": (
        lambda w: hg.top(3, ("n", "item"), by="price", where=w),
        lambda _, counting: several(counting, "price", ("n", "item"))[:3],
    ),
    "first of several fields": (
        lambda w: hg.first(["item", "price"], where=w),
        lambda _, counting: next(iter(fields_of(counting, ("item", "price"))), None),
    ),
    "last of several fields": (
        lambda w: hg.last(["n"], where=w),
        lambda _, counting: next(reversed(fields_of(counting, ("n",))), None),
    ),
    "collect of several fields": (
        lambda w: hg.collect(["k", "item"], where=w),
        lambda _, counting: fields_of(counting, ("k", "item")),
    ),
    "distinct": (
        lambda w: hg.count_distinct("item", where=w),
        lambda _, counting: len({one["item"] for one in counting} - {None}),
    ),
    "distinct or fail": (
        lambda w: hg.count_distinct("price", exact_up_to=4, then="fail", where=w),
        lambda _, counting: len({one["price"] for one in counting}),
    ),
    "quantile": (
        lambda w: hg.quantile("price", 0.75, where=w),
        lambda _, counting: near(sorted(one["price"] for one in counting), 0.75),
    ),
}
"""How each aggregate is made with a condition, and what it must give of all rows and of those that count."""
HOW: dict[str, Callable[[Any], Any]] = {
    "running": lambda stream: stream,
    "combined": lambda stream: stream.repartition("k"),
    "window": lambda stream: stream.window(hg.tumbling("100ms")),
    "combined window": lambda stream: stream.repartition("k").window(hg.hopping("200ms", every="100ms")),
    "session": lambda stream: stream.repartition("k").window(hg.session("100ms")),
}


def wanted(how: str, sales: Sales, of: Callable[[Sales], Any]) -> dict[Any, Any]:
    """What an aggregate gives by key and window."""
    groups: dict[Any, Sales] = {}
    for sale in sales:
        key, at = sale["k"], sale["t"]
        if how == "session":
            mine = [(group, rows) for group, rows in groups.items() if group[0] == key]
            group = (key, at)
            if mine and at - mine[-1][1][-1]["t"] < 100:
                group = mine[-1][0]
            groups.setdefault(group, []).append(sale)
        elif how.endswith("window"):
            first = at // 100 * 100
            for start in (first - 100, first) if how == "combined window" else (first,):
                groups.setdefault((key, start), []).append(sale)
        else:
            groups.setdefault((key, None), []).append(sale)
    return {group: of(rows) for group, rows in groups.items()}


def given_by(form: Form, how: str, made: Made, sales: Sales, size: int) -> dict[Any, Any]:
    """What a job gives."""
    app = hg.App("job")
    condition: Any = is_open if form is Form.ROWS else hg.col("open")
    stream = form.input(app, "in", Sale, key="k", timestamp="t")
    HOW[how](stream).agg(of=made(condition), n=hg.count()).to("out")
    with Driver(app, settings={"chunk.max-records": size}) as d:
        for start in range(0, len(sales), 2 * size):
            d.send_all("in", sales[start : start + 2 * size])
            if start == 2 * size:
                d.restart()
        d.drain()
        return {(one.key, one.value.get("window_start")): one.value["of"] for one in d.read("out")}


@pytest.mark.usefixtures("either_part")
@pytest.mark.parametrize("name", ORACLES)
@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.sampled_from([1, 3, 100]), st.sampled_from(sorted(HOW)), st.sampled_from(Form))
def test_an_aggregate_gives_what_the_oracle_gives(name: str, data: Any, size: int, how: str, form: Form) -> None:
    """Of rows, typed rows and columns; running, combined before a shuffle, in windows and in sessions; over a restart."""
    made, oracle = ORACLES[name]
    sales = sale_drawn(data.draw)
    if form is Form.COLUMNS and name == "reduce":
        form = Form.TYPED
    found = given_by(form, how, made, sales, size)
    assert found == wanted(how, sales, lambda rows: oracle(rows, [one for one in rows if one["open"]]))


def test_conditions_are_judged_where_they_are_declared() -> None:
    """Fields that are not known, other types, functions where there are no rows."""
    typed = hg.App("typed").input("in", serde=hg.json(Sale), key="k")
    plain = hg.App("plain").input("in", key="k")
    refused: list[tuple[Any, Any, str]] = [
        (typed, hg.col("n"), r"agg\(x=hg.count\(…, where=…\)\): where\(n\) is int64, not a condition"),
        (typed, hg.col("m") > 0, "there is no column 'm'"),
        (typed, hg.col("item") > 0, "cannot be compared"),
        (typed.columns(), lambda row: row["open"], "needs rows"),
        (typed.columns(), hg.col("price"), "not a condition"),
        (typed.columns().window(hg.tumbling("1s")), hg.col("price"), "not a condition"),
        (plain, hg.col("n") > 0, "no declared type"),
    ]
    for stream, where, message in refused:
        with pytest.raises(hg.DeclarationError, match=message):
            stream.agg(x=hg.count(where=where))
    for where, message in ((True, "is no condition"), (lambda: True, "is called with")):
        with pytest.raises(hg.DeclarationError, match=message):
            hg.sum("n", where=where)  # pyright: ignore[reportArgumentType]


def test_nulls_and_what_cannot_be_computed_matter_only_where_they_count(form: Form) -> None:
    """A null that does not count is no error; a condition without a value is one of its record, which costs no other."""
    app = hg.App("job", on_error="dead_letter")
    stream = form.input(app, "in", Optional, key="k")
    there = (lambda row: row["x"] is not None) if form is Form.ROWS else ~hg.col("x").is_null()
    divided = (lambda row: 6 // row["y"] > 1) if form is Form.ROWS else 6 // hg.col("y") > 1
    stream.agg(x=hg.sum("x", where=there), least=hg.min("x", where=there), n=hg.count(where=divided)).to("out")
    with Driver(app) as d:
        d.send_all("in", [{"k": "a", "x": x, "y": y} for x, y in ((None, 1), (2, 4), (5, 0), (7, 3))])
        assert [one.value for one in d.read("out")] == [{"x": 9, "least": 2, "n": 2}]
        assert [one.offset for one in d.dead_letters()] == [2]
