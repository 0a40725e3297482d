"""From a declaration to what the machines decide with."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest

import headgate as hg
from headgate.agents.job.derive import declaration
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.job.derive.plans import parts
from headgate.core.graph.fingerprint import fingerprint
from headgate.core.graph.model import JobModel, producer_sets
from headgate.core.names import StreamPartition
from headgate.core.task.plan import INTERMEDIATE, SOURCE, TaskSettings


class Row(TypedDict):
    k: str
    n: int


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
    orders, between = by_stream["orders"], by_stream["sales-1-by-country"]
    assert "rates" not in by_stream, "each worker follows it for its own copy of the table"
    assert (orders.kind, orders.partitions, orders.width, orders.lag_ms) == (SOURCE, (1,), 2, 5000)
    assert (orders.start, orders.bound(1), orders.on_lost) == ("newest", 7, "oldest")
    assert not orders.bootstrap
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
        ("agg-n", None),
        ("Timed.timers", None),
    }
    assert {one.name for one in Declared(app).every_table()} == {"own", "rates", "agg-n", "Timed.timers"}


def test_what_must_be_the_same_in_all_workers_is_the_same_with_and_without_copies(monkeypatch: Any) -> None:
    """Versions that have the table in each task take part in the same run, and the runs of both follow each other."""
    declared = Declared(sales())
    assert declared.graph.copied == {"rates"}
    assert [one.topic for one in declared.inputs.values()] == ["orders", "rates"]
    with monkeypatch.context() as before:
        before.setattr(declaration, "copied_tables", lambda steps: {})
        earlier = Declared(sales())
    assert earlier.graph.copied == frozenset()
    assert parts(declared, {}) == parts(earlier, {})
    model = model_of(declared)
    assert {at.stream for at in model.tasks["Partition 0"]} == {
        at.stream for at in model_of(earlier).tasks["Partition 0"]
    }
    assert "rates" in {one.stream for one in earlier.task_plan("Partition 0", model, TaskSettings()).inputs}


def test_the_part_of_a_copy_is_its_topic_its_steps_and_its_table() -> None:
    declared = Declared(sales())
    part = declared.of_copy("rates")
    assert [step.verb for step in part.steps] == ["input", "table"]
    assert (set(part.inputs), [one.name for one in part.tables()], part.copied) == ({"rates"}, ["rates"], {})
    assert [declared.name(step) for step in part.steps] == [part.name(step) for step in part.steps]


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


@pytest.mark.parametrize(
    ("columns", "aggregate", "combine", "combines"),
    [
        (False, hg.count(), None, True),
        (False, hg.arg_max(["k", "n"], by="n"), None, True),
        (True, hg.sum("n"), None, True),
        (True, hg.arg_max(["k", "n"], by="n"), None, False),
        (True, hg.count_distinct("n"), None, False),
        (True, hg.count_distinct("n"), True, True),
        (True, hg.sum("n"), False, False),
        (False, hg.count(), False, False),
    ],
)
def test_what_is_combined_by_default_and_where_it_is_said(
    columns: bool, aggregate: Any, combine: bool | None, combines: bool
) -> None:
    """Columns cost less to send than states that are objects."""
    app = hg.App("job")
    rows = app.input("in", serde=hg.json(Row))
    (rows.columns() if columns else rows).repartition("k").agg(name="a", n=aggregate, combine=combine).to("out")
    assert any(getattr(step, "combine", None) for step in Declared(app).steps) is combines


def test_combining_what_cannot_be_merged_is_refused() -> None:
    """So is anything that is neither yes nor no."""
    shuffled = hg.App("job").input("in").repartition("k")
    with pytest.raises(hg.DeclarationError, match=r"agg\(all=.*combine=True\): nothing says how two states become one"):
        shuffled.agg(n=hg.count(), all=hg.aggregate(list, lambda state, row: [*state, row]), combine=True)
    wrong: Any = hg.count()
    with pytest.raises(hg.DeclarationError, match=r"combine=.* is neither True nor False"):
        shuffled.agg(n=hg.count(), combine=wrong)


def test_equal_declarations_are_one_deployment() -> None:
    """And another lag, field or topic is another one."""
    same = {fingerprint(sales().graph(), {}) for _ in range(2)}
    other = hg.App("sales")
    other.input("orders").repartition("city").agg(n=hg.count()).to("out")
    assert len(same) == 1
    assert fingerprint(other.graph(), {}) not in same
