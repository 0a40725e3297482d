"""Tables of which a worker keeps one copy, as a test driver runs them: the semantics of a worker, without Kafka."""

from __future__ import annotations

import asyncio
from typing import TypedDict

import pytest

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.operators.base.stateless import UserCodeError
from headgate.agents.process.launch import bound_inputs
from headgate.agents.runtime.copies.directory import NoDirectory
from headgate.core.errors import DataError, DeclarationError


class Order(TypedDict):
    c: str
    n: int


class Rate(TypedDict):
    rate: int


def joining(**policies):
    app = hg.App("shop", **policies.pop("app", {}))
    rates = app.input("rates", key_serde=hg.text(), **policies).table("rates", broadcast=True)
    app.input("orders").join(rates, on="c", into=lambda order, rate: {"n": order["n"], "rate": rate["rate"]}).to("out")
    return app


def values(driver):
    return [one.value for one in driver.read("out")]


def copy_of(driver):
    return driver._runtime.copies.all["rates"]


def test_all_tasks_read_one_copy_of_all_partitions():
    with hg.testing.Driver(joining(), partitions={"orders": 3, "rates": 2}) as d:
        d.send("rates", {"rate": 1}, key="a", partition=0)
        d.send("rates", {"rate": 2}, key="b", partition=1)
        for task in range(3):
            d.send_all("orders", [{"c": "a", "n": task}, {"c": "b", "n": task}, {"c": "zz", "n": task}], partition=task)
        assert [one["rate"] for one in values(d)] == [1, 2] * 3
        assert d.counters["join_misses"] == 3
        assert copy_of(d).read == 2, "the topic is read once, not once per task"
        assert dict(d.table("rates").items()) == {"a": {"rate": 1}, "b": {"rate": 2}}
        d.send("rates", None, key="a", partition=0)
        assert dict(d.table("rates").items()) == {"b": {"rate": 2}}
        assert copy_of(d).facts().rows == 1
        assert d.watermarks.keys() == {"Partition 0", "Partition 1", "Partition 2"}
        assert all("rates" not in heard for heard in d.watermarks.values())


def test_steps_before_the_table_may_change_rows_and_their_key():
    app = hg.App("shop")
    rates = (
        app.input("rates")
        .filter(lambda rate: rate["rate"] > 0)
        .flat_map(lambda rate: [rate, {**rate, "c": rate["c"].lower()}])
        .map(lambda rate: {**rate, "rate": rate["rate"] * 10})
        .rekey("c")
        .table("rates", broadcast=True)
    )
    app.input("orders").join(rates, on="c", into=lambda order, rate: rate["rate"]).to("out")
    with hg.testing.Driver(app) as d:
        d.send_all("rates", [{"c": "A", "rate": 1}, {"c": "B", "rate": 0}])
        d.send_all("orders", [{"c": "A"}, {"c": "a"}, {"c": "B"}])
        assert values(d) == [10, 10]


def test_functions_and_actors_read_the_copy_and_cannot_write_to_it():
    app = hg.App("shop")
    app.input("rates", key_serde=hg.text()).table("rates", broadcast=True)

    class Priced(hg.Actor):
        def on_batch(self, ctx, batch):
            table = ctx.table("rates")
            for record in batch:
                if record.value.get("write"):
                    table["a"] = {"rate": 0}
                ctx.forward(
                    {
                        "rate": table.get(record.value["c"]),
                        "many": table.get_many(["a", "zz"]),
                        "all": sorted(table),
                        "size": len(table),
                    }
                )

    app.input("orders").process(Priced).to("out")
    with hg.testing.Driver(app) as d:
        d.send("rates", {"rate": 1}, key="a")
        d.send("orders", {"c": "a"})
        assert values(d) == [{"rate": {"rate": 1}, "many": [{"rate": 1}, None], "all": ["a"], "size": 1}]
        with pytest.raises(UserCodeError, match="copy of the topic 'rates'"):
            d.send("orders", {"c": "a", "write": True})


def test_a_restart_reads_the_topic_again_and_a_topic_that_is_made_again_is_read_anew():
    with hg.testing.Driver(joining()) as d:
        d.send_all("rates", [hg.Record("a", {"rate": 1}, 0), hg.Record("b", {"rate": 2}, 0)])
        d.restart()
        d.send("orders", {"c": "b", "n": 1})
        assert values(d) == [{"n": 1, "rate": 2}]
        d.recreate("rates")
        assert copy_of(d).facts().built_anew == 1
        d.send("rates", {"rate": 7}, key="a")
        d.send_all("orders", [{"c": "b", "n": 2}, {"c": "a", "n": 3}])
        assert values(d) == [{"n": 3, "rate": 7}]
        assert d.states == {"Partition 0": "running"}


def test_a_copy_holds_neither_time_nor_end_nor_drain():
    app = hg.App("shop")
    rates = app.input("rates", key_serde=hg.text()).table("rates", broadcast=True)
    joined = app.input("orders", timestamp="ts").join(rates, on="c", into=lambda order, rate: {**order, **rate})
    joined.window(hg.tumbling("1s")).agg(n=hg.count()).to("out")
    with hg.testing.Driver(app) as d:
        d.send("rates", {"rate": 1}, key="a", at=10**12)
        d.send("orders", {"c": "a", "ts": 0}, key="k")
        d.send("orders", {"c": "a", "ts": 1000}, key="k")
        assert [one["n"] for one in values(d)] == [1], "the time of a rate is none of the stream's"
        d.end("orders")
        assert d.states == {"Partition 0": "ended"}
        assert [one["n"] for one in values(d)] == [1]


@pytest.mark.parametrize("policy", ["skip", "dead_letter", lambda record, error: "skip"])
def test_records_that_a_policy_leaves_out_are_counted_and_stay_in_the_topic(policy):
    app = hg.App("shop")
    rates = (
        app.input("rates", key_serde=hg.text(), on_bad_data=policy, on_error=policy)
        .map(lambda rate: {"rate": 1 / rate["rate"]})
        .table("rates", broadcast=True)
    )
    app.input("orders").join(rates, on="c", into=lambda order, rate: rate["rate"]).to("out")
    with hg.testing.Driver(app) as d:
        rows = [("a", {"rate": 1}), ("b", b"no json"), ("c", {"rate": 0}), ("d", {"rate": 4})]
        d.send_all("rates", [hg.Record(key, value, 0) for key, value in rows])
        d.send_all("orders", [{"c": key} for key, _ in rows])
        assert values(d) == [1.0, 0.25]
        assert (copy_of(d).facts().left_out, copy_of(d).facts().read) == (2, 4)
        assert d.dead_letters() == []


@pytest.mark.parametrize(
    ("policies", "value", "why"),
    [
        ({}, b"no json", r"record at rates\[0\] offset 1: not json"),
        ({"on_bad_data": "skip"}, {"rate": 1, "bad": True}, r"record at rates\[0\] offset 1: map .* raised KeyError"),
    ],
)
def test_a_record_that_fails_stops_the_copy_and_fails_the_tasks_that_read_it(policies, value, why):
    app = hg.App("shop")
    rates = (
        app.input("rates", key_serde=hg.text(), **policies)
        .map(lambda rate: rate["missing"] if rate.get("bad") else rate)
        .table("rates", broadcast=True)
    )
    app.input("orders").join(rates, on="c", into=lambda order, rate: rate["rate"]).to("out")
    with hg.testing.Driver(app) as d:
        d.send("rates", {"rate": 1}, key="a")
        with pytest.raises(DataError, match=why) as failed:
            d.send("rates", value, key="b")
        assert "Remedy: correct the code, or leave such records out" in str(failed.value)
        assert d.states == {"Partition 0": "failed"}
        facts = copy_of(d).facts()
        assert (facts.state, facts.rows, facts.lag) == ("stopped", 1, 1)
        with pytest.raises(DataError, match=why):
            d.restart()  # it tries again, at the same record


def test_rows_expire_in_a_copy_as_in_any_table():
    app = hg.App("shop")
    rates = app.input("rates", key_serde=hg.text()).table("rates", broadcast=True, ttl="1m")
    app.input("orders").join(rates, on="c", how="left", into=lambda order, rate: rate and rate["rate"]).to("out")
    with hg.testing.Driver(app) as d:
        d.send("rates", {"rate": 1}, key="a")
        d.send("orders", {"c": "a"})
        d.advance("2m")
        d.send("orders", {"c": "a"})
        assert values(d) == [1, None]


def test_columns_join_a_copy():
    app = hg.App("shop")
    rates = app.input("rates", serde=hg.json(Rate), key_serde=hg.text()).table("rates", broadcast=True)
    orders = app.input("orders", serde=hg.json(Order)).columns()
    orders.join(rates, on="c", take=["rate"]).to("out")
    with hg.testing.Driver(app) as d:
        d.send("rates", {"rate": 3}, key="a")
        d.send_all("orders", [{"c": "a", "n": 1}, {"c": "b", "n": 2}])
        assert values(d) == [{"c": "a", "n": 1, "rate": 3}]


def topics_copied(declare):
    app = hg.App("shop")
    declare(app)
    return Declared(app).graph.copied


def test_what_every_task_needs_for_itself_stays_in_the_tasks():
    def used_otherwise(app):
        rates = app.input("rates", key_serde=hg.text())
        app.input("orders").join(rates.table("rates", broadcast=True), on="c", into=max).to("out")
        rates.sink(print)

    def through_a_stream(app):
        rates = app.input("rates").broadcast("everywhere").table("rates", broadcast=True)
        app.input("orders").join(rates, on="c", into=max).to("out")

    def of_two_topics(app):
        rates = app.input("rates").merge(app.input("more")).table("rates", broadcast=True)
        app.input("orders").join(rates, on="c", into=max).to("out")

    def of_a_part(app):
        rates = app.input("rates", until="newest").table("rates", broadcast=True)
        app.input("orders").join(rates, on="c", into=max).to("out")

    def partitioned(app):
        app.input("orders").join(app.input("rates").table("rates"), into=max).to("out")

    for declare in (used_otherwise, through_a_stream, of_two_topics, of_a_part, partitioned):
        assert topics_copied(declare) == frozenset(), declare.__name__

    def two_tables(app):
        rates = app.input("rates")
        one, two = rates.table("one", broadcast=True), rates.map(str).table("two", broadcast=True)
        orders = app.input("orders")
        orders.join(one, on="c", into=max).to("out")
        orders.join(two, on="c", into=max).to("out-2")

    assert topics_copied(two_tables) == {"rates"}


def test_a_bounded_run_ends_although_the_topic_of_a_copy_does_not():
    app = joining()
    bound_inputs(app)
    graph = Declared(app).graph
    assert (graph.input["orders"].until, graph.input["rates"].until) == ("newest", None)
    assert graph.bounded


def test_to_park_is_refused_where_nothing_is_tried_again():
    with pytest.raises(DeclarationError, match=r"on_error=hg\.park\(…\) before the table 'rates'"):
        joining(on_error=hg.park())
    with pytest.raises(DeclarationError, match="on_bad_data"):
        joining(on_bad_data="park")
    assert Declared(joining(app={"on_error": hg.park()})).copied, "that of the app is of all inputs"


def test_a_job_of_nothing_but_copies_has_no_task():
    app = hg.App("shop")
    app.input("rates").table("rates", broadcast=True)
    with pytest.raises(DeclarationError, match="no partition to create tasks from"):
        hg.testing.Driver(app)


def test_a_table_of_a_task_cannot_be_used_before_a_copy():
    app = hg.App("shop")
    seen = app.table("seen")
    rates = app.input("rates", key_serde=hg.text()).map(lambda rate: seen.get("x") or rate)
    table = rates.table("rates", broadcast=True)
    app.input("orders").join(table, on="c", into=lambda order, rate: rate["rate"]).to("out")
    with (
        hg.testing.Driver(app) as d,
        pytest.raises(DataError, match="the table 'seen' is used before the table 'rates'"),
    ):
        d.send("rates", {"rate": 1}, key="a")


def test_user_code_before_a_copy_may_await_nothing():
    async def slow(rate):
        await asyncio.sleep(1)
        return rate

    app = hg.App("shop")
    rates = app.input("rates", key_serde=hg.text()).map_async(slow).table("rates", broadcast=True)
    app.input("orders").join(rates, on="c", into=lambda order, rate: rate["rate"]).to("out")
    assert Declared(app).copied == {}, "it stays in the tasks"


def test_what_fails_only_for_a_while_is_tried_again():
    failing = [OSError("busy"), OSError("busy")]

    def looked_up(rate):
        if failing:
            raise failing.pop()
        return rate

    app = hg.App("shop")
    rates = app.input("rates", key_serde=hg.text()).map(looked_up).table("rates", broadcast=True)
    app.input("orders").join(rates, on="c", into=lambda order, rate: rate["rate"]).to("out")
    with hg.testing.Driver(app, settings={"error.retries": 3}) as d:
        d.send("rates", {"rate": 1}, key="a")
        d.restart()
        d.send("orders", {"c": "a"})
        assert values(d) == [1]
        assert copy_of(d).facts().left_out == 0


def test_a_copy_outlives_a_disk_and_a_library_that_fail(monkeypatch):
    """Whatever is raised where it awaits, the worker goes on, and the copy begins again from what it has kept."""
    original, raised = NoDirectory.open, [OSError("no space left"), asyncio.CancelledError(), ValueError("a bug")]

    def opened(self, owner, tables):
        if raised:
            raise raised.pop()
        return original(self, owner, tables)

    monkeypatch.setattr(NoDirectory, "open", opened)
    with hg.testing.Driver(joining()) as d:
        d.send("rates", {"rate": 1}, key="a")
        d.send("orders", {"c": "a", "n": 1})
        assert values(d) == [{"n": 1, "rate": 1}]
        assert raised == []


def test_a_store_that_refuses_a_write_is_opened_again(monkeypatch):
    with hg.testing.Driver(joining()) as d:
        d.send("rates", {"rate": 1}, key="a")
        monkeypatch.setattr(copy_of(d).store, "_put", _refuses)
        d.send("rates", {"rate": 2}, key="b")
        d.send_all("orders", [{"c": "a", "n": 1}, {"c": "b", "n": 2}])
        assert values(d) == [{"n": 1, "rate": 1}, {"n": 2, "rate": 2}]
        assert d.states == {"Partition 0": "running"}


def _refuses(*_):
    raise OSError("no space left")


def test_the_age_of_a_copy_that_is_not_fed_grows():
    with hg.testing.Driver(joining()) as d:
        d.send("rates", {"rate": 1}, key="a")
        copy = copy_of(d)
        now_s = d._clock.now().mono
        assert copy.age_ms(now_s) == 0
        assert copy.age_ms(now_s + 60) == 60_000
        d.advance("1m")
        assert copy.age_ms(d._clock.now().mono) == 0, "the broker has answered that there is no more"
