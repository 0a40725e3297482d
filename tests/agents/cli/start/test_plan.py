"""What `headgate plan` says of the ends of inputs: whether their time counts afterwards."""

from __future__ import annotations

from typing import Any

import headgate as hg
from headgate.agents.cli.start.plan import _end
from headgate.agents.process.launch import bound_inputs
from headgate.core.graph.graph import Graph, Input

KEPT = "counts until every part has ended"


def said(graph: Graph) -> dict[str, tuple[str, str]]:
    found = [_end(graph, one) for one in graph.counted if one.until is not None]
    return {one["input"]: (one["at"], one["time"]) for one in found}


def ends(*inputs: Input) -> dict[str, tuple[str, str]]:
    return said(Graph(inputs))


def test_where_all_inputs_end_each_keeps_its_time() -> None:
    found = ends(
        Input("a", until="newest"),
        Input("b", until=1000),
        Input("c", until=((0, 5),)),
        Input("table", bootstrap=True),
        Input("shared", until="producers", producers=("up/1",)),
    )
    assert found == {
        "a": ("newest", KEPT),
        "b": ("1000 ms", KEPT),
        "c": ("offsets", KEPT),
        "shared": ("producers", "does not count: the run of its jobs is over"),
    }


def test_where_one_has_no_end_none_does() -> None:
    found = ends(Input("history", until="newest"), Input("live"))
    assert found == {"history": ("newest", "does not count: 'live' has no end")}


def job() -> hg.App:
    """Inputs of every kind: plain ones, one that an actor alone reads, a table, and a stream of another job."""
    app = hg.App("job")

    class Totals(hg.Actor):
        def on_batch(self, ctx: Any, batch: Any) -> None:
            ctx.stop()

    live, history = app.input("live"), app.input("history", until="newest")
    rates = app.input("rates", bootstrap=True, broadcast=True).table("rates")
    shared = app.input("shared", producers=["up"], until="producers")
    live.merge(history, shared).join(rates, on="k", into=lambda row, rate: row).to("out")
    app.actor(app.input("asked").filter(bool), name="totals")(Totals)
    return app


def test_a_bounded_run_is_planned_as_it_would_run() -> None:
    """`plan --bounded` names what a bounded run ends, and which end leaves the time to the others: that of a foreign job, and that of an
    input whose only reader stops."""
    app = job()
    assert said(app.graph()) == {
        "history": ("newest", "does not count: 'live' has no end"),
        "shared": ("producers", "does not count: the run of its jobs is over"),
    }
    bound_inputs(app)
    assert said(app.graph()) == {
        "live": ("newest", KEPT),
        "history": ("newest", KEPT),
        "shared": ("producers", "does not count: the run of its jobs is over"),
        "asked": ("newest", f"{KEPT}, unless 'totals' stops reading it"),
    }
