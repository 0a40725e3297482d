"""From a declaration to what the machines decide with."""

from __future__ import annotations

from typing import Any

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.core.graph.fingerprint import fingerprint
from headgate.core.graph.model import JobModel, producer_sets
from headgate.core.names import StreamPartition
from headgate.core.task.plan import INTERMEDIATE, SOURCE, TaskSettings


def sales(**options: Any) -> hg.App:
    app = hg.App("sales")
    orders = app.input("orders", max_out_of_order="5s", **options)
    rates = app.input("rates", key="currency").table("rates", broadcast=True)
    joined = orders.join(rates, on="currency", into=lambda o, r: o)
    joined.repartition("country").agg(n=hg.count()).to("out")
    return app


def model_of(declared: Declared) -> JobModel:
    tasks = {
        f"Partition {n}": (
            StreamPartition("orders", n),
            StreamPartition("rates", 0),
            StreamPartition("sales-1-by-country", n),
        )
        for n in range(2)
    }
    feeds = {stream: declared.graph.upstreams(stream) for stream in declared.graph.writer}
    return JobModel(tasks=tasks, producers=producer_sets(feeds, tasks, {}))


def test_a_task_plan_says_what_a_task_reads_and_writes() -> None:
    """Sources with their lag and bounds, bootstrap inputs, intermediate streams, and what feeds which output."""
    declared = Declared(sales(until={0: 5, 1: 7}, start="newest", on_lost="oldest"))
    plan = declared.task_plan("Partition 1", model_of(declared), TaskSettings())
    by_stream = {one.stream: one for one in plan.inputs}
    orders, rates, between = by_stream["orders"], by_stream["rates"], by_stream["sales-1-by-country"]
    assert (orders.kind, orders.partitions, orders.width, orders.lag_ms) == (SOURCE, (1,), 2, 5000)
    assert (orders.start, orders.bound(1), orders.on_lost) == ("newest", 7, "oldest")
    assert (rates.kind, rates.bootstrap, orders.bootstrap) == (SOURCE, True, False)
    assert (between.kind, between.partitions) == (INTERMEDIATE, (1,))
    (output,) = plan.outputs
    assert (output.stream, output.width, output.parents) == ("sales-1-by-country", 2, frozenset({"orders"}))
    assert (plan.job, plan.task) == ("sales/1", "Partition 1")


def test_times_are_said_as_times() -> None:
    """A start or an end by time is resolved to an offset by the edge."""
    declared = Declared(sales(until=1_700_000_000_000, start=1_600_000_000_000))
    plan = declared.task_plan("Partition 0", model_of(declared), TaskSettings())
    (orders,) = [one for one in plan.inputs if one.stream == "orders"]
    assert (orders.start, orders.until) == (("time", 1_600_000_000_000), ("time", 1_700_000_000_000))


def test_a_stream_between_stages_has_the_largest_max_future_of_the_inputs_behind_it() -> None:
    """None, which is any, is the largest. It goes through every shuffle; what only changes a table does not count."""

    def ahead(*futures: str | None) -> dict[str, int | None]:
        app = hg.App("job")
        first, second = (app.input(f"in-{n}", max_future=future) for n, future in enumerate(futures))
        rates = app.input("rates", bootstrap=True, broadcast=True, max_future=None).table("rates")
        merged = first.merge(second).repartition("a", name="a").join(rates, on="k", into=lambda row, rate: row)
        merged.repartition("b", name="b").agg(n=hg.count()).to("out")
        second.repartition("c", name="c").to("copies")
        declared = Declared(app)
        streams = sorted({*declared.graph.input, *declared.graph.writer})
        tasks = {"Partition 0": tuple(StreamPartition(one, 0) for one in streams)}
        feeds = {stream: declared.graph.upstreams(stream) for stream in declared.graph.writer}
        model = JobModel(tasks=tasks, producers=producer_sets(feeds, tasks, {}))
        plan = declared.task_plan("Partition 0", model, TaskSettings())
        return {one.stream.removeprefix("job-1-"): one.ahead_ms for one in plan.inputs if one.kind == INTERMEDIATE}

    hour = 3_600_000
    assert ahead("1h", "2h") == {"a": 2 * hour, "b": 2 * hour, "c": 2 * hour}
    assert ahead(None, "2h") == {"a": None, "b": None, "c": 2 * hour}
    assert ahead("1h", None) == {"a": None, "b": None, "c": None}


def test_the_tables_of_a_task() -> None:
    """Declared ones, and those that steps keep."""

    class Timed(hg.Actor):
        def on_timer(self, ctx: hg.Context, name: str, timestamp: int) -> None:
            pass

    app = sales()
    app.table("own", ttl="1m")
    app.actor(app.input("more"))(Timed)
    assert {(one.name, one.ttl_ms) for one in Declared(app).tables()} == {
        ("own", 60_000),
        ("rates", None),
        ("agg-n", None),
        ("Timed.timers", None),
    }


def test_combining_only_where_the_aggregate_alone_reads_the_shuffle() -> None:
    """Anybody else needs the rows as they are; and first, last and collect need their order."""
    for more, aggregate, combines in (
        (False, hg.count(), True),
        (True, hg.count(), False),
        (False, hg.last("x"), False),
    ):
        app = hg.App("job")
        shuffled = app.input("in").repartition("k")
        shuffled.agg(n=aggregate).to("out")
        if more:
            shuffled.to("copy")
        assert any(getattr(step, "combine", None) for step in Declared(app).steps) is combines


def test_equal_declarations_are_one_deployment() -> None:
    """And another lag, field or topic is another one."""
    same = {fingerprint(sales().graph(), {}) for _ in range(2)}
    other = hg.App("sales")
    other.input("orders").repartition("city").agg(n=hg.count()).to("out")
    assert len(same) == 1
    assert fingerprint(other.graph(), {}) not in same
