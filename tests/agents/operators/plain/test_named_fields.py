"""Row pipelines whose steps only name fields are run as columns, with what rows give: the same job is run three ways."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

import msgspec
import pytest

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.job.derive.named_fields import on_columns
from headgate.agents.job.derive.plans import parts
from headgate.agents.job.steps.sources import InputStep
from headgate.agents.records.native import chosen
from headgate.agents.testing.driver import Driver

from .test_column_streams import Order, OrderData, OrderStruct, records

Job = Callable[[hg.Stream[Any, Any]], object]
COUNTS = {
    "n": hg.count(),
    "total": hg.sum("amount"),
    "whole": hg.sum("ts"),
    "low": hg.min("ts"),
    "high": hg.max("amount"),
    "mean": hg.mean("amount"),
}


def agg(orders: hg.Stream[Any, Any]) -> object:
    return orders.repartition("user").agg(**COUNTS).to("out")


def agg_by_number(orders: hg.Stream[Any, Any]) -> object:
    return orders.repartition("ts").agg(n=hg.count(), country=hg.count()).to("out")


def agg_of_text(orders: hg.Stream[Any, Any]) -> object:
    return orders.repartition("user").agg(low=hg.min("user"), high=hg.max("ts")).to("out")


def agg_here(orders: hg.Stream[Any, Any]) -> object:
    """Without a shuffle."""
    return orders.agg(n=hg.count(), first=hg.first("amount"), last=hg.last("user"), all=hg.collect("country")).to("out")


def windows(orders: hg.Stream[Any, Any]) -> object:
    return orders.repartition("user").window(hg.tumbling("5ms", grace="20ms")).agg(**COUNTS).to("out")


def hopping(orders: hg.Stream[Any, Any]) -> object:
    """Without a shuffle."""
    return orders.window(hg.hopping("10ms", every="5ms", grace="1s")).agg(n=hg.count(), low=hg.min("amount")).to("out")


def hopping_behind_a_shuffle(orders: hg.Stream[Any, Any]) -> object:
    """The states of a pane travel once for all of its windows."""
    return orders.repartition("user").window(hg.hopping("10ms", every="4ms", grace="20ms")).agg(**COUNTS).to("out")


def late(orders: hg.Stream[Any, Any]) -> object:
    """Without a shuffle. What is late is written whole."""
    return orders.window(hg.tumbling("5ms"), late="late").agg(**COUNTS).to("out")


def late_behind_a_shuffle(orders: hg.Stream[Any, Any]) -> object:
    """Rows travel, as columns."""
    return orders.repartition("user").window(hg.tumbling("5ms"), late="late").agg(**COUNTS).to("out")


def sessions_behind_a_shuffle(orders: hg.Stream[Any, Any]) -> object:
    return orders.repartition("user").window(hg.session("5ms")).agg(n=hg.count(), all=hg.collect("country")).to("out")


def two_behind_a_shuffle(orders: hg.Stream[Any, Any]) -> object:
    """Rows travel, because two steps read them."""
    by = orders.repartition("user")
    by.agg(n=hg.count(), high=hg.max("amount")).to("counts")
    by.to("copies")
    return by.repartition("ts").window(hg.hopping("10ms", every="5ms"), emit=3).agg(n=hg.count()).to("out")


def windows_of_text(orders: hg.Stream[Any, Any]) -> object:
    """Their states are no numbers."""
    behind = orders.repartition("user").window(hg.tumbling("5ms", grace="20ms"))
    return behind.agg(n=hg.count(), high=hg.max("user"), total=hg.sum("amount")).to("out")


def sessions(orders: hg.Stream[Any, Any]) -> object:
    """Without a shuffle."""
    return orders.window(hg.session("5ms", grace="20ms")).agg(n=hg.count(), total=hg.sum("amount")).to("out")


def early(orders: hg.Stream[Any, Any]) -> object:
    """Early results, by number."""
    return orders.window(hg.tumbling("20ms"), emit=5).agg(n=hg.count(), total=hg.sum("amount")).to("out")


def in_order(orders: hg.Stream[Any, Any]) -> object:
    """Aggregates that cannot be combined."""
    return orders.window(hg.tumbling("20ms")).agg(all=hg.collect("country"), last=hg.last("ts")).to("out")


def to(orders: hg.Stream[Any, Any]) -> object:
    return orders.to("out")


def to_keyed(orders: hg.Stream[Any, Any]) -> object:
    return orders.as_events().to("out", key="ts")


def both(orders: hg.Stream[Any, Any]) -> object:
    orders.repartition("user").agg(n=hg.count()).to("counts")
    return orders.to("out", key="user")


WINDOWS: list[Job] = [
    windows,
    hopping,
    hopping_behind_a_shuffle,
    late,
    late_behind_a_shuffle,
    windows_of_text,
    sessions,
    early,
    in_order,
    sessions_behind_a_shuffle,
    two_behind_a_shuffle,
]
JOBS: list[Job] = [agg, agg_by_number, agg_of_text, agg_here, *WINDOWS, to, to_keyed, both]
FILTERS: dict[str, tuple[Any, Any]] = {
    "none": (None, None),
    "amount": (hg.col("amount") >= 10, lambda v: v["amount"] >= 10),
    "null": (hg.col("country") == "DE", lambda v: v.get("country") == "DE"),
    "error": (10_000 // (hg.col("ts") - 1_020) > 5, lambda v: 10_000 // (v["ts"] - 1_020) > 5),
}
POLICIES: list[dict[str, Any]] = [
    {},
    {"on_bad_data": "skip", "on_error": "skip"},
    {"on_bad_data": "dead_letter", "on_error": "dead_letter"},
]
CASES: list[Any] = [
    ("none", Order, POLICIES[0], 7),
    ("none", OrderData, POLICIES[2], 60),
    ("amount", OrderStruct, POLICIES[0], 60),
    ("amount", Order, POLICIES[1], 7),
    ("null", OrderData, POLICIES[0], 1),
    ("null", OrderStruct, POLICIES[2], 7),
    ("error", Order, POLICIES[1], 60),
    ("error", OrderStruct, POLICIES[2], 7),
]
"""Filter, type, policies, and the number of records sent at once."""
DRAWN: list[Any] = [
    pytest.param(job, *case, id=f"{job.__name__}-{number}")
    for at, job in enumerate(JOBS)
    for number, case in enumerate(CASES)
    if (at + number) % 8 in (0, 3, 6)
]
"""Each job with three of the cases, and each case with seven of the jobs."""


def outcome(
    job: Job,
    sent: list[hg.Record[Any, Any]],
    chunk: int,
    *,
    serde: Any,
    keep: Any = None,
    same: bool = False,
    key: str | None = "user",
    **policies: Any,
) -> dict[str, Any]:
    """Everything that a job does with these records. `same`: behind a function that returns its value, which needs rows."""
    app = hg.App("job", **policies)
    orders = app.input("orders", serde=serde, key=key, timestamp="ts")
    orders = orders.filter(keep) if keep is not None else orders
    job(orders.map(lambda value: value) if same else orders)
    with Driver(app) as d:
        found: dict[str, Any] = {"failed": ""}
        try:
            for start in range(0, len(sent), chunk):
                d.send_all("orders", sent[start : start + chunk])
            d.drain()
        except Exception as error:  # noqa: BLE001 - compared
            found["failed"] = str(error)
        return {
            **found,
            **{topic: d.read(topic) for topic in sorted(d.declared.graph.outputs)},
            "dead": [(one.key, one.value, one.offset) for one in d.dead_letters()],
            "why": [one.exception for one in d.dead_letters()],
            "counters": dict(d.counters),
        }


def reads_columns(job: Job, serde: Any, keep: Any = None) -> bool:
    app = hg.App("job")
    orders = app.input("orders", serde=serde, key="user", timestamp="ts")
    job(orders.filter(keep) if keep is not None else orders)
    return {step.verb: takes for step, takes in on_columns(Declared(app).steps)}["input"]


@pytest.mark.parametrize(("job", "named", "kind", "policies", "chunk"), DRAWN)
def test_three_ways_give_the_same(job: Job, named: str, kind: Any, policies: dict[str, Any], chunk: int) -> None:
    """Columns, typed rows and dicts: values, keys, times, headers, their order, dead letters with their reasons, counters."""
    expression, function = FILTERS[named]
    assert reads_columns(job, hg.json(kind), expression)
    sent = records(chunk, bad=False)
    if policies:
        sent[5:5] = [hg.Record("k", one, 5) for one in (b"", b"{", b'{"user":"a"}{}')]
    columns = outcome(job, sent, chunk, serde=hg.json(kind), keep=expression, **policies)
    rows = outcome(job, sent, chunk, serde=hg.json(kind), keep=expression, same=True, **policies)
    assert columns == rows
    if job in (agg, agg_by_number, agg_of_text):  # what they write does not depend on which fields a record has
        dicts = outcome(job, sent, chunk, serde=hg.json(), keep=function, **policies)
        assert (dicts["out"], dicts["dead"]) == (columns["out"], columns["dead"])
    assert columns["out"]


@pytest.mark.parametrize("job", JOBS, ids=[one.__name__ for one in JOBS])
@pytest.mark.parametrize(("policy", "turn"), [("fail", 0), ("skip", 1), ("dead_letter", 2)])
def test_odd_records_are_judged_by_rows(job: Job, policy: str, turn: int) -> None:
    """Records that do not fit the type, nulls, tombstones, sums beyond 64 bits, times that are none: all that columns cannot hold.

    All fields are used in both ways, because a function behind an output's branch needs the value. Each job has a kind of type with each
    policy.
    """
    sent = [
        *records(3, bad=True),
        hg.Record("a", b'{"user":"a","amount":1,"ts":9223372036854775807,"country":"FR"}', 1),
        hg.Record("a", b'{"user":"a","amount":1,"ts":9223372036854775806,"country":null}', 2),
        hg.Record("a", b'{"user":"a","amount":1e308,"ts":5,"country":null}', 2),
        hg.Record("a", b'{"user":"a","amount":1e308,"ts":5,"country":null}', 2),
        hg.Record("b", None, 3),
        hg.Record(None, None, 4),
        hg.Record("b", b'{"user":1,"user":"b","amount":2,"ts":7}', 5),
        hg.Record("b", b'{"user":"\\ud83d","amount":2,"ts":7}', 6),
        hg.Record("b", b'{"user":"b","amount":1e999,"ts":7}', 6),
        hg.Record("b", b'{"user":"b","amount":2,"ts":8,"other":1e999}', 7),
        hg.Record("b", b'{"user":"b","amount":-0.0,"ts":9}', 8),
    ]

    def whole(orders: hg.Stream[Any, Any]) -> object:
        orders.to("all")
        return job(orders)

    policies: dict[str, Any] = {"on_bad_data": policy, "on_error": policy}
    assert reads_columns(whole, hg.json(Order))
    kind, size = [(Order, 5), (OrderStruct, 80), (OrderData, 1)][(JOBS.index(job) + turn) % 3]
    columns = outcome(whole, sent, size, serde=hg.json(kind), **policies)
    assert columns == outcome(whole, sent, size, serde=hg.json(kind), same=True, **policies)
    assert bool(columns["failed"]) == (policy == "fail")


@dataclass
class Few:
    """What the job of the next test names."""

    user: str
    amount: float
    ts: int


def test_only_named_fields_are_judged() -> None:
    """A field that no step names is skipped, like one that the type does not have. A function that needs the value changes that."""
    sent = [
        hg.Record(None, b'{"user":"a","amount":1,"ts":1,"country":7}', 1),
        hg.Record(None, b'{"user":"a","amount":2,"ts":1}', 1),
    ]
    found = outcome(agg, sent, 2, serde=hg.json(Order), on_bad_data="dead_letter")
    assert found == outcome(agg, sent, 2, serde=hg.json(Few), same=True, on_bad_data="dead_letter")
    assert [one.value["n"] for one in found["out"]] == [2]
    whole = outcome(agg, sent, 2, serde=hg.json(Order), same=True, on_bad_data="dead_letter")
    assert [offset for _, _, offset in whole["dead"]] == [0]


def test_rows_decode_only_what_steps_name() -> None:
    """Where columns are not used, too: into values that the cycle collector does not see."""
    app = hg.App("job")
    orders = app.input("orders", serde=hg.json(Order), timestamp="ts")
    orders.repartition("amount", key_serde=hg.json()).agg(n=hg.count(), user=hg.min("user")).to("out")
    (step,) = [one for one in Declared(app).steps if isinstance(one, InputStep)]
    assert step.columns is None
    assert step.named.type.__struct_fields__ == ("user", "amount", "ts")


def test_a_running_job_may_change_from_one_way_to_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph, the tables, and what may not differ in a live run do not depend on the way, nor on what filters."""

    def lives(keep: Any) -> tuple[Any, Any, bool]:
        app = hg.App("job")
        agg(app.input("orders", serde=hg.json(OrderStruct), timestamp="ts").filter(keep))
        found = Declared(app)
        return found.graph, parts(found, {}), any(on for _, on in on_columns(found.steps))

    as_columns, as_rows = lives(hg.col("amount") < 100), lives(lambda order: order.amount < 100)
    monkeypatch.setattr(chosen, "part", chosen.PLAIN)
    not_built = lives(hg.col("amount") < 100)
    assert as_columns[:2] == as_rows[:2] == not_built[:2]
    assert (as_columns[2], as_rows[2], not_built[2]) == (True, False, False)


def test_a_step_that_needs_the_value_keeps_its_input_on_rows() -> None:
    """And `headgate plan` says which step it is."""
    app = hg.App("job")
    orders = app.input("orders", serde=hg.json(Order))
    agg(orders)
    orders.map(lambda order: order["user"]).to("users")
    found = Declared(app)
    assert not any(on for _, on in on_columns(found.steps))
    assert re.fullmatch(r"map \(.*test_named_fields.py:\d+\) needs the whole value", found.why_rows["orders"])


class WithTags(msgspec.Struct):
    user: str
    tags: list[str]


class Short(msgspec.Struct, omit_defaults=True):
    user: str
    note: str | None = None


class Paid(TypedDict):
    user: str
    paid: bool


class Default(TypedDict):
    """A field that may be missing."""

    user: str
    n: NotRequired[int]


class Renamed(msgspec.Struct, rename={"of": "from"}):
    of: int


@pytest.mark.parametrize(
    ("job", "kind", "why"),
    [
        (lambda o: o.repartition(str).agg(n=hg.count()).to("out"), Order, "a function of the value"),
        (lambda o: o.repartition("user").agg(n=hg.sum(lambda v: v["ts"])).to("out"), Order, "a function of the value"),
        (lambda o: o.repartition("user").map(str).to("out"), Order, "needs the whole value"),
        (lambda o: o.repartition("user", serde=hg.msgpack()).to("out"), Order, "writes msgpack"),
        (lambda o: o.merge(o.app.input("more")).repartition("user").to("out"), Order, "has several inputs"),
        (
            lambda o: o.window(hg.tumbling("1s"), late="l").agg(n=hg.count()).to("out"),
            WithTags,
            "fields that are no columns",
        ),
        (lambda o: o.repartition("amount", key_serde=hg.json()).agg(n=hg.count()).to("out"), Order, "is by a float"),
        (lambda o: o.repartition("user").agg(n=hg.sum("paid")).to("out"), Paid, "which is no number"),
        (lambda o: o.repartition(name="own").agg(n=hg.count()).to("out"), Order, "the key of the record"),
        (lambda o: o.to("out", serde=hg.msgpack()), Order, "writes msgpack"),
        (lambda o: o.to("out", partition=lambda record: 0), Order, "a function of the value"),
        (lambda o: o.to("out"), WithTags, "writes fields that are no columns"),
        (lambda o: o.to("out"), Short, "writes fields that are no columns"),
        (lambda o: o.agg(n=hg.sum("n")).to("out"), Default, "has no column 'n'"),
        (lambda o: o.agg(n=hg.sum("of")).to("out"), Renamed, "has no column 'of'"),
    ],
)
def test_what_stays_on_rows(job: Job, kind: Any, why: str) -> None:
    """Whatever columns would do in another way."""
    app = hg.App("job")
    job(app.input("orders", serde=hg.json(kind)))
    assert why in Declared(app).why_rows["orders"]


@dataclass
class Named:
    user: str
    amount: float

    @property
    def initial(self) -> str:
        return self.user[:1]


@pytest.mark.parametrize(
    ("job", "told"),
    [
        (lambda o, _: o(Order).repartition("uesr"), r"repartition\('uesr'\): Order has no field 'uesr'.*mean 'user'"),
        (lambda o, _: o(Named).rekey("uesr"), "Named has no field 'uesr'"),
        (lambda o, _: o(OrderStruct).filter(bool).to("out", key="uesr"), "OrderStruct has no field"),
        (lambda o, _: o(Order).agg(n=hg.sum("amuont")), r"agg\(n=hg.sum\('amuont'\)\): Order has no field 'amuont'"),
        (lambda o, _: o(Order).repartition("user").agg(n=hg.sum("amuont")), "Order has no field 'amuont'"),
        (lambda o, _: o(Order).window(hg.tumbling("1s")).agg(n=hg.sum("amuont")), "Order has no field 'amuont'"),
        (lambda o, _: o(Order).columns().with_columns(x=1).rows().rekey("y"), "the values have no field 'y'"),
        (lambda o, t: o(Order).join(t, on="uesr", into=max), r"join\(on='uesr'\): Order has no field 'uesr'"),
        (lambda o, _: o(Order, key="uesr"), r"input\('orders'\): key='uesr': Order has no field"),
        (lambda o, _: o(Order, timestamp=hg.field("tz")), r"timestamp='tz': Order has no field 'tz'.*mean 'ts'"),
    ],
)
def test_a_field_that_a_declared_type_does_not_have_is_refused_at_its_line(job: Any, told: str) -> None:
    """No record has it, so each would fail, or be skipped."""
    app = hg.App("job")
    with pytest.raises(hg.DeclarationError, match=told):
        job(lambda kind, **own: app.input("orders", serde=hg.json(kind), **own), app.input("rates").table("rates"))


@pytest.mark.parametrize("kind", [Order, OrderStruct, OrderData, WithTags])
@pytest.mark.parametrize("verb", [hg.sum, hg.mean])
def test_a_sum_of_what_is_no_number_is_refused_at_its_line(kind: Any, verb: Any) -> None:
    """As of columns: each record would fail, one by one."""
    app, name = hg.App("job"), "tags" if kind is WithTags else "user"
    rows = app.input("orders", serde=hg.json(kind))
    what = f"needs numbers, and '{name}' is {'list' if kind is WithTags else 'text'}.*float\\(row"
    for stream in (rows, rows.repartition("user"), rows.filter(bool), rows.window(hg.tumbling("1s"))):
        with pytest.raises(hg.DeclarationError, match=what):
            stream.agg(n=verb(name))


def test_what_can_be_added_to_a_number_is_summed_in_rows() -> None:
    """How many are true; numbers that may be text; the least of texts; what nothing is known of."""

    class Mixed(TypedDict):
        ok: bool
        either: int | str
        some: Any
        text: str

    app = hg.App("job")
    rows = app.input("orders", serde=hg.json(Mixed))
    rows.agg(n=hg.sum("ok"), e=hg.mean("either"), s=hg.sum("some"), low=hg.min("text"), last=hg.last("text")).to("out")
    with hg.testing.Driver(app) as d:
        for ok in (True, False, True):
            d.send("orders", {"ok": ok, "either": 1, "some": 2, "text": "a"}, key="k")
        d.advance("1s")
        assert d.read("out")[-1].value == {"n": 2, "e": 1.0, "s": 6, "low": "a", "last": "a"}


def test_what_may_have_a_field_is_not_refused() -> None:
    """Attributes of a class, values of no declared type, and what a function or another format makes."""
    app = hg.App("job")
    named = app.input("a", serde=hg.json(Named)).repartition("initial")
    assert [
        named.agg(n=hg.max("user")),
        app.input("b", serde=hg.json(Renamed), timestamp="from").columns(),
        app.input("c", serde=hg.json(Order)).map(dict).rekey("more"),
        app.input("d", serde=hg.json(Order)).repartition("user", serde=hg.msgpack()).rekey("more"),
        app.input("e").rekey("more"),
    ]


@pytest.mark.parametrize(
    ("keep", "serde", "told"),
    [
        (hg.col("amuont") > 1, hg.json(Order), "did you mean 'amount'"),
        (hg.col("user") > 1, hg.json(OrderData), "cannot be compared"),
        (hg.col("amount") * 2, hg.json(OrderStruct), "not a condition"),
        (hg.col("tags").is_null(), hg.json(WithTags), r"no column can hold.*lambda"),
        (hg.col("n") > 1, hg.json(Default), "may be missing"),
        (hg.col("amount") > 1, hg.json(), r"have no declared type.*serde=hg.json\(Order\)"),
        (hg.col("amount") > 1, hg.text(), "have no declared type"),
    ],
)
def test_an_expression_is_checked_at_its_line(keep: hg.Expression, serde: Any, told: str) -> None:
    """With what to do about it."""
    orders: Any = hg.App("job").input("orders", serde=serde)
    with pytest.raises(hg.DeclarationError, match=told):
        orders.filter(keep)


def test_an_expression_follows_the_type_of_its_values() -> None:
    """Through steps that pass values on, and behind rows of columns; behind a function the type is not known."""
    app = hg.App("job")
    orders = app.input("orders", serde=hg.json(OrderStruct))
    keep = hg.col("amount") > 10
    orders.filter(keep).as_events().rekey("user").filter(lambda order: order.ts > 0).filter(keep)
    orders.columns().with_columns(twice=hg.col("amount") * 2).rows().filter(hg.col("twice") > 20)
    orders.merge(app.input("more", serde=hg.json(OrderStruct))).filter(keep)
    orders.repartition("user", serde=hg.json(OrderStruct)).filter(keep)
    same: Any = app.input("others", serde=hg.json(Few))
    behind: list[Any] = [orders.map(lambda order: order), orders.merge(same), orders.repartition("ts", serde=hg.json())]
    for stream in behind:
        with pytest.raises(hg.DeclarationError, match="no declared type"):
            stream.filter(keep)
    with pytest.raises(hg.DeclarationError, match="has no record"):
        orders.filter(keep, with_record=True)  # type: ignore[call-overload]


def test_an_expression_on_rows_fails_as_a_function_does() -> None:
    """With the record, and with what a null value lacks."""
    app = hg.App("job", on_error="dead_letter")
    orders = app.input("orders", serde=hg.json(OrderStruct))
    orders.filter(10 // hg.col("ts") > 1).map(lambda order: order.ts).to("out")
    with Driver(app) as d:
        d.send_all("orders", [OrderStruct("a", 1, n) for n in (1, 0, 2, 50)])
        d.send("orders", None)
        assert [one.value for one in d.read("out")] == [1, 2]
        assert [(one.offset, one.step[:6]) for one in d.dead_letters()] == [(1, "filter"), (4, "filter")]


def test_objects_are_objects_behind_shuffles_and_in_tables() -> None:
    """A function gets values of the declared dataclass or Struct wherever they have been. What a function makes has no known type."""
    app = hg.App("job")
    orders = app.input("orders", serde=hg.json(OrderStruct)).filter(hg.col("amount") > 0)
    known = orders.repartition("user").filter(hg.col("ts") > 0).table("known")
    more = app.input("more", serde=hg.json(OrderData)).repartition("user", name="more-by-user")
    more.join(known, into=lambda one, other: (one.amount + other.amount, type(one), type(other))).map(str).to("out")
    orders.columns(OrderStruct).rows().repartition("ts").map(lambda order: type(order).__name__).to("types")
    orders.map(lambda order: order).repartition("user", name="made").map(lambda order: type(order).__name__).to("types")
    with Driver(app) as d:
        d.send("orders", OrderStruct("a", 2, 3), key="a")
        d.send("more", OrderData("a", 5, 3), key="a")
        assert [one.value for one in d.read("out")] == [str((7.0, OrderData, OrderStruct))]
        assert sorted(one.value for one in d.read("types")) == ["OrderStruct", "dict"]
