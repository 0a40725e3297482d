"""A job may be deeper than Python's stack: a thousand steps declare, plan and run."""

from __future__ import annotations

from typing import Any

import headgate as hg
from headgate.agents.job.declare.streams import Stream
from headgate.agents.job.steps.rows import MapStep
from headgate.agents.job.steps.step import lineage
from headgate.agents.testing.driver import Driver


def deep(stream: Stream[Any, Any], depth: int, *, on_error: Any = None, at: int = -1) -> Stream[Any, Any]:
    """So many maps behind a stream; the one numbered `at` fails for odd numbers. (Each verb checks the whole job, a thousand of them
    for some seconds; here they are put in at once.)"""

    def add(value: dict[str, Any]) -> dict[str, Any]:
        return {**value, "n": value["n"] + 1}

    def odd(value: dict[str, Any]) -> dict[str, Any]:
        if value["id"] % 2:
            raise ValueError("odd")
        return add(value)

    last = stream.step
    for n in range(depth):
        last = MapStep(parents=(last,), fn=odd if n == at else add, on_error=on_error, where=f"here:{n}")
        stream.app.steps.append(last)
    return Stream(stream.app, last)


def test_a_chain_of_a_thousand_steps_runs_and_keeps_its_order() -> None:
    """It was a RecursionError when it was declared, or with a little luck in its first chunk."""
    app = hg.App("deep")
    deep(app.input("in"), 1200).to("out")
    with Driver(app) as d:
        d.send_all("in", [{"id": n, "n": n} for n in range(50)])
        assert [record.value for record in d.read("out")] == [{"id": n, "n": n + 1200} for n in range(50)]


def test_a_failure_far_down_costs_its_record_and_no_other() -> None:
    app = hg.App("deep")
    deep(app.input("in"), 350, on_error="skip", at=320).to("out")
    with Driver(app) as d:
        d.send_all("in", [{"id": n, "n": 0} for n in range(10)])
        assert [record.value["id"] for record in d.read("out")] == [0, 2, 4, 6, 8]


def test_what_an_aggregate_gives_on_at_a_commit_goes_all_the_way_and_awaited_results_too() -> None:
    """Rows that a step holds back are emitted when the transaction closes: with it, and not after it."""
    app = hg.App("deep")

    async def slowly(value: dict[str, Any]) -> dict[str, Any]:
        return value

    orders = deep(app.input("in"), 150).repartition("id").agg(n=hg.sum("n"))
    deep(deep(orders, 150).map_async(slowly), 250).as_events().agg(most=hg.max("n")).to("out")
    held = app.input("held").repartition("id", name="held-by-id").agg(total=hg.sum("n"), name="held-totals")
    deep(held.map(lambda total: {"n": total["total"]}), 150).to("late")
    with Driver(app) as d:
        d.send_all("held", [{"id": "a", "n": 3}, {"id": "a", "n": 4}])
        assert [record.value for record in d.read("late")] == [{"n": 157}]
        d.send_all("in", [{"id": "a", "n": 0}, {"id": "a", "n": 0}])
        assert [record.value for record in d.read("out")] == [{"most": 300 + 150 + 250}]


def test_lineage_and_bootstrap_are_found_through_any_depth() -> None:
    app = hg.App("deep")
    rates = deep(app.input("rates"), 1100).table("rates")
    app.input("orders").join(rates, into=lambda order, rate: {**order, **rate}).to("out")
    assert app.graph().input["rates"].bootstrap
    assert len(lineage((rates.step,))) == 1102
    assert len(repr(rates.step)) < 1000
