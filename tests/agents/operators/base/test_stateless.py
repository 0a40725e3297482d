"""Every verb, as a user sees it: records in, records out, through the real operators in a test driver."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver

from ...forms import Form


class Row(TypedDict):
    k: str
    n: int


class Order(TypedDict):
    country: str


def values(records: list[hg.Record[Any, Any]]) -> list[Any]:
    return [record.value for record in records]


def test_map_filter_and_flat_map() -> None:
    """Values change; key, time and headers stay with them."""
    app = hg.App("job")
    (
        app.input("in", key_serde=hg.text())
        .filter(lambda v: v["n"] > 0)
        .map(lambda v: {**v, "twice": 2 * v["n"]})
        .flat_map(lambda v: [v["twice"]] * v["n"])
        .to("out")
    )
    with Driver(app) as d:
        d.send("in", {"n": 0}, key="a")
        d.send("in", {"n": 2}, key="b", at=7, headers={"h": b"1"})
        d.send("in", {"n": 1}, key="c", at=8)
        kept = hg.Record("b", 4, 7, (("h", b"1"),))
        assert d.read("out") == [kept, kept, hg.Record("c", 2, 8)]


def test_a_function_may_ask_for_the_record_and_give_one() -> None:
    """With with_record=True key, time and headers can be read and set; a plain result keeps them."""
    app = hg.App("job")
    numbers = app.input("in", key_serde=hg.text())
    (
        numbers.filter(lambda r: r.key != "skip", with_record=True)
        .map(
            lambda r: (
                hg.Record(r.key.upper(), r.value, r.timestamp + 1, [("was", r.key.encode())]) if r.value else r.value
            ),
            with_record=True,
        )
        .to("out")
    )
    numbers.flat_map(lambda r: [r.with_value(1), 2], with_record=True).to("flat")
    with Driver(app) as d:
        d.send_all("in", [hg.Record("a", 5, 10), hg.Record("skip", 5, 11), hg.Record("b", 0, 12)])
        assert d.read("out") == [hg.Record("A", 5, 11, (("was", b"a"),)), hg.Record("b", 0, 12)]
        assert [(r.key, r.value, r.timestamp) for r in d.read("flat")][:2] == [("a", 1, 10), ("a", 2, 10)]


def test_map_async_keeps_the_order_and_its_bound() -> None:
    """Results come in the order of their input whatever order they finish in, and never more run than was said."""
    running: list[int] = []
    most: list[int] = []

    async def slowly(value: int) -> int:
        running.append(value)
        most.append(len(running))
        await asyncio.sleep(10 - value)
        running.remove(value)
        return value * 10

    app = hg.App("job")
    app.input("in").map_async(slowly, concurrency=3).to("out")
    with Driver(app) as d:
        d.send_all("in", list(range(9)))
        assert values(d.read("out")) == [0, 10, 20, 30, 40, 50, 60, 70, 80]
    assert max(most) == 3


def test_map_async_of_something_that_is_not_awaited_says_so() -> None:
    """A plain function cannot be told from one that gives an awaitable before it is called."""
    app = hg.App("job")
    app.input("in").map_async(lambda value: value).to("out")
    with Driver(app) as d, pytest.raises(hg.UserCodeError, match="use map"):
        d.send("in", 1)


def test_map_async_with_records() -> None:
    """A record goes in, a record comes out."""

    async def shout(record: hg.Record[str, str]) -> hg.Record[str, str]:
        return hg.Record(record.key + "!", record.value.upper(), record.timestamp)

    app = hg.App("job")
    app.input("in", key_serde=hg.text(), serde=hg.text()).map_async(shout, with_record=True).to("out", serde=hg.text())
    with Driver(app) as d:
        d.send("in", "x", key="k", at=3)
        assert d.read("out") == [hg.Record("k!", "X", 3)]


def test_merge_takes_from_all() -> None:
    """Several streams become one, also when they are branches of the same input."""
    app = hg.App("job")
    a, b = app.input("a"), app.input("b")
    a.merge(b, a.map(lambda v: v + 100)).to("out")
    with Driver(app) as d:
        d.send("a", 1)
        d.send("b", 2)
        assert sorted(values(d.read("out"))) == [1, 2, 101]


def test_rekey_serves_an_output() -> None:
    """The key changes, the record stays where it is."""
    app = hg.App("job")
    app.input("in").rekey("country").to("out")
    app.input("more").to("keyed", key=lambda v: v["id"], key_serde=hg.json())
    with Driver(app) as d:
        d.send("in", {"country": "DE"}, key=b"old")
        d.send("more", {"id": 7})
        assert [r.key for r in d.read("out")] == ["DE"]
        assert [r.key for r in d.read("keyed")] == [7]


def test_to_a_partition_of_ones_own_choice() -> None:
    """Without a choice it is the one that Kafka's Java client would take."""
    app = hg.App("job")
    app.input("in", key_serde=hg.text()).to("out", partition=lambda r: r.value % 3)
    app.input("plain", key_serde=hg.text()).to("hashed")
    with Driver(app, partitions={"out": 3, "hashed": 4}) as d:
        d.send_all("in", [hg.Record("k", n) for n in range(6)])
        assert values(d.read("out", partition=1)) == [1, 4]
        d.send_all("plain", [hg.Record("21", 1)])
        assert values(d.read("hashed", partition=0)) == [1]


def test_filters_and_added_fields(form: Form) -> None:
    """Values change; key, time and headers stay with them."""
    app = hg.App("job")
    rows = form.input(app, "in", Row, key_serde=hg.text())
    kept = form.filter(rows, hg.col("n") > 0, lambda v: v["n"] > 0)
    form.with_columns(kept, lambda v: {**v, "twice": 2 * v["n"]}, {"twice": hg.col("n") * 2}).to("out")
    with Driver(app) as d:
        d.send("in", {"k": "x", "n": 0}, key="a")
        d.send("in", {"k": "x", "n": 2}, key="b", at=7, headers={"h": b"1"})
        d.send("in", {"k": "x", "n": 1}, at=8)
        assert d.read("out") == [
            hg.Record("b", {"k": "x", "n": 2, "twice": 4}, 7, (("h", b"1"),)),
            hg.Record(None, {"k": "x", "n": 1, "twice": 2}, 8),
        ]


def test_branches_of_one_stream(form: Form) -> None:
    """Each gets every record; what one leaves out or adds is nothing to the others."""
    app = hg.App("job")
    rows = form.input(app, "in", Row)
    form.filter(rows, hg.col("n") > 1, lambda v: v["n"] > 1).to("some")
    form.with_columns(rows, lambda v: {**v, "n": 0}, {"n": 0}).to("none")
    rows.to("all", key="k")
    with Driver(app) as d:
        d.send_all("in", [{"k": "a", "n": 1}, {"k": "b", "n": 2}])
        assert [one["n"] for one in values(d.read("some"))] == [2]
        assert [one["n"] for one in values(d.read("none"))] == [0, 0]
        assert [(r.key, r.value["n"]) for r in d.read("all")] == [("a", 1), ("b", 2)]


def test_tombstones_pass_and_delete() -> None:
    """A null value deletes from a table; its key is the record's own, even where the key is a field."""
    app = hg.App("job")
    rates = app.input("rates", key="currency").table("rates")
    app.input("orders", key="currency").join(rates, into=lambda o, r: [o["n"], r["rate"]]).to("out")
    with Driver(app) as d:
        d.send("rates", {"currency": "EUR", "rate": 2})
        d.send("orders", {"currency": "EUR", "n": 1})
        d.send("rates", None, key="EUR")
        d.send("orders", {"currency": "EUR", "n": 2})
        assert values(d.read("out")) == [[1, 2]]
        assert dict(d.table("rates")) == {}
        assert d.counters["join_misses"] == 1


def test_tombstones_go_out_as_null_values() -> None:
    """None is written as Kafka's null."""
    app = hg.App("job")
    app.input("in", key_serde=hg.text()).map(lambda v: v or None).to("out")
    with Driver(app) as d:
        d.send("in", "", key="k")
        d.send("in", None, key="l")
        assert d.read("out") == [hg.Record("k", None, 0), hg.Record("l", None, 0)]


def test_repartition_brings_equal_keys_together(form: Form) -> None:
    """By a field, by a function, by the record's own key: each key ends in one task, whatever partition it came in."""
    app = hg.App("job")
    orders = app.input("in", key_serde=hg.text())
    form.input(app, "more", Order).repartition("country").agg(name="a", n=hg.count()).to("by-field")
    orders.repartition(lambda v: v["country"].lower(), name="lower").agg(name="b", n=hg.count()).to("by-function")
    orders.repartition(name="own").agg(name="c", n=hg.count()).to("by-key")
    with Driver(app, partitions={"in": 4, "more": 4}) as d:
        for n in range(8):
            for topic in ("in", "more"):
                d.send(topic, {"country": "DE" if n % 2 else "FR"}, key=f"k{n % 3}", partition=n % 4)
        assert {k: v["n"] for k, v in d.table("a").items()} == {"DE": 4, "FR": 4}
        assert {k: v["n"] for k, v in d.table("b").items()} == {"de": 4, "fr": 4}
        assert {k: v["n"] for k, v in d.table("c").items()} == {"k0": 3, "k1": 3, "k2": 2}
        homes = [task for task in d.tasks if "DE" in d.table("a").task(task)]
        assert len(homes) == 1


def test_a_repartitioned_stream_keeps_values_times_and_order(form: Form) -> None:
    """Through real frames and back, several thousand at once."""
    app = hg.App("job")
    form.input(app, "in", Row).repartition("k", partitions=2).to("out")
    with Driver(app, partitions={"in": 2}) as d:
        d.send_all("in", [hg.Record(None, {"k": str(n % 5), "n": n}, n) for n in range(5000)])
        out = d.read("out")
        assert sorted(one["n"] for one in values(out)) == list(range(5000))
        for k in range(5):
            assert [r.value["n"] for r in out if r.key == str(k)] == list(range(k, 5000, 5))
        assert all(r.timestamp == r.value["n"] for r in out)


def test_broadcast_reaches_every_task() -> None:
    """What is said once is known everywhere."""
    app = hg.App("job")
    rules = app.input("rules", key_serde=hg.text()).broadcast("rules-everywhere").table("rules")
    app.input("in", key_serde=hg.text()).join(rules, on=lambda v: "limit", into=lambda v, r: v > r).to("out")
    with Driver(app, partitions={"in": 3, "rules": 2}) as d:
        d.send("rules", 5, key="limit")
        for partition in range(3):
            d.send("in", partition * 4, partition=partition)
        assert values(d.read("out")) == [False, False, True]
        assert [d.table("rules").task(task) for task in d.tasks] == [{"limit": 5}] * 3


def test_joins_inner_and_left_partitioned_and_broadcast() -> None:
    """Inner drops what has no row, left gives None; a broadcast table serves every partition."""
    app = hg.App("job")
    near = app.input("near", key_serde=hg.text()).table("near")
    far = app.input("far", key="id").table("far", broadcast=True)
    orders = app.input("orders", key_serde=hg.text())
    orders.join(near, into=lambda o, r: o + r).to("inner")
    orders.join(near, into=lambda o, r: (o, r), how="left").to("left")
    orders.join(far, on=lambda o: str(o), into=lambda o, r: r["name"]).to("wide")
    with Driver(app, partitions={"orders": 2, "near": 2, "far": 3}) as d:
        d.send("far", {"id": "1", "name": "one"})
        d.send("near", 10, key="a")
        d.send("orders", 1, key="a")
        d.send("orders", 2, key="b")
        assert values(d.read("inner")) == [11]
        assert values(d.read("left")) == [[1, 10], [2, None]]
        assert values(d.read("wide")) == ["one"]


def test_a_join_without_a_key_says_what_to_do() -> None:
    """The step, the cause and the remedy."""
    app = hg.App("job")
    rates = app.input("rates", key_serde=hg.text()).table("rates")
    app.input("orders").join(rates, into=lambda o, r: o).to("out")
    with Driver(app) as d, pytest.raises(hg.UserCodeError, match=r"a record has no key.*repartition"):
        d.send("orders", 1)


def test_fields_of_dataclasses_are_attributes() -> None:
    """A field is an item of a dict, or an attribute of anything else."""

    @dataclass
    class Order:
        country: str
        amount: int

    app = hg.App("job")
    (
        app.input("in", serde=hg.json(Order), timestamp="amount")
        .repartition("country", serde=hg.json(Order))
        .agg(total=hg.sum("amount"), top=hg.max("amount"))
        .to("out")
    )
    with Driver(app) as d:
        d.send("in", Order("DE", 3))
        d.send("in", Order("DE", 4))
        assert d.read("out")[-1] == hg.Record("DE", {"total": 7, "top": 4}, 4)


def test_a_table_forgets_after_its_time() -> None:
    """Expiry is a logged delete; nobody sees an old row even before that."""
    app = hg.App("job")
    seen = app.input("in", key_serde=hg.text()).table("seen", ttl="1m")
    app.input("ask", key_serde=hg.text()).join(seen, into=lambda a, s: s, how="left").to("out")
    with Driver(app) as d:
        d.send("in", 1, key="a")
        d.advance("30s")
        d.send("ask", 0, key="a")
        d.advance("31s")
        d.send("ask", 0, key="a")
        assert values(d.read("out")) == [1, None]
        assert dict(d.table("seen")) == {}


def test_tables_in_user_code() -> None:
    """A table that is declared at the top of a module is the running task's wherever user code runs."""
    app = hg.App("job", key_serde=hg.text())
    counts = app.table("my_counts", value=hg.json())

    def count(record: hg.Record[str, Any]) -> int:
        counts[record.key] = counts.get(record.key, 0) + 1
        return counts[record.key]

    async def later(value: int) -> int:
        await asyncio.sleep(1)
        counts["async"] = value
        return value

    app.input("in", key_serde=hg.text()).map(count, with_record=True).map_async(later).to("out")
    with Driver(app, partitions={"in": 2}) as d:
        for key in "aabab":
            d.send("in", 0, key=key)
        assert values(d.read("out")) == [1, 2, 1, 3, 2]
        table = d.table("my_counts")
        assert (table["a"], table["b"]) == (3, 2)
        assert "async" in table


def test_serdes_of_all_kinds_in_and_out() -> None:
    """json, msgpack, text, bytes, your own: values and keys."""
    decimal = hg.custom(int, lambda n: b"%d" % n, name="decimal")
    app = hg.App("job")
    app.input("a", serde=hg.msgpack(), key_serde=decimal).map(lambda v: v["n"]).to(
        "to-text", serde=decimal, key_serde=decimal
    )
    app.input("b", serde=hg.text()).map(str.encode).to("to-bytes", serde=hg.raw())
    app.input("c", serde=hg.bytes()).map(len).to("to-json")
    with Driver(app) as d:
        d.send("a", {"n": 3}, key=9)
        d.send("b", "ä")
        d.send("c", b"abc")
        assert d.read("to-text") == [hg.Record(9, 3, 0)]
        assert values(d.read("to-bytes")) == ["ä".encode()]
        assert values(d.read("to-json")) == [3]


def test_what_cannot_be_written_is_an_error_of_the_step_that_writes() -> None:
    """A value of the wrong kind is found before anything is sent."""
    app = hg.App("job")
    app.input("in").map(lambda v: {1, 2}).to("out")
    with Driver(app) as d:
        with pytest.raises(hg.UserCodeError, match="cannot be encoded as json"):
            d.send("in", 1)
        assert d.read("out") == []
