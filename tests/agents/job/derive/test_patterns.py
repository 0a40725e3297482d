"""Inputs by pattern: which topics they mean, and what stands in their place."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.job.derive.plans import parts
from headgate.core.errors import DeclarationError
from headgate.core.graph.patterned import read_by_run, unread_by_run

THERE = ["orders-de", "orders-fr", "orders-out", "orders", "other", "__consumer_offsets", "sales-1-by-k", "orders-own"]


def app_of(**options: Any) -> hg.App:
    app = hg.App("sales")
    app.input("orders-own").to("copied")
    app.input(pattern=options.pop("pattern", "orders-.*"), **options).repartition("k").agg(n=hg.count()).to(
        "orders-out"
    )
    return app


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [
        ("orders-.*", ["orders-de", "orders-fr"]),
        ("orders-d.", ["orders-de"]),
        (".*", ["orders", "orders-de", "orders-fr", "other"]),
    ],
)
def test_whole_names_match_that_are_open_and_not_declared_otherwise(pattern: str, topics: list[str]) -> None:
    declared = Declared(app_of(pattern=pattern), found=THERE)
    assert sorted(one for one, step in declared.inputs.items() if step.matched) == topics
    assert set(declared.graph.input) == {*topics, "orders-own"}


def test_an_order_of_topics_makes_no_difference() -> None:
    some = [parts(Declared(app_of(), found=found), {}) for found in (THERE, THERE[::-1])]
    assert some[0] == some[1]


def test_one_topic_and_several_make_the_same_stages() -> None:
    one, many = (Declared(app_of(), found=found).graph for found in (THERE[:1], THERE))
    assert [stage.name for stage in one.stages] == [stage.name for stage in many.stages]


@pytest.mark.parametrize(
    ("app", "found", "why"),
    [
        (app_of(), ["other"], "no topic matches 'orders-.*'"),
        (app_of(), None, "known when a run begins"),
    ],
)
def test_what_cannot_be_meant_is_refused(app: hg.App, found: Any, why: str) -> None:
    with pytest.raises(DeclarationError, match=why):
        Declared(app, found=found)


def test_a_topic_belongs_to_one_pattern() -> None:
    app = app_of()
    app.input(pattern="orders-d.*").to("copied-too")
    with pytest.raises(DeclarationError, match="'orders-de' matches two patterns"):
        Declared(app, found=THERE)


def test_a_run_keeps_its_topics_and_tells_what_it_does_not_read() -> None:
    """Of its fingerprint alone: a command has no code."""
    app = app_of()
    run = parts(Declared(app, found=THERE[:2]), {})
    assert read_by_run(run, ["orders-.*"]) == ["orders-de", "orders-fr", "orders-own"]
    assert unread_by_run(run, [*THERE, "orders-it"], app.topics) == {"orders-.*": ["orders-it"]}
    assert unread_by_run(run, THERE, app.topics) == {}
    plain = hg.App("sales")
    plain.input("orders-de").to("out")
    assert unread_by_run(parts(Declared(plain), {}), THERE, plain.topics) == {}


def test_the_topic_is_told_with_the_value() -> None:
    app = hg.App("sales")
    app.input(pattern="orders-.*", into=lambda value, topic: [topic, value]).to("out")
    with hg.testing.Driver(app, topics=["orders-b", "orders-a"], partitions={"orders-c": 2}) as d:
        for topic in "cab":
            d.send(f"orders-{topic}", 1)
        assert sorted(one.value for one in d.read("out")) == [[f"orders-{one}", 1] for one in "abc"]


def test_batches_say_of_which_topic_partition_and_offset_their_records_are() -> None:
    """Those of actors and of sinks; a record alone says only what `into=` has put into its value."""
    app = hg.App("sales")
    orders = app.input(pattern="orders-.*", into=lambda value, topic: {"n": value, "topic": topic})
    seen: list[tuple[Any, ...]] = []

    def see(batch: Any) -> None:
        seen.append((batch.stream, batch.partition, list(batch.offsets), batch.values))

    class Sees(hg.Actor):
        def on_batch(self, ctx: Any, batch: Any) -> None:
            see(batch)

    app.actor(orders, name="sees")(Sees)
    orders.sink(see)
    orders.map(lambda record: record.value["topic"], with_record=True).to("out")
    with hg.testing.Driver(app, topics=["orders-a"], partitions={"orders-b": 2}) as d:
        d.send("orders-a", 1)
        d.send("orders-b", 2, partition=1)
        d.send("orders-b", 3, partition=1)
        assert sorted(one.value for one in d.read("out")) == ["orders-a", "orders-b", "orders-b"]
    wanted = [("orders-a", 0, [0], 1), ("orders-b", 1, [0], 2), ("orders-b", 1, [1], 3)]
    assert seen == [(*at, [{"n": n, "topic": at[0]}]) for *at, n in wanted for _ in range(2)]


class Order(TypedDict):
    k: str
    n: int


def test_columns_of_several_topics() -> None:
    app = hg.App("sales")
    orders = app.input(pattern="orders-.*", serde=hg.json(Order)).columns()
    orders.filter(hg.col("n") > 0).repartition("k").agg(n=hg.sum("n")).to("out")
    with hg.testing.Driver(app, topics=["orders-b", "orders-a"]) as d:
        for topic, n in [("orders-a", 1), ("orders-b", 0), ("orders-b", 4)]:
            d.send(topic, {"k": "x", "n": n})
        assert [one.value for one in d.read("out")][-1] == {"n": 5}
